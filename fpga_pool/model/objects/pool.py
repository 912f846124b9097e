"""The pool's objects as frozen values: what the database stores and what the transition tables change.

Points in time (`*_at`) are UTC seconds since the epoch; plan times (`start_s`, segments) are relative to the
job's `dispatched_at`.  Every object carries a `generation` that the store compares and swaps, and a `history`: its
events, oldest first, which every InvalidTransition quotes.
"""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Detail, Group, Internal, Limit, Moment, Number, Priority
from fpga_pool.model.objects.history import HistoryEntry

#: Namespace of the deterministic uuids of slots (and, later, of Placement's providers).
SLOT_NAMESPACE = uuid.UUID("5b0c1b9e-6b0e-5f0c-9d0a-4f1f7c1f2a11")

#: The only shard of a pool that is not divided.
DEFAULT_SHARD = "default"

#: Board and kind of a worker of an agent's CPU pool, and its card: a place like a slot, which needs no loading.
CPU = "cpu"

#: What stands for the policy in a batch whose jobs depend on each other: it is neither planned nor online.
PIPELINE_POLICY = "pipeline"


class BatchState(StrEnum):
    """Where a batch is in its life."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: Deadline of what has none, UTC seconds: the end of the year 9999.
NEVER = 253_402_300_799.0

#: Why jobs wait that would otherwise have places.
HELD = "held by its owner"

#: Batches that have ended.
ENDED_BATCHES = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED})


class JobState(StrEnum):
    """Where a job is in its life, and so where its bytes are."""

    #: Recorded, not on a slot; the input is with the client.
    PENDING = "PENDING"
    #: Planned on a slot; the input is with the client or on its way.
    WAITING_INPUT = "WAITING_INPUT"
    #: The responder holds the whole input and has acknowledged it.
    STAGED = "STAGED"
    #: Computing in its slot.
    RUNNING = "RUNNING"
    #: Complete; the responder holds the result until it is fetched or its retention ends.
    RESULT_HELD = "RESULT_HELD"
    #: Complete; the client has the result, or the retention has ended.
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class SlotState(StrEnum):
    """What a slot is doing, as its agent observed it; DRAINED is what the operator asked for and got."""

    EMPTY = "EMPTY"
    LOADING = "LOADING"
    READY = "READY"
    BUSY = "BUSY"
    FAULTED = "FAULTED"
    DRAINED = "DRAINED"


class LeaseState(StrEnum):
    """Whether a lease is in force."""

    HELD = "HELD"
    RELEASED = "RELEASED"


class LeaseKind(StrEnum):
    """Who can hold a slot."""

    INSTANCE = "instance"
    POOL = "pool"
    TASK = "task"
    GANG = "gang"


#: Jobs that occupy a place in a slot's queue.
ACTIVE_JOBS = frozenset({JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING})
#: Jobs that will not compute any more.
ENDED_JOBS = frozenset({JobState.RESULT_HELD, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class RateSegment(Message, frozen=True):
    """A constant-rate piece of a transfer, relative to the job's `dispatched_at`."""

    begin_s: Number
    end_s: Number
    bps: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Jobs that arrive together; complete when the last is."""

    uuid: str
    project_id: str
    user_id: str
    name: str
    policy: str
    created_at: Moment
    jobs: int
    state: BatchState = BatchState.PENDING
    cancel_requested: bool = False
    #: Its owner wants no place for its jobs for now.
    held: bool = False
    #: Of those that wait at the same time, the highest comes first.
    priority: Priority = 0
    #: When its owner wants it complete: of equal priorities the earliest comes first.
    deadline_at: Moment | None = None
    #: Batches that have to be complete before its jobs get places, as far as they are not.
    waits_for: tuple[str, ...] = ()
    #: Jobs that ended, by outcome; the batch ends when they add up to `jobs`.
    jobs_completed: int = 0
    jobs_failed: int = 0
    jobs_cancelled: int = 0
    dispatched_at: Moment | None = None
    ended_at: Moment | None = None
    #: What the first plan of the whole batch promised, relative to `dispatched_at`.
    planned_makespan_s: Number | None = None
    lower_bound_s: Number | None = None
    #: When its last result was promised to be back, and a proven bound on that: as above where results are not planned.
    planned_completion_s: Number | None = None
    completion_bound_s: Number | None = None
    #: Input of all its jobs, as it was asked for.
    input_bytes: Internal[int] = 0
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Its place among batches that wait: the lowest comes first."""
        return -self.priority, NEVER if self.deadline_at is None else self.deadline_at, self.created_at, self.uuid

    @property
    def withheld(self) -> str:
        """Why its jobs get no places even where slots are free, for people; "" = they may."""
        if self.state in ENDED_BATCHES:
            return ""
        others = f"waits for {_batches(self.waits_for)}" if self.waits_for else ""
        return "; ".join(filter(None, (HELD if self.held else "", others)))


