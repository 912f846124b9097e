"""Tables of gangs, tasks and the memories of policies."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from sqlalchemy import Dialect, ForeignKey, Index, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.objects.bitstreams import DesignManifest, DesignState
from fpga_pool.model.objects.gangs import LONGEST_COMMAND, GangState, MigrationState, ProcessState
from fpga_pool.model.objects.tasks import TaskShape, TaskState
from fpga_pool.store.tables.column_types import Bytes, JsonText, LongText, Records
from fpga_pool.store.tables.models import TABLE_OPTIONS, Base, History, Name, Rate, Uuid, Versioned, Word, Words


class ServerRow(Versioned, Base):
    """Row of `model.objects.servers.Server`."""

    __tablename__ = "servers"

    name: Mapped[Name] = mapped_column(primary_key=True)
    uuid: Mapped[Uuid] = mapped_column(index=True)
    host: Mapped[Name] = mapped_column(ForeignKey("hosts.name"), index=True)
    project_id: Mapped[Word]
    egress_bps: Mapped[Rate]
    held: Mapped[bool]


class ProcessorRow(Versioned, Base):
    """Row of `model.objects.gangs.Processor`."""

    __tablename__ = "processors"

    name: Mapped[Name] = mapped_column(primary_key=True)
    host: Mapped[Name] = mapped_column(ForeignKey("hosts.name"), index=True)
    number: Mapped[int]
    shard: Mapped[Name]
    offered: Mapped[bool]
    sequence: Mapped[int]


class GangRow(Versioned, Base):
    """Row of `model.objects.gangs.Gang`."""

    __tablename__ = "gangs"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    project_id: Mapped[Word]
    user_id: Mapped[Word]
    name: Mapped[Name]
    processes: Mapped[int]
    runtime_s: Mapped[float]
    cpu_usage: Mapped[float]
    work_s: Mapped[float]
    created_at: Mapped[float]
    image: Mapped[Name]
    command: Mapped[str] = mapped_column(String(LONGEST_COMMAND))
    shard: Mapped[Name]
    state: Mapped[GangState]
    cancel_requested: Mapped[bool]
    attempt: Mapped[int]
    failures: Mapped[int]
    reason: Mapped[Words]
    ends_at: Mapped[float | None]
    expected_s: Mapped[float | None]
    ran_s: Mapped[float | None]
    trial_ends_at: Mapped[float | None]
    gave_way_s: Mapped[float]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    migrations: Mapped[int]
    kills: Mapped[int]
    swaps: Mapped[int]
    front_s: Mapped[float]
    behind_s: Mapped[float]
    tier_since: Mapped[float | None]
    cpu_s: Mapped[float]
    history: Mapped[History]
    event_at: Mapped[float]


class ProcessRow(Versioned, Base):
    """Row of `model.objects.gangs.Process`."""

    __tablename__ = "processes"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    gang_uuid: Mapped[Uuid] = mapped_column(ForeignKey("gangs.uuid"))
    index: Mapped[int]
    attempt: Mapped[int]
    processor: Mapped[Name] = mapped_column(ForeignKey("processors.name"), index=True)
    host: Mapped[Name]
    tier: Mapped[Tier]
    shard: Mapped[Name]
    state: Mapped[ProcessState]
    reason: Mapped[Words]
    done_s: Mapped[float]
    rate: Mapped[float]
    progress_at: Mapped[float]
    cpu_s: Mapped[float]
    saved: Mapped[Name]
    exchanged: Mapped[bool]
    #: Tier and processor of one that is not ENDED, else NULL: unique, so no database lets two have one place.
    held_place: Mapped[Name | None] = mapped_column(unique=True)
    history: Mapped[History]


class MigrationRow(Versioned, Base):
    """Row of `model.objects.gangs.Migration`."""

    __tablename__ = "migrations"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    gang_uuid: Mapped[Uuid] = mapped_column(ForeignKey("gangs.uuid"), index=True)
    attempt: Mapped[int]
    began_at: Mapped[float]
    shard: Mapped[Name]
    state: Mapped[MigrationState]
    reason: Mapped[Words]
    ended_at: Mapped[float | None]
    history: Mapped[History]


class DesignRow(Versioned, Base):
    """Row of `model.objects.bitstreams.Design`."""

    __tablename__ = "designs"
    __table_args__ = (UniqueConstraint("project_id", "name"), TABLE_OPTIONS)

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    project_id: Mapped[Word]
    user_id: Mapped[Word]
    name: Mapped[Word]
    function: Mapped[Word] = mapped_column(unique=True)
    manifest: Mapped[DesignManifest] = mapped_column(JsonText(DesignManifest))
    size_bytes: Mapped[int]
    sha256: Mapped[Word]
    created_at: Mapped[float]
    signer: Mapped[Word]
    state: Mapped[DesignState]
    public: Mapped[bool]
    reason: Mapped[Words]
    history: Mapped[History]
    event_at: Mapped[float]


class DesignFileRow(Base):
    """A piece of the bitstream of a design, apart from what is read often."""

    __tablename__ = "design_files"

    design: Mapped[Uuid] = mapped_column(ForeignKey("designs.uuid"), primary_key=True)
    #: Where in the bitstream it begins.
    begin: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    piece: Mapped[bytes] = mapped_column(Bytes)


Index("ix_gangs_newest_of_project", GangRow.project_id, GangRow.created_at, GangRow.uuid)


Index("ix_gangs_done_of_user", GangRow.user_id, GangRow.ended_at)


Index("ix_gangs_in_state", GangRow.state, GangRow.shard)


Index("ix_processes_of_gang", ProcessRow.gang_uuid, ProcessRow.attempt, ProcessRow.index)


Index("ix_processes_in_state", ProcessRow.state, ProcessRow.shard)


Index("ix_processes_in_state_on_host", ProcessRow.state, ProcessRow.host)


class TaskRow(Versioned, Base):
    """Row of `model.objects.tasks.Task`; its batch has the same uuid."""

    __tablename__ = "tasks"

    uuid: Mapped[Uuid] = mapped_column(ForeignKey("batches.uuid"), primary_key=True)
    project_id: Mapped[Word]
    user_id: Mapped[Word]
    name: Mapped[Name]
    function: Mapped[Word]
    slots: Mapped[int]
    shares: Mapped[int]
    shapes: Mapped[tuple[TaskShape, ...]] = mapped_column(Records(TaskShape, "slots", "seconds"))
    topology: Mapped[Topology]
    input_bytes: Mapped[int]
    created_at: Mapped[float]
    shard: Mapped[Name]
    state: Mapped[TaskState]
    cancel_requested: Mapped[bool]
    attempt: Mapped[int]
    failures: Mapped[int]
    reason: Mapped[Words]
    ends_at: Mapped[float | None]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    history: Mapped[History]
    event_at: Mapped[float]


Index("ix_tasks_newest_of_project", TaskRow.project_id, TaskRow.created_at, TaskRow.uuid)
Index("ix_tasks_in_state", TaskRow.state, TaskRow.shard)


class PlainData(TypeDecorator[Any]):
    """Plain data as JSON."""

    impl = LongText
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Write the data."""
        return json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Read the data."""
        return json.loads(value or "null")


class Names(PlainData):
    """A tuple of names as a JSON list."""

    cache_ok = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        """Read the names."""
        return tuple(json.loads(value or "[]"))


class PolicyMemoryRow(Versioned, Base):
    """Row of `model.transaction.PolicyMemory`."""

    __tablename__ = "policy_memories"

    uuid: Mapped[Uuid] = mapped_column(primary_key=True)
    shard: Mapped[Name]
    family: Mapped[Word]
    policy: Mapped[Name]
    state: Mapped[Annotated[Mapping[str, Any] | None, mapped_column(PlainData, nullable=False)]]
    watched: Mapped[Annotated[Sequence[str], mapped_column(Names)]]


Index("ix_designs_last_event", DesignRow.event_at)
