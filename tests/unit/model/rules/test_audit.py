"""The findings of an audit in a pool with altered contents.  `test_invariants` shows that it finds nothing else."""

import re
from dataclasses import replace

import pytest

from fpga_pool.model.objects.pool import BatchState, JobState, Lease, LeaseKind, SlotState
from fpga_pool.model.rules.shared.audit import audit_batch, audit_contents, audit_instances, audit_rest, unfinished
from fpga_pool.model.values import changed


@pytest.fixture
def planned(pool):
    """Return the contents of a pool with one job on a slot, including its commands, and the job."""
    pool.create("aes")
    pool.plan()
    (job,) = pool.contents().active_jobs
    return replace(pool.contents(), commands=pool.sent()), job


def findings(contents):
    return list(audit_contents(contents))


def test_a_sound_pool_has_no_findings(planned):
    assert findings(planned[0]) == []


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda contents, job: {"shards": []}, "host h0: is in shard s, which does not exist"),
        (lambda contents, job: {"hosts": []}, "is in shard s, but its host is in none"),
        (
            lambda contents, job: {"slots": [replace(slot, state=SlotState.DRAINED) for slot in contents.slots]},
            "is DRAINED without a drain request",
        ),
        (lambda contents, job: {"active_jobs": [replace(job, host="h9")]}, "has no slot"),
        (lambda contents, job: {"leases": 2 * list(contents.leases)}, "2 active leases"),
        (
            lambda contents, job: {"leases": [replace(contents.leases[0], epoch=9)]},
            "epoch 9 is not the latest granted",
        ),
        (lambda contents, job: {"leases": []}, "has jobs, but no lease of the pool"),
        (lambda contents, job: {"active_jobs": []}, "has a lease of the pool, but no jobs"),
        (
            lambda contents, job: {"commands": [changed(contents.commands[0], epoch=9)]},
            "epoch 9 of shard s has not started yet",
        ),
        (
            lambda contents, job: {"commands": [changed(contents.commands[0], sequence=9)]},
            "number 9 of slot .* out of order",
        ),
        (lambda contents, job: {"commands": 2 * list(contents.commands)}, "is out of order"),
    ],
)
def test_a_contradiction_is_found(planned, change, finding):
    contents, job = planned
    found = findings(replace(contents, **change(contents, job)))
    assert [text for text in found if re.search(finding, text)], found


@pytest.fixture
def held(pool):
    """Return a slot, and the lease by which an instance holds it."""
    slot = pool.contents().slots[0]
    return slot, Lease(
        uuid="l",
        slot=slot.name,
        kind=LeaseKind.INSTANCE,
        holder="vm",
        project_id="p",
        epoch=1,
        revocable=False,
        granted_at=0.0,
        function="aes",
    )


def test_an_instance_that_can_use_its_slot_is_no_finding(held, catalogue):
    slot, lease = held
    assert list(audit_instances([lease], [slot], catalogue)) == []


@pytest.mark.parametrize(
    ("slot_change", "lease_change", "finding"),
    [
        ({"name": "h0/other/0"}, {}, "does not exist, but instance vm holds it"),
        ({"state": SlotState.FAULTED}, {}, "is FAULTED, but instance vm holds it"),
        ({}, {"function": "none"}, "instance vm uses none, which is not in the catalogue"),
        ({}, {"broken": "aes is not loaded"}, "is EMPTY, and instance vm cannot use it: aes is not loaded"),
    ],
)
def test_an_instance_without_its_accelerator_is_found(held, catalogue, slot_change, lease_change, finding):
    slot, lease = held
    found = list(audit_instances([replace(lease, **lease_change)], [replace(slot, **slot_change)], catalogue))
    assert found == [f"slot {lease.slot}: {finding}"]


@pytest.fixture
def complete(pool):
    """Return a batch, its only job, whose result is held, and its recorded run."""
    pool.create("aes")
    pool.plan()
    (job,) = pool.contents().active_jobs
    pool.bring(job.uuid, JobState.RESULT_HELD)
    return pool.batch(job.batch_uuid), pool.job(job.uuid), {job.uuid: 1}


def test_a_sound_batch_has_no_findings(complete):
    batch, job, runs = complete
    assert list(audit_batch(batch, [job], runs)) == []


@pytest.mark.parametrize(
    ("batch_change", "job_change", "run_attempt", "finding"),
    [
        ({"jobs": 2}, {}, 1, "counts 2 jobs, but 1 are stored"),
        ({"jobs_completed": 0}, {}, 1, "counts 0 jobs completed, but 1 are stored"),
        ({}, {}, None, "is RESULT_HELD, but no run is recorded"),
        ({}, {}, 2, "is complete at attempt 1, but the recorded run is of attempt 2"),
        ({"jobs_completed": 0}, {"state": JobState.RUNNING}, 1, "is RUNNING, but a run of attempt 1 is recorded"),
        ({"jobs_completed": 0}, {"state": JobState.RUNNING}, 1, "is COMPLETED, but not all of its jobs have ended"),
        ({"state": BatchState.RUNNING}, {}, 1, "is RUNNING, but all of its jobs have ended"),
    ],
)
def test_a_batch_that_does_not_agree_with_its_jobs_is_found(complete, batch_change, job_change, run_attempt, finding):
    batch, job, _ = complete
    runs = {} if run_attempt is None else {job.uuid: run_attempt}
    found = list(audit_batch(replace(batch, **batch_change), [replace(job, **job_change)], runs))
    assert [text for text in found if finding in text], found


def test_a_second_completion_is_found(complete):
    batch, job, runs = complete
    (found,) = audit_batch(batch, [replace(job, history=(*job.history, *job.history))], runs)
    assert found == f"job {job.uuid}: was completed 2 times"


def test_what_an_idle_pool_does_not_have_is_told(planned):
    contents, job = planned
    found = list(audit_rest(contents, {job.batch_uuid: unfinished([job])}))
    assert found == [
        f"batch {job.batch_uuid}: 1 jobs have not ended",
        f"job {job.uuid}: is WAITING_INPUT on slot {job.slot}",
        f"lease {contents.leases[0].uuid}: the pool holds slot {job.slot}",
        f"command {contents.commands[0].id}: waits for host h0",
    ]
