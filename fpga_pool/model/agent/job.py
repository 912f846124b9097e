"""Life cycle of a job on its agent, from the command that assigns it until nothing of it is left on the host.

An attempt that the pool has given up may still compute while the next one waits, on the same or another slot.  Only
the slot tracks it then, not the job.
"""

from typing import Any

import msgspec

from fpga_pool.model.agent.events import ComputationEnded, ComputationFailed, EndsLost, EndsRecorded, InputArrived
from fpga_pool.model.agent.instructions import (
    AgentRule,
    AgentTable,
    DeleteFiles,
    DeleteInput,
    DeleteOutput,
    ForgetJob,
    Instruction,
    KeepEviction,
    KeepJob,
    Report,
    ReportLater,
    Settle,
    StopComputation,
)
from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.fields import short_reason
from fpga_pool.model.messages.agents import (
    InputStaged,
    JobEvicted,
    JobFailed,
    JobReleased,
    JobStarted,
    ReleaseJob,
    ResultDelivered,
    ResultExpired,
    RetimeJob,
)
from fpga_pool.model.values import changed

Outcome = tuple[HeldJob | None, list[Instruction]]


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """Its slot has begun to compute it."""


class AttemptFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt cannot be computed on this host."""

    code: str
    message: str
    retryable: bool


class Evicted(msgspec.Struct, frozen=True, kw_only=True):
    """The pool evicts it from its slot, and counts this share of the work as done."""

    done: float


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """The pool has assigned it to this host again, as another attempt."""


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """A client has received the result."""


class RetentionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The result was not fetched in time, or is lost."""


def about(job: HeldJob, now_s: float) -> dict[str, Any]:
    """Return the fields common to all reports on an attempt."""
    return {"job": job.uuid, "attempt": job.attempt, "at": now_s}


def _staged(job: HeldJob, event: InputArrived, now_s: float) -> Outcome:
    staged = job.at(Phase.STAGED)
    began_at = None if event.took_s is None else now_s - event.took_s
    return staged, [KeepJob(staged), Report(InputStaged(**about(job, now_s), transfer_began_at=began_at))]


def _retimed(job: HeldJob, event: RetimeJob, now_s: float) -> Outcome:
    assignment = changed(job.assignment, dispatched_at=event.dispatched_at, transfer=event.transfer)
    retimed = changed(job, assignment=assignment)
    return retimed, [KeepJob(retimed)]


def _begun(job: HeldJob, event: Begun, now_s: float) -> Outcome:
    # Not recorded: after a restart a running job is staged, and starts again.
    return job.at(Phase.RUNNING), [ReportLater(JobStarted(**about(job, now_s)))]


def _ended(job: HeldJob, event: ComputationEnded, now_s: float) -> Outcome:
    ended = changed(
        job,
        phase=Phase.ENDED,
        compute_s=event.compute_s,
        result_bytes=event.result_bytes,
        result_sha256=event.result_sha256,
    )
    return ended, []


def _failed(job: HeldJob, event: AttemptFailed, now_s: float) -> Outcome:
    failed = job.at(Phase.FAILED)
    report = JobFailed(
        **about(job, now_s), code=event.code, message=short_reason(event.message), retryable=event.retryable
    )
    return failed, [KeepJob(failed), Report(report), Settle(job.uuid, event.code, event.message)]


def _computation_failed(job: HeldJob, event: ComputationFailed, now_s: float) -> Outcome:
    return _failed(job, AttemptFailed(code=event.code, message=event.message, retryable=event.retryable), now_s)


def _evicted(job: HeldJob, event: Evicted, now_s: float) -> Outcome:
    failed = job.at(Phase.FAILED)
    return failed, [*_stop(job), KeepJob(failed), Report(JobEvicted(**about(job, now_s), done=event.done))]


def _evicted_at_end(job: HeldJob, event: Evicted, now_s: float) -> Outcome:
    """Note the eviction of a job that has ended; it takes effect only if its end is lost."""
    return changed(job, evicted_done=event.done), [KeepEviction(job.uuid, event.done)]


