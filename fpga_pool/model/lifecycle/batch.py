"""Life cycle of a batch: PENDING until its first plan, RUNNING until its last job ends, then a final state."""

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.pool import Batch, BatchState, JobState
from fpga_pool.model.values import changed


class BatchPlanned(Event, frozen=True, kw_only=True):
    """The first plan of the batch, or of the part of it in one shard, was committed."""

    dispatched_at: float
    makespan_s: float
    lower_bound_s: float
    #: Predicted time when the last result has been returned, and a proven lower bound on it.
    completion_s: float
    completion_bound_s: float


class BatchBegun(Event, frozen=True, kw_only=True):
    """The first job of an online batch got a place; there is no prediction for the others."""

    dispatched_at: float


class BatchCancelRequested(Event, frozen=True, kw_only=True):
    """The tenant requests the cancellation of the batch."""


class BatchHeld(Event, frozen=True, kw_only=True):
    """Its owner holds it: no more of its jobs get places."""


class BatchReleased(Event, frozen=True, kw_only=True):
    """Its owner releases it: its jobs get places again."""


class PriorityChanged(Event, frozen=True, kw_only=True):
    """Its owner changes its priority among waiting batches."""

    priority: int


class DependenciesCompleted(Event, frozen=True, kw_only=True):
    """Batches that it waited for have completed."""

    batches: tuple[str, ...]


class JobEnded(Event, frozen=True, kw_only=True):
    """One of its jobs has ended."""

    state: JobState


class JobReopened(Event, frozen=True, kw_only=True):
    """A completed job of it has to be computed again, because others need its lost result."""


Outcome = tuple[Batch, list[Action]]


def _planned(batch: Batch, event: BatchPlanned, now_s: float) -> Outcome:
    planned = changed(
        batch,
        state=BatchState.RUNNING,
        dispatched_at=event.dispatched_at,
        planned_makespan_s=event.makespan_s,
        lower_bound_s=event.lower_bound_s,
        planned_completion_s=event.completion_s,
        completion_bound_s=event.completion_bound_s,
    )
    return planned, []


def _part_planned(batch: Batch, event: BatchPlanned, now_s: float) -> Outcome:
    """Extend the batch's prediction by another part: the batch completes with its last part."""
    begin_at = batch.dispatched_at if batch.dispatched_at is not None else event.dispatched_at
    delay_s = event.dispatched_at - begin_at
    return changed(
        batch,
        planned_makespan_s=max(batch.planned_makespan_s or 0.0, delay_s + event.makespan_s),
        lower_bound_s=max(batch.lower_bound_s or 0.0, event.lower_bound_s),
        planned_completion_s=max(batch.planned_completion_s or 0.0, delay_s + event.completion_s),
        completion_bound_s=max(batch.completion_bound_s or 0.0, event.completion_bound_s),
    ), []


def _dependencies_completed(batch: Batch, event: DependenciesCompleted, now_s: float) -> Outcome:
    return changed(batch, waits_for=tuple(uuid for uuid in batch.waits_for if uuid not in event.batches)), []


def _job_ended(batch: Batch, event: JobEnded, now_s: float) -> Outcome:
    counted = changed(
        batch,
        jobs_completed=batch.jobs_completed + (event.state is JobState.RESULT_HELD),
        jobs_failed=batch.jobs_failed + (event.state is JobState.FAILED),
        jobs_cancelled=batch.jobs_cancelled + (event.state is JobState.CANCELLED),
    )
    if counted.jobs_completed + counted.jobs_failed + counted.jobs_cancelled < counted.jobs:
        return counted, []
    return changed(counted, state=_final_state(counted), ended_at=now_s), []


def _job_reopened(batch: Batch, event: JobReopened, now_s: float) -> Outcome:
    return changed(batch, jobs_completed=batch.jobs_completed - 1), []


def _final_state(batch: Batch) -> BatchState:
    if batch.jobs_failed:
        return BatchState.FAILED
    if batch.jobs_cancelled:
        return BatchState.CANCELLED
    return BatchState.COMPLETED


_RULES: dict[tuple[BatchState, type], Rule[Batch]] = {
    (BatchState.PENDING, BatchPlanned): _planned,
    (BatchState.RUNNING, BatchPlanned): _part_planned,
    (BatchState.PENDING, BatchBegun): sets("dispatched_at", state=BatchState.RUNNING),
    (BatchState.PENDING, DependenciesCompleted): _dependencies_completed,
    (BatchState.PENDING, BatchCancelRequested): sets(cancel_requested=True),
    (BatchState.RUNNING, BatchCancelRequested): sets(cancel_requested=True),
    (BatchState.PENDING, JobEnded): _job_ended,
    (BatchState.RUNNING, JobEnded): _job_ended,
    (BatchState.RUNNING, JobReopened): _job_reopened,
}
_UNTIL_ITS_END: dict[type, Rule[Batch]] = {
    BatchHeld: sets(held=True),
    BatchReleased: sets(held=False),
    PriorityChanged: sets("priority"),
}
_RULES |= {
    (state, event): rule for state in (BatchState.PENDING, BatchState.RUNNING) for event, rule in _UNTIL_ITS_END.items()
}

BATCH = Table[Batch]("batch", _RULES)
