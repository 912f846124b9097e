"""The pool's objects as frozen values: what the database stores and what the transition tables change.

Points in time (`*_at`) are UTC seconds since the epoch; times of a plan (`start_s`, segments) are relative to the
job's `dispatched_at`.  Every object has a `generation`, which the store compares and swaps, and a `history` of its
events, oldest first, which every InvalidTransition includes.
"""

import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import Detail, Group, Internal, Limit, Moment, Number, Priority
from fpga_pool.model.objects.history import HistoryEntry

#: Namespace of the deterministic uuids of slots, and of providers in Placement.
SLOT_NAMESPACE = uuid.UUID("5b0c1b9e-6b0e-5f0c-9d0a-4f1f7c1f2a11")

#: The only shard of a pool that is not divided.
DEFAULT_SHARD = "default"

#: Board, kind and card of a worker of an agent's CPU pool, which is a place like a slot but needs no loading.
CPU = "cpu"

#: Used as the policy of a batch whose jobs depend on each other, and which is neither planned nor online.
PIPELINE_POLICY = "pipeline"


class BatchState(StrEnum):
    """State of a batch."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


#: Deadline used for batches without one, UTC seconds: the end of the year 9999.
NEVER = 253_402_300_799.0

#: Reason why the jobs of a held batch wait.
HELD = "held by its owner"

#: States of batches that have ended.
ENDED_BATCHES = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED})


class JobState(StrEnum):
    """State of a job, which also tells where its data are."""

    #: Recorded, not on a slot; the input is with the client.
    PENDING = "PENDING"
    #: Planned on a slot; the input is with the client or under way.
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
    """State of a slot as observed by its agent; DRAINED is the result of an operator's request."""

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


