"""Part of `store.reads`: queries on batches, gangs, servers, tasks, runs, events and pages of lists."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import Column, ColumnElement, Result, Select, bindparam, exists, func, or_, select, union_all

from fpga_pool.core.types import Floats, Ints, floats, ints
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.requests import EventPage, Page
from fpga_pool.model.objects.gangs import ENDED_GANGS, LIVE_PROCESSES, Gang, GangState, Migration, Process, Processor
from fpga_pool.model.objects.history import last_event_at
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.pool import ACTIVE_JOBS, Batch, Host, Job, JobState, Run
from fpga_pool.model.objects.tasks import ENDED_TASKS, Task, TaskState
from fpga_pool.model.transaction import PendingBatch
from fpga_pool.store import statements
from fpga_pool.store.statements import all_of, beyond, scoped
from fpga_pool.store.tables import (
    COMMANDS,
    GANGS,
    JOBS,
    MIGRATIONS,
    PLACES,
    PROCESSES,
    PROCESSORS,
    RUNS,
    TASKS,
    called,
    table,
)

ValueT = TypeVar("ValueT")

# ---- Gangs and tasks

_GANG_IS_OPEN = GANGS.c.state.in_(frozenset(GangState) - ENDED_GANGS)
_TASK_IS_OPEN = TASKS.c.state.in_(frozenset(TaskState) - ENDED_TASKS)
#: Gangs and tasks that have not ended, in order of arrival.
_OPEN_GANGS = scoped(
    all_of(Gang).where(_GANG_IS_OPEN).order_by(GANGS.c.created_at, GANGS.c.uuid),
    GANGS.c.shard,
)
_OPEN_TASKS = scoped(
    all_of(Task).where(_TASK_IS_OPEN).order_by(TASKS.c.created_at, TASKS.c.uuid),
    TASKS.c.shard,
)
#: Whether a shard has jobs that wait or run, open gangs or tasks, or commands to deliver.
_HAS_OPEN_WORK = select(
    or_(
        exists().where(JOBS.c.state.in_({JobState.PENDING, *ACTIVE_JOBS}), JOBS.c.shard == bindparam("scope")),
        exists().where(_GANG_IS_OPEN, GANGS.c.shard == bindparam("scope")),
        exists().where(_TASK_IS_OPEN, TASKS.c.shard == bindparam("scope")),
        exists().where(COMMANDS.c.shard == bindparam("scope")),
    )
)
#: The last `most` completed gangs of `user`, newest first.
_DONE_GANGS = (
    all_of(Gang)
    .where(GANGS.c.user_id == bindparam("user"), GANGS.c.ran_s.is_not(None))
    .order_by(GANGS.c.ended_at.desc(), GANGS.c.created_at.desc(), GANGS.c.uuid.desc())
    .limit(bindparam("most"))
)
#: All processors, and those of `host`, by name.
_ALL_PROCESSORS = scoped(all_of(Processor).order_by(PROCESSORS.c.name), PROCESSORS.c.shard)
_PROCESSORS_OF_HOST = scoped(_ALL_PROCESSORS.of_pool.where(PROCESSORS.c.host == bindparam("host")), PROCESSORS.c.shard)
_IN_ORDER = (
    all_of(Process)
    .where(PROCESSES.c.state.in_(LIVE_PROCESSES))
    .order_by(PROCESSES.c.gang_uuid, PROCESSES.c.attempt, PROCESSES.c.index)
)
_OF_GANG, _ON_HOST = PROCESSES.c.gang_uuid == bindparam("gang"), PROCESSES.c.host == bindparam("host")
#: The processes that have a place; keys: whether only those of `gang`, and whether only those on `host`.
_LIVE = {
    (of_gang, on_host): scoped(
        _IN_ORDER.where(*([_OF_GANG] if of_gang else []), *([_ON_HOST] if on_host else [])), PROCESSES.c.shard
    )
    for of_gang in (False, True)
    for on_host in (False, True)
}
#: The migrations of `gang`, oldest first.
_MIGRATIONS_OF_GANG = (
    all_of(Migration).where(MIGRATIONS.c.gang_uuid == bindparam("gang")).order_by(MIGRATIONS.c.attempt)
)

# ---- Reads


class _Asks(Protocol):
    """The methods of `Reads` that this mix-in needs."""

    _scope: str

    def _execute(
        self, query: Select[Any] | statements.Scoped, *classes: type, values: Mapping[str, Any] | None = None
    ) -> Result[Any]: ...

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT: ...

    def _all(
        self, cls: type[ValueT], query: Select[Any] | statements.Scoped, values: Mapping[str, Any] | None = None
    ) -> list[ValueT]: ...


class Runs(NamedTuple):
    """N runs: sizes of their inputs, computation times in seconds, times of their ends, and names of their slots."""

    input_bytes: Ints
    seconds: Floats
    ended_at: Floats
    slots: Sequence[str]


#: Number of objects read at once in the search for events.
_READ = 200
#: Resolution of the times in answers: 1 microsecond.
_SHOWN_S = 1e-6


class FamilyReads:
    """The part of `Reads` on batches, gangs, servers, tasks, runs, events and pages of lists."""

    def pending_batches(self: _Asks) -> Mapping[str, PendingBatch]:
        found: dict[str, PendingBatch] = {}
        for created_at, uuid, policy, function, jobs, input_bytes in self._execute(
            statements.PENDING_BATCHES, Job, Batch
        ):
            of_function = PendingBatch(
                created_at=created_at, policy=policy,
                functions=frozenset({function}), jobs=jobs, largest_input_bytes=input_bytes,
            )  # fmt: skip
            found[uuid] = found[uuid].joined(of_function) if uuid in found else of_function
        return found

    def planned_end(self: _Asks, batch_uuid: str) -> float | None:
        end: float | None = self._execute(statements.PLANNED_END, Job, values={"batch": batch_uuid}).scalar()
        return end

    def processor(self: _Asks, name: str) -> Processor:
        return self._one(Processor, name)

    def processors(self: _Asks, host: str | None = None) -> Sequence[Processor]:
        asked = _ALL_PROCESSORS if host is None else _PROCESSORS_OF_HOST
        return self._all(Processor, asked, {"host": host})

    def gang(self: _Asks, uuid: str) -> Gang:
        return self._one(Gang, uuid)

    def open_gangs(self: _Asks) -> Sequence[Gang]:
        return self._all(Gang, _OPEN_GANGS)

    def gang_run_times(self: _Asks, user_id: str, most: int) -> Sequence[float]:
        newest = self._all(Gang, _DONE_GANGS, {"user": user_id, "most": most})
        return [gang.ran_s for gang in reversed(newest) if gang.ran_s is not None]

    def process(self: _Asks, uuid: str) -> Process:
        return self._one(Process, uuid)

    def processes(self: _Asks, *, gang: str | None = None, host: str | None = None) -> Sequence[Process]:
        asked = _LIVE[gang is not None, host is not None]
        return self._all(Process, asked, {"gang": gang, "host": host})

    def migration(self: _Asks, uuid: str) -> Migration:
        return self._one(Migration, uuid)

    def migrations(self: _Asks, gang_uuid: str) -> Sequence[Migration]:
        return self._all(Migration, _MIGRATIONS_OF_GANG, {"gang": gang_uuid})

    def servers(self: _Asks, *, host: str | None = None, uuids: Collection[str] | None = None) -> Sequence[Server]:
        if host is not None:
            return self._all(Server, statements.SERVERS_OF_HOST, {"host": host})
        return self._all(Server, statements.SERVERS_NAMED, {"uuids": sorted(uuids or ())})

    def task(self: _Asks, uuid: str) -> Task:
        return self._one(Task, uuid)

    def open_tasks(self: _Asks) -> Sequence[Task]:
        return self._all(Task, _OPEN_TASKS)

    def has_open_work(self: _Asks) -> bool:
        """Return whether the shard has work that has not ended, or commands that agents have not acknowledged."""
        return bool(self._execute(_HAS_OPEN_WORK, Job, Gang, Task, Command).scalar())

    def runs(self: _Asks, function: str, *, newest: int) -> dict[str, Runs]:
        """Return the newest runs of a function by board, newest first."""
        boards = self._execute(select(RUNS.c.board).where(RUNS.c.function == function).distinct(), Run).scalars()
        found = {}
        for board in sorted(boards):
            rows = self._execute(_newest_runs(function, board).limit(newest), Run, Job).all()
            sizes, seconds, ends, slots = zip(*rows, strict=True) if rows else ((),) * 4
            found[board] = Runs(ints(sizes), floats(seconds), floats(ends), [slot or "" for slot in slots])
        return found

    def last_run_at(self: _Asks) -> float | None:
        """Return when the newest run of any function ended."""
        at: float | None = self._execute(select(func.max(RUNS.c.finished_at)), Run).scalar()
        return at

    def page(self: _Asks, cls: type[ValueT], page: Page) -> list[ValueT]:
        """Return a page of the objects of a class, by creation time, or by name if the class has no creation time.

        InvalidInput if the marker is not an object of the whole list, or if a field of the filter does not exist.
        """
        kind: Any = cls  # a type that the cached functions accept
        rows, every = table(kind).c, all_of(kind)
        of_jobs = {"function", "host"} & page.where.keys() if kind is Batch else set()
        if unknown := page.where.keys() - rows.keys() - of_jobs:
            raise InvalidInput(f"where: a {kind.__name__.lower()} has no field {min(unknown)!r}")
        where: dict[str, ColumnElement[bool]] = {
            name: rows[name].in_(values) for name, values in page.where.items() if name not in of_jobs
        }
        if of_jobs:
            fitting = [JOBS.c[name].in_(page.where[name]) for name in sorted(of_jobs)]
            where["jobs"] = exists().where(JOBS.c.batch_uuid == rows.uuid, *fitting)
        if page.project_id is not None:
            where["project_id"] = rows.project_id == page.project_id
        at = rows.created_at if "created_at" in rows else rows.event_at if "event_at" in rows else None
        after: tuple[ColumnElement[bool], ...] = ()
        if page.since is not None:
            if at is None:
                raise InvalidInput(f"since: a {kind.__name__.lower()} has no time")
            after = (at >= page.since,)
        order = [rows.created_at, rows.uuid] if "created_at" in rows else [rows.name]
        if page.marker is not None:
            last = self._all(cls, every.where(rows[PLACES[kind].key] == page.marker, *where.values(), *after))
            if not last:
                raise InvalidInput(f"marker: no {called(cls, page.marker)} in this list")
            place = [getattr(last[0], column.name) for column in order]
            after += beyond(order, place, descending=page.descending)
        return self._all(cls, _listed(kind, page, where, after, order))

    def eventful(self: _Asks, cls: type[ValueT], wanted: EventPage, created_before: float) -> Iterator[ValueT]:
        """Yield the objects of a class that may have the wanted events, in order of their last events, newest first."""
        kind: Any = cls  # a type that the cached functions accept
        rows, key = table(kind).c, table(kind).c[PLACES[kind].key]
        where: list[ColumnElement[bool]] = [rows.event_at > (0.0 if wanted.since is None else wanted.since - _SHOWN_S)]
        if "created_at" in rows and created_before < float("inf"):
            where.append(rows.created_at <= created_before + _SHOWN_S)
        if wanted.project_id is not None:
            where.append(rows.project_id == wanted.project_id)
        if wanted.host:
            where.append((rows.name if kind is Host else rows.host).in_(wanted.host))
        if wanted.name:
            where.append(or_(*(rows[name].in_(wanted.name) for name in ("uuid", "name") if name in rows)))
        newest_first = all_of(kind).where(*where).order_by(rows.event_at.desc(), key.desc()).limit(_READ)
        after: tuple[ColumnElement[bool], ...] = ()
        while True:
            found = self._all(cls, newest_first.where(*after))
            yield from found
            if len(found) < _READ:
                return
            last = found[-1]
            place = last_event_at(last), getattr(last, PLACES[kind].key)
            after = beyond([rows.event_at, key], place, descending=True)


#: By the fields that filter a list: the suffix of the name of an index that begins with them and continues in the order
#: of lists (except the index of a batch, which has few jobs).
_INDEXES = {
    ("batch_uuid",): "of_batch",
    ("host",): "newest_on_host",
    ("project_id", "state"): "newest_in_state_of_project",
    ("state",): "newest_in_state",
    ("project_id",): "newest_of_project",
}
#: With more values of one field than this, the database sorts the list.
_MOST_VALUES = 20


def _listed(
    kind: Any,
    page: Page,
    where: Mapping[str, ColumnElement[bool]],
    after: Sequence[ColumnElement[bool]],
    order: Sequence[Column[Any]],
) -> Select[Any]:
    """Return the query for a page, which reads the rows of a suitable index, if any, from the start of the page on.

    MariaDB needs an index hint: otherwise it reads the index from the first row of the project, or sorts.  If a field
    of the index may have several values, the page is selected from the first rows for each value.
    """
    rows, there = table(kind), {index.name for index in table(kind).indexes}
    suited = {
        fields: index
        for fields, end in _INDEXES.items()
        if where.keys() >= set(fields) and (index := f"ix_{rows.name}_{end}") in there
    }
    fields, index = next(iter(suited.items()), ((), ""))
    directed = [column.desc() if page.descending else column for column in order]

    def narrowed(query: Select[Any], *conditions: ColumnElement[bool]) -> Select[Any]:
        found = query.where(*conditions, *after).order_by(*directed).limit(page.limit)
        return found.with_hint(rows, f"FORCE INDEX ({index})", "mysql") if index else found

    several = [name for name in fields if 1 < len(page.where.get(name, ())) <= _MOST_VALUES]
    if not several or page.limit is None:
        return narrowed(all_of(kind), *where.values())
    (name,), key = several, PLACES[kind].key
    others = [condition for field, condition in where.items() if field != name]
    each = [narrowed(select(rows.c[key]), *others, rows.c[name] == value) for value in page.where[name]]
    first = union_all(*(select(one.subquery().c[key]) for one in each)).subquery()
    return all_of(kind).join(first, first.c[key] == rows.c[key]).order_by(*directed).limit(page.limit)


def _newest_runs(function: str, board: str) -> Select[Any]:
    query = select(RUNS.c.input_bytes, RUNS.c.compute_s, RUNS.c.finished_at, JOBS.c.slot)
    # The attempt is compared because a job that is computed again may be on another slot now.
    query = query.outerjoin(JOBS, (JOBS.c.uuid == RUNS.c.job) & (JOBS.c.attempt == RUNS.c.attempt))
    query = query.where(RUNS.c.function == function, RUNS.c.board == board)
    return query.order_by(RUNS.c.finished_at.desc(), RUNS.c.job.desc())
