"""Life cycle of a job.

::

    PENDING -Planned-> WAITING_INPUT -InputStaged-> STAGED -JobStarted-> RUNNING -JobFinished-> RESULT_HELD -> COMPLETED
       ^                     |                        |                     |
       '------ Displaced, JobFailed (retryable) ------'---------------------'

An online job may be evicted: on EvictRequested a command is sent to its agent, JobEvicted is the reply, and the job is
PENDING again.  The agent keeps its input (and its progress, if its function supports that).  If the job ends before the
eviction, its end is valid.

A job that does not compute yet may be Moved to another slot, as a new attempt, or Retimed on its slot.

A job becomes FAILED if a failure is not retryable or if it was planned too often, and CANCELLED if its batch is
cancelled before it is complete.  The cancellation of a planned job is a flag until its agent has released the job.

If a batch is held, its jobs without complete inputs are Displaced or wait; the others continue.

In a pipeline, a job without a place is Skipped if one of its predecessors has ended without a result.  A completed job
becomes PENDING again if its result is lost while other jobs still need it (ResultLost).
"""

from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import (
    Action,
    AssignJob,
    EvictJob,
    InputSource,
    InputStaged,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    ReleaseJob,
    ResultDelivered,
    ResultExpired,
    RetimeJob,
)
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES
from fpga_pool.model.objects.pool import Job, JobState, RateSegment
from fpga_pool.model.values import changed, shared


class Planned(Event, frozen=True, kw_only=True):
    """A policy has placed the job."""

    host: str
    slot: str
    order: int
    dispatched_at: float
    start_s: float
    end_s: float
    transfer: tuple[RateSegment, ...]
    #: Planned transfer of the result, in seconds after the end of the computation.
    result_transfer: tuple[RateSegment, ...] = ()
    #: Results of its predecessors, whose concatenation is its input; empty for a job without predecessors.
    sources: tuple[InputSource, ...] = ()
    #: Whether other jobs read its result.
    kept: bool = False


class Moved(Event, frozen=True, kw_only=True):
    """The job, which has not started, is moved to another place; the caller notifies its former agent."""

    place: Planned


class Retimed(Event, frozen=True, kw_only=True):
    """The times of the job change but not its place; it does not compute yet, and its input may be under way."""

    dispatched_at: float
    start_s: float
    end_s: float
    transfer: tuple[RateSegment, ...]


class Displaced(Event, frozen=True, kw_only=True):
    """The job lost its place for an external reason (drain, fault, lost host, eviction)."""

    reason: str
    #: Whether its agent can be notified.
    agent_reachable: bool = True
    #: Whether the attempt is not counted.
    excused: bool = False


class EvictRequested(Event, frozen=True, kw_only=True):
    """The job is to be evicted in favor of a job that benefits more; its progress is kept or lost."""

    keep_progress: bool


class CancelRequested(Event, frozen=True, kw_only=True):
    """The tenant requests the cancellation of the job."""


class GaveUp(Event, frozen=True, kw_only=True):
    """The pool gives the job up: it was planned too often, its input never came, or its function was revoked."""

    code: str
    reason: str


class HoldChanged(Event, frozen=True, kw_only=True):
    """Its batch is held for a `reason`, or no longer held (""); plans made before that are void."""

    reason: str


class Skipped(Event, frozen=True, kw_only=True):
    """A predecessor has ended without a result, so the job has no input."""

    reason: str


class ResultLost(Event, frozen=True, kw_only=True):
    """Its result, which other jobs still need, is lost."""

    reason: str


Outcome = tuple[Job, list[Action]]


def _planned(job: Job, event: Planned, now_s: float) -> Outcome:
    input_bytes = sum(source.result_bytes for source in event.sources) if event.sources else job.input_bytes
    planned = changed(
        job,
        state=JobState.WAITING_INPUT,
        input_bytes=input_bytes,
        attempt=job.attempt + 1,
        reason="",
        **shared(event, Job),
        done=job.done if job.host == event.host else 0.0,
        flow="",
        moved_bytes=None,
        moved_at=None,
        transfer_began_at=None,
        staged_at=None,
        started_at=None,
    )
    large = input_bytes > SMALL_INPUT_BYTES
    assign = AssignJob(
        job=job.uuid,
        attempt=planned.attempt,
        project_id=job.project_id,
        function=job.function,
        input_bytes=input_bytes,
        order=event.order,
        expected_s=event.end_s - event.start_s,
        done=planned.done,
        dispatched_at=event.dispatched_at if large else 0.0,
        transfer=event.transfer if large else (),
        result_transfer=event.result_transfer,
        sources=event.sources,
        kept=event.kept,
    )
    return planned, [assign]


