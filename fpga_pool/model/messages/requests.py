"""Messages between the scheduler and its clients, tenants and operators, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar
from uuid import uuid5

from msgspec import Meta, field

from fpga_pool.model.codec import Message
from fpga_pool.model.fields import (
    Flat,
    Limit,
    Moment,
    Number,
    Port,
    Priority,
    ReportedMoment,
    Rest,
    Sha256,
    Text,
    Uuid,
    require_address,
)
from fpga_pool.model.objects.gangs import Gang, Migration, Process
from fpga_pool.model.objects.pool import SLOT_NAMESPACE, Batch, Job, LeaseKind, RateSegment, Slot
from fpga_pool.model.objects.tasks import Task

#: Inputs up to this size are sent in one burst, without rate control.
SMALL_INPUT_BYTES = 64 * 1024
#: Results up to this size are sent back in one burst, without rate control.
SMALL_RESULT_BYTES = 64 * 1024


class TicketRequest(Message, frozen=True, kw_only=True):
    """A client's request to move the bytes of one job; the source identifies its flow for rate control."""

    job: Uuid
    purpose: Annotated[str, Meta(pattern=r"^(send|fetch)\Z", description="send or fetch")]
    source_address: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.]{2,45}(%[\w.-]{1,15})?\Z", description="an IP address")]
    source_port: Port

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class TicketRequests(Message, frozen=True, kw_only=True):
    """Requests for tickets, of which all or none are granted."""

    tickets: Annotated[
        tuple[TicketRequest, ...], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000 requests")
    ]


class Receipt(Message, frozen=True, kw_only=True):
    """A client's confirmation that it has received and verified the result of a job."""

    job: Uuid
    sha256: Sha256


class Receipts(Message, frozen=True, kw_only=True):
    """Confirmations of received results, some of which the pool may not hold any more."""

    receipts: Annotated[tuple[Receipt, ...], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000")]


class BatchChange(Message, frozen=True, kw_only=True):
    """A tenant's request to change a batch; None = unchanged."""

    held: Annotated[bool, Meta(description="true or false")] | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in self.__struct_fields__):
            raise ValueError(f"nothing to change: expected {' or '.join(self.__struct_fields__)}")


