"""Quotas and usage of projects.

The part on quotas has the limits, the amounts in use, and a lock with which the requests of a project are admitted one
after the other.  Usage is summed over the runs of jobs, the leases of instances, the loads of slots, and the daily sums
of those that were removed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from fpga_pool.model.messages.usage import Usage, UsagePage
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState
from fpga_pool.model.objects.history import NO_CAUSE, Cause, HistoryEntry, with_event
from fpga_pool.model.objects.pool import CPU, ENDED_BATCHES, ENDED_JOBS, BatchState, JobState, LeaseKind
from fpga_pool.model.objects.quotas import UNLIMITED, Amounts, QuotaLimits, Resource
from fpga_pool.model.objects.tasks import ENDED_TASKS, TaskState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.values import changed
from fpga_pool.store.statements import beyond
from fpga_pool.store.store import Store
from fpga_pool.store.tables import (
    BATCHES,
    COMMANDS,
    DESIGNS,
    GANGS,
    JOBS,
    LEASES,
    LOADS,
    QUOTAS,
    RUNS,
    TASKS,
    USAGE_DAYS,
)

_LIMITS = tuple(QUOTAS.c[resource] for resource in Resource)
_OWN_LIMITS = sa.select(*_LIMITS).where(QUOTAS.c.project_id == sa.bindparam("project"))
_LOCKED = sa.select(QUOTAS.c.admissions, *_LIMITS).where(QUOTAS.c.project_id == sa.bindparam("project"))

#: Join key of the sums, which have one row each: SQLAlchemy warns of a join without a condition.
_ONE: sa.Label[int] = sa.literal_column("1").label("one")

DAY_S = 86_400.0
#: The summed amounts: runs contribute to all but the last two, leases to `instance_slot_s`, loads to `loads`.
_AMOUNTS = ("jobs", "slot_s", "cpu_s", "input_bytes", "result_bytes", "instance_slot_s", "loads")
_ON_CPU = RUNS.c.board == CPU
_OF_RUN = (
    sa.literal(1),
    sa.case((_ON_CPU, 0.0), else_=RUNS.c.compute_s),
    sa.case((_ON_CPU, RUNS.c.compute_s), else_=0.0),
    RUNS.c.input_bytes,
    sa.func.coalesce(JOBS.c.result_bytes, 0),
)
_NO_RUN = (sa.literal(0), sa.literal(0.0), sa.literal(0.0), sa.literal(0), sa.literal(0))

_OPEN_BATCHES = tuple(set(BatchState) - ENDED_BATCHES)
_OPEN_TASKS = tuple(set(TaskState) - ENDED_TASKS)
_OPEN_GANGS = tuple(set(GangState) - ENDED_GANGS)
_ENDED_JOBS = BATCHES.c.jobs_completed + BATCHES.c.jobs_failed + BATCHES.c.jobs_cancelled

#: For each resource, the amount to sum, and the columns and states that select the rows.
_USED: dict[Resource, tuple[Any, Any, Any, Collection[Any]]] = {
    Resource.JOBS: (BATCHES.c.jobs - _ENDED_JOBS, BATCHES.c.project_id, BATCHES.c.state, _OPEN_BATCHES),
    Resource.INPUT_BYTES: (BATCHES.c.input_bytes, BATCHES.c.project_id, BATCHES.c.state, _OPEN_BATCHES),
    Resource.TASK_SLOTS: (TASKS.c.slots, TASKS.c.project_id, TASKS.c.state, _OPEN_TASKS),
    Resource.GANG_PROCESSORS: (GANGS.c.processes, GANGS.c.project_id, GANGS.c.state, _OPEN_GANGS),
    Resource.DESIGN_BYTES: (DESIGNS.c.size_bytes, DESIGNS.c.project_id, DESIGNS.c.state, tuple(DesignState)),
}


def lock_limits(connection: sa.Connection, project_id: str) -> tuple[QuotaLimits, int]:
    """Lock the limits of a project until the transaction ends; return them, and the number of locks so far."""
    dialect = connection.dialect
    locked = connection.execute(_lock(dialect.name, answers=dialect.insert_returning), {"project_id": project_id})
    if not locked.returns_rows:  # MySQL
        locked = connection.execute(_LOCKED, {"project": project_id})
    number, *limits = locked.one()
    return QuotaLimits(**dict(zip(Resource, limits, strict=True))), number


def used(connection: sa.Connection, project_id: str, resources: Collection[Resource]) -> Amounts:
    """Return the amounts of these resources that a project uses."""
    wanted = tuple(resources)
    found = connection.execute(_uses(wanted), {"project": project_id}).one()
    return {one: int(amount) for one, amount in zip(wanted, found, strict=True)}


def quota(store: Store, project_id: str) -> tuple[QuotaLimits, Amounts]:
    """Return a project's own limits, and the amounts in use of all resources that the database counts."""
    with store.reading() as tx:
        return own_limits(tx.connection, project_id), used(tx.connection, project_id, tuple(_USED))


