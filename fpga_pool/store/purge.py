"""Removal of old records: ended work, released leases, charged loads, lost hosts, and offers of keys.

Each transaction removes a limited number of rows, so that others do not wait long; if a purge was interrupted, the next
one continues it.  The usage of removed jobs, leases of instances and loads is kept as sums by day (`store.quotas`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, Delete, Select, String, and_, delete, exists, func, or_, select, type_coerce

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.objects.gangs import ENDED_GANGS, LIVE_PROCESSES
from fpga_pool.model.objects.pool import ENDED_BATCHES, JobState, LeaseState
from fpga_pool.model.objects.tasks import ENDED_TASKS
from fpga_pool.store.engine import translated
from fpga_pool.store.quotas import keep_usage_of_jobs, keep_usage_of_leases, keep_usage_of_loads
from fpga_pool.store.store import Store
from fpga_pool.store.tables import (
    BATCHES,
    COMMANDS,
    ENROLMENTS,
    GANGS,
    HOSTS,
    JOBS,
    LEASES,
    LOADS,
    MIGRATIONS,
    PROCESSES,
    PROCESSORS,
    RUNS,
    SERVERS,
    SLOTS,
    TASKS,
)
from fpga_pool.store.transaction import SqlTransaction

#: Maximum number of rows of each table that one transaction removes.
ROWS = 500
#: Number of batches whose jobs are queried together.
BATCHES_AT_ONCE = 50

#: Kinds of records that are counted, in order.
KINDS = ("batches", "jobs", "tasks", "gangs", "leases", "loads", "hosts", "offers")


def purge(
    store: Store,
    ended_before: float,
    project_id: str | None = None,
    *,
    dry_run: bool = False,
    is_over: Callable[[], bool] = lambda: False,
) -> Mapping[str, int]:
    """Remove records that ended before a point in time, UTC seconds (of one project); return their numbers by kind.

    A batch stays while a host of the pool holds a result of it, another batch waits for it, or its task is open. Hosts
    and offers of keys belong to no project. The removal of each kind stops, and may leave some, once `is_over()`.
    """
    pieces = partial(_pieces, store, is_over=is_over)
    purged = Counter(dict.fromkeys(KINDS, 0))
    batches, gangs = _batches(ended_before, project_id), _gangs(ended_before, project_id)
    leases, loads, offers = _leases(ended_before, project_id), _loads(ended_before, project_id), _offers(ended_before)
    hosts = [] if project_id is not None else _hosts(store, ended_before)
    if dry_run:
        jobs = select(JOBS.c.uuid).where(JOBS.c.batch_uuid.in_(batches))
        tasks = select(TASKS.c.uuid).where(TASKS.c.uuid.in_(batches))
        counted = {"batches": batches, "jobs": jobs, "tasks": tasks, "gangs": gangs, "leases": leases, "loads": loads}
        purged.update({kind: _count(store, query) for kind, query in counted.items()})
        purged.update(hosts=len(hosts), offers=0 if project_id is not None else _count(store, offers))
        return purged
    for found in pieces(batches, BATCHES_AT_ONCE):
        purged.update(_remove_batches(store, found, is_over))
    for found in pieces(gangs, BATCHES_AT_ONCE):
        for rows in (PROCESSES.c, MIGRATIONS.c):
            _remove_all(store, select(rows.uuid).where(rows.gang_uuid.in_(found)), rows.uuid)
        purged["gangs"] += _remove(store, delete(GANGS).where(GANGS.c.uuid.in_(found)))
    for found in pieces(leases, ROWS):
        chosen = LEASES.c.uuid.in_(found)
        purged["leases"] += _remove(
            store, delete(LEASES).where(chosen), keep=partial(keep_usage_of_leases, leases=chosen)
        )
    for found in pieces(loads, ROWS):
        chosen = LOADS.c.uuid.in_(found)
        purged["loads"] += _remove(store, delete(LOADS).where(chosen), keep=partial(keep_usage_of_loads, loads=chosen))
    if project_id is None:
        purged["hosts"] += sum(_remove_silent(store, shard, name) for shard, name in hosts)
        purged["offers"] += _remove_all(store, offers, ENROLMENTS.c.host)
    return purged


def _batches(ended_before: float, project_id: str | None) -> Select[Any]:
    """Return the query for the batches, including those of tasks and pipelines, of which nothing is in use."""
    held = and_(
        JOBS.c.batch_uuid == BATCHES.c.uuid, JOBS.c.state == JobState.RESULT_HELD, JOBS.c.host.in_(select(HOSTS.c.name))
    )
    waiting = BATCHES.alias().c
    awaited = and_(waiting.waits.is_(True), type_coerce(waiting.waits_for, String).contains(BATCHES.c.uuid))
    open_task = and_(TASKS.c.uuid == BATCHES.c.uuid, TASKS.c.state.not_in(ENDED_TASKS))
    return select(BATCHES.c.uuid).where(
        BATCHES.c.state.in_(ENDED_BATCHES),
        BATCHES.c.ended_at < ended_before,
        # Implied, as no batch ends before it was created; but this condition can use an index.
        BATCHES.c.created_at < ended_before,
        *([] if project_id is None else [BATCHES.c.project_id == project_id]),
        ~exists().where(held),
        ~exists().where(open_task),
        ~exists().where(awaited),
    )


def _gangs(ended_before: float, project_id: str | None) -> Select[Any]:
    live = and_(PROCESSES.c.gang_uuid == GANGS.c.uuid, PROCESSES.c.state.in_(LIVE_PROCESSES))
    return select(GANGS.c.uuid).where(
        GANGS.c.state.in_(ENDED_GANGS),
        GANGS.c.ended_at < ended_before,
        *([] if project_id is None else [GANGS.c.project_id == project_id]),
        ~exists().where(live),
    )


def _leases(ended_before: float, project_id: str | None) -> Select[Any]:
    return select(LEASES.c.uuid).where(
        LEASES.c.state == LeaseState.RELEASED,
        LEASES.c.released_at < ended_before,
        *([] if project_id is None else [LEASES.c.project_id == project_id]),
    )


def _loads(began_before: float, project_id: str | None) -> Select[Any]:
    return select(LOADS.c.uuid).where(
        LOADS.c.began_at < began_before, *([] if project_id is None else [LOADS.c.project_id == project_id])
    )


def _offers(ended_before: float) -> Select[Any]:
    """Return the query for the hosts without an accepted key, which have only offered one or were invited."""
    return select(ENROLMENTS.c.host).where(
        ENROLMENTS.c.key == "", ENROLMENTS.c.changed_at < ended_before, ENROLMENTS.c.code_expires_at < ended_before
    )


def _hosts(store: Store, ended_before: float) -> Sequence[tuple[str, str]]:
    """Return shard and name of the hosts without slots and processes that were lost and not heard since that time."""
    of_host = PROCESSES.c.processor == PROCESSORS.c.name
    live = and_(PROCESSORS.c.host == HOSTS.c.name, of_host, PROCESSES.c.state.in_(LIVE_PROCESSES))
    used = or_(exists().where(SLOTS.c.host == HOSTS.c.name), exists().where(live))
    silent = HOSTS.c.alive.is_(False), HOSTS.c.heard_at < ended_before
    with store.reading() as tx:
        return [tuple(row) for row in tx.connection.execute(select(HOSTS.c.shard, HOSTS.c.name).where(*silent, ~used))]


def _remove_silent(store: Store, shard: str, name: str) -> int:
    try:
        remove_host(store, shard, name)
    except Conflict:  # it has returned
        return 0
    return 1


def _remove_batches(store: Store, uuids: list[str], is_over: Callable[[], bool]) -> dict[str, int]:
    jobs = 0
    for found in _pieces(store, select(JOBS.c.uuid).where(JOBS.c.batch_uuid.in_(uuids)), ROWS):
        jobs += _remove(
            store,
            delete(RUNS).where(RUNS.c.job.in_(found)),
            delete(JOBS).where(JOBS.c.uuid.in_(found)),
            keep=partial(keep_usage_of_jobs, jobs=found),
        )
        if is_over():  # there may be more jobs
            return {"jobs": jobs}
    tasks = _remove(store, delete(TASKS).where(TASKS.c.uuid.in_(uuids)))
    batches = _remove(store, delete(BATCHES).where(BATCHES.c.uuid.in_(uuids)))
    return {"batches": batches, "jobs": jobs, "tasks": tasks}


def _remove_all(store: Store, keys: Select[Any], column: Any) -> int:
    """Remove the rows whose keys a query finds; return their number."""
    return sum(_remove(store, delete(column.table).where(column.in_(found))) for found in _pieces(store, keys, ROWS))


def _pieces(
    store: Store, keys: Select[Any], size: int, is_over: Callable[[], bool] = lambda: False
) -> Iterator[list[str]]:
    """Yield the keys that a query finds in pieces; each piece must be removed before the next one is read."""
    before: list[str] = []
    while True:
        with store.reading() as tx:
            found = list(tx.connection.execute(keys.limit(size)).scalars())
        if not found or found == before:  # the same are found again if they have come into use in the meantime
            return
        yield found
        if is_over():
            return
        before = found


def _remove(store: Store, *statements: Delete, keep: Callable[[Connection], None] | None = None) -> int:
    """Call `keep` and execute statements in one transaction; return the number of rows that the last one removes."""
    with store.admission() as tx:
        if keep is not None:
            keep(tx.connection)
        for statement in statements:
            removed = tx.connection.execute(statement).rowcount
    return int(removed)


def _count(store: Store, keys: Select[Any]) -> int:
    with store.reading() as tx:
        return int(tx.connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one())


# ---- Removed hardware; slots and hosts in use cannot be removed


def remove_slots(store: Store, shard: str, names: Collection[str]) -> None:
    """Remove slots of a shard; if one is held or has jobs, raise Conflict and remove nothing."""
    with store.transaction(shard) as tx:
        occupied = tx.occupied(names) | {lease.slot for lease in tx.leases(slots=sorted(names))}
        if occupied:
            raise Conflict(f"in use: {', '.join(sorted(occupied))}")
        delete_slots(tx, names)


def delete_slots(tx: SqlTransaction, names: Collection[str]) -> None:
    """Remove slots that are not held and have no jobs, with their commands and former leases."""
    tx.flush()
    tx.note_removal()
    with translated():
        keep_usage_of_leases(tx.connection, LEASES.c.slot.in_(names))
        for column in (COMMANDS.c.slot, LEASES.c.slot, SLOTS.c.name):
            tx.connection.execute(delete(column.table).where(column.in_(names)))


def remove_host(store: Store, shard: str, name: str) -> None:
    """Remove a host and its processors; Conflict if it has slots or runs processes of gangs."""
    processors = select(PROCESSORS.c.name).where(PROCESSORS.c.host == name)
    held = PROCESSES.c.processor.in_(processors), PROCESSES.c.held_place.is_not(None)
    with store.transaction(shard) as tx:
        if tx.slots(name) or tx.connection.execute(select(PROCESSES.c.uuid).where(*held)).first():
            raise Conflict(f"host {name}: it has slots, or runs processes of gangs")
        tx.note_removal()
        with translated():
            tx.connection.execute(delete(PROCESSES).where(held[0]))
            tx.connection.execute(delete(PROCESSORS).where(PROCESSORS.c.host == name))
            tx.connection.execute(delete(COMMANDS).where(COMMANDS.c.host == name))
            tx.connection.execute(delete(SERVERS).where(SERVERS.c.host == name))
            tx.connection.execute(delete(HOSTS).where(HOSTS.c.name == name))
