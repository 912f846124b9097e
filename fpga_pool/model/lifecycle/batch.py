"""The life of a batch: PENDING until its first plan, RUNNING until its last job ends, then how it ended."""

from dataclasses import dataclass

from fpga_pool.model.lifecycle.table import Rule, Table
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.objects.pool import Batch, BatchState, JobState
from fpga_pool.model.values import changed


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlanned:
    """The first plan of the batch, or of a shard's part of it, was committed."""

    dispatched_at: float
    makespan_s: float
    lower_bound_s: float
    #: When the last result is back, and a proven bound on that.
    completion_s: float
    completion_bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBegun:
    """The first of its jobs got a place; online nothing is promised about the others."""

    dispatched_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCancelRequested:
    """The tenant wants the batch no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeld:
    """Its owner wants no more of its jobs to get places."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReleased:
    """Its owner lets its jobs get places again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged:
    """Its owner wants it planned before others, or after them."""

    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesCompleted:
    """Batches that it has waited for are complete."""

    batches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """One of its jobs will not compute any more."""

    state: JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReopened:
    """One of its jobs that was complete has to compute again, because others need its result."""


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
    """Extend what the batch was promised: it is complete when the last part is."""
    begin_at = batch.dispatched_at if batch.dispatched_at is not None else event.dispatched_at
    delay_s = event.dispatched_at - begin_at
    return changed(
        batch,
        planned_makespan_s=max(batch.planned_makespan_s or 0.0, delay_s + event.makespan_s),
        lower_bound_s=max(batch.lower_bound_s or 0.0, event.lower_bound_s),
        planned_completion_s=max(batch.planned_completion_s or 0.0, delay_s + event.completion_s),
        completion_bound_s=max(batch.completion_bound_s or 0.0, event.completion_bound_s),
    ), []


def _begun(batch: Batch, event: BatchBegun, now_s: float) -> Outcome:
    return changed(batch, state=BatchState.RUNNING, dispatched_at=event.dispatched_at), []


def _cancel_requested(batch: Batch, event: BatchCancelRequested, now_s: float) -> Outcome:
    return changed(batch, cancel_requested=True), []


def _held(batch: Batch, event: BatchHeld, now_s: float) -> Outcome:
    return changed(batch, held=True), []


def _released(batch: Batch, event: BatchReleased, now_s: float) -> Outcome:
    return changed(batch, held=False), []


def _priority_changed(batch: Batch, event: PriorityChanged, now_s: float) -> Outcome:
    return changed(batch, priority=event.priority), []


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
    (BatchState.PENDING, BatchBegun): _begun,
    (BatchState.PENDING, DependenciesCompleted): _dependencies_completed,
    (BatchState.PENDING, BatchCancelRequested): _cancel_requested,
    (BatchState.RUNNING, BatchCancelRequested): _cancel_requested,
    (BatchState.PENDING, JobEnded): _job_ended,
    (BatchState.RUNNING, JobEnded): _job_ended,
    (BatchState.RUNNING, JobReopened): _job_reopened,
}
_UNTIL_ITS_END: dict[type, Rule[Batch]] = {
    BatchHeld: _held,
    BatchReleased: _released,
    PriorityChanged: _priority_changed,
}
_RULES |= {
    (state, event): rule for state in (BatchState.PENDING, BatchState.RUNNING) for event, rule in _UNTIL_ITS_END.items()
}

BATCH = Table[Batch]("batch", _RULES)