def _replaced(job: HeldJob, event: Replaced, now_s: float) -> Outcome:
    # Clients that wait for the end of this attempt must not be notified of the end of the next one.
    settle = Settle(job.uuid, "fpga_pool.released", "the job was assigned to this host again")
    return None, [*_stop(job), settle]


def _released(job: HeldJob, event: ReleaseJob, now_s: float) -> Outcome:
    # While the job computes, its slot uses the files; they are deleted when the computation has stopped.
    files: list[Instruction] = [] if job.phase is Phase.RUNNING else [DeleteFiles(job.uuid)]
    settle = Settle(job.uuid, "fpga_pool.released", "the job was withdrawn from this host")
    return None, [ForgetJob(job.uuid), Report(JobReleased(**about(job, now_s))), *_stop(job), *files, settle]


def _stop(job: HeldJob) -> list[Instruction]:
    """Return the instructions that stop the attempt's computation, or delete its output."""
    if job.phase is Phase.RUNNING:
        return [StopComputation(job.slot, job.uuid, job.attempt)]
    return [DeleteOutput(job.uuid, job.attempt)] if job.phase is Phase.ENDED else []


def _recorded(job: HeldJob, event: EndsRecorded, now_s: float) -> Outcome:
    held = next(held for held in event.jobs if held.uuid == job.uuid)
    return held, [DeleteInput(job.uuid), Settle(job.uuid)]


def _lost(job: HeldJob, event: EndsLost, now_s: float) -> Outcome:
    """Compute the job again, as its end was not reported; if it was evicted in the meantime, evict it."""
    if job.evicted_done is not None:
        evicted = changed(job, phase=Phase.EVICTED, compute_s=0.0, result_bytes=None, result_sha256="")
        return evicted, [DeleteOutput(job.uuid, job.attempt)]
    return HeldJob(slot=job.slot, assignment=job.assignment, phase=Phase.STAGED), []


def _eviction_recorded(job: HeldJob, event: EndsRecorded, now_s: float) -> Outcome:
    return next(failed for failed in event.jobs if failed.uuid == job.uuid), []


def _eviction_lost(job: HeldJob, event: EndsLost, now_s: float) -> Outcome:
    return job, []


def _delivered(job: HeldJob, event: Delivered, now_s: float) -> Outcome:
    if job.assignment.kept:
        return job, []
    report = ResultDelivered(**about(job, now_s))
    return None, [ForgetJob(job.uuid), Report(report), DeleteFiles(job.uuid)]


def _expired(job: HeldJob, event: RetentionEnded, now_s: float) -> Outcome:
    report = ResultExpired(**about(job, now_s))
    return None, [ForgetJob(job.uuid), Report(report), DeleteFiles(job.uuid)]


_UNFINISHED = (Phase.WAITING, Phase.STAGED, Phase.RUNNING)

_RULES: dict[tuple[Phase, type], AgentRule[HeldJob]] = {
    (Phase.WAITING, InputArrived): _staged,
    (Phase.WAITING, RetimeJob): _retimed,
    (Phase.STAGED, Begun): _begun,
    (Phase.RUNNING, ComputationEnded): _ended,
    (Phase.RUNNING, ComputationFailed): _computation_failed,
    **{(phase, AttemptFailed): _failed for phase in _UNFINISHED},
    **{(phase, Evicted): _evicted for phase in _UNFINISHED},
    **{(phase, Replaced): _replaced for phase in Phase},
    **{(phase, ReleaseJob): _released for phase in Phase},
    (Phase.ENDED, EndsRecorded): _recorded,
    (Phase.ENDED, EndsLost): _lost,
    (Phase.ENDED, Evicted): _evicted_at_end,
    (Phase.EVICTED, EndsRecorded): _eviction_recorded,
    (Phase.EVICTED, EndsLost): _eviction_lost,
    (Phase.HELD, Delivered): _delivered,
    (Phase.HELD, RetentionEnded): _expired,
}

JOB = AgentTable[HeldJob]("job", "phase", "uuid", _RULES)
