"""Rows to values and back: the columns of a table are the fields of its dataclass, and a few derived ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Column, Table

from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.enrolment import Enrolment
from fpga_pool.model.objects.gangs import Gang, Migration, Process, Processor
from fpga_pool.model.objects.history import last_event_at
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
from fpga_pool.model.objects.servers import Server
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.transaction import PolicyMemory
from fpga_pool.model.values import field_names
from fpga_pool.store.tables import families, models
from fpga_pool.store.tables.families import PolicyMemoryRow, TaskRow

ValueT = TypeVar("ValueT")


def _last_event(thing: Any) -> dict[str, Any]:
    return {"event_at": last_event_at(thing)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where values of a class are stored."""

    row: type[Any]
    #: Field that names a value.
    key: str
    #: Columns that the database needs beside the fields.
    derived: Callable[[Any], dict[str, Any]] = lambda _: {}


#: In the order in which rows may refer to each other.
PLACES: Mapping[type, Place] = {
    Shard: Place(models.ShardRow, "name"),
    Scheduler: Place(models.SchedulerRow, "name"),
    Enrolment: Place(models.EnrolmentRow, "host"),
    Host: Place(models.HostRow, "name", _last_event),
    Server: Place(families.ServerRow, "name"),
    Slot: Place(models.SlotRow, "name", lambda slot: _last_event(slot) | {"uuid": slot.uuid}),
    Lease: Place(
        models.LeaseRow, "uuid", lambda lease: {"held_slot": lease.slot if lease.state is LeaseState.HELD else None}
    ),
    Batch: Place(
        models.BatchRow,
        "uuid",
        lambda batch: _last_event(batch) | {"waits": bool(batch.waits_for) and batch.state is BatchState.PENDING},
    ),
    Job: Place(models.JobRow, "uuid", lambda job: _last_event(job) | {"input_due_at": input_due_at(job)}),
    Processor: Place(families.ProcessorRow, "name"),
    Gang: Place(families.GangRow, "uuid", _last_event),
    Process: Place(families.ProcessRow, "uuid", lambda process: {"held_place": process.held_place}),
    Migration: Place(families.MigrationRow, "uuid"),
    Task: Place(TaskRow, "uuid", _last_event),
    Design: Place(families.DesignRow, "uuid", lambda design: _last_event(design) | {"name": design.name}),
    PolicyMemory: Place(PolicyMemoryRow, "uuid"),
    Command: Place(models.CommandRow, "id"),
    Run: Place(models.RunRow, "job"),
}


#: The names of the fields of each class, and what gets their values.
_FIELDS: Mapping[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {
    cls: (names, attrgetter(*names)) for cls in PLACES for names in [field_names(cls)]
}
_COLUMNS: Mapping[type, tuple[Column[Any], ...]] = {
    cls: tuple(place.row.__table__.c[name] for name in _FIELDS[cls][0]) for cls, place in PLACES.items()
}


def to_columns(thing: Any) -> dict[str, Any]:
    """Return a value as its columns."""
    names, values_of = _FIELDS[type(thing)]
    return dict(zip(names, values_of(thing), strict=True)) | PLACES[type(thing)].derived(thing)


def from_row(cls: type[ValueT], row: Any) -> ValueT:
    """Return the value that an ORM row holds."""
    names, values_of = _FIELDS[cls]
    return cls(**dict(zip(names, values_of(row), strict=True)))


def table(cls: type) -> Table:
    """Return the table of a class."""
    found: Table = PLACES[cls].row.__table__
    return found


def columns(cls: type) -> tuple[Column[Any], ...]:
    """Return the columns of a class's fields, in their order."""
    return _COLUMNS[cls]


def from_columns(cls: type[ValueT], row: Sequence[Any]) -> ValueT:
    """Return the value that was read from `columns`."""
    return cls(**dict(zip(_FIELDS[cls][0], row, strict=True)))


def called(cls: type, key: object) -> str:
    """Return how messages name a value: ``job 6f0c...``."""
    return f"{cls.__name__.lower()} {key}"
