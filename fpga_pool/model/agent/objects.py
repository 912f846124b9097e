"""State of an agent: slots, jobs, holds for instances, and the commands that it has executed.

`machine.Agent` changes `AgentState`, and undoes changes that could not be recorded.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from fpga_pool.model.messages.agents import AssignJob, HoldSlot, LoadFunction, SlotChanged
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.objects.progress import reported_bytes
from fpga_pool.model.values import changed, shared

#: Unknown content of a slot's memory: it is scrubbed before use.
UNKNOWN = ""


class AgentParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts, pauses and retention of an agent."""

    #: A computation is considered hung if it takes longer than factor x expected + grace.
    hang_factor: float = 4.0
    hang_grace_s: float = 10.0
    #: Minimum and maximum of the pause before a faulted slot is checked, which doubles with each fault or failed check.
    fault_pause_s: tuple[float, float] = (2.0, 60.0)
    #: How long a result can be fetched.
    retention_s: float = 3600.0


class Phase(StrEnum):
    """Phase of a job, as its agent sees it."""

    #: Its input has not arrived yet.
    WAITING = "waiting"
    STAGED = "staged"
    RUNNING = "running"
    #: Computed; its end is not durable yet and has not been reported.
    ENDED = "ended"
    #: Evicted after its end, which could not be made durable; the eviction has not been reported yet.
    EVICTED = "evicted"
    #: Its result can be fetched.
    HELD = "held"
    #: The attempt failed or was evicted; the input is kept in case the job is assigned to this host again.
    FAILED = "failed"


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that an agent holds."""

    slot: str
    assignment: AssignJob
    phase: Phase = Phase.WAITING
    #: Computation time; set while it is ENDED.
    compute_s: float = 0.0
    #: Set at the end of the computation.
    result_bytes: int | None = None
    result_sha256: str = ""
    #: When its end was recorded, UTC seconds.
    finished_at: float | None = None
    #: Share of the work done, if it was evicted while ENDED: it becomes EVICTED if its end cannot be made durable.
    evicted_done: float | None = None

    @property
    def uuid(self) -> str:
        """Identity of the job."""
        return self.assignment.job

    @property
    def attempt(self) -> int:
        """Number of this attempt of the job."""
        return self.assignment.attempt

    def at(self, phase: Phase) -> "HeldJob":
        """Return the job in another phase."""
        return changed(self, phase=phase)

    def moved_bytes(self, received_bytes: Callable[[str], int], now_s: float) -> int | None:
        """Return the received bytes of its input if it does not move as planned, otherwise None.

        `received_bytes` returns how much of a job's input has arrived.
        """
        assignment = self.assignment
        since_s = now_s - assignment.dispatched_at
        if self.phase is not Phase.WAITING or not assignment.transfer or since_s < assignment.transfer[0].begin_s:
            return None
        return reported_bytes(assignment.transfer, assignment.input_bytes, received_bytes(self.uuid), since_s)


class HoldState(StrEnum):
    """State of the hold of a slot for an instance."""

    PREPARING = "preparing"
    #: Scrubbed and loaded: the instance may use it.
    READY = "ready"
    #: It could not be scrubbed or loaded, which is retried.
    TROUBLED = "troubled"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """The hold of a slot for an instance."""

    action: HoldSlot
    state: HoldState = HoldState.PREPARING
    #: Reason for being TROUBLED.
    problem: str = ""

    @property
    def ready(self) -> bool:
        """Whether the instance may use the slot."""
        return self.state is HoldState.READY


class Activity(StrEnum):
    """Current activity of a slot."""

    #: No activity; the next one is chosen when the slot's executor asks (`events.SlotFree`).
    FREE = "free"
    LOADING = "loading"
    SCRUBBING = "scrubbing"
    COMPUTING = "computing"
    #: Its instance uses it.
    LENT = "lent"
    #: The function of its instance cannot be loaded; retried after a pause, or when another one gets the slot.
    RESTING = "resting"
    #: It failed, and is checked after a pause.
    FAULTED = "faulted"


class AgentSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the agent's host."""

    name: str
    parameters: AgentParameters
    #: False for a worker of the CPU pool, which needs no loading.
    loads: bool = True
    activity: Activity = Activity.FREE
    #: State reported to the pool (EMPTY, LOADING, READY, BUSY or FAULTED), time of the last change, and its reason.
    state: SlotState = SlotState.EMPTY
    changed_at: float = 0.0
    reason: str = ""
    #: Function that is loaded or being loaded; "" = none.
    function: str = ""
    #: Function that was loaded before the load in progress.
    before: str = ""
    #: Attempt that it computes; "" and 0 = none.
    job: str = ""
    attempt: int = 0
    #: Project or instance whose data the memory may contain; None = scrubbed.
    memory_of: str | None = UNKNOWN
    #: Hold for which it is being scrubbed or loaded, and hold whose instance uses it.
    preparing: HoldSlot | None = None
    lent_to: HoldSlot | None = None
    #: Load to begin at the next decision if it has nothing else to do then.
    ahead: LoadFunction | None = None
    #: Pause after its next fault.
    fault_pause_s: float = 0.0
    #: It became READY at the end of a job, which is to be reported together with that end.
    unannounced: bool = False

    @property
    def asks(self) -> bool:
        """Whether its executor may ask for its next instruction."""
        return self.activity in (Activity.FREE, Activity.LENT, Activity.RESTING)

    def report(self) -> SlotChanged:
        """Return the report on its state."""
        return SlotChanged(slot=self.name, at=self.changed_at, **shared(self, SlotChanged))


