"""What an audit finds in a pool in which somebody has meddled; that it finds nothing else, `test_invariants` shows."""

import re
from dataclasses import replace

import pytest

from fpga_pool.model.objects import BatchState, JobState, SlotState
from fpga_pool.model.pool.audit import audit_batch, audit_rest, audit_stock, unfinished
from fpga_pool.model.values import changed


@pytest.fixture
def planned(pool):
    """A pool with one job on a slot, and its commands."""
    pool.create("aes")
    pool.plan()
    (job,) = pool.stock().active_jobs
    return replace(pool.stock(), commands=pool.sent()), job


def findings(stock):
    return list(audit_stock(stock))


def test_a_sound_pool_has_no_findings(planned):
    assert findings(planned[0]) == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda stock, job: {"shards": []}, "host h0: is in shard s, which there is not"),
        (lambda stock, job: {"hosts": []}, "is in shard s, its host is in none"),
        (
            lambda stock, job: {"slots": [replace(slot, state=SlotState.DRAINED) for slot in stock.slots]},
            "is DRAINED, and nobody asked for it",
        ),
        (lambda stock, job: {"active_jobs": [replace(job, host="h9")]}, "is not there"),
        (lambda stock, job: {"leases": 2 * list(stock.leases)}, "2 leases on it are in force"),
        (
            lambda stock, job: {"leases": [replace(stock.leases[0], epoch=9)]},
            "epoch 9 is not the last that was granted",
        ),
        (lambda stock, job: {"leases": []}, "has jobs, and the pool does not hold it"),
        (lambda stock, job: {"active_jobs": []}, "the pool holds it, and it has no jobs"),
        (
            lambda stock, job: {"commands": [changed(stock.commands[0], epoch=9)]},
            "epoch 9 of shard s has not begun yet",
        ),
        (lambda stock, job: {"commands": [changed(stock.commands[0], sequence=9)]}, "number 9 of slot .* out of order"),
        (lambda stock, job: {"commands": 2 * list(stock.commands)}, "is out of order"),
    ],
)
def test_a_contradiction_is_found(planned, change, finding):
    stock, job = planned
    found = findings(replace(stock, **change(stock, job)))
    assert [text for text in found if re.search(finding, text)], found


@pytest.fixture
def complete(pool):
    """A batch, its only job with its result held, and the run that is recorded."""
    pool.create("aes")
    pool.plan()
    (job,) = pool.stock().active_jobs
    pool.bring(job.uuid, JobState.RESULT_HELD)
    return pool.batch(job.batch_uuid), pool.job(job.uuid), {job.uuid: 1}


def test_a_sound_batch_has_no_findings(complete):
    batch, job, runs = complete
    assert list(audit_batch(batch, [job], runs)) == []


@pytest.mark.parametrize(
    ("batch_change", "job_change", "run_attempt", "finding"),
    [
        ({"jobs": 2}, {}, 1, "counts 2 jobs, there are 1"),
        ({"jobs_completed": 0}, {}, 1, "counts 0 jobs completed, there are 1"),
        ({}, {}, None, "is RESULT_HELD, and no run is recorded"),
        ({}, {}, 2, "is complete at attempt 1, the run recorded is of attempt 2"),
        ({"jobs_completed": 0}, {"state": JobState.RUNNING}, 1, "is RUNNING, and a run of attempt 1 is recorded"),
        ({"jobs_completed": 0}, {"state": JobState.RUNNING}, 1, "is COMPLETED, and not all of its jobs have ended"),
        ({"state": BatchState.RUNNING}, {}, 1, "is RUNNING, and all of its jobs have ended"),
    ],
)
def test_a_batch_that_does_not_agree_with_its_jobs_is_found(complete, batch_change, job_change, run_attempt, finding):
    batch, job, _ = complete
    runs = {} if run_attempt is None else {job.uuid: run_attempt}
    found = list(audit_batch(replace(batch, **batch_change), [replace(job, **job_change)], runs))
    assert [text for text in found if finding in text], found


def test_a_second_completion_is_found(complete):
    batch, job, runs = complete
    (found,) = audit_batch(batch, [replace(job, story=(*job.story, *job.story))], runs)
    assert found == f"job {job.uuid}: was completed 2 times"


def test_what_an_idle_pool_does_not_have_is_told(planned):
    stock, job = planned
    found = list(audit_rest(stock, {job.batch_uuid: unfinished([job])}))
    assert found == [
        f"batch {job.batch_uuid}: 1 jobs have not ended",
        f"job {job.uuid}: is WAITING_INPUT on slot {job.slot}",
        f"lease {stock.leases[0].uuid}: the pool holds slot {job.slot}",
        f"command {stock.commands[0].id}: waits for host h0",
    ]
