"""The tables: one per object, its columns named as the fields of the dataclass it holds.

Sizes are BIGINT, times are DOUBLE (UTC seconds since the epoch).  A `generation` is compared and swapped by every
update; the application sets it, so that several changes within one transaction count one by one.  `event_at` is
`model.objects.history.last_event_at`, for the list of the events of all objects.
"""

from typing import Annotated, Any, ClassVar

from sqlalchemy import BigInteger, Double, ForeignKey, Index, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.messages.agents import Action, ObservedFlow
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.gangs import GangState, MigrationState, ProcessState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.pool import BatchState, JobState, LeaseKind, LeaseState, RateSegment, SlotState
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.store.tables.column_types import JsonText, Limit, LongText, Position, Records, Texts, enum_column

Uuid = Annotated[str, mapped_column(String(36))]
Word = Annotated[str, mapped_column(String(64))]
Name = Annotated[str, mapped_column(String(255))]
Words = Annotated[str, mapped_column(LongText)]
Rate = Annotated[float, mapped_column(Limit, nullable=True)]
Segments = Annotated[tuple[RateSegment, ...], mapped_column(Records(RateSegment, "begin_s", "end_s", "bps"))]
History = Annotated[
    tuple[HistoryEntry, ...],
    mapped_column(Records(HistoryEntry, "at", "event", "before", "after", "number", "reason", "request_id")),
]

#: MariaDB: rows are transactional, and names differ by case as they do everywhere else.
TABLE_OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

ENUMS = (
    BatchState,
    JobState,
    SlotState,
    LeaseState,
    LeaseKind,
    Tier,
    Topology,
    GangState,
    ProcessState,
    MigrationState,
    TaskState,
    DesignState,
)


