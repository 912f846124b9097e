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

#: An input of at most this size moves in one burst: no flow of its own is limited for it.
SMALL_INPUT_BYTES = 64 * 1024
#: Results up to this size flow back in one burst, without their own rates.
SMALL_RESULT_BYTES = 64 * 1024


class TicketRequest(Message, frozen=True, kw_only=True):
    """A client's wish to move the bytes of one job; the source identifies its flow for rate control."""

    job: Uuid
    purpose: Annotated[str, Meta(pattern=r"^(send|fetch)\Z", description="send or fetch")]
    source_address: Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.]{2,45}(%[\w.-]{1,15})?\Z", description="an IP address")]
    source_port: Port

    def __post_init__(self) -> None:
        require_address("source_address", self.source_address)


class TicketRequests(Message, frozen=True, kw_only=True):
    """Wishes to move bytes, granted all or none."""

    tickets: Annotated[
        tuple[TicketRequest, ...], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000 requests")
    ]


class Receipt(Message, frozen=True, kw_only=True):
    """A client's word that it has the result of a job, checked."""

    job: Uuid
    sha256: Sha256


class Receipts(Message, frozen=True, kw_only=True):
    """Results that a client has, as far as the pool may hold them still."""

    receipts: Annotated[tuple[Receipt, ...], Meta(min_length=1, max_length=1000, description="a list of 1 to 1000")]


class BatchChange(Message, frozen=True, kw_only=True):
    """A tenant's wish to change a batch; None = as it is."""

    held: Annotated[bool, Meta(description="true or false")] | None = None
    priority: Priority | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in self.__struct_fields__):
            raise ValueError(f"nothing to change: expected {' or '.join(self.__struct_fields__)}")