#: States of active jobs, which are in a slot's queue.
ACTIVE_JOBS = frozenset({JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING})
#: States of jobs that have ended their computation.
ENDED_JOBS = frozenset({JobState.RESULT_HELD, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class RateSegment(Message, frozen=True):
    """A constant-rate piece of a transfer, relative to the job's `dispatched_at`."""

    begin_s: Number
    end_s: Number
    bps: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Jobs that are submitted together; a batch is complete when its last job is."""

    uuid: str
    project_id: str
    user_id: str
    name: str
    policy: str
    created_at: Moment
    jobs: int
    state: BatchState = BatchState.PENDING
    cancel_requested: bool = False
    #: Whether its owner holds it: its jobs get no places.
    held: bool = False
    #: Among waiting batches, the highest priority comes first.
    priority: Priority = 0
    #: When its owner wants it complete; among equal priorities, the earliest deadline comes first.
    deadline_at: Moment | None = None
    #: Incomplete batches that have to complete before its jobs get places.
    waits_for: tuple[str, ...] = ()
    #: Number of ended jobs by outcome; the batch ends when they add up to `jobs`.
    jobs_completed: int = 0
    jobs_failed: int = 0
    jobs_cancelled: int = 0
    dispatched_at: Moment | None = None
    ended_at: Moment | None = None
    #: Prediction of the first plan of the whole batch, relative to `dispatched_at`.
    planned_makespan_s: Number | None = None
    lower_bound_s: Number | None = None
    #: Predicted return of its last result, and a proven lower bound on it; as above if results are not planned.
    planned_completion_s: Number | None = None
    completion_bound_s: Number | None = None
    #: Total size of the inputs of its jobs, as requested.
    input_bytes: Internal[int] = 0
    generation: Internal[int] = 0
    history: Detail[tuple[HistoryEntry, ...]] = ()

    @property
    def rank(self) -> tuple[int, float, float, str]:
        """Sort key among waiting batches; the lowest comes first."""
        return -self.priority, NEVER if self.deadline_at is None else self.deadline_at, self.created_at, self.uuid

    @property
    def withheld(self) -> str:
        """Human-readable reason why its jobs are not placed although slots are free; "" if they may be placed."""
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
    #: For a job with predecessors, 0 until their results are known.
    input_bytes: int
    created_at: Moment
    group: Group = 0
    #: Jobs of its batch whose concatenated results are its input; empty = its requester sends the input.
    predecessors: tuple[str, ...] = ()
    #: Shard that plans and runs it; it never changes.
    shard: Internal[str] = DEFAULT_SHARD
    state: JobState = JobState.PENDING
    cancel_requested: bool = False
    #: Number of times that it was planned; reports of an older attempt are void.
    attempt: int = 0
    #: Number of attempts that are not counted: the slot was drained, or it failed before it had begun with the job.
    excused: Internal[int] = 0
    #: Human-readable reason why it waits or failed, and the stable code of a failure.
    reason: str = ""
    error_code: str = ""
    #: Its planned place, and its rank among the jobs of that slot.
    host: str = ""
    slot: str = ""
    order: int = 0
    #: The plan, relative to `dispatched_at`.
    dispatched_at: Moment | None = None
    start_s: Number | None = None
    end_s: Number | None = None
    transfer: tuple[RateSegment, ...] = ()
    #: Planned transfer of the result, in seconds after the end of the computation; empty if no rates are planned.
    result_transfer: tuple[RateSegment, ...] = ()
    #: Share of the work done before an eviction, which is kept with the input on `host`.
    done: Number = 0.0
    #: Source "address:port" of the stream with the input, as observed by the responder; it identifies the flow.
    flow: Internal[str] = ""
    #: Received bytes of the input at `moved_at`, while the transfer is not as planned.
    moved_bytes: Internal[int | None] = None
    moved_at: Internal[Moment | None] = None
    #: Observed times.  `transfer_began_at`, the arrival of the first byte of the input, is reported when the input is
    #: complete; None if all of it came at once, was there already, or began to arrive before the agent's start.
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
        """Number of attempts that count towards the limit at which the pool gives the job up."""
        return self.attempt - self.excused

    @property
    def place(self) -> str:
        """Kind of its place in `slot`: "slot" or "cpu"; "" = none."""
        return "" if not self.slot else CPU if is_cpu(self.slot) else "slot"

    @property
    def expected_at(self) -> Moment | None:
        """Planned start of the computation, UTC seconds; None unless it has a place and has not begun."""
        begun = self.state not in (JobState.WAITING_INPUT, JobState.STAGED)
        return None if begun or self.dispatched_at is None else self.dispatched_at + (self.start_s or 0.0)


def is_cpu(slot_name: str) -> bool:
    """Return whether a place (host/card/region) is a worker of its host's CPU pool."""
    return slot_name.split("/")[1:2] == [CPU]


def input_due_at(job: Job) -> float:
    """Return the end of a job's planned transfer, UTC seconds."""
    return (job.dispatched_at or job.created_at) + max((piece.end_s for piece in job.transfer), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A compute node: NIC limits, the address of its data port, and the time of its last heartbeat."""

    name: str
    egress_bps: Limit
    ingress_bps: Limit
    data_address: str
    data_port: int
    heard_at: Moment
    #: Shard to which it belongs; assigned with its first heartbeat.
    shard: Internal[str] = DEFAULT_SHARD
    availability_zone: Internal[str] = ""
    #: Secret of the agent that represents the host; other agents are refused while this one lives.
    agent_id: Internal[str] = ""
    #: Number of starts of that agent, and of heartbeats since the last start; messages that are not later are void.
    boot: int = 0
    beat: Internal[int] = 0
    #: Number of the last report that was applied; a repeat is void.
    reported: Internal[int] = 0
    alive: bool = True
    #: Egress driver with which its agent limits flows; "" = senders limit themselves.
    egress_driver: Internal[str] = ""
    #: Whether the data port accepts TLS only.
    data_tls: bool = False
    #: Numbers of streams and commands that the agent has refused since its start.
    refused_streams: int = 0
    refused_commands: int = 0
    #: Number of heartbeats and reports in its name that the scheduler has refused.
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
    #: Links to other slots, in the text format of `model.objects.links`.
    links: str = ""
    #: Shard of its host.
    shard: Internal[str] = DEFAULT_SHARD
    state: SlotState = SlotState.EMPTY
    #: Function that is loaded, as observed; "" = none.
    function: str = ""
    #: Job that it computes, as observed; "" = none.
    job: str = ""
    #: Whether the operator wants no new work on it.
    drain_requested: bool = False
    reason: str = ""
    #: Number of the last command sent to this slot; agents refuse lower ones.
    sequence: Internal[int] = 0
    #: Epoch of the last lease granted on this slot.
    lease_epoch: Internal[int] = 0
    #: Number of reported loads.
    reconfigurations: int = 0
    #: When its function was loaded, UTC seconds; None = no function, or loaded before the slot was first seen.
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
    """The record of who holds a slot; there is at most one HELD lease per slot."""

    uuid: str
    slot: str
    kind: LeaseKind
    #: The shard if the pool's own jobs use the slot; otherwise an instance, task or gang.
    holder: str
    project_id: str
    #: Increases with every lease of the slot; a holder with an older epoch has lost the slot.
    epoch: int
    #: Whether a claim of higher rank may take the slot.
    revocable: bool
    granted_at: Moment
    state: LeaseState = LeaseState.HELD
    released_at: Moment | None = None
    #: Function that an instance requests for its slot; "" = the holder loads functions itself.
    function: str = ""
    #: Why the instance cannot use the slot; "" = it can, or its function was not loaded yet.
    broken: str = ""
    generation: int = 0
    history: tuple[HistoryEntry, ...] = ()

    @property
    def of_instance(self) -> bool:
        """Whether a virtual machine holds the slot."""
        return self.kind is LeaseKind.INSTANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """A part of the pool with one active owner, fenced by an epoch that increases with every change of owner.

    `generation` increases with every renewal; if it does not change for some time, the owner is dead.
    """

    name: str
    owner: str
    epoch: int
    renewed_at: Moment
    #: Increases with every committed change of the shard's objects; it identifies the version of a PoolView.
    pool_generation: int = 0
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """A scheduler process; like that of a shard, its `generation` increases while it lives."""

    name: str
    heard_at: Moment
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One observed computation, used to refit time models."""

    job: str
    attempt: int
    function: str
    board: str
    input_bytes: int
    compute_s: Number
    finished_at: Moment
