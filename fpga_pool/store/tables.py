"""The tables, one per class of objects, with the fields of the class and a few derived ones as columns.

Sizes are BIGINT, times are DOUBLE (UTC seconds since the epoch).  A `generation` is compared and swapped by every
update; the application sets it, so that each of several changes within one transaction counts.  `event_at` is
`model.objects.history.last_event_at`, for the list of the events of all objects.  `changed_in` is the generation of the
shard in which the object's data that matter for planning changed last.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar, get_args, get_origin

from sqlalchemy import BigInteger, Boolean, Column, Double, ForeignKey, Index, MetaData, String, Table

from fpga_pool.model.codec import bare, from_text, hints_of
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import Rest
from fpga_pool.model.messages.agents import Action, Command, ObservedFlow
from fpga_pool.model.objects.bitstreams import Design, DesignManifest
from fpga_pool.model.objects.gangs import LONGEST_COMMAND, Gang, Migration, Process, Processor
from fpga_pool.model.objects.history import HistoryEntry, last_event_at
from fpga_pool.model.objects.hosts import ApiProcess, Enrolment, Server
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import (
    Batch,
    BatchState,
    Host,
    Job,
    Lease,
    LeaseState,
    Run,
    Scheduler,
    Shard,
    Slot,
    input_due_at,
)
from fpga_pool.model.objects.quotas import Resource
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rest import marks_of
from fpga_pool.model.transaction import PolicyMemory
from fpga_pool.model.values import field_names
from fpga_pool.store.column_types import (
    Bytes,
    JsonText,
    Limit,
    LongText,
    PlainData,
    Position,
    Records,
    Texts,
    enum_column,
)

LOG = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")

# ---- Types of columns

UUID, WORD, NAME = String(36), String(64), String(255)
#: Types of text columns by field name; all others are NAME.
_TEXTS: Mapping[str, Any] = {
    **dict.fromkeys(("uuid", "batch_uuid", "gang_uuid", "job"), UUID),
    **dict.fromkeys(
        (
            *("project_id", "user_id", "function", "board", "kind", "policy", "family", "id", "agent_id"),
            *("request_id", "global_request_id"),
            *("egress_driver", "error_code", "result_sha256", "key", "offered", "code_sha256"),
            *("sha256", "signer"),
        ),
        WORD,
    ),
    "reason": LongText,
    "broken": LongText,
    "command": String(LONGEST_COMMAND),
}
#: Columns of fields whose types do not follow from the type and name of the field.
_OTHERS: Mapping[tuple[type, str], Any] = {
    (PolicyMemory, "policy"): NAME,
    (PolicyMemory, "state"): PlainData(),
    (Command, "action"): JsonText(Action),
    (Design, "manifest"): JsonText(DesignManifest),
}
_NUMBERS: Mapping[Any, Any] = {int: BigInteger(), float: Double(), bool: Boolean()}


def _column(cls: type, name: str, hint: Any, *constraints: Any, **options: Any) -> Column[Any]:
    """Return the column of a field."""
    if (cls, name) in _OTHERS:
        return Column(name, _OTHERS[cls, name], *constraints, nullable=False, **options)
    if Rest.LIMIT in marks_of(hint):
        return Column(name, Limit(), *constraints, nullable=True, **options)
    return Column(name, _kind(name, bare(hint)), *constraints, nullable=bare(hint) is not _whole(hint), **options)


def _whole(hint: Any) -> Any:
    """Return a type without its annotations."""
    return _whole(get_args(hint)[0]) if get_origin(hint) is Annotated else hint


def _kind(name: str, wanted: Any) -> Any:
    if get_origin(wanted) is tuple:
        item = get_args(wanted)[0]
        return Texts() if item is str else Records(item, *field_names(item))
    if issubclass(wanted, StrEnum):
        return enum_column(wanted)
    return _TEXTS.get(name, NAME) if wanted is str else _NUMBERS[wanted]


# ---- Tables

#: Every constraint has a name, so that migrations can change it.
METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)
#: Options for MariaDB: transactional tables, and case-sensitive names as in the other databases.
_OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


@dataclass(frozen=True, slots=True)
class Place:
    """Storage of the values of a class."""

    table: Table
    #: Field with the key of a value.
    key: str
    #: Returns the columns of a value that are not fields, except those that a transaction sets.
    derived: Callable[[Any], dict[str, Any]]


def _place(
    cls: type,
    name: str,
    key: str,
    *others: Column[Any],
    derived: Callable[[Any], dict[str, Any]] = lambda _: {},
    indexed: Collection[str] = (),
    refers: Mapping[str, str] | None = None,
    **options: Any,
) -> Place:
    """Return the storage of a class: its fields and `others` as columns, with indexes and foreign keys (`refers`)."""
    primary = all(not column.primary_key for column in others)
    columns = [
        _column(
            *(cls, field, hint),
            *([ForeignKey(refers[field])] if refers and field in refers else []),
            index=field in indexed or None,
            primary_key=primary and field == key,
            unique=(not primary and field == key) or None,
        )
        for field, hint in hints_of(cls).items()
    ]
    return Place(Table(name, METADATA, *columns, *others, **_OPTIONS | options), key, derived)


def _event_at() -> Column[Any]:
    return Column("event_at", Double, nullable=False)


def _changed_in() -> Column[Any]:
    return Column("changed_in", BigInteger, nullable=False)


def _last_event(thing: Any) -> dict[str, Any]:
    return {"event_at": last_event_at(thing)}


#: In an order in which rows refer only to rows of earlier classes.
PLACES: Mapping[type, Place] = {
    # Its row is also the lock for all changes of the shard.
    Shard: _place(Shard, "shards", "name"),
    Scheduler: _place(Scheduler, "schedulers", "name"),
    ApiProcess: _place(ApiProcess, "api_processes", "name"),
    Enrolment: _place(Enrolment, "enrolments", "host"),
    # `flows` and `counters` are from the last heartbeats, and are stored by `Store.note_alive` without a transaction on
    # the shard. `counters` are HostCounters in JSON, "" = none yet.
    Host: _place(
        *(Host, "hosts", "name", _event_at(), _changed_in()),
        Column("flows", Records(ObservedFlow, *field_names(ObservedFlow)), default=(), nullable=False),
        Column("counters", LongText, default="", nullable=False),
        derived=_last_event,
    ),
    Server: _place(Server, "servers", "name", indexed=("uuid", "host"), refers={"host": "hosts.name"}),
    Slot: _place(
        *(Slot, "slots", "name", Column("uuid", UUID, unique=True, nullable=False), _event_at(), _changed_in()),
        derived=lambda slot: _last_event(slot) | {"uuid": slot.uuid},
        indexed=("host",),
        refers={"host": "hosts.name"},
    ),
    # `held_slot`: the slot while the lease is HELD; it is unique, so that a slot cannot have two leases in force.
    Lease: _place(
        *(Lease, "leases", "uuid", Column("held_slot", NAME, unique=True)),
        derived=lambda lease: {"held_slot": lease.slot if lease.state is LeaseState.HELD else None},
        indexed=("slot", "holder"),
        refers={"slot": "slots.name"},
    ),
    # `waits`: whether it waits for others and is PENDING; used to find batches whose wait has ended.
    Batch: _place(
        *(Batch, "batches", "uuid", _event_at(), Column("waits", Boolean, index=True, nullable=False)),
        derived=lambda one: _last_event(one) | {"waits": bool(one.waits_for) and one.state is BatchState.PENDING},
    ),
    # `input_due_at`: used to find inputs that have not arrived in time.
    Job: _place(
        *(Job, "jobs", "uuid", _event_at(), _changed_in(), Column("input_due_at", Double, nullable=False)),
        derived=lambda job: _last_event(job) | {"input_due_at": input_due_at(job)},
        refers={"batch_uuid": "batches.uuid"},
    ),
    Processor: _place(Processor, "processors", "name", indexed=("host",), refers={"host": "hosts.name"}),
    Gang: _place(Gang, "gangs", "uuid", _event_at(), derived=_last_event),
    # `held_place`: processor and tier while it has not ENDED; it is unique, so that two processes cannot share a place.
    Process: _place(
        *(Process, "processes", "uuid", Column("held_place", NAME, unique=True)),
        derived=lambda process: {"held_place": process.held_place},
        indexed=("processor",),
        refers={"gang_uuid": "gangs.uuid", "processor": "processors.name"},
    ),
    Migration: _place(Migration, "migrations", "uuid", indexed=("gang_uuid",), refers={"gang_uuid": "gangs.uuid"}),
    # Its batch has the same uuid.
    Task: _place(Task, "tasks", "uuid", _event_at(), derived=_last_event, refers={"uuid": "batches.uuid"}),
    Design: _place(
        *(Design, "designs", "uuid", _event_at(), Column("name", WORD, nullable=False)),
        derived=lambda design: _last_event(design) | {"name": design.name},
    ),
    PolicyMemory: _place(PolicyMemory, "policy_memories", "uuid"),
    # The outbox, from which acknowledged commands are removed.  Positions are never reused: they have the order of the
    # commits of a shard, whose row every writer locks.
    Command: _place(
        *(Command, "commands", "id", Column("position", Position, primary_key=True, autoincrement=True)),
        indexed=("host",),
        refers={"shard": "shards.name"},
        sqlite_autoincrement=True,
    ),
    # One row per completed job, so that a completion is recorded at most once.
    Run: _place(Run, "runs", "job", refers={"job": "jobs.uuid"}),
    # Has no foreign key, because it is kept when its slot is removed, as usage is.
    ChargedLoad: _place(ChargedLoad, "loads", "uuid"),
}
SHARDS, SCHEDULERS, API_PROCESSES, ENROLMENTS, HOSTS, SERVERS, SLOTS, LEASES, BATCHES, JOBS = (
    PLACES[cls].table for cls in (Shard, Scheduler, ApiProcess, Enrolment, Host, Server, Slot, Lease, Batch, Job)
)
PROCESSORS, GANGS, PROCESSES, MIGRATIONS, TASKS, DESIGNS, COMMANDS, RUNS, LOADS = (
    PLACES[cls].table for cls in (Processor, Gang, Process, Migration, Task, Design, Command, Run, ChargedLoad)
)
#: The bitstreams of designs in pieces, by offset; separate from the designs, which are read often.
DESIGN_FILES = Table(
    *("design_files", METADATA, Column("design", UUID, ForeignKey("designs.uuid"), primary_key=True)),
    Column("begin", BigInteger, primary_key=True, autoincrement=False),
    Column("piece", Bytes, nullable=False),
    **_OPTIONS,
)
#: The limits of a project, NULL = the default; its row is also the lock for admitting work of the project.
QUOTAS = Table(
    *("quotas", METADATA, Column("project_id", WORD, primary_key=True)),
    *(Column(resource.value, BigInteger) for resource in Resource),
    # Number of requests that were admitted, or refused by the quota.
    Column("admissions", BigInteger, nullable=False),
    # History of the changes of its limits; NULL = none.
    Column("history", _kind("history", tuple[HistoryEntry, ...]), nullable=True),
    **_OPTIONS,
)
#: Usage of a function by removed jobs, leases and loads of a project on one day, counted from the epoch in UTC.
USAGE_DAYS = Table(
    *("usage_days", METADATA),
    *(Column(name, WORD, primary_key=True) for name in ("project_id", "function")),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in ("jobs", "input_bytes", "result_bytes", "loads")),
    *(Column(name, Double, nullable=False) for name in ("slot_s", "cpu_s", "instance_slot_s")),
    **_OPTIONS,
)
#: Refitted time models (`core.timemodel.TimeModel`), with the number of samples.
TIME_MODELS = Table(
    *("time_models", METADATA),
    *(Column(name, WORD, primary_key=True) for name in ("function", "board")),
    *(Column(name, Double, nullable=False) for name in ("a_s", "b_s_per_byte", "fitted_at")),
    Column("samples", BigInteger, nullable=False),
    **_OPTIONS,
)

Index("ix_batches_newest", BATCHES.c.created_at, BATCHES.c.uuid)
Index("ix_batches_in_state_of_project", BATCHES.c.project_id, BATCHES.c.state)
Index("ix_batches_newest_of_project", BATCHES.c.project_id, BATCHES.c.created_at, BATCHES.c.uuid)
Index("ix_batches_last_event", BATCHES.c.event_at)
Index("ix_jobs_newest", JOBS.c.created_at, JOBS.c.uuid)
Index("ix_jobs_newest_of_project", JOBS.c.project_id, JOBS.c.created_at, JOBS.c.uuid)
# For lists by state and by host, in the order of lists.
Index("ix_jobs_newest_in_state", JOBS.c.state, JOBS.c.created_at, JOBS.c.uuid)
Index("ix_jobs_newest_in_state_of_project", JOBS.c.project_id, JOBS.c.state, JOBS.c.created_at, JOBS.c.uuid)
Index("ix_jobs_newest_on_host", JOBS.c.host, JOBS.c.created_at, JOBS.c.uuid)
Index("ix_jobs_last_event", JOBS.c.event_at)
Index("ix_jobs_of_batch", JOBS.c.batch_uuid, JOBS.c.index)
Index("ix_jobs_in_state_on_slot", JOBS.c.state, JOBS.c.slot, JOBS.c.order)
# Contains the columns by which metrics count, so that they read only the index.
Index("ix_jobs_in_state_of_shard", JOBS.c.state, JOBS.c.shard, JOBS.c.project_id, JOBS.c.created_at)
Index("ix_jobs_in_state_on_host", JOBS.c.state, JOBS.c.host)
Index("ix_slots_changed", SLOTS.c.shard, SLOTS.c.changed_in)
Index("ix_hosts_changed", HOSTS.c.shard, HOSTS.c.changed_in)
Index("ix_commands_in_order", COMMANDS.c.shard, COMMANDS.c.position)
Index("ix_runs_finished", RUNS.c.finished_at)
Index("ix_runs_newest", RUNS.c.function, RUNS.c.board, RUNS.c.finished_at)
Index("ix_loads_began", LOADS.c.began_at)
Index("ix_gangs_newest_of_project", GANGS.c.project_id, GANGS.c.created_at, GANGS.c.uuid)
Index("ix_gangs_done_of_user", GANGS.c.user_id, GANGS.c.ended_at)
Index("ix_gangs_in_state", GANGS.c.state, GANGS.c.shard)
Index("ix_processes_of_gang", PROCESSES.c.gang_uuid, PROCESSES.c.attempt, PROCESSES.c.index)
Index("ix_processes_in_state", PROCESSES.c.state, PROCESSES.c.shard)
Index("ix_processes_in_state_on_host", PROCESSES.c.state, PROCESSES.c.host)
Index("ix_tasks_newest_of_project", TASKS.c.project_id, TASKS.c.created_at, TASKS.c.uuid)
Index("ix_tasks_in_state", TASKS.c.state, TASKS.c.shard)
Index("ix_designs_last_event", DESIGNS.c.event_at)
Index("ix_designs_name_in_project", DESIGNS.c.project_id, DESIGNS.c.name, unique=True)
Index("ix_designs_function", DESIGNS.c.function, unique=True)

# ---- Values to rows and back

#: For each class, the names of its fields, and a function that returns their values.
_FIELDS: Mapping[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {
    cls: (names, attrgetter(*names)) for cls in PLACES for names in [field_names(cls)]
}


def to_columns(thing: Any) -> dict[str, Any]:
    """Convert a value to its columns."""
    names, values_of = _FIELDS[type(thing)]
    return dict(zip(names, values_of(thing), strict=True)) | PLACES[type(thing)].derived(thing)


def given_in(cls: type, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns to store for these rows, which have the same columns, without those that are always NULL."""
    columns_of = table(cls).c
    return tuple(
        name for name in rows[0] if not columns_of[name].nullable or any(row[name] is not None for row in rows)
    )