def set_limits(
    store: Store, project_id: str, limits: QuotaLimits, now_s: float, cause: Cause = NO_CAUSE, seen: Seen = None
) -> None:
    """Change limits of a project; those that are None remain unchanged."""
    _change_limits(store, project_id, limits.over, "LimitsSet", now_s, cause, seen)


def unset_limits(store: Store, project_id: str, now_s: float, cause: Cause = NO_CAUSE, seen: Seen = None) -> None:
    """Reset a project to the default limits; its row remains, because it counts admissions."""
    _change_limits(store, project_id, lambda _: QuotaLimits(), "LimitsUnset", now_s, cause, seen)


def _change_limits(
    store: Store,
    project_id: str,
    changed_limits: Callable[[QuotaLimits], QuotaLimits],
    event: str,
    now_s: float,
    cause: Cause,
    seen: Seen,
) -> None:
    """Change limits of a project, and record the changes and the request in their history."""
    with store.admission() as tx:
        before, _ = lock_limits(tx.connection, project_id)
        require_seen(before, seen)
        after = changed_limits(before)
        values: dict[str, Any] = {one.value: after.of(one) for one in Resource}
        if after != before:
            said = [f"{one} {_in_words(before.of(one))} -> {_in_words(after.of(one))}" for one in Resource
                    if after.of(one) != before.of(one)]  # fmt: skip
            history = with_event(limits_history(tx.connection, project_id), now_s, event, "", "", ", ".join(said))
            values["history"] = (*history[:-1], changed(history[-1], **cause._asdict()))
        tx.connection.execute(QUOTAS.update().where(QUOTAS.c.project_id == project_id).values(values))


def _in_words(limit: int | None) -> str:
    return "default" if limit is None else "unlimited" if limit == UNLIMITED else str(limit)


def limits_history(connection: sa.Connection, project_id: str) -> tuple[HistoryEntry, ...]:
    """Return the history of changes of a project's limits, oldest first."""
    stored = connection.execute(sa.select(QUOTAS.c.history).where(QUOTAS.c.project_id == project_id))
    return stored.scalar() or ()


def usage(
    store: Store, page: UsagePage, begin_at: float, end_at: float, now_s: float, speedups: Mapping[str, float]
) -> list[Usage]:
    """Return a page of the usage from a point in time up to another one, UTC seconds.

    A job counts at the end of its computation, a load at its start, and a lease of an instance for the time that it was
    in force in the period, until now at most.  Purged records count at the start of their day.  `speedups` are given by
    function.
    """
    until = sa.func.coalesce(LEASES.c.released_at, now_s)
    held_s = sa.case((until < end_at, until), else_=end_at) - sa.case(
        (LEASES.c.granted_at > begin_at, LEASES.c.granted_at), else_=begin_at
    )
    first_day, last_day = math.ceil(begin_at / DAY_S), math.ceil(end_at / DAY_S)
    parts = [
        (
            JOBS.c.project_id,
            sa.select(JOBS.c.project_id, RUNS.c.function, *_OF_RUN, sa.literal(0.0), sa.literal(0))
            .join_from(RUNS, JOBS, JOBS.c.uuid == RUNS.c.job)
            .where(RUNS.c.finished_at >= begin_at, RUNS.c.finished_at < end_at),
        ),
        (
            LEASES.c.project_id,
            sa.select(LEASES.c.project_id, LEASES.c.function, *_NO_RUN, held_s, sa.literal(0)).where(
                LEASES.c.kind == LeaseKind.INSTANCE, LEASES.c.granted_at < end_at, until > begin_at
            ),
        ),
        (
            LOADS.c.project_id,
            sa.select(LOADS.c.project_id, LOADS.c.function, *_NO_RUN, sa.literal(0.0), sa.literal(1)).where(
                LOADS.c.began_at >= begin_at, LOADS.c.began_at < end_at
            ),
        ),
        (
            USAGE_DAYS.c.project_id,
            sa.select(*(USAGE_DAYS.c[name] for name in ("project_id", "function", *_AMOUNTS))).where(
                USAGE_DAYS.c.day >= first_day, USAGE_DAYS.c.day < last_day
            ),
        ),
    ]
    if page.project_id is not None:
        parts = [(project, part.where(project == page.project_id)) for project, part in parts]
    whole = sa.union_all(*(part for _, part in parts)).subquery()
    project, function, *amounts = whole.c
    order = [one.desc() if page.descending else one for one in (project, function)]
    query = sa.select(project, function, *map(sa.func.sum, amounts)).group_by(project, function).order_by(*order)
    if page.after is not None:
        query = query.where(*beyond([project, function], page.after, descending=page.descending))
    with store.reading() as tx:
        rows = tx.connection.execute(query.limit(page.limit)).all()
    return [_usage(row, begin_at, end_at, speedups.get(row[1])) for row in rows]


