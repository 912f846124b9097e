"""Queries on batches, gangs, tasks, runs and events, which are part of `store.reads`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import ColumnElement, Result, Select, bindparam, or_, select, tuple_

from fpga_pool.core.types import Floats, Ints, floats, ints
from fpga_pool.model.messages.requests import EventPage
from fpga_pool.model.objects.gangs import ENDED_GANGS, LIVE_PROCESSES, Gang, GangState, Migration, Process, Processor
from fpga_pool.model.objects.history import last_event_at
from fpga_pool.model.objects.pool import Batch, Host, Job, Run
from fpga_pool.model.objects.servers import Server
from fpga_pool.model.objects.tasks import ENDED_TASKS, Task, TaskState
from fpga_pool.model.transaction import PendingBatch
from fpga_pool.store.statements import all_of, pending_batches, planned_end
from fpga_pool.store.tables import GANGS, JOBS, MIGRATIONS, PLACES, PROCESSES, PROCESSORS, RUNS, SERVERS, table

ValueT = TypeVar("ValueT")

_OPEN_STATES: Mapping[type, frozenset[str]] = {
    Gang: frozenset(GangState) - ENDED_GANGS,
    Task: frozenset(TaskState) - ENDED_TASKS,
}


@cache
def _processors(*, scoped: bool, of_host: bool) -> Select[Any]:
    where = [PROCESSORS.c.shard == bindparam("scope")] if scoped else []
    where += [PROCESSORS.c.host == bindparam("host")] if of_host else []
    return all_of(Processor).where(*where).order_by(PROCESSORS.c.name)


@cache
def _open(cls: type, *, scoped: bool) -> Select[Any]:
    """Return the query for the gangs or tasks that have not ended, in order of arrival."""
    rows = table(cls).c
    where = [rows.shard == bindparam("scope")] if scoped else []
    return all_of(cls).where(rows.state.in_(_OPEN_STATES[cls]), *where).order_by(rows.created_at, rows.uuid)


@cache
def _processes(*, scoped: bool, of_gang: bool, of_host: bool) -> Select[Any]:
    where: list[ColumnElement[bool]] = [PROCESSES.c.shard == bindparam("scope")] if scoped else []
    where += [PROCESSES.c.gang_uuid == bindparam("gang")] if of_gang else []
    where += [PROCESSES.c.host == bindparam("host")] if of_host else []
    live = all_of(Process).where(PROCESSES.c.state.in_(LIVE_PROCESSES), *where)
    return live.order_by(PROCESSES.c.gang_uuid, PROCESSES.c.attempt, PROCESSES.c.index)


class _Asks(Protocol):
    """The interface to `Reads` that these mix-ins need."""

    _scope: str

    def _execute(self, query: Select[Any], *classes: type, values: Mapping[str, Any] | None = None) -> Result[Any]: ...

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT: ...

    def _all(self, cls: type[ValueT], query: Select[Any], values: Mapping[str, Any] | None = None) -> list[ValueT]: ...


class BatchReads:
    """What batches wait for places, and until when others are under way; part of `Reads`."""

    def pending_batches(self: _Asks) -> Mapping[str, PendingBatch]:
        """Return the batches with jobs in state PENDING that are not withheld, by uuid in order of their rank."""
        found: dict[str, PendingBatch] = {}
        for created_at, uuid, policy, function, jobs, input_bytes in self._execute(
            pending_batches(scoped=bool(self._scope)), Job, Batch
        ):
            of_function = PendingBatch(
                created_at=created_at, policy=policy,
                functions=frozenset({function}), jobs=jobs, largest_input_bytes=input_bytes,
            )  # fmt: skip
            found[uuid] = found[uuid].joined(of_function) if uuid in found else of_function
        return found

    def planned_end(self: _Asks, batch_uuid: str) -> float | None:
        """Return when the last of a batch's jobs in a state of ACTIVE_JOBS is planned to end; None = there is none."""
        end: float | None = self._execute(planned_end(), Job, values={"batch": batch_uuid}).scalar()
        return end