def only(names: Collection[str], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return only these columns of rows, because SQLAlchemy would write all that it gets."""
    return [{name: row[name] for name in names} for row in rows]


def table(cls: type) -> Table:
    """Return the table of a class."""
    return PLACES[cls].table


@cache
def columns(cls: type) -> tuple[Column[Any], ...]:
    """Return the columns of a class's fields, in the order of the fields."""
    return tuple(PLACES[cls].table.c[name] for name in _FIELDS[cls][0])


def from_columns(cls: type[ValueT], row: Sequence[Any]) -> ValueT:
    """Convert a row of `columns` to a value."""
    return cls(**dict(zip(_FIELDS[cls][0], row, strict=True)))


def command_from(row: Sequence[Any]) -> Command:
    """Convert a row of the outbox to a command, which is without effect if this version cannot read its action."""
    *facts, action = row
    try:
        return from_columns(Command, [*facts, from_text(Action, action)])
    except InvalidInput as error:
        unreadable = from_columns(Command, [*facts, None])
        LOG.error(  # noqa: TRY400
            "command %s for host %s, slot %r cannot be read (%s) and is set aside; stored is %s",
            unreadable.id,
            unreadable.host,
            unreadable.slot,
            error,
            action,
        )
        return unreadable.without_effect()


def called(cls: type, key: object) -> str:
    """Return the description of a value in messages: ``job 6f0c...``."""
    return f"{cls.__name__.lower()} {key}"
