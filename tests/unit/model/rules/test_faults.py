"""A slot that fails costs the job that it was working on an attempt, and the jobs queued behind it none."""

import pytest

from fpga_pool.model.objects.pool import JobState, SlotState

#: A function that fits only one slot, and this slot.
FUNCTION, SLOT = "flow", "h0/c/r2"


@pytest.fixture
def queue(pool):
    """Return three jobs on one slot, in the order of the plan."""
    batch = pool.create(*[FUNCTION] * 3)
    pool.plan()
    jobs = sorted((f"{batch}.{number}" for number in range(3)), key=lambda uuid: pool.job(uuid).order)
    assert {pool.job(uuid).slot for uuid in jobs} == {SLOT}
    return jobs


def counted(pool, queue):
    assert {pool.job(uuid).state for uuid in queue} == {JobState.PENDING}
    return [pool.job(uuid).counted_attempts for uuid in queue]


def break_slot(pool):
    pool.report(pool.slot_report(SLOT, SlotState.FAULTED, reason="smoke"))


def test_the_job_that_runs_loses_an_attempt_and_those_behind_it_none(pool, queue):
    for uuid in queue[:2]:
        pool.stage(uuid)
    pool.bring(queue[0], JobState.RUNNING)
    break_slot(pool)
    assert counted(pool, queue) == [1, 0, 0]
    assert [pool.job(uuid).reason for uuid in queue[:2]] == [
        f"slot {SLOT} failed: smoke",
        f"slot {SLOT} failed: smoke; this attempt does not count",
    ]


def test_the_job_whose_failure_was_reported_loses_no_second_attempt(pool, queue):
    pool.bring(queue[0], JobState.RUNNING)
    pool.fail(queue[0])
    break_slot(pool)
    assert counted(pool, queue) == [1, 0, 0]


@pytest.mark.parametrize(("staged", "expected"), [([], [1, 0, 0]), ([1, 2], [0, 1, 0])])
def test_a_load_that_fails_costs_the_job_that_it_was_for_an_attempt(pool, queue, staged, expected):
    """The load is for the first job with a staged input; without any, the slot loads ahead for the first job."""
    for place in staged:
        pool.stage(queue[place])
    pool.report(pool.slot_report(SLOT, SlotState.LOADING, FUNCTION))
    break_slot(pool)
    assert counted(pool, queue) == expected


@pytest.mark.parametrize("state", [SlotState.EMPTY, SlotState.LOADING, SlotState.READY])
def test_a_slot_that_fails_without_doing_anything_for_its_jobs_costs_none_of_them_an_attempt(pool, queue, state):
    pool.stage(queue[0])
    pool.report(pool.slot_report(SLOT, state, "" if state is SlotState.EMPTY else "another"))
    break_slot(pool)
    assert counted(pool, queue) == [0, 0, 0]


def test_a_card_that_is_gone_costs_the_job_that_ran_an_attempt(pool, queue):
    pool.bring(queue[0], JobState.RUNNING)
    pool.heard(pool.heartbeat(slots=()))
    assert counted(pool, queue) == [1, 0, 0]


def test_jobs_that_wait_at_slots_that_fail_again_and_again_are_still_planned(pool, queue):
    for _ in range(pool.settings.max_attempts + 2):
        break_slot(pool)
        pool.report(pool.slot_report(SLOT, SlotState.EMPTY))
        assert pool.tick() == []
        pool.plan()
    assert {(pool.job(uuid).state, pool.job(uuid).attempt) for uuid in queue} == {(JobState.WAITING_INPUT, 6)}


def test_a_function_whose_loads_always_fail_is_given_up(pool, queue):
    for _ in range(len(queue) * pool.settings.max_attempts):
        pool.report(pool.slot_report(SLOT, SlotState.LOADING, FUNCTION))
        break_slot(pool)
        pool.report(pool.slot_report(SLOT, SlotState.EMPTY))
        pool.tick()
        pool.plan()
    assert {pool.job(uuid).state for uuid in queue} == {JobState.FAILED}


def test_all_jobs_of_a_lost_host_lose_an_attempt(pool, queue):
    pool.now_s += pool.settings.host_timeout_s + 1
    pool.tick()
    assert counted(pool, queue) == [1, 1, 1]
