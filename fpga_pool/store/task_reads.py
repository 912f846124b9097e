"""What can be asked of the store about tasks: the tasks' part of `store.reads`."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, select, tuple_

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.tasks import ENDED_TASKS, Task, TaskState
from fpga_pool.store.mapping import called, columns, table

ValueT = TypeVar("ValueT")

_TASKS = table(Task)


@cache
def _all_tasks() -> Select[Any]:
    return select(*columns(Task))


@cache
def _open_tasks(*, scoped: bool) -> Select[Any]:
    where = [_TASKS.c.shard == bindparam("scope")] if scoped else []
    is_open = _TASKS.c.state.in_(frozenset(TaskState) - ENDED_TASKS)
    return _all_tasks().where(is_open, *where).order_by(_TASKS.c.created_at, _TASKS.c.uuid)


class _Asks(Protocol):
    """What these reads need of those around them."""

    _scope: str

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT: ...

    def _all(self, cls: type[ValueT], query: Select[Any], values: Mapping[str, Any] | None = None) -> list[ValueT]: ...


class TaskReads:
    """Tasks; part of `Reads`."""

    def task(self: _Asks, uuid: str) -> Task:
        """Return a task."""
        return self._one(Task, uuid)

    def open_tasks(self: _Asks) -> Sequence[Task]:
        """Return the tasks that have not ended, in order of arrival."""
        return self._all(Task, _open_tasks(scoped=bool(self._scope)))

    def tasks(self: _Asks, project_id: str, *, limit: int, marker: str | None = None) -> Sequence[Task]:
        """Return the tasks of a project, newest first, from the one after `marker` on."""
        where: list[ColumnElement[bool]] = [_TASKS.c.project_id == project_id]
        if marker is not None:
            last = self._all(Task, _all_tasks().where(_TASKS.c.uuid == marker, *where))
            if not last:
                raise InvalidInput(f"marker: no {called(Task, marker)}")
            where.append(tuple_(_TASKS.c.created_at, _TASKS.c.uuid) < (last[0].created_at, last[0].uuid))
        newest = _all_tasks().where(*where).order_by(_TASKS.c.created_at.desc(), _TASKS.c.uuid.desc())
        return self._all(Task, newest.limit(limit))