class GangReads:
    """Gangs, processors, processes and migrations; part of `Reads`."""

    def processor(self: _Asks, name: str) -> Processor:
        """Return a processor that gangs can have."""
        return self._one(Processor, name)

    def processors(self: _Asks, host: str | None = None) -> Sequence[Processor]:
        """Return all processors that gangs can have (on one host), by name."""
        asked = _processors(scoped=bool(self._scope), of_host=host is not None)
        return self._all(Processor, asked, {"host": host})

    def gang(self: _Asks, uuid: str) -> Gang:
        """Return a gang."""
        return self._one(Gang, uuid)

    def open_gangs(self: _Asks) -> Sequence[Gang]:
        """Return the gangs that have not ended, in order of arrival."""
        return self._all(Gang, _open(Gang, scoped=bool(self._scope)))

    def gang_run_times(self: _Asks, user_id: str, most: int) -> Sequence[float]:
        """Return how long the last gangs of a user ran that are done, whatever the shard, oldest first."""
        done = all_of(Gang).where(GANGS.c.user_id == user_id, GANGS.c.ran_s.is_not(None))
        newest = done.order_by(GANGS.c.ended_at.desc(), GANGS.c.created_at.desc(), GANGS.c.uuid.desc()).limit(most)
        return [gang.ran_s for gang in reversed(self._all(Gang, newest)) if gang.ran_s is not None]

    def process(self: _Asks, uuid: str) -> Process:
        """Return a process of a gang."""
        return self._one(Process, uuid)

    def processes(self: _Asks, *, gang: str | None = None, host: str | None = None) -> Sequence[Process]:
        """Return the processes that have a place (of one gang, on one host), by gang, attempt and index."""
        asked = _processes(scoped=bool(self._scope), of_gang=gang is not None, of_host=host is not None)
        return self._all(Process, asked, {"gang": gang, "host": host})

    def migration(self: _Asks, uuid: str) -> Migration:
        """Return a migration of a gang."""
        return self._one(Migration, uuid)

    def migrations(self: _Asks, gang_uuid: str) -> Sequence[Migration]:
        """Return the migrations of a gang, oldest first."""
        mine = all_of(Migration).where(MIGRATIONS.c.gang_uuid == gang_uuid)
        return self._all(Migration, mine.order_by(MIGRATIONS.c.attempt))


@cache
def _servers(*, of_host: bool) -> Select[Any]:
    where = SERVERS.c.host == bindparam("host") if of_host else SERVERS.c.uuid.in_(bindparam("uuids", expanding=True))
    return all_of(Server).where(where).order_by(SERVERS.c.name)


class ServerReads:
    """Servers; part of `Reads`."""

    def servers(self: _Asks, *, host: str | None = None, uuids: Collection[str] | None = None) -> Sequence[Server]:
        """Return the servers of one host, or with these uuids, of whatever shard, by name."""
        if host is not None:
            return self._all(Server, _servers(of_host=True), {"host": host})
        return self._all(Server, _servers(of_host=False), {"uuids": sorted(uuids or ())})


class TaskReads:
    """Tasks; part of `Reads`."""

    def task(self: _Asks, uuid: str) -> Task:
        """Return a task."""
        return self._one(Task, uuid)

    def open_tasks(self: _Asks) -> Sequence[Task]:
        """Return the tasks that have not ended, in order of arrival."""
        return self._all(Task, _open(Task, scoped=bool(self._scope)))


class Runs(NamedTuple):
    """N runs: input bytes, seconds of computing, when they ended, and the names of their slots."""

    input_bytes: Ints
    seconds: Floats
    ended_at: Floats
    slots: Sequence[str]


class RunReads:
    """Observed computations; part of `Reads`."""

    def runs(self: _Asks, function: str, *, newest: int) -> dict[str, Runs]:
        """Return the newest runs of a function by board, newest first."""
        boards = self._execute(select(RUNS.c.board).where(RUNS.c.function == function).distinct(), Run).scalars()
        found = {}
        for board in sorted(boards):
            rows = self._execute(_newest_runs(function, board).limit(newest), Run, Job).all()
            sizes, seconds, ends, slots = zip(*rows, strict=True) if rows else ((),) * 4
            found[board] = Runs(ints(sizes), floats(seconds), floats(ends), [slot or "" for slot in slots])
        return found


def _newest_runs(function: str, board: str) -> Select[Any]:
    query = select(RUNS.c.input_bytes, RUNS.c.compute_s, RUNS.c.finished_at, JOBS.c.slot)
    # A job that computed again may be elsewhere by now.
    query = query.outerjoin(JOBS, (JOBS.c.uuid == RUNS.c.job) & (JOBS.c.attempt == RUNS.c.attempt))
    query = query.where(RUNS.c.function == function, RUNS.c.board == board)
    return query.order_by(RUNS.c.finished_at.desc(), RUNS.c.job.desc())


#: How many objects are read at once in search of events.
_READ = 200
#: Times are shown in microseconds.
_SHOWN_S = 1e-6


class EventReads:
    """Objects in the order of their last events; part of `Reads`."""

    def eventful(self: _Asks, cls: type[ValueT], wanted: EventPage, created_before: float) -> Iterator[ValueT]:
        """Yield the objects of a class that may have such events, that with the newest last one first."""
        kind: Any = cls  # what a cache takes
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
        after: list[ColumnElement[bool]] = []
        while True:
            found = self._all(cls, newest_first.where(*after))
            yield from found
            if len(found) < _READ:
                return
            last = found[-1]
            after = [tuple_(rows.event_at, key) < (last_event_at(last), getattr(last, PLACES[kind].key))]
