import itertools

import pytest

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.lifecycle.batch import (
    BATCH,
    BatchBegun,
    BatchCancelRequested,
    BatchHeld,
    BatchPlanned,
    BatchReleased,
    DependenciesCompleted,
    JobEnded,
)
from fpga_pool.model.objects.pool import BatchState, JobState
from fpga_pool.model.values import changed

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED = BatchState
PLANNED = BatchPlanned(dispatched_at=10.0, makespan_s=5.0, lower_bound_s=4.0, completion_s=6.0, completion_bound_s=4.2)


def test_the_first_plan_starts_a_batch(new_batch):
    batch, actions = BATCH.transition(new_batch(), PLANNED, 9.0)
    assert (batch.state, batch.dispatched_at, batch.planned_makespan_s, batch.lower_bound_s) == (
        RUNNING,
        10.0,
        5.0,
        4.0,
    )
    assert actions == []


def test_a_batch_that_is_run_online_begins_without_a_promise(new_batch):
    batch, actions = BATCH.transition(new_batch(), BatchBegun(dispatched_at=10.0), 9.0)
    assert (batch.state, batch.dispatched_at, batch.planned_makespan_s, actions) == (RUNNING, 10.0, None, [])


@pytest.mark.parametrize("state", [PENDING, RUNNING])
def test_cancellation_is_a_flag_that_may_be_asked_for_again(new_batch, state):
    batch = new_batch(state=state)
    for _ in range(2):
        batch, _ = BATCH.transition(batch, BatchCancelRequested(), 9.0)
        assert (batch.state, batch.cancel_requested) == (state, True)


@pytest.mark.parametrize("state", [PENDING, RUNNING])
def test_a_hold_is_a_flag_that_says_why_a_batch_waits_until_it_is_released(new_batch, state):
    batch = new_batch(state=state)
    for _ in range(2):
        batch, _ = BATCH.transition(batch, BatchHeld(), 9.0)
        assert (batch.state, batch.held, batch.withheld) == (state, True, "held by its owner")
    for _ in range(2):
        batch, _ = BATCH.transition(batch, BatchReleased(), 10.0)
        assert (batch.state, batch.held, batch.withheld) == (state, False, "")


def test_a_batch_waits_for_those_that_are_not_complete(new_batch):
    batch = new_batch(waits_for=("x", "y"))
    assert batch.withheld == "waits for batches x, y"
    batch, _ = BATCH.transition(batch, DependenciesCompleted(batches=("x",)), 9.0)
    assert (batch.waits_for, batch.withheld) == (("y",), "waits for batch y")
    batch, _ = BATCH.transition(changed(batch, held=True), DependenciesCompleted(batches=("x", "y")), 9.0)
    assert (batch.state, batch.waits_for, batch.withheld) == (PENDING, (), "held by its owner")


OUTCOMES = {JobState.RESULT_HELD: COMPLETED, JobState.FAILED: FAILED, JobState.CANCELLED: CANCELLED}


@pytest.mark.parametrize("ends", list(itertools.product(OUTCOMES, repeat=3)))
@pytest.mark.parametrize("state", [PENDING, RUNNING])
def test_a_batch_ends_with_its_last_job_as_the_worst_of_them(new_batch, state, ends):
    batch = new_batch(state=state)
    for at, end in enumerate(ends, start=1):
        assert (batch.state, batch.ended_at) == (state, None)
        batch, _ = BATCH.transition(batch, JobEnded(state=end), float(at))
    worst = next(end for end in (JobState.FAILED, JobState.CANCELLED, JobState.RESULT_HELD) if end in ends)
    assert (batch.state, batch.ended_at) == (OUTCOMES[worst], 3.0)
    counted = batch.jobs_completed, batch.jobs_failed, batch.jobs_cancelled
    assert counted == tuple(ends.count(end) for end in OUTCOMES)


@pytest.mark.parametrize("state", [COMPLETED, FAILED, CANCELLED])
@pytest.mark.parametrize("event", [PLANNED, BatchCancelRequested(), BatchHeld(), JobEnded(state=JobState.FAILED)])
def test_nothing_happens_to_a_batch_that_has_ended(new_batch, state, event):
    with pytest.raises(InvalidTransition, match=f"batch b: .* in state {state}, which is final"):
        BATCH.transition(new_batch(state=state), event, 9.0)


def test_a_batch_in_several_shards_is_promised_when_its_last_part_is(new_batch):
    first = BatchPlanned(
        dispatched_at=10.0, makespan_s=5.0, lower_bound_s=4.5, completion_s=7.0, completion_bound_s=4.75
    )
    running, _ = BATCH.transition(new_batch(), first, 9.0)
    later = BatchPlanned(
        dispatched_at=12.0, makespan_s=4.0, lower_bound_s=3.0, completion_s=6.0, completion_bound_s=5.0
    )
    both, _ = BATCH.transition(running, later, 11.0)
    # The second part starts 2 s after the first and ends 6 s after it.
    assert (both.dispatched_at, both.planned_makespan_s, both.lower_bound_s) == (10.0, 6.0, 4.5)
    # Its last result is back 8 s after the first part starts.
    assert (both.planned_completion_s, both.completion_bound_s) == (8.0, 5.0)
