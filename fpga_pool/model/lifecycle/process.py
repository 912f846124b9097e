"""Life cycle of a gang process: from its placement until nothing of it is left on its host.

A process of an attempt that is over is stopped, and keeps its place until its agent reports its end or is lost: a place
where something may still run is not reused.
"""

from fpga_pool.model.flavor import Tier
from fpga_pool.model.lifecycle.table import Event, Rule, Table, sets
from fpga_pool.model.messages.agents import Action
from fpga_pool.model.messages.gangs import (
    LaunchProcess,
    ProcessExited,
    ProcessFailed,
    ProcessSaved,
    ProcessStarted,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)
from fpga_pool.model.objects.gangs import Gang, Process, ProcessState
from fpga_pool.model.values import changed


class Launched(Event, frozen=True, kw_only=True):
    """Nothing is left of earlier attempts, so the process is launched."""

    gang: Gang


class NothingLeftToDo(Event, frozen=True, kw_only=True):
    """The work of the process was completed before it could be moved here."""


class TierChanged(Event, frozen=True, kw_only=True):
    """The gang moves to another tier of its present processors."""

    tier: Tier


class PriorityChanged(Event, frozen=True, kw_only=True):
    """A trial of the gang in the background begins or ends: the processor's two processes exchange their priorities."""

    exchanged: bool


class SaveRequested(Event, frozen=True, kw_only=True):
    """The gang migrates to other processors."""


class StopRequested(Event, frozen=True, kw_only=True):
    """The gang restarts from the beginning, or has ended."""

    reason: str


class Released(Event, frozen=True, kw_only=True):
    """The place is released: the gang or its move is complete, or all processes of the attempt have been stopped."""


class Vanished(Event, frozen=True, kw_only=True):
    """The host is lost, or its agent does not know the process."""

    reason: str


Outcome = tuple[Process, list[Action]]


def _launched(process: Process, event: Launched, now_s: float) -> Outcome:
    gang = event.gang
    launch = LaunchProcess(
        **process.about,
        tier=process.priority,
        processes=gang.processes,
        cpu_usage=gang.cpu_usage,
        work_s=gang.work_s,
        done_s=process.done_s,
        image=gang.image,
        command=gang.command,
        saved=process.saved,
    )
    return changed(process, state=ProcessState.STARTING, progress_at=now_s), [launch]


def _exited(process: Process, event: ProcessExited, now_s: float) -> Outcome:
    done_s = process.done_by(event.at)
    return changed(process, state=ProcessState.EXITED, done_s=done_s, rate=0.0, cpu_s=event.cpu_s), []


def _tier_changed(process: Process, event: TierChanged, now_s: float) -> Outcome:
    commands = [SetTier(**process.about, tier=event.tier)]
    return changed(process, tier=event.tier), list(commands)


def _priority_changed(process: Process, event: PriorityChanged, now_s: float) -> Outcome:
    after = changed(process, exchanged=event.exchanged)
    return after, [SetTier(**process.about, tier=after.priority)]


def _save(process: Process, event: SaveRequested, now_s: float) -> Outcome:
    return changed(process, state=ProcessState.SAVING), [SaveProcess(**process.about)]


def _never_launched(process: Process, event: object, now_s: float) -> Outcome:
    return changed(process, state=ProcessState.ENDED, rate=0.0), _dropped(process, process.saved)


def _dropped(process: Process, saved: str) -> list[Action]:
    """Return the command that removes a saved memory from which nothing will resume, if there is one."""
    return [StopProcess(**process.about, saved=saved)] if saved else []


def _stop(process: Process, event: StopRequested, now_s: float) -> Outcome:
    stopping = changed(process, state=ProcessState.STOPPING, reason=event.reason)
    return stopping, [StopProcess(**process.about)]


def _stopped(process: Process, event: ProcessExited | ProcessStopped | ProcessSaved, now_s: float) -> Outcome:
    saved = event.saved if isinstance(event, ProcessSaved) else ""
    return changed(process, state=ProcessState.STOPPED, rate=0.0, cpu_s=event.cpu_s), _dropped(process, saved)


def _failed(process: Process, event: ProcessFailed, now_s: float) -> Outcome:
    stopped = changed(process, state=ProcessState.STOPPED, rate=0.0, cpu_s=event.cpu_s, reason=event.message)
    return stopped, []


_RESERVED, _STARTING, _RUNNING, _EXITED, _SAVING, _STOPPING, _STOPPED = (
    ProcessState.RESERVED,
    ProcessState.STARTING,
    ProcessState.RUNNING,
    ProcessState.EXITED,
    ProcessState.SAVING,
    ProcessState.STOPPING,
    ProcessState.STOPPED,
)

_RULES: dict[tuple[ProcessState, type], Rule[Process]] = {
    (_RESERVED, Launched): _launched,
    (_RESERVED, NothingLeftToDo): sets(state=ProcessState.EXITED),
    (_RESERVED, TierChanged): sets("tier"),
    (_RESERVED, SaveRequested): _never_launched,
    (_RESERVED, StopRequested): _never_launched,
    (_RESERVED, Vanished): sets("reason", state=ProcessState.ENDED, rate=0.0),
    (_STARTING, ProcessStarted): sets(state=ProcessState.RUNNING),
    **{(state, ProcessExited): _exited for state in (_STARTING, _RUNNING, _SAVING)},
    **{(state, TierChanged): _tier_changed for state in (_STARTING, _RUNNING)},
    **{(state, PriorityChanged): _priority_changed for state in (_STARTING, _RUNNING)},
    **{(state, PriorityChanged): sets("exchanged") for state in (_RESERVED, _EXITED, _SAVING, _STOPPING, _STOPPED)},
    **{(state, SaveRequested): _save for state in (_STARTING, _RUNNING)},
    **{(state, StopRequested): _stop for state in (_STARTING, _RUNNING, _SAVING)},
    **{(state, ProcessFailed): _failed for state in (_STARTING, _RUNNING, _SAVING, _STOPPING)},
    **{
        (state, Vanished): sets("reason", state=ProcessState.ENDED, rate=0.0)
        for state in (_STARTING, _RUNNING, _EXITED, _SAVING, _STOPPING)
    },
    (_EXITED, TierChanged): sets("tier"),
    (_EXITED, StopRequested): sets("reason", state=ProcessState.STOPPED),
    (_EXITED, Released): sets(state=ProcessState.ENDED, rate=0.0),
    (_SAVING, ProcessSaved): sets("done_s", "cpu_s", state=ProcessState.ENDED, rate=0.0),
    (_STOPPING, ProcessExited): _stopped,
    (_STOPPING, ProcessSaved): _stopped,
    (_STOPPING, ProcessStopped): _stopped,
    (_STOPPED, Released): sets(state=ProcessState.ENDED, rate=0.0),
    (_STOPPED, Vanished): sets("reason", state=ProcessState.ENDED, rate=0.0),
}

PROCESS = Table[Process]("process", _RULES)