#: Number of executed commands that are remembered, whose repetition is answered; older ones are refused as outdated,
#: which has the same effect.
REMEMBERED = 100_000

_ABSENT = object()


class AgentState:
    """Jobs, slots and holds of one agent, and the commands that it has executed.

    The attributes may be read directly; changes are made by `put` and `drop`, so that they can be undone.
    """

    def __init__(self) -> None:
        self.slots: dict[str, AgentSlot] = {}
        self.jobs: dict[str, HeldJob] = {}
        #: The same jobs by slot.
        self.jobs_of_slot: defaultdict[str, dict[str, HeldJob]] = defaultdict(dict)
        #: Jobs whose end, or eviction after it, is to be recorded, in order.
        self.ended: dict[str, None] = {}
        #: Slots that wait for another one of their card to begin its load first, with the start of the wait.
        self.turns: dict[str, float] = {}
        #: Holds by slot.
        self.holds: dict[str, Hold] = {}
        #: By slot: epoch and sequence of the last command.
        self.fences: dict[str, tuple[int, int]] = {}
        #: By shard: the latest epoch of commands.
        self.epochs: dict[str, int] = {}
        #: The latest executed commands, oldest first.  Not a dict, in which finding the first entry becomes slower with
        #: every entry removed before it.
        self.executed: OrderedDict[str, None] = OrderedDict()
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Change or add an entry."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry if it exists."""
        if key in table:
            self._undo.append((table, key, table.pop(key)))

    def put_job(self, job: HeldJob) -> None:
        """Add or replace a job."""
        known = self.jobs.get(job.uuid)
        if known is not None and known.slot != job.slot:
            self.drop(self.jobs_of_slot[known.slot], job.uuid)
        self.put(self.jobs, job.uuid, job)
        self.put(self.jobs_of_slot[job.slot], job.uuid, job)
        if job.phase not in (Phase.ENDED, Phase.EVICTED):
            self.drop(self.ended, job.uuid)

    def drop_job(self, uuid: str) -> None:
        """Remove a job."""
        known = self.jobs[uuid]
        self.drop(self.jobs, uuid)
        self.drop(self.jobs_of_slot[known.slot], uuid)
        self.drop(self.ended, uuid)

    def remember(self, command: str) -> None:
        """Add a command to the executed ones; `keep` forgets the oldest."""
        self.put(self.executed, command, None)

    def keep(self) -> None:
        """Keep all changes made so far; they can no longer be undone."""
        self._undo.clear()
        while len(self.executed) > REMEMBERED:
            self.executed.popitem(last=False)

    def undo(self) -> None:
        """Undo all changes since `keep`."""
        while self._undo:
            table, key, before = self._undo.pop()
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