def _moved(job: Job, event: Moved, now_s: float) -> Outcome:
    return _planned(job, event.place, now_s)


def _retimed(job: Job, event: Retimed, now_s: float) -> Outcome:
    retimed = changed(
        job,
        # Agents recognise a later plan by this value, so it must not decrease even if this scheduler's clock is behind.
        **shared(event, Job) | {"dispatched_at": max(event.dispatched_at, job.dispatched_at or 0.0)},
        moved_bytes=None,
        moved_at=None,
    )
    if job.state is not JobState.WAITING_INPUT or not event.transfer or job.input_bytes <= SMALL_INPUT_BYTES:
        return retimed, []
    command = RetimeJob(
        job=job.uuid, attempt=job.attempt, dispatched_at=retimed.dispatched_at or 0.0, transfer=event.transfer
    )
    return retimed, [command]


def _staged(job: Job, event: InputStaged, now_s: float) -> Outcome:
    return changed(job, state=JobState.STAGED, transfer_began_at=event.transfer_began_at, staged_at=event.at), []


def _started(job: Job, event: JobStarted, now_s: float) -> Outcome:
    return changed(job, state=JobState.RUNNING, started_at=event.at), []


#: Times of earlier steps that the report on the end of a short job contains.
_EARLIER_TIMES = ("transfer_began_at", "staged_at", "started_at")


def _finished(job: Job, event: JobFinished, now_s: float) -> Outcome:
    finished = changed(
        job,
        state=JobState.RESULT_HELD,
        **{name: at for name in _EARLIER_TIMES if (at := getattr(event, name)) is not None},
        finished_at=event.at,
        compute_s=event.compute_s,
        result_bytes=event.result_bytes,
        result_sha256=event.result_sha256,
    )
    return finished, []


def _failed(job: Job, event: JobFailed, now_s: float) -> Outcome:
    release: list[Action] = [ReleaseJob(job=job.uuid)]
    if job.cancel_requested:
        return _end(job, JobState.CANCELLED, now_s), release
    if not event.retryable:
        return changed(_end(job, JobState.FAILED, now_s), error_code=event.code, reason=event.message), release
    # The agent keeps the input, so that it need not be sent again if the job is placed on the same host.
    return _unplaced(job, event.message), []


def _displaced(job: Job, event: Displaced, now_s: float) -> Outcome:
    release: list[Action] = [ReleaseJob(job=job.uuid)] if event.agent_reachable else []
    if job.cancel_requested:
        return _end(job, JobState.CANCELLED, now_s), release
    return changed(_unplaced(job, event.reason), done=0.0, excused=job.excused + event.excused), release


def _evict_requested(job: Job, event: EvictRequested, now_s: float) -> Outcome:
    evict = EvictJob(job=job.uuid, attempt=job.attempt, keep_progress=event.keep_progress)
    return changed(job, reason="eviction requested"), [evict]


def _evicted(job: Job, event: JobEvicted, now_s: float) -> Outcome:
    if job.cancel_requested:
        return _end(job, JobState.CANCELLED, now_s), [ReleaseJob(job=job.uuid)]
    return changed(_unplaced(job, "evicted in favour of another job"), done=event.done), []


def _unplaced(job: Job, reason: str) -> Job:
    return changed(
        job, state=JobState.PENDING, reason=reason, start_s=None, end_s=None, transfer=(), result_transfer=()
    )


def _end(job: Job, state: JobState, now_s: float) -> Job:
    return changed(job, state=state, ended_at=now_s)


def _cancel_unplanned(job: Job, event: CancelRequested, now_s: float) -> Outcome:
    return changed(_end(job, JobState.CANCELLED, now_s), cancel_requested=True), []


