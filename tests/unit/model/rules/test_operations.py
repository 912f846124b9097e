import pytest

from fpga_pool.model.messages.agents import SlotChanged
from fpga_pool.model.objects.pool import JobState, SlotState

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


@pytest.fixture
def only_r0(pool):
    """Return the pool with only one slot in service."""
    for slot in (R1, R2):
        pool.drain(slot)
    return pool


def test_an_idle_slot_is_drained_at_once_and_takes_nothing(only_r0):
    assert only_r0.slot(R1).state is SlotState.DRAINED
    only_r0.create("aes", "aes")
    assert {job.slot for job in only_r0.plan()} == {R0}


def test_a_loaded_slot_comes_back_as_it_was(pool):
    pool.report(pool.slot_report(R0, SlotState.READY, "aes"))
    assert pool.drain(R0).state is SlotState.DRAINED
    assert pool.resume(R0).state is SlotState.READY


def test_the_running_job_ends_on_a_draining_slot_and_the_others_are_planned_elsewhere(only_r0):
    pool = only_r0
    pool.create("aes", "aes", "aes")
    first, second, third = (job.uuid for job in pool.plan())
    pool.bring(first, JobState.RUNNING)
    pool.bring(second, JobState.STAGED)
    pool.sent()
    pool.drain(R0, "dust")
    assert pool.actions() == [(R0, "ReleaseJob", second), (R0, "ReleaseJob", third)]
    assert pool.job(second).reason == f"slot {R0} is being drained"
    assert (pool.slot(R0).state, pool.lease(R0) is None) == (SlotState.BUSY, False)
    assert pool.plan() == []
    pool.resume(R1)
    assert {job.slot for job in pool.plan()} == {R1}
    assert pool.finish(first) == []
    assert (pool.slot(R0).state, pool.slot(R0).reason, pool.lease(R0)) == (SlotState.DRAINED, "dust", None)


def test_a_slot_that_loads_is_drained_when_it_has_loaded(only_r0):
    pool = only_r0
    pool.create("aes")
    pool.plan()
    pool.report(pool.slot_report(R0, SlotState.LOADING, "aes"))
    assert pool.drain(R0).state is SlotState.LOADING
    assert pool.lease(R0) is None
    pool.report(pool.slot_report(R0, SlotState.READY, "aes"))
    assert pool.slot(R0).state is SlotState.DRAINED


def test_a_fault_while_a_drain_waits_takes_the_running_job_away_too(only_r0):
    pool = only_r0
    pool.create("aes")
    (job,) = pool.plan()
    pool.bring(job.uuid, JobState.RUNNING)
    pool.drain(R0)
    pool.report(SlotChanged(slot=R0, at=1.0, state=SlotState.FAULTED, reason="smoke"))
    assert (pool.job(job.uuid).state, pool.slot(R0).state) == (JobState.PENDING, SlotState.FAULTED)
    pool.report(pool.slot_report(R0, SlotState.EMPTY))
    assert (pool.slot(R0).state, pool.lease(R0)) == (SlotState.DRAINED, None)


def test_a_slot_that_is_resumed_before_it_was_drained_goes_on(only_r0):
    pool = only_r0
    pool.create("aes")
    (job,) = pool.plan()
    pool.bring(job.uuid, JobState.RUNNING)
    pool.drain(R0)
    pool.resume(R0)
    pool.finish(job.uuid)
    assert pool.slot(R0).state is SlotState.READY


def test_a_drain_without_a_reason_says_who_wanted_it(pool):
    assert pool.drain(R0, "").reason == "drained by the operator"