class SlotChange(Message, frozen=True, kw_only=True):
    """An operator's request to take a slot, or all slots of a card, out of service or back into service."""

    drain: Annotated[bool, Meta(description="true or false")]
    reason: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A permission to move the bytes of one job, with the address, token and rates."""

    job: str
    #: The attempt for which it is valid; newer than the attempt known to the client if the job was planned again.
    attempt: int
    purpose: str
    address: str
    port: int
    token: str
    input_bytes: int
    #: Planned rates relative to the plan's time 0, and the present time relative to it.
    transfer: tuple[RateSegment, ...]
    elapsed_s: Number
    #: Whether the requester's host limits the stream to these rates, so that the client need not.
    shaped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The answer to a heartbeat: the pool's time in UTC seconds, and how soon others have to follow without news."""

    at: float
    #: Seconds within which another heartbeat, or a life sign, has to arrive.
    due_s: float
    #: Seconds within which a full heartbeat has to arrive; the same as `due_s` if the pool reads no life signs.
    full_due_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTicket:
    """A permission for an agent to read a result that is the input, or a part of it, of a job on its host."""

    #: The job whose result is read.
    job: str
    host: str
    address: str
    port: int
    tls: bool
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDetail:
    """A batch with its current predictions."""

    batch: Flat[Batch]
    #: Why some of its jobs wait for a place, and the expected start of the first of them, UTC seconds; "" and None if
    #: not applicable or unknown.
    pending_reason: str
    expected_at: Moment | None
    #: Planned end of the last of its placed jobs, UTC seconds; None = no job is placed.
    ends_at: Moment | None = None
    #: How long after its deadline it ends or is expected to end; None = not late, or no deadline.
    late_s: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """A job with the reason why it waits for a place ("" = it does not), and the expected start of its computation."""

    job: Flat[Job]
    pending_reason: str
    expected_at: Moment | None
    LISTED: ClassVar = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDetail:
    """A pipeline with its subtasks, which are the jobs of the batch with its uuid."""

    pipeline: Flat[Batch]
    #: As in `BatchDetail`.
    pending_reason: str
    expected_at: Moment | None
    ends_at: Moment | None = None
    late_s: Number | None = None
    #: Ordered by index; each subtask follows its predecessors.
    subtask_list: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """The jobs of a batch that have changed since the caller's previous query, by index."""

    jobs: tuple[Job, ...]
    #: Generation of each shard at this moment, which the next query passes as seen.
    seen: Mapping[str, int]
    #: Current time of the pool.
    at: Moment
    #: The batch if requested; read no earlier than its jobs.
    batch: Batch | None = None
    #: Tickets for the small inputs of jobs of a new batch.
    tickets: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """The jobs of a batch as the REST API lists them, by index."""

    jobs: tuple[Job, ...]
    #: Opaque value that the next query passes as `changed_after`.
    seen: str
    #: Current time of the pool, to which all its times refer.
    at: Moment
    #: The batch if requested; read no earlier than its jobs.
    batch: Batch | None
    #: Tickets for small inputs of a new batch.
    tickets: tuple[Ticket, ...]
    #: Link to the next page; left out in the answer to a new batch.
    links: Annotated[tuple[dict[str, str], ...], Rest.DETAIL] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInfo:
    """A function of the catalogue, with time models refitted to observed runs, if any."""

    name: str
    version: str
    slot_kinds: tuple[str, ...]
    io_bps: Limit
    preemptible: bool
    speedup: Number
    #: Number of slots of the pool that can hold it.
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process of the pool: a scheduler, the agent of a host, or a process of the API ("api")."""

    kind: str
    name: str
    #: Whether it has shown a sign of life within the timeout of its kind, by the clock of the answering scheduler.
    up: bool
    #: Its last sign of life, by the pool's clock.
    heard_at: Moment
    #: Shards that a scheduler owns or to which an agent belongs; empty for an API process.
    shards: tuple[str, ...]
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid: a scheduler and an agent may have the same name."""
        return str(uuid5(SLOT_NAMESPACE, f"{self.kind} {self.name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCount:
    """Number of slots on cards of one board, in one state, with one function loaded ("" = none)."""

    board: str
    state: str
    function: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCount:
    """Number of cards of one board in one state: "in_service", "out_of_service" or "unreachable", see `CardState`."""

    board: str
    state: str
    cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCount:
    """Number of slots held by one kind of holder: instance, pool, task or gang."""

    kind: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """Numbers of hosts, cards and slots of the pool, which are the same as in the metrics."""

    #: Release of the answering scheduler.
    release: str
    alive_hosts: int
    lost_hosts: int
    card_list: tuple[CardCount, ...]
    slot_list: tuple[SlotCount, ...]
    lease_list: tuple[LeaseCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCount:
    """Number of jobs, tasks or gangs in one state in which they have not ended."""

    #: "job", "task" or "gang".
    kind: str
    state: str
    count: int
    #: Creation time of the oldest of them.
    oldest_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fit of a function's time model to the observed runs on one board, with its errors."""

    function: str
    board: str
    runs: int
    catalogue_a_s: Number
    catalogue_b_s_per_byte: Number
    fitted_a_s: Number
    fitted_b_s_per_byte: Number
    mean_relative_error: Number
    worst_relative_error: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDetail:
    """A gang with its pending reason, expected start, progress and processes."""

    gang: Flat[Gang]
    #: Why it is not in the foreground, and when it is expected there, UTC seconds; "" and None if not applicable.
    pending_reason: str
    expected_at: Moment | None
    #: Progress of its slowest process, in seconds on a dedicated processor.
    done_s: Number
    #: Processes of its current or last attempt.
    process_list: tuple[Process, ...]
    migration_list: tuple[Migration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail:
    """A task with its current predictions, its slots and its shares."""

    task: Flat[Task]
    #: Why it waits, and when it is expected to get its slots, UTC seconds; "" and None if not applicable.
    pending_reason: str
    expected_at: Moment | None
    #: Names of the slots that it holds.
    slot_list: tuple[str, ...]
    #: Ordered by index.
    share_list: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDetail:
    """A slot with its holder."""

    slot: Flat[Slot]
    #: Kind of the holder; None = not held.
    held_by: LeaseKind | None = None
    #: Uuid and project of the instance, task or gang that holds it, or of the pool's job that computes on it or will
    #: compute next; "" = none.
    holder: str = ""
    holder_project_id: str = ""
    leased_at: Moment | None = None


class EventPage(Message, frozen=True, kw_only=True):
    """Filters and page of a list of events of all objects, newest first."""

    #: None = all projects, and objects that belong to none.
    project_id: str | None = None
    #: Accepted values; empty = any.
    kind: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    #: Start (inclusive) and end (exclusive) of the period, UTC seconds.
    since: ReportedMoment | None = None
    until: ReportedMoment | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    marker: str | None = None


class Page(Message, frozen=True, kw_only=True):
    """Filters, order and page of a list."""

    #: Project whose objects are listed; None = all projects, or objects that belong to none.
    project_id: str | None = None
    #: Accepted values by field; other fields may have any value.
    where: dict[str, tuple[str | bool, ...]] = field(default_factory=dict)
    #: Objects created before this are left out (hosts and slots: those whose last event was before it), UTC seconds.
    since: Moment | None = None
    #: Key of the last object of the previous page; None = the first page.
    marker: str | None = None
    limit: int | None = None
    #: Whether the newest object, or the last by name, comes first.
    descending: bool = False
