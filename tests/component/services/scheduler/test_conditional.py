"""Changes that depend on the version of an object, by concurrent calls."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fpga_pool.model.exceptions import PreconditionFailed
from fpga_pool.model.objects.quotas import QuotaLimits
from fpga_pool.model.preconditions import version_of

#: Number of concurrent calls, one of which may succeed.
CALLS = 8


def refusals(change):
    """Return how many of CALLS concurrent calls, each with its number, are refused."""

    def call(number):
        try:
            change(number)
        except PreconditionFailed:
            return 1
        return 0

    with ThreadPoolExecutor(CALLS) as threads:
        return sum(threads.map(call, range(CALLS)))


def test_of_changes_of_a_slot_that_saw_the_same_version_one_is_made(running):
    running.host()
    slot = running.api.slots()[0]
    seen = (version_of(slot),)
    assert refusals(lambda number: running.api.drain_slot(slot.uuid, f"reason {number}", seen)) == CALLS - 1
    with pytest.raises(PreconditionFailed):
        running.api.resume_slot(slot.uuid, seen)
    running.api.resume_slot(slot.uuid, (version_of(running.api.slot(slot.uuid)),))


def test_of_changes_of_a_quota_that_saw_the_same_limits_one_is_made(running):
    seen = (version_of(running.api.quota("p")),)
    assert refusals(lambda number: running.api.set_quota("p", QuotaLimits(jobs=100 + number), seen)) == CALLS - 1
    with pytest.raises(PreconditionFailed):
        running.api.unset_quota("p", seen)
    assert running.api.quota("p").own.jobs >= 100


def test_a_batch_is_cancelled_only_as_it_was_seen(running, until):
    agent = running.host()
    batch = running.create(agent, "sha256")
    cancel = partial(running.api.cancel_batch, "p", batch.uuid)
    with pytest.raises(PreconditionFailed, match="the batch has changed since"):
        cancel(("999",))
    assert not running.api.batch_detail("p", batch.uuid).batch.cancel_requested
    until(lambda: running.states(batch) == ["WAITING_INPUT"])

    def cancelled():
        try:
            return cancel((version_of(running.api.batch_detail("p", batch.uuid)),)).cancel_requested
        except PreconditionFailed:  # a planner has changed it in the meantime
            return False

    until(cancelled)