def _cancel_planned(job: Job, event: CancelRequested, now_s: float) -> Outcome:
    actions: list[Action] = [] if job.cancel_requested else [ReleaseJob(job=job.uuid)]
    return changed(job, cancel_requested=True, reason="cancellation requested"), actions


def _released(job: Job, event: JobReleased, now_s: float) -> Outcome:
    if job.cancel_requested:
        return _end(job, JobState.CANCELLED, now_s), []
    return changed(_unplaced(job, "released by its agent"), done=0.0), []


def _gave_up(job: Job, event: GaveUp, now_s: float) -> Outcome:
    return changed(_end(job, JobState.FAILED, now_s), error_code=event.code, reason=event.reason), []


def _delivered(job: Job, event: ResultDelivered, now_s: float) -> Outcome:
    return _end(job, JobState.COMPLETED, now_s), []


def _discarded(job: Job, event: JobReleased, now_s: float) -> Outcome:
    why = "cancelled after completion" if job.cancel_requested else "no other job needs it any more"
    return changed(_end(job, JobState.COMPLETED, now_s), reason=f"result discarded: {why}"), []


def _skipped(job: Job, event: Skipped, now_s: float) -> Outcome:
    skipped = _end(job, JobState.CANCELLED, now_s)
    return changed(skipped, error_code="fpga_pool.predecessor_failed", reason=event.reason), []


def _result_lost(job: Job, event: ResultLost, now_s: float) -> Outcome:
    lost = changed(
        _unplaced(job, event.reason),
        done=0.0,
        finished_at=None,
        ended_at=None,
        compute_s=None,
        result_bytes=None,
        result_sha256="",
    )
    return lost, []


def _gave_up_waiting(job: Job, event: GaveUp, now_s: float) -> Outcome:
    release: list[Action] = [ReleaseJob(job=job.uuid)]
    if job.cancel_requested:
        return _end(job, JobState.CANCELLED, now_s), release
    failed, _ = _gave_up(job, event, now_s)
    return failed, release


def _expired(job: Job, event: ResultExpired, now_s: float) -> Outcome:
    return changed(_end(job, JobState.COMPLETED, now_s), reason="result expired before it was fetched"), []


_RULES: dict[tuple[JobState, type], Rule[Job]] = {
    (JobState.PENDING, Planned): _planned,
    (JobState.PENDING, CancelRequested): _cancel_unplanned,
    (JobState.PENDING, GaveUp): _gave_up,
    (JobState.PENDING, HoldChanged): sets("reason"),
    (JobState.PENDING, Skipped): _skipped,
    (JobState.WAITING_INPUT, Moved): _moved,
    (JobState.STAGED, Moved): _moved,
    (JobState.WAITING_INPUT, Retimed): _retimed,
    (JobState.STAGED, Retimed): _retimed,
    (JobState.WAITING_INPUT, InputStaged): _staged,
    (JobState.STAGED, JobStarted): _started,
    (JobState.WAITING_INPUT, GaveUp): _gave_up_waiting,
    (JobState.STAGED, GaveUp): _gave_up_waiting,
    (JobState.RUNNING, JobStarted): _started,  # its agent was restarted and has started the job again
    (JobState.WAITING_INPUT, JobFinished): _finished,  # agents report a short job only when it is complete
    (JobState.STAGED, JobFinished): _finished,
    (JobState.RUNNING, JobFinished): _finished,
    (JobState.RESULT_HELD, ResultDelivered): _delivered,
    (JobState.RESULT_HELD, ResultExpired): _expired,
    (JobState.RESULT_HELD, JobReleased): _discarded,
    (JobState.RESULT_HELD, ResultLost): _result_lost,
    (JobState.COMPLETED, ResultLost): _result_lost,
}
_WHILE_PLANNED: dict[type, Rule[Job]] = {
    JobFailed: _failed,
    Displaced: _displaced,
    EvictRequested: _evict_requested,
    JobEvicted: _evicted,
    CancelRequested: _cancel_planned,
    JobReleased: _released,
}
_RULES |= {
    (state, event): rule
    for state in (JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING)
    for event, rule in _WHILE_PLANNED.items()
}

JOB = Table[Job]("job", _RULES)
