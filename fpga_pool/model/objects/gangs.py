"""Gangs (two-tier paper) as frozen values: parallel jobs of n processes, each a virtual machine, in two tiers.

Every processor that a host gives to gangs carries a process in the foreground and one in the background.  As in
`model.objects.pool`, points in time are UTC seconds, and every object has a `generation` and a `history`.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from fpga_pool.model.fields import Detail, Internal, Moment, Number
from fpga_pool.model.flavor import Tier
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import DEFAULT_SHARD, SLOT_NAMESPACE

#: What an image may be called, and how long a command for it may be: it has to fit in a table of the firmware.
LONGEST_IMAGE, LONGEST_COMMAND = 64, 1000
#: Card of the name of a processor: host/pcpu/number.
PCPU = "pcpu"


class GangState(StrEnum):
    """Where a gang is in its life."""

    #: Waits, and has no processors; what is left of a former attempt is being stopped.
    QUEUED = "QUEUED"
    #: Has its processors, and gets what their foreground leaves idle.
    BACKGROUND = "BACKGROUND"
    #: Has its processors, and comes first on them.
    FOREGROUND = "FOREGROUND"
    #: Has processors in the foreground, and is on its way to them from the background of others.
    MOVING = "MOVING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ProcessState(StrEnum):
    """The stored state of one process of one attempt of a gang."""

    #: Has its place; launched when no process of a former attempt is left.
    RESERVED = "RESERVED"
    #: Its agent has been commanded to launch it.
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    #: Its work is done; it keeps its place until that of the whole gang is.
    EXITED = "EXITED"
    #: Its agent has been commanded to save it so that it can resume elsewhere.
    SAVING = "SAVING"
    #: Its agent has been commanded to stop it.
    STOPPING = "STOPPING"
    #: Nothing of it is left on its host; it keeps its place until all of its attempt have been stopped, for who runs
    #: behind them would be moved to what is free already, and can be swapped a moment later.
    STOPPED = "STOPPED"
    #: Its place is free.
    ENDED = "ENDED"


class MigrationState(StrEnum):
    """How far a move of a gang to other processors is."""

    #: The processes are taken off their old processors, with what they have done.
    SAVING = "SAVING"
    #: They are launched on the new ones.
    RESUMING = "RESUMING"
    COMPLETED = "COMPLETED"
    #: Given up; the gang begins again.
    FAILED = "FAILED"


#: Gangs that have processors.
PLACED_GANGS = frozenset({GangState.BACKGROUND, GangState.FOREGROUND, GangState.MOVING})
#: Gangs that will not run any more.
ENDED_GANGS = frozenset({GangState.COMPLETED, GangState.FAILED, GangState.CANCELLED})
#: Processes that have a place.
LIVE_PROCESSES = frozenset(ProcessState) - {ProcessState.ENDED}
#: Processes of which something is on a host, as far as is known.
HELD_PROCESSES = frozenset({ProcessState.STARTING, ProcessState.RUNNING, ProcessState.SAVING, ProcessState.STOPPING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A pCPU that a host gives to gangs; its name is host/pcpu/number."""

    name: str
    host: str
    #: The host's own number of it.
    number: int
    shard: str = DEFAULT_SHARD
    #: Its agent offers it.
    offered: bool = True
    #: Number of the last command sent to it; agents refuse lower ones.
    sequence: int = 0
    generation: int = 0

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the processor."""
        return _processor_uuid(self.name)


def _processor_uuid(name: str) -> str:
    return str(uuid.uuid5(SLOT_NAMESPACE, name))


def processor_name(host: str, number: int) -> str:
    """Return the name of a processor in the pool."""
    return f"{host}/{PCPU}/{number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A parallel job: `processes` virtual machines that run together."""

    uuid: str
    project_id: str
    user_id: str
    name: str
    #: How many processes; each gets a processor.
    processes: int
    #: Requested run time on dedicated processors: for decisions only; a gang that exceeds it is not killed.
    runtime_s: Number
    #: Share of a processor that each process uses on one of its own.
    cpu_usage: Number
    #: What a runner that simulates computes: seconds on dedicated processors.
    work_s: Number
    created_at: Moment
    #: Image of its guests, "" = the default of their hosts; and the command passed to it.
    image: str = ""
    command: str = ""
    shard: Internal[str] = DEFAULT_SHARD
    state: GangState = GangState.QUEUED
    cancel_requested: bool = False
    #: How often its processes were given processors; reports of an older attempt are void.
    attempt: int = 0
    #: How often it was taken off its processors because something failed.
    failures: int = 0
    #: Why it waits or failed, for people.
    reason: str = ""
    #: When it is done by its estimate, while it is in the foreground or on its way there.
    ends_at: Moment | None = None
    #: How long it is expected to run by the last run times of its user; None = as long as was requested.
    expected_s: Internal[Number | None] = None
    #: How long it has run when it is done, in seconds on dedicated processors.
    ran_s: Internal[Number | None] = None
    #: Until when it has the higher priority in the background; None = it has none.
    trial_ends_at: Internal[Moment | None] = None
    #: For how long it has given way to such gangs since it came to the foreground.
    gave_way_s: Internal[Number] = 0.0
    started_at: Moment | None = None
    ended_at: Moment | None = None
    migrations: int = 0
    kills: int = 0
    swaps: int = 0
    #: Processor-seconds that it had in each tier before `tier_since`, and CPU seconds that its processes have used.
    foreground_s: Number = 0.0
    background_s: Number = 0.0
    tier_since: Internal[Number | None] = None
    cpu_s: Number = 0.0
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of one attempt of a gang, in one tier of one processor."""

    uuid: str
    gang_uuid: str
    #: Position in the gang.
    index: int
    attempt: int
    processor: str
    host: str
    tier: Tier
    shard: Internal[str] = DEFAULT_SHARD
    state: ProcessState = ProcessState.RESERVED
    reason: str = ""
    #: Progress: what it had done at a moment, in seconds on a dedicated processor, and its rate since.
    done_s: Number = 0.0
    rate: Number = 0.0
    progress_at: Moment = 0.0
    #: CPU time it has used, as reported when it ended.
    cpu_s: Number = 0.0
    #: Name of the saved memory that it begins from; "" = none.
    saved: Internal[str] = ""
    #: The two processes of its processor have exchanged their priorities; they keep their places.
    exchanged: Internal[bool] = False
    generation: Internal[int] = 0
    history: Internal[tuple[HistoryEntry, ...]] = ()

    @property
    def about(self) -> dict[str, Any]:
        """What messages call it by."""
        return {"gang": self.gang_uuid, "index": self.index, "attempt": self.attempt}

    @property
    def priority(self) -> Tier:
        """The tier whose priority it has on its host."""
        if not self.exchanged:
            return self.tier
        return Tier.BACKGROUND if self.tier is Tier.FOREGROUND else Tier.FOREGROUND

    @property
    def held_place(self) -> str | None:
        """The tier of the processor that no other process can have; None where it has left it."""
        return place_of(self.processor, self.tier) if self.state in LIVE_PROCESSES else None

    def done_by(self, now_s: float) -> float:
        """Return what it has done, in seconds on a dedicated processor, as far as is known."""
        return self.done_s + self.rate * max(now_s - self.progress_at, 0.0)


def place_of(processor: str, tier: Tier) -> str:
    """Return how a tier of a processor is called."""
    return f"{processor}/{tier}"


def process_uuid(gang_uuid: str, attempt: int, index: int) -> str:
    """Return the deterministic uuid of a process of a gang."""
    return str(uuid.uuid5(SLOT_NAMESPACE, f"process {gang_uuid} {attempt} {index}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProcessor:
    """A processor with what its two tiers carry, as operators see it: this is not stored."""

    #: host/pcpu/number
    name: str
    host: str
    number: int
    #: Its agent offers it.
    offered: bool
    #: None = nothing.
    foreground: Process | None
    background: Process | None
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the processor."""
        return _processor_uuid(self.name)


def with_processes(processors: Iterable[Processor], processes: Iterable[Process]) -> list[GangProcessor]:
    """Return processors with those of the processes, which have places, that are on them."""
    held = {process.held_place: process for process in processes}
    return [
        GangProcessor(
            name=one.name,
            host=one.host,
            number=one.number,
            offered=one.offered,
            foreground=held.get(place_of(one.name, Tier.FOREGROUND)),
            background=held.get(place_of(one.name, Tier.BACKGROUND)),
        )
        for one in processors
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A move of a gang from the background of some processors to the foreground of others, with its progress."""

    uuid: str
    gang_uuid: str
    #: The attempt that it leads to.
    attempt: int
    began_at: Moment
    shard: Internal[str] = DEFAULT_SHARD
    state: MigrationState = MigrationState.SAVING
    reason: str = ""
    ended_at: Moment | None = None
    generation: Internal[int] = 0
    history: Internal[tuple[HistoryEntry, ...]] = ()


def migration_uuid(gang_uuid: str, attempt: int) -> str:
    """Return the deterministic uuid of the migration of a gang that leads to an attempt."""
    return str(uuid.uuid5(SLOT_NAMESPACE, f"migration {gang_uuid} {attempt}"))