class Base(DeclarativeBase):
    """What all tables share."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        int: BigInteger,
        float: Double,
        **{enum: enum_column(enum) for enum in ENUMS},
    }
    #: Every constraint has a name, so that a migration can change it.
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "ix": "ix_%(table_name)s_%(column_0_name)s",
        }
    )
    __table_args__: Any = TABLE_OPTIONS


class Versioned:
    """Rows whose updates are refused unless the generation is the one that was read."""

    generation: Mapped[int]

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.generation, "version_id_generator": False}


class ShardRow(Base):
    """Row of `model.objects.pool.Shard`; its row is also the lock of every change to the shard."""

    __tablename__ = "shards"

    name: Mapped[Name] = mapped_column(primary_key=True)
    owner: Mapped[Name]
    epoch: Mapped[int]
    renewed_at: Mapped[float]
    pool_generation: Mapped[int]
    generation: Mapped[int]


class SchedulerRow(Base):
    """Row of `model.objects.pool.Scheduler`."""

    __tablename__ = "schedulers"

    name: Mapped[Name] = mapped_column(primary_key=True)
    heard_at: Mapped[float]
    generation: Mapped[int]


class EnrolmentRow(Base):
    """Row of `model.objects.enrolment.Enrolment`."""

    __tablename__ = "enrolments"

    host: Mapped[Name] = mapped_column(primary_key=True)
    key: Mapped[Word]
    offered: Mapped[Word]
    code_sha256: Mapped[Word]
    code_expires_at: Mapped[float]
    changed_at: Mapped[float]


class HostRow(Versioned, Base):
    """Row of `model.objects.pool.Host`."""

    __tablename__ = "hosts"

    name: Mapped[Name] = mapped_column(primary_key=True)
    egress_bps: Mapped[Rate]
    ingress_bps: Mapped[Rate]
    data_address: Mapped[Name]
    data_port: Mapped[int]
    heard_at: Mapped[float]
    shard: Mapped[Name]
    availability_zone: Mapped[Name]
    agent_id: Mapped[Word]
    boot: Mapped[int]
    beat: Mapped[int]
    reported: Mapped[int]
    alive: Mapped[bool]
    egress_driver: Mapped[Word]
    data_tls: Mapped[bool]
    refused_streams: Mapped[int]
    refused_commands: Mapped[int]
    refused_messages: Mapped[int]
    node: Mapped[Name]
    history: Mapped[History]
    event_at: Mapped[float]
    #: Generation of the shard in which last changed what others plan by: not with every heartbeat.
    changed_in: Mapped[int]
    #: As the last heartbeat said; noted with the host's life, never by a transaction of its own.
    flows: Mapped[tuple[ObservedFlow, ...]] = mapped_column(Records(ObservedFlow, "job", "attempt", "bps"), default=())


class SlotRow(Versioned, Base):
    """Row of `model.objects.pool.Slot`."""

    __tablename__ = "slots"

    name: Mapped[Name] = mapped_column(primary_key=True)
    uuid: Mapped[Uuid] = mapped_column(unique=True)
    host: Mapped[Name] = mapped_column(ForeignKey("hosts.name"), index=True)
    card: Mapped[Name]
    region: Mapped[Name]
    board: Mapped[Word]
    kind: Mapped[Word]
    links: Mapped[Name]
    shard: Mapped[Name]
    state: Mapped[SlotState]
    function: Mapped[Word]
    job: Mapped[Uuid]
    drain_requested: Mapped[bool]
    reason: Mapped[Words]
    sequence: Mapped[int]
    lease_epoch: Mapped[int]
    reconfigurations: Mapped[int]
    loaded_at: Mapped[float | None]
    history: Mapped[History]
    event_at: Mapped[float]
    #: Generation of the shard in which it, or the lease on it, changed last.
    changed_in: Mapped[int]


class LeaseRow(Versioned, Base):
    """Row of `model.objects.pool.Lease`."""

    __tablename__ = "leases"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    slot: Mapped[Name] = mapped_column(ForeignKey("slots.name"), index=True)
    #: The slot while the lease is HELD, else NULL: unique, so no database lets two leases of a slot be in force.
    held_slot: Mapped[Name | None] = mapped_column(unique=True)
    kind: Mapped[LeaseKind]
    holder: Mapped[Name] = mapped_column(index=True)
    project_id: Mapped[Word]
    epoch: Mapped[int]
    revocable: Mapped[bool]
    granted_at: Mapped[float]
    state: Mapped[LeaseState]
    released_at: Mapped[float | None]
    function: Mapped[Word]
    broken: Mapped[Words]
    history: Mapped[History]


class BatchRow(Versioned, Base):
    """Row of `model.objects.pool.Batch`."""

    __tablename__ = "batches"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    project_id: Mapped[Word]
    user_id: Mapped[Word]
    name: Mapped[Name]
    policy: Mapped[Word]
    created_at: Mapped[float]
    jobs: Mapped[int]
    state: Mapped[BatchState]
    cancel_requested: Mapped[bool]
    held: Mapped[bool]
    priority: Mapped[int]
    deadline_at: Mapped[float | None]
    waits_for: Mapped[tuple[str, ...]] = mapped_column(Texts)
    jobs_completed: Mapped[int]
    jobs_failed: Mapped[int]
    jobs_cancelled: Mapped[int]
    dispatched_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    planned_makespan_s: Mapped[float | None]
    lower_bound_s: Mapped[float | None]
    planned_completion_s: Mapped[float | None]
    completion_bound_s: Mapped[float | None]
    input_bytes: Mapped[int]
    history: Mapped[History]
    event_at: Mapped[float]
    #: It waits for others, and has not ended: for the search for those whose wait is over.
    waits: Mapped[bool] = mapped_column(index=True)


class JobRow(Versioned, Base):
    """Row of `model.objects.pool.Job`."""

    __tablename__ = "jobs"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    batch_uuid: Mapped[Uuid] = mapped_column(ForeignKey("batches.uuid"))
    project_id: Mapped[Word]
    user_id: Mapped[Word]
    index: Mapped[int]
    name: Mapped[Name]
    function: Mapped[Word]
    requester: Mapped[Name]
    input_bytes: Mapped[int]
    created_at: Mapped[float]
    predecessors: Mapped[tuple[str, ...]] = mapped_column(Texts)
    shard: Mapped[Name]
    state: Mapped[JobState]
    cancel_requested: Mapped[bool]
    attempt: Mapped[int]
    excused: Mapped[int]
    reason: Mapped[Words]
    error_code: Mapped[Word]
    host: Mapped[Name]
    slot: Mapped[Name]
    order: Mapped[int]
    dispatched_at: Mapped[float | None]
    start_s: Mapped[float | None]
    end_s: Mapped[float | None]
    transfer: Mapped[Segments]
    result_transfer: Mapped[Segments]
    done: Mapped[float]
    flow: Mapped[Name]
    moved_bytes: Mapped[int | None]
    moved_at: Mapped[float | None]
    staged_at: Mapped[float | None]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    compute_s: Mapped[float | None]
    result_bytes: Mapped[int | None]
    result_sha256: Mapped[Word]
    history: Mapped[History]
    event_at: Mapped[float]
    #: `model.objects.pool.input_due_at`, for the search for inputs that never came.
    input_due_at: Mapped[float]
    #: Generation of the shard in which it changed last: who knows an earlier one asks for what is newer.
    changed_in: Mapped[int]


class QuotaRow(Base):
    """The limits of a project, NULL = the default; its row is also the lock of what is admitted of the project."""

    __tablename__ = "quotas"

    project_id: Mapped[Word] = mapped_column(primary_key=True)
    jobs: Mapped[int | None]
    input_bytes: Mapped[int | None]
    task_slots: Mapped[int | None]
    gang_processors: Mapped[int | None]
    tickets: Mapped[int | None]
    requests_per_s: Mapped[int | None]
    design_bytes: Mapped[int | None]
    #: How often something was admitted, or refused by the quota.
    admissions: Mapped[int]


class CommandRow(Base):
    """Row of `model.messages.agents.Command`: the outbox, emptied as agents acknowledge."""

    __tablename__ = "commands"
    #: Positions are never used again: they are the order of the commits of a shard, whose row every writer locks.
    __table_args__: Any = TABLE_OPTIONS | {"sqlite_autoincrement": True}

    position: Mapped[int] = mapped_column(Position, primary_key=True, autoincrement=True)
    id: Mapped[Word] = mapped_column(unique=True)
    shard: Mapped[Name] = mapped_column(ForeignKey("shards.name"))
    epoch: Mapped[int]
    host: Mapped[Name] = mapped_column(index=True)
    slot: Mapped[Name]
    sequence: Mapped[int]
    request_id: Mapped[Word]
    action: Mapped[Action] = mapped_column(JsonText(Action))


class RunRow(Base):
    """Row of `model.objects.pool.Run`; one row per completed job, so that a completion is recorded at most once."""

    __tablename__ = "runs"

    job: Mapped[Uuid] = mapped_column(ForeignKey("jobs.uuid"), primary_key=True)
    attempt: Mapped[int]
    function: Mapped[Word]
    board: Mapped[Word]
    input_bytes: Mapped[int]
    compute_s: Mapped[float]
    finished_at: Mapped[float]


class UsageDayRow(Base):
    """What removed jobs and leases of a project have used of a function on a day: `model.messages.requests.Usage`."""

    __tablename__ = "usage_days"

    project_id: Mapped[Word] = mapped_column(primary_key=True)
    function: Mapped[Word] = mapped_column(primary_key=True)
    #: Since the epoch, in UTC.
    day: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    jobs: Mapped[int]
    slot_s: Mapped[float]
    cpu_s: Mapped[float]
    input_bytes: Mapped[int]
    result_bytes: Mapped[int]
    instance_slot_s: Mapped[float]


class TimeModelRow(Base):
    """A refitted `core.timemodel.TimeModel`, and from how many runs."""

    __tablename__ = "time_models"

    function: Mapped[Word] = mapped_column(primary_key=True)
    board: Mapped[Word] = mapped_column(primary_key=True)
    a_s: Mapped[float]
    b_s_per_byte: Mapped[float]
    samples: Mapped[int]
    fitted_at: Mapped[float]


Index("ix_batches_newest", BatchRow.created_at, BatchRow.uuid)
Index("ix_batches_in_state_of_project", BatchRow.project_id, BatchRow.state)
Index("ix_batches_newest_of_project", BatchRow.project_id, BatchRow.created_at, BatchRow.uuid)


Index("ix_jobs_newest_of_project", JobRow.project_id, JobRow.created_at, JobRow.uuid)
Index("ix_batches_last_event", BatchRow.event_at)
Index("ix_jobs_last_event", JobRow.event_at)
Index("ix_jobs_of_batch", JobRow.batch_uuid, JobRow.index)
Index("ix_jobs_in_state_on_slot", JobRow.state, JobRow.slot, JobRow.order)
# With what metrics count by, so that they read nothing but the index.
Index("ix_jobs_in_state_of_shard", JobRow.state, JobRow.shard, JobRow.project_id, JobRow.created_at)
Index("ix_slots_changed", SlotRow.shard, SlotRow.changed_in)
Index("ix_hosts_changed", HostRow.shard, HostRow.changed_in)
Index("ix_jobs_in_state_on_host", JobRow.state, JobRow.host)
Index("ix_commands_in_order", CommandRow.shard, CommandRow.position)
Index("ix_runs_finished", RunRow.finished_at)
Index("ix_runs_newest", RunRow.function, RunRow.board, RunRow.finished_at)
