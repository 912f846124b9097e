"""Life cycle of a gang's process on its host, from the launch of its guest to its end, as a transition table."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.fields import short_reason
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.gangs import (
    GangReport,
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
from fpga_pool.model.values import changed, shared

# ---- Specification of a process, and its observed state


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Identity of a process: gang, attempt and index."""

    gang: str
    index: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.gang}.{self.attempt}.{self.index}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """Specification of a process to launch."""

    key: Key
    #: Number of processes of the gang.
    processes: int
    #: Share of a dedicated processor that it uses, and its computation time there.
    cpu_usage: float
    work_s: float
    #: Computation time done before, from which it resumes.
    done_s: float = 0.0
    #: Image of its guest ("" = the host's default), and the command passed to it.
    image: str = ""
    command: str = ""
    #: The saved memory from which it resumes, as reported in `Running.saved`; "" = it starts from the beginning.
    saved: str = ""


class Phase(Enum):
    """Observed phase of a launched process."""

    RUNNING = "running"
    #: It is being saved, including its progress.
    SAVING = "saving"
    #: It has stopped, and can resume on another processor.
    SAVED = "saved"
    #: It has completed its work.
    EXITED = "exited"
    #: It has died or cannot be saved; see `Running.reason`.
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Observed state of a process."""

    phase: Phase
    processor: int
    #: None = it was launched but is not in a tier yet.
    tier: Tier | None
    #: Progress at `progress_at` (UTC seconds of the pool), in seconds on a dedicated processor, and its rate since
    #: then; both change only when the rate changes.
    done_s: float
    rate: float
    progress_at: float
    #: CPU time used.
    cpu_s: float
    #: Name of its saved memory; "" = only its progress is saved.
    saved: str = ""
    #: Reason for the failure.
    reason: str = ""


# ---- State and events


class Goal(StrEnum):
    """Goal of the agent for a process."""

    #: It is to be launched; its guest has not been seen yet.
    LAUNCH = "launch"
    #: It was launched and is to run; if its guest is not seen, it has died.
    RUN = "run"
    #: It is to be saved; SAVE_UNSEEN if its launch was not confirmed yet when this was requested.
    SAVE_UNSEEN = "save unseen"
    SAVE = "save"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """A process that an agent holds."""

    processor: str
    #: Command that launched it; its `tier` is updated to the tier in which the process is to be now.
    launch: LaunchProcess
    goal: Goal = Goal.LAUNCH
    #: Report to send when nothing of its guest is left; determined again after a restart.
    farewell: GangReport | None = None

    @property
    def key(self) -> Key:
        """Identity of the process."""
        return Key(self.launch.gang, self.launch.index, self.launch.attempt)

    @property
    def ending(self) -> bool:
        """Whether it is to end."""
        return self.goal not in (Goal.LAUNCH, Goal.RUN)

    @property
    def spec(self) -> ProcessSpec:
        """Specification for the launch of its guest."""
        return ProcessSpec(key=self.key, **shared(self.launch, ProcessSpec))

    def to(self, goal: Goal) -> "HeldProcess":
        """Return a copy with another goal."""
        return replace(self, goal=goal)


# Events from the observation of the guests, for one process -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unseen:
    """It has no guest."""


@dataclass(frozen=True, slots=True)
class SeenAlive:
    """Its guest runs, or is being saved."""

    guest: Running


@dataclass(frozen=True, slots=True)
class SeenSaved:
    """Its guest is saved."""

    guest: Running


@dataclass(frozen=True, slots=True)
class SeenExited:
    """Its guest has completed its work."""

    guest: Running


@dataclass(frozen=True, slots=True)
class SeenFailed:
    """Its guest has died, or cannot be saved."""

    guest: Running


Sight = Unseen | SeenAlive | SeenSaved | SeenExited | SeenFailed
_SIGHTS: dict[Phase, type[SeenAlive | SeenSaved | SeenExited | SeenFailed]] = {
    Phase.SAVED: SeenSaved,
    Phase.EXITED: SeenExited,
    Phase.FAILED: SeenFailed,
}


def sight(guest: Running | None) -> Sight:
    """Return the event for a process from the observed state of its guest; None = it has no guest."""
    return Unseen() if guest is None else _SIGHTS.get(guest.phase, SeenAlive)(guest)


# Other events, and actions ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Launched:
    """Its guest was launched, and has resumed from its saved memory if there was one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Its guest cannot be launched."""

    message: str


class Step(StrEnum):
    """Action on the guest of a process."""

    NOTHING = "nothing"
    #: End the guest; when nothing of it is left, `HeldProcess.farewell` is reported.
    END = "end"
    SAVE = "save"
    #: Report that the process is over; then end the guest, or leave it if it is saved.
    LET_GO = "let go"
    #: Complete a launch that was not recorded: the guest exists already.
    FINISH_LAUNCH = "finish launch"


Outcome = tuple[HeldProcess, Step]
Rule = Callable[[HeldProcess, Any, float], Outcome]


# ---- Transitions


def about(key: Key, now_s: float) -> dict[str, Any]:
    """Return the fields common to all reports on a process."""
    return {"gang": key.gang, "index": key.index, "attempt": key.attempt, "at": now_s}


def _reported(held: HeldProcess, event: Sight, now_s: float) -> dict[str, Any]:
    cpu_s = 0.0 if isinstance(event, Unseen) else event.guest.cpu_s
    return {**about(held.key, now_s), "cpu_s": cpu_s}


def _as_it_is(held: HeldProcess, event: object, now_s: float) -> Outcome:
    return held, Step.NOTHING


def _to_tier(held: HeldProcess, event: SetTier, now_s: float) -> Outcome:
    return replace(held, launch=changed(held.launch, tier=event.tier)), Step.NOTHING


def _to_save_unseen(held: HeldProcess, event: SaveProcess, now_s: float) -> Outcome:
    return held.to(Goal.SAVE_UNSEEN), Step.NOTHING


def _to_save(held: HeldProcess, event: SaveProcess, now_s: float) -> Outcome:
    return held.to(Goal.SAVE), Step.NOTHING


def _to_stop(held: HeldProcess, event: StopProcess, now_s: float) -> Outcome:
    return held.to(Goal.STOP), Step.NOTHING


def _launched(held: HeldProcess, event: Launched, now_s: float) -> Outcome:
    # A goal that a command has set in the meantime is kept.
    goals = {Goal.LAUNCH: Goal.RUN, Goal.SAVE_UNSEEN: Goal.SAVE}
    return held.to(goals.get(held.goal, held.goal)), Step.NOTHING


def _refused(held: HeldProcess, event: Refused, now_s: float) -> Outcome:
    failed = ProcessFailed(**about(held.key, now_s), message=short_reason(event.message))
    return replace(held, farewell=failed), Step.END


def _stop(held: HeldProcess, event: Sight, now_s: float) -> Outcome:
    return replace(held, farewell=ProcessStopped(**_reported(held, event, now_s))), Step.END


def _gone(held: HeldProcess, event: Unseen, now_s: float) -> Outcome:
    # The memory that it was to resume from may still exist; ending the guest removes it.
    failed = ProcessFailed(**_reported(held, event, now_s), message="its guest no longer exists")
    return replace(held, farewell=failed), Step.END


def _failed(held: HeldProcess, event: SeenFailed, now_s: float) -> Outcome:
    failed = ProcessFailed(**_reported(held, event, now_s), message=short_reason(event.guest.reason))
    return replace(held, farewell=failed), Step.END


def _exited(held: HeldProcess, event: SeenExited, now_s: float) -> Outcome:
    # Reported before the guest is ended: a process without a guest would be taken for dead.
    return replace(held, farewell=ProcessExited(**_reported(held, event, now_s))), Step.LET_GO


def _passed_on(held: HeldProcess, event: Unseen, now_s: float) -> Outcome:
    # The launch of its guest may be under way.  When it is certain that no guest will appear, the process is reported
    # as saved with the progress and memory that it came with.
    launch = held.launch
    saved = ProcessSaved(**_reported(held, event, now_s), done_s=launch.done_s, saved=launch.saved)
    return replace(held, farewell=saved), Step.END


def _save(held: HeldProcess, event: SeenAlive, now_s: float) -> Outcome:
    return held, Step.SAVE


def _saved(held: HeldProcess, event: SeenSaved, now_s: float) -> Outcome:
    guest = event.guest
    saved = ProcessSaved(**_reported(held, event, now_s), done_s=guest.done_s, saved=guest.saved)
    return replace(held, farewell=saved), Step.LET_GO


def _found(held: HeldProcess, event: Sight, now_s: float) -> Outcome:
    return held, Step.FINISH_LAUNCH


_NOT_STOPPED = (Goal.LAUNCH, Goal.RUN, Goal.SAVE_UNSEEN, Goal.SAVE)

_RULES: dict[tuple[Goal, type], Rule] = {
    **{(goal, SetTier): _to_tier for goal in Goal},
    **{(goal, StopProcess): _to_stop for goal in Goal},
    (Goal.LAUNCH, SaveProcess): _to_save_unseen,
    (Goal.RUN, SaveProcess): _to_save,
    **{(goal, SaveProcess): _as_it_is for goal in (Goal.SAVE_UNSEEN, Goal.SAVE, Goal.STOP)},
    **{(goal, Launched): _launched for goal in Goal},
    **{(goal, Refused): _refused for goal in Goal},
    **{(Goal.STOP, seen): _stop for seen in (Unseen, SeenAlive, SeenSaved, SeenExited, SeenFailed)},
    **{(goal, SeenExited): _exited for goal in _NOT_STOPPED},
    **{(goal, SeenFailed): _failed for goal in _NOT_STOPPED},
    (Goal.LAUNCH, Unseen): _as_it_is,  # launched when its place is free
    **{(Goal.LAUNCH, seen): _found for seen in (SeenAlive, SeenSaved)},
    **{(Goal.RUN, seen): _as_it_is for seen in (SeenAlive, SeenSaved)},
    **{(goal, Unseen): _gone for goal in (Goal.RUN, Goal.SAVE)},
    (Goal.SAVE_UNSEEN, Unseen): _passed_on,
    **{(goal, SeenAlive): _save for goal in (Goal.SAVE_UNSEEN, Goal.SAVE)},
    **{(goal, SeenSaved): _saved for goal in (Goal.SAVE_UNSEEN, Goal.SAVE)},
}


def transition(held: HeldProcess, event: object, now_s: float) -> Outcome:
    """Return a process after an event at `now_s`, and the action on its guest.

    Raises
    ------
    InvalidTransition
        If the table has no rule for the event with this goal.

    """
    rule = _RULES.get((held.goal, type(event)))
    if rule is None:
        raise InvalidTransition(f"process {held.key}: {type(event).__name__} is not possible with goal {held.goal}")
    return rule(held, event, now_s)


def started(held: HeldProcess, now_s: float) -> ProcessStarted:
    """Return the report that a process has started."""
    return ProcessStarted(**about(held.key, now_s))