def _usage(row: Sequence[Any], begin_at: float, end_at: float, speedup: float | None) -> Usage:
    project, function, jobs, slot_s, cpu_s, input_bytes, result_bytes, held_s, loads = row
    return Usage(
        project_id=project,
        function=function,
        begin_at=begin_at,
        end_at=end_at,
        jobs=int(jobs),
        slot_s=float(slot_s),
        cpu_s=float(cpu_s),
        vcpu_s=None if speedup is None else float(slot_s) * speedup + float(cpu_s),
        instance_slot_s=float(held_s),
        loads=int(loads),
        input_bytes=int(input_bytes),
        result_bytes=int(result_bytes),
    )


def keep_usage_of_jobs(connection: sa.Connection, jobs: Collection[str]) -> None:
    """Add the usage of jobs to the sums of their days; the same transaction must remove their runs."""
    query = sa.select(JOBS.c.project_id, RUNS.c.function, RUNS.c.finished_at, *_OF_RUN)
    query = query.join_from(RUNS, JOBS, JOBS.c.uuid == RUNS.c.job).where(RUNS.c.job.in_(jobs))
    _keep(
        connection,
        (
            ((project, function, at // DAY_S), (*amounts, 0.0, 0))
            for project, function, at, *amounts in _locked(connection, query)
        ),
    )


def keep_usage_of_leases(connection: sa.Connection, leases: sa.ColumnElement[bool]) -> None:
    """Add the durations of instances' leases to the sums of their days; the same transaction must remove them."""
    query = sa.select(LEASES.c.project_id, LEASES.c.function, LEASES.c.granted_at, LEASES.c.released_at)
    query = query.where(leases, LEASES.c.kind == LeaseKind.INSTANCE, LEASES.c.released_at.is_not(None))
    _keep(
        connection,
        (
            ((project, function, day), (0, 0.0, 0.0, 0, 0, seconds, 0))
            for project, function, begin_at, end_at in _locked(connection, query)
            for day, seconds in _days(begin_at, end_at)
        ),
    )


def keep_usage_of_loads(connection: sa.Connection, loads: sa.ColumnElement[bool]) -> None:
    """Add loads to the sums of their days; the same transaction must remove them."""
    query = sa.select(LOADS.c.project_id, LOADS.c.function, LOADS.c.began_at).where(loads)
    _keep(
        connection,
        (
            ((project, function, at // DAY_S), (0, 0.0, 0.0, 0, 0, 0.0, 1))
            for project, function, at in _locked(connection, query)
        ),
    )


def _locked(connection: sa.Connection, query: sa.Select[Any]) -> Sequence[Any]:
    """Return and lock rows: a concurrent transaction that removes the same rows waits, and finds none."""
    return connection.execute(query.with_for_update()).all()


def _days(begin_at: float, end_at: float) -> Iterator[tuple[float, float]]:
    """Yield each day of a period, with the seconds of the period in that day."""
    day = begin_at // DAY_S
    while day * DAY_S < end_at:
        yield day, min(end_at, (day + 1) * DAY_S) - max(begin_at, day * DAY_S)
        day += 1


def _keep(connection: sa.Connection, used: Iterable[tuple[tuple[str, str, float], Sequence[Any]]]) -> None:
    sums: dict[tuple[str, str, float], Sequence[Any]] = {}
    for key, amounts in used:
        sums[key] = [one + other for one, other in zip(sums.get(key, [0] * len(_AMOUNTS)), amounts, strict=True)]
    rows = [
        {"project_id": project, "function": function, "day": int(day), **dict(zip(_AMOUNTS, amounts, strict=True))}
        for (project, function, day), amounts in sorted(sums.items())
    ]
    if rows:
        connection.execute(_addition(connection.dialect.name), rows)


def own_limits(connection: sa.Connection, project_id: str) -> QuotaLimits:
    """Return the project's own limits, without the defaults."""
    row = connection.execute(_OWN_LIMITS, {"project": project_id}).one_or_none()
    return QuotaLimits() if row is None else QuotaLimits(**dict(zip(Resource, row, strict=True)))


@cache
def _uses(resources: tuple[Resource, ...]) -> sa.Executable:
    """Return the statement that sums resources of a project, and reads the rows of each table once."""
    sums: dict[Any, list[Any]] = {}
    for resource in resources:
        amount, project, state, open_states = _USED[resource]
        total = sa.func.coalesce(sa.func.sum(amount), 0).label(resource)
        sums.setdefault((project, state, open_states), []).append(total)
    parts = [
        sa.select(_ONE, *totals).where(project == sa.bindparam("project"), state.in_(open_states)).subquery()
        for (project, state, open_states), totals in sums.items()
    ]
    joined: Any = parts[0]
    for part in parts[1:]:
        joined = joined.join(part, part.c.one == parts[0].c.one)
    columns = {column.name: column for part in parts for column in part.c}
    return sa.select(*(columns[resource] for resource in resources)).select_from(joined)


@cache
def _addition(dialect: str) -> sa.Executable:
    """Return the statement that adds amounts to the sums of a day."""
    if dialect == "mysql":
        own = mysql.insert(USAGE_DAYS)
        return own.on_duplicate_key_update({name: USAGE_DAYS.c[name] + own.inserted[name] for name in _AMOUNTS})
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(USAGE_DAYS)
    added = {name: USAGE_DAYS.c[name] + insert.excluded[name] for name in _AMOUNTS}
    adding: sa.Executable = insert.on_conflict_do_update(index_elements=list(USAGE_DAYS.primary_key), set_=added)
    return adding


@cache
def _lock(dialect: str, *, answers: bool) -> sa.Executable:
    """Return the statement that locks the row of `project_id`, and inserts it if it does not exist.

    If the database `answers` such statements (RETURNING), the statement returns the row.
    """
    first: dict[str, Any] = {"project_id": sa.bindparam("project_id"), "admissions": 1}
    again = {"admissions": QUOTAS.c.admissions + 1}
    locking: Any
    if dialect == "mysql":
        locking = mysql.insert(QUOTAS).values(first).on_duplicate_key_update(again)
    else:
        insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(QUOTAS)
        locking = insert.values(first).on_conflict_do_update(index_elements=["project_id"], set_=again)
    statement: sa.Executable = locking.returning(QUOTAS.c.admissions, *_LIMITS) if answers else locking
    return statement


# ---- Numbers of work that has not ended, by project and state; ended work is not read


class OpenKind(StrEnum):
    """A kind of work that is counted."""

    JOB = "job"
    TASK = "task"
    GANG = "gang"


_OPEN: dict[OpenKind, tuple[Any, Collection[Any]]] = {
    OpenKind.JOB: (JOBS.c, tuple(set(JobState) - ENDED_JOBS)),
    OpenKind.TASK: (TASKS.c, tuple(set(TaskState) - ENDED_TASKS)),
    OpenKind.GANG: (GANGS.c, tuple(set(GangState) - ENDED_GANGS)),
}


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Number of objects of one kind, project and state."""

    project_id: str
    state: str
    count: int
    #: Creation time of the oldest of them, UTC seconds.
    oldest_at: float


def open_work(
    connection: sa.Connection, kind: OpenKind, shards: Collection[str], project_id: str | None = None
) -> list[OpenWork]:
    """Return the numbers of work that has not ended in these shards, for one project or (None) all projects."""
    rows = connection.execute(_counted(kind, project_id is None), {"shards": list(shards), "project": project_id})
    return [OpenWork(project, str(state), count, oldest) for project, state, count, oldest in rows]


def undelivered(connection: sa.Connection, shards: Collection[str]) -> Sequence[tuple[str, int]]:
    """Return the number of commands in the outbox for each of these shards; shards without any are left out."""
    mine = COMMANDS.c.shard.in_(sa.bindparam("shards", expanding=True))
    counted = sa.select(COMMANDS.c.shard, sa.func.count()).where(mine).group_by(COMMANDS.c.shard)
    return [(shard, count) for shard, count in connection.execute(counted, {"shards": list(shards)})]


@cache
def _counted(kind: OpenKind, of_all: bool) -> sa.Select[Any]:
    rows, states = _OPEN[kind]
    counted = sa.select(rows.project_id, rows.state, sa.func.count(), sa.func.min(rows.created_at))
    wanted = [rows.state.in_(states), rows.shard.in_(sa.bindparam("shards", expanding=True))]
    if not of_all:
        wanted.append(rows.project_id == sa.bindparam("project"))
    return counted.where(*wanted).group_by(rows.project_id, rows.state)