class SlotChange(Message, frozen=True, kw_only=True):
    """An operator's wish to take a slot, or all slots of a card, out of service, or to give them back."""

    drain: Annotated[bool, Meta(description="true or false")]
    reason: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Leave to move the bytes of one job: where to, with which token, how fast."""

    job: str
    #: The attempt that it is good for: another one than the client knows of if the job was planned again meanwhile.
    attempt: int
    purpose: str
    address: str
    port: int
    token: str
    input_bytes: int
    #: Rates relative to the plan's time 0, and what time it is there now.
    transfer: tuple[RateSegment, ...]
    elapsed_s: Number
    #: The requester's host holds the stream to these rates: the client need not.
    shaped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTicket:
    """Leave for an agent to read a result that is the input of a job on its host, or a part of it."""

    #: Whose result it is.
    job: str
    host: str
    address: str
    port: int
    tls: bool
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDetail:
    """A batch with what can be said of it now."""

    batch: Flat[Batch]
    #: Why some of its jobs wait for a place, and when the first of them is expected to begin, UTC seconds; "" and None
    #: where nothing is to say.
    pending_reason: str
    expected_at: Moment | None
    #: When the last of its jobs that have a place is planned to end, UTC seconds; None = none has.
    ends_at: Moment | None = None
    #: By how much it ends after its deadline, or is expected to; None = it does not, or has none.
    late_s: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail:
    """A job with why it waits for a place ("" = it does not), and when it is expected to begin to compute."""

    job: Flat[Job]
    pending_reason: str
    expected_at: Moment | None
    LISTED: ClassVar = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDetail:
    """A pipeline with its subtasks: the jobs of the batch that has its uuid."""

    pipeline: Flat[Batch]
    #: As those of a batch.
    pending_reason: str
    expected_at: Moment | None
    ends_at: Moment | None = None
    late_s: Number | None = None
    #: By index: each follows its predecessors.
    subtask_list: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanges:
    """The jobs of a batch that changed after what the asker has seen, by index."""

    jobs: tuple[Job, ...]
    #: Generation of each shard at this moment: what the next question passes as seen.
    seen: Mapping[str, int]
    #: What time it is in the pool.
    at: Moment
    #: The batch, no older than its jobs, where it was asked for.
    batch: Batch | None = None
    #: For the small inputs of jobs of a new batch.
    tickets: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """The jobs of a batch as the REST API lists them, by index."""

    jobs: tuple[Job, ...]
    #: What the next question passes as `changed_after`; nobody outside need understand it.
    seen: str
    #: What time it is in the pool, on the clock of all its times.
    at: Moment
    #: The batch, no older than its jobs, where it was asked for.
    batch: Batch | None
    #: For small inputs of a new batch.
    tickets: tuple[Ticket, ...]
    #: To the next page; left out where a new batch is answered.
    links: Annotated[tuple[dict[str, str], ...], Rest.DETAIL] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInfo:
    """A catalogue entry as it is in force: time models refitted where runs were observed."""

    name: str
    version: str
    slot_kinds: tuple[str, ...]
    io_bps: Limit
    preemptible: bool
    speedup: Number
    #: Slots of the pool that can hold it.
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process of the pool: a scheduler, the agent of a host, or a process of the API ("api")."""

    kind: str
    name: str
    #: It has shown a sign of life within the timeout of its kind, by the clock of the scheduler that answers.
    up: bool
    #: Its last sign of life, by the pool's clock.
    heard_at: Moment
    #: Parts of the pool that a scheduler owns, or that an agent belongs to; none of an API.
    shards: tuple[str, ...]
    ALSO_SHOWN: ClassVar = ("uuid",)

    @property
    def uuid(self) -> str:
        """Deterministic uuid: a scheduler and an agent may have the same name."""
        return str(uuid5(SLOT_NAMESPACE, f"{self.kind} {self.name}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCount:
    """Slots on cards of one board, in one state, with one function loaded ("" = none)."""

    board: str
    state: str
    function: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCount:
    """Cards of one board: "in_service" has a slot that takes work, "out_of_service" none, "unreachable" no agent."""

    board: str
    state: str
    cards: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCount:
    """Slots held by one kind of holder: instance, pool, task or gang."""

    kind: str
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """How many hosts, cards and slots the pool has; the numbers are those of the metrics."""

    #: Release of the scheduler that answers.
    release: str
    alive_hosts: int
    lost_hosts: int
    card_list: tuple[CardCount, ...]
    slot_list: tuple[SlotCount, ...]
    lease_list: tuple[LeaseCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCount:
    """Jobs, tasks or gangs that are in one state and have not ended."""

    #: "job", "task" or "gang".
    kind: str
    state: str
    count: int
    #: When the oldest of them was created.
    oldest_at: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How well a function's time model fits the observed runs on one board."""

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
    #: Why it is not in the foreground, and when it is expected there, UTC seconds; "" and None where nothing is to say.
    pending_reason: str
    expected_at: Moment | None
    #: What its slowest process has done, in seconds on a dedicated processor.
    done_s: Number
    #: Those of its present, or last, attempt.
    process_list: tuple[Process, ...]
    migration_list: tuple[Migration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDetail:
    """A task with what can be said of it now."""

    task: Flat[Task]
    #: Why it waits, and when it is expected to get its slots, UTC seconds; "" and None where nothing is to say.
    pending_reason: str
    expected_at: Moment | None
    #: Those that it has, by name.
    slot_list: tuple[str, ...]
    #: By index.
    share_list: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDetail:
    """A slot with what holds it."""

    slot: Flat[Slot]
    #: None = nothing.
    held_by: LeaseKind | None = None
    #: Uuid and project of the instance, task or gang, or of the job that the pool computes there, or will compute next.
    #: "" = there is none.
    holder: str = ""
    holder_project_id: str = ""
    leased_at: Moment | None = None


class EventPage(Message, frozen=True, kw_only=True):
    """Which events of all objects are wanted, newest first."""

    #: None = of all projects, and of what belongs to none.
    project_id: str | None = None
    #: Accepted values; empty = any.
    kind: tuple[str, ...] = ()
    name: tuple[str, ...] = ()
    host: tuple[str, ...] = ()
    event: tuple[str, ...] = ()
    #: At that time or later, and before that time, UTC seconds.
    since: ReportedMoment | None = None
    until: ReportedMoment | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    marker: str | None = None


class Page(Message, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    #: Project whose objects are listed; None = all projects, or objects that belong to none.
    project_id: str | None = None
    #: Accepted values by field; a field that is not named may have any.
    where: dict[str, tuple[str | bool, ...]] = field(default_factory=dict)
    #: Objects created, or those of the pool changed last, before this are left out, UTC seconds.
    since: Moment | None = None
    #: Key of the last object of the page before; None = the first page.
    marker: str | None = None
    limit: int | None = None
    #: The newest, or the last by name, comes first.
    descending: bool = False
