"""Gangs (two-tier paper) as frozen values: parallel jobs of n processes, each a virtual machine, in two tiers.

Every processor that a host offers to gangs can run one process in the foreground and one in the background.  As in
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

#: Maximum lengths of the name of an image and of a command for it, which has to fit in a table of the firmware.
LONGEST_IMAGE, LONGEST_COMMAND = 64, 1000
#: Used in place of a card in the name of a processor: host/pcpu/number.
PCPU = "pcpu"


class GangState(StrEnum):
    """State of a gang."""

    #: Waits without processors; remaining processes of an earlier attempt are being stopped.
    QUEUED = "QUEUED"
    #: Has its processors, and gets the time that their foreground leaves idle.
    BACKGROUND = "BACKGROUND"
    #: Has its processors, and has priority on them.
    FOREGROUND = "FOREGROUND"
    #: Has processors in the foreground, and is migrating to them from the background of others.
    MOVING = "MOVING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class ProcessState(StrEnum):
    """The stored state of one process of one attempt of a gang."""

    #: Has its place; launched when no process of an earlier attempt is left.
    RESERVED = "RESERVED"
    #: Its agent has been commanded to launch it.
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    #: Has completed its work; it keeps its place until the whole gang has.
    EXITED = "EXITED"
    #: Its agent has been commanded to save it so that it can resume elsewhere.
    SAVING = "SAVING"
    #: Its agent has been commanded to stop it.
    STOPPING = "STOPPING"
    #: Nothing of it is left on its host; it keeps its place until all processes of its attempt have been stopped.
    #: Otherwise a gang in the background would migrate to the places that are free first, instead of a swap soon after.
    STOPPED = "STOPPED"
    #: Its place is free.
    ENDED = "ENDED"


class MigrationState(StrEnum):
    """State of the migration of a gang to other processors."""

    #: The processes are being saved on their old processors, with their progress.
    SAVING = "SAVING"
    #: The processes are being launched on the new processors.
    RESUMING = "RESUMING"
    COMPLETED = "COMPLETED"
    #: Given up; the gang restarts from the beginning.
    FAILED = "FAILED"


#: States of gangs that have processors.
PLACED_GANGS = frozenset({GangState.BACKGROUND, GangState.FOREGROUND, GangState.MOVING})
#: States of gangs that have ended.
ENDED_GANGS = frozenset({GangState.COMPLETED, GangState.FAILED, GangState.CANCELLED})
#: States of processes that have a place.
LIVE_PROCESSES = frozenset(ProcessState) - {ProcessState.ENDED}
#: States of processes of which something exists on a host, as far as is known.
HELD_PROCESSES = frozenset({ProcessState.STARTING, ProcessState.RUNNING, ProcessState.SAVING, ProcessState.STOPPING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """A pCPU that a host offers to gangs; its name is host/pcpu/number."""

    name: str
    host: str
    #: Number of the pCPU on the host.
    number: int
    shard: str = DEFAULT_SHARD
    #: Whether its agent still offers it.
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
    #: Number of processes; each gets a processor.
    processes: int
    #: Requested run time on dedicated processors, used for decisions only: a gang that exceeds it is not killed.
    runtime_s: Number
    #: Share of a dedicated processor that each process uses.
    cpu_usage: Number
    #: Computation time for runners that simulate, in seconds on dedicated processors.
    work_s: Number
    created_at: Moment
    #: Image of its guests ("" = the default of their hosts), and the command passed to it.
    image: str = ""
    command: str = ""
    shard: Internal[str] = DEFAULT_SHARD
    state: GangState = GangState.QUEUED
    cancel_requested: bool = False
    #: Number of times that its processes were placed; reports of an older attempt are void.
    attempt: int = 0
    #: Number of times that it lost its processors because of a failure.
    failures: int = 0
    #: Human-readable reason why it waits or failed.
    reason: str = ""
    #: Estimated end, while it is in the foreground or moving there.
    ends_at: Moment | None = None
    #: Expected run time according to the last run times of its user; None = the requested one.
    expected_s: Internal[Number | None] = None
    #: Run time of a completed gang, in seconds on dedicated processors.
    ran_s: Internal[Number | None] = None
    #: End of its trial, during which it has the higher priority in the background; None = no trial.
    trial_ends_at: Internal[Moment | None] = None
    #: How long it has yielded to trials of gangs in the background since it came to the foreground.
    gave_way_s: Internal[Number] = 0.0
    started_at: Moment | None = None
    ended_at: Moment | None = None
    migrations: int = 0
    kills: int = 0
    swaps: int = 0
    #: Processor-seconds in each tier before `tier_since`, and CPU seconds that its processes have used.
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
    #: Progress at `progress_at`, in seconds on a dedicated processor, and its rate since then.
    done_s: Number = 0.0
    rate: Number = 0.0
    progress_at: Moment = 0.0
    #: CPU time that it has used, as reported when it ended.
    cpu_s: Number = 0.0
    #: Name of the saved memory from which it resumes; "" = none.
    saved: Internal[str] = ""
    #: Whether the two processes of its processor have exchanged their priorities, though not their places.
    exchanged: Internal[bool] = False
    generation: Internal[int] = 0
    history: Internal[tuple[HistoryEntry, ...]] = ()

    @property
    def about(self) -> dict[str, Any]:
        """Fields that identify it in messages."""
        return {"gang": self.gang_uuid, "index": self.index, "attempt": self.attempt}

    @property
    def priority(self) -> Tier:
        """The tier whose priority it has on its host."""
        if not self.exchanged:
            return self.tier
        return Tier.BACKGROUND if self.tier is Tier.FOREGROUND else Tier.FOREGROUND

    @property
    def held_place(self) -> str | None:
        """The place (processor and tier) that no other process can get; None if the process has left it."""
        return place_of(self.processor, self.tier) if self.state in LIVE_PROCESSES else None

    def done_by(self, now_s: float) -> float:
        """Return its progress as far as is known, in seconds on a dedicated processor."""
        return self.done_s + self.rate * max(now_s - self.progress_at, 0.0)


def place_of(processor: str, tier: Tier) -> str:
    """Return the name of a place, which is one tier of one processor."""
    return f"{processor}/{tier}"


def process_uuid(gang_uuid: str, attempt: int, index: int) -> str:
    """Return the deterministic uuid of a process of a gang."""
    return str(uuid.uuid5(SLOT_NAMESPACE, f"process {gang_uuid} {attempt} {index}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProcessor:
    """A processor with the processes in its two tiers, as operators see it; not stored."""

    #: host/pcpu/number
    name: str
    host: str
    number: int
    #: Whether its agent still offers it.
    offered: bool
    #: None = no process.
    foreground: Process | None
    background: Process | None
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the processor."""
        return _processor_uuid(self.name)


def with_processes(processors: Iterable[Processor], processes: Iterable[Process]) -> list[GangProcessor]:
    """Return processors with the processes in their tiers; all `processes` must have places."""
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
    """A migration of a gang, with its progress, from the background of some processors to the foreground of others."""

    uuid: str
    gang_uuid: str
    #: The attempt that begins on the new processors.
    attempt: int
    began_at: Moment
    shard: Internal[str] = DEFAULT_SHARD
    state: MigrationState = MigrationState.SAVING
    reason: str = ""
    ended_at: Moment | None = None
    generation: Internal[int] = 0
    history: Internal[tuple[HistoryEntry, ...]] = ()


def migration_uuid(gang_uuid: str, attempt: int) -> str:
    """Return the deterministic uuid of the migration with which this attempt of a gang begins."""
    return str(uuid.uuid5(SLOT_NAMESPACE, f"migration {gang_uuid} {attempt}"))
