"""What can be asked of the store: the reads of `model.transaction.Transaction`, and those of the API."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Result, Select, func, or_, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import Floats, Ints, floats, ints
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.objects import ACTIVE_JOBS, Batch, Host, Job, JobState, Lease, Scheduler, Shard, Slot
from fpga_pool.store.mapping import PLACES, called, columns, from_columns
from fpga_pool.store.models import (
    BatchRow,
    HostRow,
    JobRow,
    LeaseRow,
    RunRow,
    SchedulerRow,
    ShardRow,
    SlotRow,
    TimeModelRow,
)

ValueT = TypeVar("ValueT")

#: How many keys one query asks for: every database takes so many parameters.
KEYS_PER_QUERY = 500


def chunks(keys: list[str]) -> Iterator[list[str]]:
    """Cut a list of keys into what one query can ask for."""
    for begin in range(0, len(keys), KEYS_PER_QUERY):
        yield keys[begin : begin + KEYS_PER_QUERY]


class Reads:
    """The reads of one transaction, on one session."""

    def __init__(self, session: Session, scope: str) -> None:
        self._session = session
        #: The shard whose slots, jobs and leases are listed; "" = all.
        self._scope = scope
        #: What was read, by class and key, as it is now.
        self._known: dict[tuple[type, str], Any] = {}

    def batch(self, uuid: str) -> Batch:
        """Return a batch."""
        return self._one(Batch, uuid)

    def job(self, uuid: str) -> Job:
        """Return a job."""
        return self._one(Job, uuid)

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        """Return these jobs, as far as they exist, in no order."""
        return [
            job for some in chunks(list(uuids)) for job in self._all(Job, select(JobRow).where(JobRow.uuid.in_(some)))
        ]

    def host(self, name: str) -> Host:
        """Return a host."""
        return self._one(Host, name)

    def slot(self, name: str) -> Slot:
        """Return a slot."""
        return self._one(Slot, name)

    def shard_named(self, name: str) -> Shard:
        """Return a shard."""
        return self._one(Shard, name)

    def shards(self) -> Sequence[Shard]:
        """Return all shards, by name."""
        return self._all(Shard, select(ShardRow).order_by(ShardRow.name))

    def schedulers(self) -> Sequence[Scheduler]:
        """Return the schedulers that ever were, by name."""
        return self._all(Scheduler, select(SchedulerRow).order_by(SchedulerRow.name))

    def beats(self) -> dict[str, tuple[str, int, int]]:
        """Return agent, start and last heartbeat of every living host of the shard, by name."""
        columns = select(HostRow.name, HostRow.agent_id, HostRow.boot, HostRow.beat)
        alive = columns.where(HostRow.alive, *self._within(HostRow.shard))
        return {name: (agent_id, boot, beat) for name, agent_id, boot, beat in self._execute(alive)}

    def slot_by_uuid(self, uuid: str) -> Slot:
        """Return the slot with this uuid."""
        found = self._all(Slot, select(SlotRow).where(SlotRow.uuid == uuid))
        if not found:
            raise NotFound(f"no {called(Slot, uuid)}")
        return found[0]

    def hosts(self) -> Sequence[Host]:
        """Return all hosts, by name."""
        return self._all(Host, select(HostRow).order_by(HostRow.name))

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        """Return all slots (of one host), by name."""
        where = self._within(SlotRow.shard)
        where += [] if host is None else [SlotRow.host == host]
        return self._all(Slot, select(SlotRow).where(*where).order_by(SlotRow.name))

    def batches(
        self, project_id: str | None = None, *, limit: int | None = None, marker: str | None = None
    ) -> Sequence[Batch]:
        """Return the batches (of one project), newest first, from the one after `marker` on."""
        age = tuple_(BatchRow.created_at, BatchRow.uuid)
        where: list[ColumnElement[bool]] = [] if project_id is None else [BatchRow.project_id == project_id]
        if marker is not None:
            last = self._all(Batch, select(BatchRow).where(BatchRow.uuid == marker, *where))
            if not last:
                raise InvalidInput(f"marker: no {called(Batch, marker)}")
            where.append(age < (last[0].created_at, last[0].uuid))
        newest = select(BatchRow).where(*where).order_by(BatchRow.created_at.desc(), BatchRow.uuid.desc())
        return self._all(Batch, newest.limit(limit))

    def generations(self) -> dict[str, int]:
        """Return the generation of every shard."""
        return dict(self._session.execute(select(ShardRow.name, ShardRow.pool_generation)).tuples().all())

    def batch_jobs(
        self,
        batch_uuid: str,
        *,
        states: Collection[JobState] = (),
        changed_after: Mapping[str, int] | None = None,
    ) -> Sequence[Job]:
        """Return the jobs of a batch (in some states, changed after these generations of the shards), by index."""
        where: list[ColumnElement[bool]] = [JobRow.state.in_(states)] if states else []
        if changed_after is not None:
            newer = [(JobRow.shard == shard) & (JobRow.changed_in > seen) for shard, seen in changed_after.items()]
            where.append(or_(*newer, JobRow.shard.not_in(changed_after)))
        return self._all(Job, select(JobRow).where(JobRow.batch_uuid == batch_uuid, *where).order_by(JobRow.index))

    def pending_jobs(self) -> Sequence[Job]:
        """Return the jobs in state PENDING, oldest batch first, then by index."""
        pending = select(JobRow).join(BatchRow, BatchRow.uuid == JobRow.batch_uuid)
        pending = pending.where(JobRow.state == JobState.PENDING, *self._within(JobRow.shard))
        return self._all(Job, pending.order_by(BatchRow.created_at, BatchRow.uuid, JobRow.index))

    def exhausted_jobs(self, attempts: int) -> Sequence[Job]:
        """Return the jobs in state PENDING that were planned at least so often."""
        pending = select(JobRow).where(JobRow.state == JobState.PENDING, *self._within(JobRow.shard))
        return self._all(Job, pending.where(JobRow.attempt >= attempts).order_by(JobRow.uuid))

    def overdue_inputs(self, due_before: float) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose planned transfer was over before a point in time."""
        waiting = select(JobRow).where(JobRow.state == JobState.WAITING_INPUT, *self._within(JobRow.shard))
        return self._all(Job, waiting.where(JobRow.input_due_at < due_before).order_by(JobRow.uuid))

    def jobs_by_shard(self) -> dict[str, int]:
        """Return how many jobs of each shard are pending or active."""
        open_jobs = select(JobRow.shard, func.count()).where(JobRow.state.in_(ACTIVE_JOBS | {JobState.PENDING}))
        return dict(self._execute(open_jobs.group_by(JobRow.shard)).tuples().all())

    def active_jobs(self, *, slot: str | None = None, host: str | None = None) -> Sequence[Job]:
        """Return the jobs in a state of ACTIVE_JOBS (on one slot, or one host), slot by slot, in their order."""
        where = [JobRow.state.in_(ACTIVE_JOBS), *self._within(JobRow.shard)]
        where += [] if slot is None else [JobRow.slot == slot]
        where += [] if host is None else [JobRow.host == host]
        return self._all(Job, select(JobRow).where(*where).order_by(JobRow.slot, JobRow.order, JobRow.uuid))

    def has_active_jobs(self, slot: str) -> bool:
        """Say whether any job occupies a place in a slot's queue."""
        query = select(JobRow.uuid).where(JobRow.slot == slot, JobRow.state.in_(ACTIVE_JOBS)).limit(1)
        return self._execute(query).first() is not None

    def held_results(self, host: str) -> Sequence[Job]:
        """Return the jobs in state RESULT_HELD on a host, oldest first."""
        held = select(JobRow).where(JobRow.state == JobState.RESULT_HELD, JobRow.host == host)
        return self._all(Job, held.order_by(JobRow.finished_at, JobRow.uuid))

    def leases(self, *, slot: str | None = None) -> Sequence[Lease]:
        """Return the HELD leases (of one slot: none or one), by slot."""
        if slot is not None:
            return self._all(Lease, select(LeaseRow).where(LeaseRow.held_slot == slot))
        held = select(LeaseRow).join(SlotRow, SlotRow.name == LeaseRow.held_slot)
        return self._all(Lease, held.where(*self._within(SlotRow.shard)).order_by(LeaseRow.held_slot))

    def time_models(self) -> dict[tuple[str, str], TimeModel]:
        """Return the refitted time models, by (function, board)."""
        rows = self._session.scalars(select(TimeModelRow))
        return {(row.function, row.board): TimeModel(row.a_s, row.b_s_per_byte) for row in rows}

    def runs(self, function: str, *, newest: int) -> dict[str, tuple[Ints, Floats]]:
        """Return, by board, the (N,) input bytes and (N,) seconds of the newest runs of a function, newest first."""
        boards = self._session.scalars(select(RunRow.board).where(RunRow.function == function).distinct())
        return {board: self._runs(function, board, newest) for board in sorted(boards)}

    def _runs(self, function: str, board: str, newest: int) -> tuple[Ints, Floats]:
        query = select(RunRow.input_bytes, RunRow.compute_s).where(RunRow.function == function, RunRow.board == board)
        rows = self._session.execute(query.order_by(RunRow.finished_at.desc(), RunRow.job).limit(newest)).all()
        return ints([row.input_bytes for row in rows]), floats([row.compute_s for row in rows])

    def _within(self, shard: InstrumentedAttribute[str]) -> list[ColumnElement[bool]]:
        """Return what limits a list to the shard in question."""
        return [shard == self._scope] if self._scope else []

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT:
        """Return a value by its key, read at most once; NotFound if there is none."""
        known: ValueT | None = self._known.get((cls, key))
        if known is not None:
            return known
        place = PLACES[cls]
        query = select(place.row).where(getattr(place.row, place.key) == key)
        found = self._all(cls, query.with_for_update() if lock else query)
        if not found:
            raise NotFound(f"no {called(cls, key)}")
        return found[0]

    def _all(self, cls: type[ValueT], query: Select[Any]) -> list[ValueT]:
        """Return the values of the rows that a query finds."""
        rows = self._execute(query.with_only_columns(*columns(cls), maintain_column_froms=True)).all()
        key = PLACES[cls].key
        values = [from_columns(cls, row) for row in rows]
        return [self._known.setdefault((cls, getattr(value, key)), value) for value in values]

    def _execute(self, query: Select[Any]) -> Result[Any]:
        """Run a query on the database as this transaction has changed it."""
        self.flush()
        return self._session.execute(query)

    def flush(self) -> None:
        """Write what was changed: nothing, in a transaction that only reads."""
