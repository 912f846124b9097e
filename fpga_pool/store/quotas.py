"""What projects may use, and have used.

Quotas have limits, their use, and the lock that admits the work of a project one request after the other.  Usage is
added up from the runs of jobs.
"""

from collections.abc import Collection
from functools import cache
from typing import Any, cast

from sqlalchemy import Connection, Executable, Table, and_, bindparam, case, delete, func, or_, select
from sqlalchemy.dialects import mysql, postgresql, sqlite

from fpga_pool.model.messages.requests import Usage, UsagePage
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState
from fpga_pool.model.objects.pool import CPU, ENDED_BATCHES, BatchState
from fpga_pool.model.objects.quotas import Amounts, QuotaLimits, Resource
from fpga_pool.model.objects.tasks import ENDED_TASKS, TaskState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.store.store import Store
from fpga_pool.store.tables.families import GangRow, TaskRow
from fpga_pool.store.tables.models import BatchRow, JobRow, QuotaRow, RunRow

_QUOTAS = cast("Table", QuotaRow.__table__)
_LIMITS = tuple(_QUOTAS.c[resource] for resource in Resource)

_OPEN_BATCHES = tuple(set(BatchState) - ENDED_BATCHES)
_OPEN_TASKS = tuple(set(TaskState) - ENDED_TASKS)
_OPEN_GANGS = tuple(set(GangState) - ENDED_GANGS)
_ENDED_JOBS = BatchRow.jobs_completed + BatchRow.jobs_failed + BatchRow.jobs_cancelled

#: What is added up for a resource, over which rows.
_USED: dict[Resource, tuple[Any, Any, Any, Collection[Any]]] = {
    Resource.JOBS: (BatchRow.jobs - _ENDED_JOBS, BatchRow.project_id, BatchRow.state, _OPEN_BATCHES),
    Resource.INPUT_BYTES: (BatchRow.input_bytes, BatchRow.project_id, BatchRow.state, _OPEN_BATCHES),
    Resource.TASK_SLOTS: (TaskRow.slots, TaskRow.project_id, TaskRow.state, _OPEN_TASKS),
    Resource.GANG_PROCESSORS: (GangRow.processes, GangRow.project_id, GangRow.state, _OPEN_GANGS),
}


def lock_limits(connection: Connection, project_id: str) -> QuotaLimits:
    """Return the limits of a project; until the transaction ends no other one admits its work."""
    connection.execute(_lock(connection.dialect.name), {"project_id": project_id})
    return own_limits(connection, project_id)


def used(connection: Connection, project_id: str, resources: Collection[Resource]) -> Amounts:
    """Return how much of these resources a project uses."""
    return {one: int(connection.execute(_use(one), {"project": project_id}).scalar_one()) for one in resources}


def quota(store: Store, project_id: str) -> tuple[QuotaLimits, Amounts]:
    """Return the limits that a project has of its own, and its use of all resources that the database knows."""
    with store.reading() as tx:
        return own_limits(tx.connection, project_id), used(tx.connection, project_id, tuple(_USED))


def set_limits(store: Store, project_id: str, limits: QuotaLimits, seen: Seen = None) -> None:
    """Change limits of a project; those that are None stay as they are."""
    with store.admission() as tx:
        before = lock_limits(tx.connection, project_id)
        require_seen(before, seen)
        values = {one.value: limits.over(before).of(one) for one in Resource}
        tx.connection.execute(_QUOTAS.update().where(_QUOTAS.c.project_id == project_id).values(values))


def unset_limits(store: Store, project_id: str, seen: Seen = None) -> None:
    """Return a project to the default limits."""
    with store.admission() as tx:
        require_seen(lock_limits(tx.connection, project_id), seen)
        tx.connection.execute(delete(QuotaRow).where(QuotaRow.project_id == project_id))


def usage(store: Store, page: UsagePage, begin_at: float, end_at: float) -> list[Usage]:
    """Return a page of what was used from a point in time up to another one, UTC seconds.

    A job counts when its computation has ended; what is purged does not.
    """
    key, on_cpu = (JobRow.project_id, RunRow.function), RunRow.board == CPU
    query = (
        select(
            *key,
            func.count(),
            func.sum(case((on_cpu, 0.0), else_=RunRow.compute_s)),
            func.sum(case((on_cpu, RunRow.compute_s), else_=0.0)),
            func.sum(RunRow.input_bytes),
            func.sum(func.coalesce(JobRow.result_bytes, 0)),
        )
        .join(JobRow, JobRow.uuid == RunRow.job)
        .where(RunRow.finished_at >= begin_at, RunRow.finished_at < end_at)
        .group_by(*key)
        .order_by(*key)
        .limit(page.limit)
    )
    if page.project_id is not None:
        query = query.where(JobRow.project_id == page.project_id)
    if page.after is not None:
        project, function = page.after
        same = and_(JobRow.project_id == project, RunRow.function > function)
        query = query.where(or_(JobRow.project_id > project, same))
    with store.reading() as tx:
        rows = tx.connection.execute(query).all()
    return [
        Usage(
            project_id=project,
            function=function,
            begin_at=begin_at,
            end_at=end_at,
            jobs=jobs,
            slot_s=float(slot_s),
            cpu_s=float(cpu_s),
            input_bytes=int(input_bytes),
            result_bytes=int(result_bytes),
        )
        for project, function, jobs, slot_s, cpu_s, input_bytes, result_bytes in rows
    ]


def own_limits(connection: Connection, project_id: str) -> QuotaLimits:
    """Return the limits that a project has of its own."""
    row = connection.execute(select(*_LIMITS).where(_QUOTAS.c.project_id == project_id)).one_or_none()
    return QuotaLimits() if row is None else QuotaLimits(**dict(zip(Resource, row, strict=True)))


@cache
def _use(resource: Resource) -> Executable:
    amount, project, state, open_states = _USED[resource]
    return select(func.coalesce(func.sum(amount), 0)).where(project == bindparam("project"), state.in_(open_states))


@cache
def _lock(dialect: str) -> Executable:
    """Return the statement that locks the row of `project_id`, and stores it where there is none."""
    first: dict[str, Any] = {"project_id": bindparam("project_id"), "admissions": 1}
    again = {"admissions": _QUOTAS.c.admissions + 1}
    if dialect == "mysql":
        return mysql.insert(_QUOTAS).values(first).on_duplicate_key_update(again)
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(_QUOTAS)
    locking: Executable = insert.values(first).on_conflict_do_update(index_elements=["project_id"], set_=again)
    return locking
