"""State of an agent: slots, jobs, holds for instances, and the commands that it has executed.

`machine.Agent` changes `AgentState`, and takes changes back that could not be recorded.
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

    #: A computation hangs when it takes longer than factor x expected + grace.
    hang_factor: float = 4.0
    hang_grace_s: float = 10.0
    #: A faulted slot is offered again after a pause that doubles from the first to the second.
    fault_pause_s: tuple[float, float] = (2.0, 60.0)
    #: How long a result stays fetchable.
    retention_s: float = 3600.0


class Phase(StrEnum):
    """Phase of a job, as its agent sees it."""

    #: Its input has not arrived yet.
    WAITING = "waiting"
    STAGED = "staged"
    RUNNING = "running"
    #: Computed; its end is not durable yet and was not reported.
    ENDED = "ended"
    #: Evicted after it had ended, but before the end was durable; the eviction was not reported yet.
    EVICTED = "evicted"
    #: Its result can be fetched.
    HELD = "held"
    #: The attempt failed or was evicted; the input is kept in case the job comes back.
    FAILED = "failed"


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that an agent holds."""

    slot: str
    assignment: AssignJob
    phase: Phase = Phase.WAITING
    #: How long it computed; known while it is ENDED.
    compute_s: float = 0.0
    #: Known from the end of the computation on.
    result_bytes: int | None = None
    result_sha256: str = ""
    #: When its end became durable.
    finished_at: float | None = None
    #: Share of the work that is done if it is EVICTED, or becomes so because its end cannot be made durable.
    evicted_done: float | None = None

    @property
    def uuid(self) -> str:
        """Identity of the job."""
        return self.assignment.job

    @property
    def attempt(self) -> int:
        """Which of the job's attempts this is."""
        return self.assignment.attempt

    def at(self, phase: Phase) -> "HeldJob":
        """Return the job in another phase."""
        return changed(self, phase=phase)

    def moved_bytes(self, received_bytes: Callable[[str], int], now_s: float) -> int | None:
        """Return how far its input is if it does not move as planned; `received_bytes` says that of a job."""
        assignment = self.assignment
        since_s = now_s - assignment.dispatched_at
        if self.phase is not Phase.WAITING or not assignment.transfer or since_s < assignment.transfer[0].begin_s:
            return None
        return reported_bytes(assignment.transfer, assignment.input_bytes, received_bytes(self.uuid), since_s)


class HoldState(StrEnum):
    """State of a slot that is held for an instance."""

    PREPARING = "preparing"
    #: Scrubbed and loaded: the instance may use it.
    READY = "ready"
    #: It could not be scrubbed or loaded, and this is tried again.
    TROUBLED = "troubled"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that is kept for an instance."""

    action: HoldSlot
    state: HoldState = HoldState.PREPARING
    #: Why it is TROUBLED.
    problem: str = ""

    @property
    def ready(self) -> bool:
        """Whether the instance may use the slot."""
        return self.state is HoldState.READY


class Activity(StrEnum):
    """Current activity of a slot."""

    #: Nothing: what comes next is decided when the slot's executor asks (`events.SlotFree`).
    FREE = "free"
    LOADING = "loading"
    SCRUBBING = "scrubbing"
    COMPUTING = "computing"
    #: Its instance uses it.
    LENT = "lent"
    #: What its instance needs cannot be loaded: tried again after a pause, or when another one is to have the slot.
    RESTING = "resting"
    #: It failed: looked at after a pause.
    FAULTED = "faulted"


class AgentSlot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot of the agent's host."""

    name: str
    parameters: AgentParameters
    #: False for a worker of the CPU pool, where every function is there at once.
    loads: bool = True
    activity: Activity = Activity.FREE
    #: As reported: EMPTY, LOADING, READY, BUSY or FAULTED, since when, and why.
    state: SlotState = SlotState.EMPTY
    changed_at: float = 0.0
    reason: str = ""
    #: What is loaded, or being loaded; "" = nothing.
    function: str = ""
    #: What was loaded before the load under way.
    before: str = ""
    #: Attempt that it computes; "" and 0 = none.
    job: str = ""
    attempt: int = 0
    #: Project or instance whose data the memory may hold; None = scrubbed.
    memory_of: str | None = UNKNOWN
    #: For whom it is being scrubbed or loaded, and who uses it.
    preparing: HoldSlot | None = None
    lent_to: HoldSlot | None = None
    #: What it is to load when it has nothing else to do at this moment.
    ahead: LoadFunction | None = None
    #: How long it is left alone after its next fault.
    fault_pause_s: float = 0.0
    #: It is READY after a job, which is reported together with the end of that job.
    unannounced: bool = False

    @property
    def asks(self) -> bool:
        """Whether its executor may ask what comes next."""
        return self.activity in (Activity.FREE, Activity.LENT, Activity.RESTING)

    def report(self) -> SlotChanged:
        """Return what is reported about it."""
        return SlotChanged(slot=self.name, at=self.changed_at, **shared(self, SlotChanged))


#: Commands whose repetition is answered; older ones are refused as late, which comes to the same.
REMEMBERED = 100_000

_ABSENT = object()


class AgentState:
    """Jobs, slots and holds of one agent, and which commands it has executed.

    Reading is free; changes are made by `put` and `drop`, so that they can be taken back.
    """

    def __init__(self) -> None:
        self.slots: dict[str, AgentSlot] = {}
        self.jobs: dict[str, HeldJob] = {}
        #: The same jobs by slot.
        self.jobs_of_slot: defaultdict[str, dict[str, HeldJob]] = defaultdict(dict)
        #: Jobs whose end, or eviction after it, is to be recorded, in this order.
        self.ended: dict[str, None] = {}
        #: Slots that let another one of their card begin to load first, and since when.
        self.turns: dict[str, float] = {}
        #: By slot.
        self.holds: dict[str, Hold] = {}
        #: By slot: epoch and sequence of the last command.
        self.fences: dict[str, tuple[int, int]] = {}
        #: By shard: the latest epoch of commands.
        self.epochs: dict[str, int] = {}
        #: The latest commands, the oldest first.  Not a dict, which finds its first entry the more slowly the more were
        #: removed before it.
        self.executed: OrderedDict[str, None] = OrderedDict()
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Change or add an entry."""
        self._undo.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def drop(self, table: dict[Any, Any], key: Any) -> None:
        """Remove an entry, if it is there."""
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
        """Hold a job no more."""
        known = self.jobs[uuid]
        self.drop(self.jobs, uuid)
        self.drop(self.jobs_of_slot[known.slot], uuid)
        self.drop(self.ended, uuid)

    def remember(self, command: str) -> None:
        """Note that a command is executed; the oldest are forgotten when the change is kept."""
        self.put(self.executed, command, None)

    def keep(self) -> None:
        """Keep all changes made so far; they can no longer be undone."""
        self._undo.clear()
        while len(self.executed) > REMEMBERED:
            self.executed.popitem(last=False)

    def undo(self) -> None:
        """Take back all changes since `keep`."""
        while self._undo:
            table, key, before = self._undo.pop()
            if before is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = before
