"""The table of tasks: the tasks' part of `store.models`."""

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from fpga_pool.model.flavor import Topology
from fpga_pool.model.tasks import TaskShape, TaskState
from fpga_pool.store.column_types import Records
from fpga_pool.store.models import Base, History, Name, Uuid, Versioned, Word, Words


class TaskRow(Versioned, Base):
    """Row of `model.tasks.Task`; its batch has the same uuid."""

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


Index("ix_tasks_newest_of_project", TaskRow.project_id, TaskRow.created_at, TaskRow.uuid)
Index("ix_tasks_in_state", TaskRow.state, TaskRow.shard)
