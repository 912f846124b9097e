"""Changes on behalf of a request contain its id, in the transaction that makes them."""

import json

import pytest
from sqlalchemy import text

from fpga_pool.model.lifecycle.job import JOB, CancelRequested, GaveUp
from fpga_pool.model.objects.history import NO_CAUSE, Cause, created


@pytest.fixture
def stored(store):
    def history(table, uuid):
        with store.engine.connect() as connection:
            found = connection.execute(text(f"SELECT history FROM {table} WHERE uuid = :uuid"), {"uuid": uuid})
            return json.loads(found.scalar_one())

    return history


def test_events_and_commands_carry_the_request_that_caused_them(begin, outbox, make):
    batch = make.batch(history=created(1.0, "PENDING"))
    job = make.job(batch)
    with begin() as tx:
        tx.cause = Cause("req-create")
        tx.add(make.host(), make.slot(), batch, job)
    with begin() as tx:
        tx.cause = Cause("req-cancel", "req-outside")
        tx.save(JOB.transition(tx.job(job.uuid), CancelRequested(), 2.0)[0])
        tx.send(make.command())
        tx.cause = NO_CAUSE
        tx.send(make.command(2))
    with begin() as tx:
        assert [one.request_id for one in tx.batch(batch.uuid).history] == ["req-create"]
        assert [(one.event, one.request_id, one.global_request_id) for one in tx.job(job.uuid).history] == [
            ("CancelRequested", "req-cancel", "req-outside")
        ]
    assert [command.cause for command in outbox()] == [Cause("req-cancel", "req-outside"), NO_CAUSE]


def test_what_an_event_does_not_say_takes_no_room(begin, make, stored):
    batch = make.batch(history=created(1.0, "PENDING"))
    jobs = make.jobs(batch, 2)
    with begin() as tx:
        tx.add(batch, *jobs)
    with begin() as tx:
        tx.save(JOB.transition(tx.job(jobs[0].uuid), CancelRequested(), 2.0)[0])
        tx.save(JOB.transition(tx.job(jobs[1].uuid), GaveUp(code="c", reason="enough"), 2.0)[0])
    assert stored("batches", batch.uuid) == [[1.0, "Created", "", "PENDING", 0]]
    assert stored("jobs", jobs[0].uuid) == [[2.0, "CancelRequested", "PENDING", "CANCELLED", 1]]
    assert stored("jobs", jobs[1].uuid) == [[2.0, "GaveUp", "PENDING", "FAILED", 1, "enough"]]
