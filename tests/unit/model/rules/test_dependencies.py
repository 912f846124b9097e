"""Batches that wait for others."""

import pytest

from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import Batch, BatchState, JobState
from fpga_pool.model.rules.batch.admission import hold_jobs, settle_dependencies
from fpga_pool.model.rules.batch.dry_run import batch_detail
from fpga_pool.model.values import changed


def complete(pool, batch):
    for job in pool.plan():
        pool.bring(job.uuid, JobState.COMPLETED)
    assert pool.batch(batch).state is BatchState.COMPLETED


def test_a_batch_is_planned_when_all_that_it_waits_for_are_complete(pool):
    first, second = pool.create("aes"), pool.create("sha256", held=True)
    last = pool.create("flow", after=(first, second, first))
    assert pool.batch(last).waits_for == (first, second)
    with pool.tx() as tx:
        found = batch_detail(tx, pool.batch(last), {"flow"}, pool.catalogue, pool.now_s)
    assert (found.pending_reason, found.expected_at) == (f"waits for batches {first}, {second}", None)
    complete(pool, first)
    assert [(repair.subject, repair.reason) for repair in pool.tick()] == [(last, f"complete: {first}")]
    assert pool.plan() == []
    pool.change(second, held=False)
    complete(pool, second)
    pool.tick()
    assert pool.tick() == []
    complete(pool, last)


def test_a_batch_that_was_complete_before_is_not_waited_for(pool):
    first = pool.create("aes")
    complete(pool, first)
    assert pool.batch(pool.create("aes", after=(first,))).waits_for == ()


@pytest.mark.parametrize("ends", ["has failed", "was cancelled", "does not exist any more"])
def test_a_batch_is_cancelled_when_one_that_it_waits_for_ends_otherwise(pool, ends):
    first = pool.create("aes")
    second = pool.create("aes", "flow", after=(first,))
    third = pool.create("aes", after=(second,))
    if ends == "has failed":
        (job,) = pool.plan()
        pool.fail(job.uuid, retryable=False)
    elif ends == "was cancelled":
        pool.cancel(first)
    else:
        pool.cancel(first)
        pool.store.remove(Batch, first)
    pool.tick()
    for index in range(2):
        job = pool.job(f"{second}.{index}")
        assert (job.state, job.error_code) == (JobState.CANCELLED, "fpga_pool.predecessor_failed")
        assert job.reason == f"not computed: batch {first} {ends}"
    assert (pool.batch(second).state, pool.batch(second).withheld) == (BatchState.CANCELLED, "")
    pool.tick()
    assert pool.job(f"{third}.0").reason == f"not computed: batch {second} was cancelled"
    assert pool.tick() == []


def test_a_held_batch_ends_when_one_that_it_waits_for_fails(pool):
    first = pool.create("aes")
    second = pool.create("aes", after=(first,), held=True)
    pool.cancel(first)
    pool.tick()
    assert pool.batch(second).state is BatchState.CANCELLED


@pytest.mark.parametrize("after", ["nothing", "of another project", "itself"])
def test_only_a_batch_of_the_own_project_can_be_waited_for(pool, after):
    job = JobRequest(uuid="x.0", name="", function="aes", requester="h0", input_bytes=1)
    pool.submit(BatchRequest(uuid="of another project", project_id="q", user_id="u", jobs=(job,)))
    with pytest.raises(NotFound, match=f"no batch {after}"):
        pool.create("aes", after=(after,))


def test_each_shard_ends_and_holds_its_own_jobs_of_a_batch(pool):
    first = pool.create("aes")
    second = pool.create("aes", "aes", after=(first,))
    other = pool.store.acquire_shard("t", "me", 0.0)
    with pool.tx() as tx:
        tx.save(changed(tx.job(f"{second}.1"), shard="t"))
    pool.change(second, held=True)
    assert [pool.job(f"{second}.{i}").reason for i in range(2)] == ["held by its owner", ""]
    with pool.store.transaction("t", "me", other.epoch) as tx:
        hold_jobs(tx, second, pool.now_s)
    assert pool.job(f"{second}.1").reason == "held by its owner"
    pool.cancel(first)
    assert [repair.subject for repair in pool.tick()] == [f"{second}.0"]
    assert pool.batch(second).state is BatchState.PENDING
    with pool.store.transaction("t", "me", other.epoch) as tx:
        assert [uuid for uuid, _ in settle_dependencies(tx, pool.now_s)] == [f"{second}.1"]
    assert pool.batch(second).state is BatchState.CANCELLED
