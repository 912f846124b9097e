"""Work that ended long ago is removed from the database automatically, if the operator has configured it."""

import uuid
from dataclasses import replace

import pytest

from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.pool import Batch, BatchState
from fpga_pool.services.scheduler import service as service_module
from fpga_pool.services.scheduler.service import purge_interval_s


@pytest.fixture
def batches(bench):
    """Store a batch that ended a minute ago; return a function that lists the stored batches."""
    known = {"project_id": "p", "user_id": "u", "name": "", "policy": "ect", "jobs": 0}
    ended = {"created_at": bench.clock() - 90, "ended_at": bench.clock() - 60, "state": BatchState.COMPLETED}
    with bench.store.admission() as tx:
        tx.add(Batch(uuid=str(uuid.uuid4()), **known, **ended))

    def stored():
        with bench.store.reading() as tx:
            return [batch.uuid for batch in tx.page(Batch, Page(project_id="p", limit=9))]

    return stored


def started(bench, retention_s):
    service = bench.new_service()
    service.settings = replace(service.settings, retention_s=retention_s)
    bench.start(service)
    return service


def test_a_scheduler_removes_what_ended_before_the_retention(bench, batches, until):
    started(bench, retention_s=30.0)
    until(lambda: batches() == [])


def test_what_ended_within_the_retention_stays(bench, batches):
    service = started(bench, retention_s=600.0)
    assert service._purge() is False
    assert len(batches()) == 1


def test_a_scheduler_that_does_not_own_the_first_shard_leaves_it_to_the_owner(bench, batches, monkeypatch):
    service = started(bench, retention_s=0.0)
    service.settings = replace(service.settings, retention_s=30.0)
    with monkeypatch.context() as patch:
        patch.setattr(service.ownership, "shards", lambda: ("other",))
        service._purge()
    assert len(batches()) == 1


def test_a_short_retention_is_exceeded_by_a_tenth_and_a_long_one_by_an_hour():
    assert purge_interval_s(600.0) == 60.0
    assert purge_interval_s(30 * 86_400.0) == 3600.0


def test_what_reaches_the_retention_later_is_removed_then(bench, batches, until, jumping_clock, monkeypatch):
    monkeypatch.setattr(service_module, "PURGES", 6000)
    bench.clock = jumping_clock
    service = started(bench, retention_s=600.0)  # purges at the start, and every 0.1 s after that
    until(service.ownership.shards)
    assert len(batches()) == 1
    jumping_clock.ahead_s = 600.0
    until(lambda: batches() == [])
