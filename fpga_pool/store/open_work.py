"""Counts of what has not ended, by project and state; work that has ended is not read."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState
from fpga_pool.model.objects.pool import ENDED_JOBS, JobState
from fpga_pool.model.objects.tasks import ENDED_TASKS, TaskState
from fpga_pool.store.tables.families import GangRow, TaskRow
from fpga_pool.store.tables.models import CommandRow, JobRow


class OpenKind(StrEnum):
    """A kind of work that is counted."""

    JOB = "job"
    TASK = "task"
    GANG = "gang"


_OPEN: dict[OpenKind, tuple[Any, Collection[Any]]] = {
    OpenKind.JOB: (JobRow, tuple(set(JobState) - ENDED_JOBS)),
    OpenKind.TASK: (TaskRow, tuple(set(TaskState) - ENDED_TASKS)),
    OpenKind.GANG: (GangRow, tuple(set(GangState) - ENDED_GANGS)),
}


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Objects of one kind, project and state."""

    project_id: str
    state: str
    count: int
    #: When the oldest of them was created, UTC seconds.
    oldest_at: float


def open_work(
    connection: Connection, kind: OpenKind, shards: Collection[str], project_id: str | None = None
) -> list[OpenWork]:
    """Return what has not ended in these shards, of one project or (None) of all."""
    rows = connection.execute(_counted(kind, project_id is None), {"shards": list(shards), "project": project_id})
    return [OpenWork(project, str(state), count, oldest) for project, state, count, oldest in rows]


def undelivered(connection: Connection, shards: Collection[str]) -> Sequence[tuple[str, int]]:
    """Return the number of commands in the outbox of each of these shards; those without any are missing."""
    mine = CommandRow.shard.in_(bindparam("shards", expanding=True))
    counted = select(CommandRow.shard, func.count()).where(mine).group_by(CommandRow.shard)
    return [(shard, count) for shard, count in connection.execute(counted, {"shards": list(shards)})]


@cache
def _counted(kind: OpenKind, of_all: bool) -> Select[Any]:
    rows, states = _OPEN[kind]
    counted = select(rows.project_id, rows.state, func.count(), func.min(rows.created_at))
    wanted = [rows.state.in_(states), rows.shard.in_(bindparam("shards", expanding=True))]
    if not of_all:
        wanted.append(rows.project_id == bindparam("project"))
    return counted.where(*wanted).group_by(rows.project_id, rows.state)