def _batches(uuids: tuple[str, ...]) -> str:
    return f"batch {uuids[0]}" if len(uuids) == 1 else f"batches {', '.join(uuids)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One unit of accelerator work."""

    uuid: str
    batch_uuid: str
    project_id: str
    user_id: str
    #: Position in the batch.
    index: int
    name: str
    function: str
    #: Host whose NIC sends the input, or "server:UUID"; "" for a job with predecessors.
    requester: str
    #: Of a job with predecessors: 0 until their results are known.
    input_bytes: int
    created_at: Moment
    group: Group = 0
    #: Jobs of its batch whose results, one after the other, are its input; empty = its requester sends it.
    predecessors: tuple[str, ...] = ()
    #: Part of the pool that plans and runs it; for its whole life.
    shard: Internal[str] = DEFAULT_SHARD
    state: JobState = JobState.PENDING
    cancel_requested: bool = False
    #: How many times it was planned; reports of an older attempt are void.
    attempt: int = 0
    #: Attempts that do not count against the job: its slot was drained, or failed before it had begun with the job.
    excused: Internal[int] = 0
    #: Why it waits or failed, for people; and the stable code of a failure.
    reason: str = ""
    error_code: str = ""
    #: Where it was planned, and its rank among the jobs of that slot.
    host: str = ""
    slot: str = ""
    order: int = 0
    #: The plan, relative to `dispatched_at`.
    dispatched_at: Moment | None = None
    start_s: Number | None = None
    end_s: Number | None = None
    transfer: tuple[RateSegment, ...] = ()
    #: How the result is planned to flow back, in seconds after the computation ends; empty where no rates are planned.
    result_transfer: tuple[RateSegment, ...] = ()
    #: Share of the work that is done and kept with the input on `host`, after an eviction.
    done: Number = 0.0
    #: Source "address:port" of the stream that brings the input, as the responder has seen it; identifies the flow.
    flow: Internal[str] = ""
    #: How much of the input its responder had at a moment, while that is not as planned.
    moved_bytes: Internal[int | None] = None
    moved_at: Internal[Moment | None] = None
    #: What happened.  First, when the first byte of the input came: reported once all of it is there; None where that
    #: came at once, was there already, or had begun before the agent was started.
    transfer_began_at: Moment | None = None
    staged_at: Moment | None = None
    started_at: Moment | None = None
    finished_at: Moment | None = None
    ended_at: Moment | None = None
    compute_s: Number | None = None
    result_bytes: int | None = None
    result_sha256: str = ""
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()
    #: Properties that the REST API shows like fields.
    ALSO_SHOWN: ClassVar = ("place", "expected_at")

    @property
    def counted_attempts(self) -> int:
        """How many of its attempts count when it is decided whether it is given up."""
        return self.attempt - self.excused

    @property
    def place(self) -> str:
        """What `slot` is: "slot" or "cpu"; "" = none."""
        return "" if not self.slot else CPU if is_cpu(self.slot) else "slot"

    @property
    def expected_at(self) -> Moment | None:
        """When it is planned to begin to compute, UTC seconds; None unless it has a place and has not begun."""
        begun = self.state not in (JobState.WAITING_INPUT, JobState.STAGED)
        return None if begun or self.dispatched_at is None else self.dispatched_at + (self.start_s or 0.0)


def is_cpu(slot_name: str) -> bool:
    """Return whether a place (host/card/region) is a worker of its host's CPU pool."""
    return slot_name.split("/")[1:2] == [CPU]


def input_due_at(job: Job) -> float:
    """Return when a job's planned transfer is over, UTC seconds."""
    return (job.dispatched_at or job.created_at) + max((piece.end_s for piece in job.transfer), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A compute node: NIC limits, the address of its data port, and when it was last heard."""

    name: str
    egress_bps: Limit
    ingress_bps: Limit
    data_address: str
    data_port: int
    heard_at: Moment
    #: Part of the pool that it belongs to; given when it was first heard.
    shard: Internal[str] = DEFAULT_SHARD
    availability_zone: Internal[str] = ""
    #: Secret of the agent that represents the host; another one is refused while this one lives.
    agent_id: Internal[str] = ""
    #: Starts of that agent, and heartbeats since the last of them: what is not later than these is void.
    boot: int = 0
    beat: Internal[int] = 0
    #: Number of the last report that was applied; a repeat is void.
    reported: Internal[int] = 0
    alive: bool = True
    #: Egress driver by which its agent limits flows; "" = senders pace themselves.
    egress_driver: Internal[str] = ""
    #: The data port speaks TLS only.
    data_tls: bool = False
    #: Streams that the data port, and commands that the agent has refused since the agent's start.
    refused_streams: int = 0
    refused_commands: int = 0
    #: Heartbeats and reports in its name that the scheduler has refused.
    refused_messages: int = 0
    #: Name of its provider in Placement; "" = that of the host.
    node: Internal[str] = ""
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One DPR region of a card; its name (host/card/region) is stable across reboots."""

    name: str
    host: str
    card: str
    region: str
    board: str
    kind: str
    #: How it is linked to other slots, as a word of `model.objects.links`.
    links: str = ""
    #: That of its host.
    shard: Internal[str] = DEFAULT_SHARD
    state: SlotState = SlotState.EMPTY
    #: Function loaded now, as observed; "" = none.
    function: str = ""
    #: Job computing now, as observed; "" = none.
    job: str = ""
    #: The operator wants no new work here.
    drain_requested: bool = False
    reason: str = ""
    #: Number of the last command sent to this slot; agents refuse lower ones.
    sequence: Internal[int] = 0
    #: Epoch of the last lease granted on this slot.
    lease_epoch: Internal[int] = 0
    #: How often another function was loaded, as reported.
    reconfigurations: int = 0
    #: When the function it holds was loaded, UTC seconds; None = none is, or it was there when the slot was first seen.
    loaded_at: Moment | None = None
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid of the slot."""
        return str(uuid.uuid5(SLOT_NAMESPACE, self.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who holds a slot; at most one HELD lease per slot."""

    uuid: str
    slot: str
    kind: LeaseKind
    #: What holds it: the shard for the pool's own jobs; an instance, task or gang otherwise.
    holder: str
    project_id: str
    #: Grows with every lease of the slot: a holder of an older epoch has lost it.
    epoch: int
    #: A claim of higher rank may take the slot.
    revocable: bool
    granted_at: Moment
    state: LeaseState = LeaseState.HELD
    released_at: Moment | None = None
    #: What an instance has its slot hold; "" = whatever the holder loads.
    function: str = ""
    #: Why its instance cannot use the slot; "" = it can, or its function was not loaded yet.
    broken: str = ""
    generation: int = 0
    history: tuple[HistoryEntry, ...] = ()

    @property
    def of_instance(self) -> bool:
        """Whether a virtual machine holds the slot."""
        return self.kind is LeaseKind.INSTANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of the pool with one active owner, fenced by an epoch that grows with every change of owner.

    `generation` grows with every renewal: if it stands still, the owner is dead.
    """

    name: str
    owner: str
    epoch: int
    renewed_at: Moment
    #: Grows with every committed change of the shard's objects: the stamp of a PoolView.
    pool_generation: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """A pool scheduler process; like a shard's, its `generation` grows as long as it lives."""

    name: str
    heard_at: Moment
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One observed computation, from which time models are refitted."""

    job: str
    attempt: int
    function: str
    board: str
    input_bytes: int
    compute_s: Number
    finished_at: Moment
