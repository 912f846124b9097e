"""Queries of the store: the reads of `model.transaction.Transaction`, and reads for the API."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from sqlalchemy import Connection, Result, Select, func, select

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.bitstreams import Design, DesignState
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.hosts import ApiProcess, Enrolment
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    Batch,
    BatchState,
    Host,
    Job,
    JobState,
    Lease,
    LeaseKind,
    Run,
    Scheduler,
    Shard,
    Slot,
)
from fpga_pool.model.transaction import Backlog, PolicyMemory
from fpga_pool.store import statements
from fpga_pool.store.family_reads import FamilyReads
from fpga_pool.store.statements import Scoped
from fpga_pool.store.tables import (
    API_PROCESSES,
    COMMANDS,
    DESIGNS,
    HOSTS,
    JOBS,
    LEASES,
    PLACES,
    RUNS,
    SLOTS,
    called,
    from_columns,
)

ValueT = TypeVar("ValueT")


#: Maximum number of keys in one query; all databases support this number of parameters.
KEYS_PER_QUERY = 500


def chunks(keys: list[str]) -> Iterator[list[str]]:
    """Split a list of keys into chunks for one query each."""
    for begin in range(0, len(keys), KEYS_PER_QUERY):
        yield keys[begin : begin + KEYS_PER_QUERY]


class Reads(FamilyReads):
    """The reads of one transaction, on one connection."""

    def __init__(self, connection: Connection, scope: str) -> None:
        self._connection = connection
        #: The shard whose slots, jobs and leases are listed; "" = all shards.
        self._scope = scope
        #: All values that were read, in their present state, by class and key.
        self._known: dict[tuple[type, str], Any] = {}
        #: Classes of which all values were read, with the keys of these in order.
        self._listed: dict[type, list[str]] = {}

    def batch(self, uuid: str) -> Batch:
        return self._one(Batch, uuid)

    def design(self, uuid: str) -> Design:
        return self._one(Design, uuid)

    def designs(self, states: Collection[DesignState], project_id: str | None = None) -> list[Design]:
        """Return the designs in some states, by function: those of one project and public ones, or (None) all."""
        query = statements.designs(of_project=project_id is not None)
        return self._all(Design, query, {"states": list(states), "project": project_id})

    def design_functions(self, states: Collection[DesignState]) -> Sequence[str]:
        """Return the functions of the designs in some states, in order."""
        return list(self._execute(statements.DESIGN_FUNCTIONS, Design, values={"states": list(states)}).scalars())

    def design_of(self, function: str) -> Design | None:
        """Return the design of a function, or None."""
        found = self._all(Design, statements.all_of(Design).where(DESIGNS.c.function == function))
        return found[0] if found else None

    def job(self, uuid: str) -> Job:
        return self._one(Job, uuid)

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        wanted = [uuid for uuid in uuids if (Job, uuid) not in self._known]
        for some in chunks(wanted):
            self._all(Job, statements.by_keys(Job), {"keys": some})
        return [self._known[Job, uuid] for uuid in uuids if (Job, uuid) in self._known]

    def host(self, name: str, *, heard: bool = False) -> Host:
        return self._one(Host, name)

    def slot(self, name: str) -> Slot:
        return self._one(Slot, name)

    def shard_named(self, name: str, *, lock: bool = False) -> Shard:
        """Return a shard."""
        return self._one(Shard, name, lock=lock)

    def shards(self) -> Sequence[Shard]:
        """Return all shards, by name."""
        return self._all(Shard, statements.ALL_SHARDS)

    def schedulers(self) -> Sequence[Scheduler]:
        """Return all schedulers ever registered, by name."""
        return self._all(Scheduler, statements.ALL_SCHEDULERS)

    def api_processes(self) -> Sequence[ApiProcess]:
        """Return the known processes of the API, by name."""
        return self._all(ApiProcess, statements.all_of(ApiProcess).order_by(API_PROCESSES.c.name))

    def living_hosts(self) -> tuple[dict[str, tuple[str, int, int]], list[str]]:
        """Return agent, number of starts and last heartbeat of every living host of the shard, by name.

        The second value names those hosts whose agents no longer have an accepted key.
        """
        found = self._execute(statements.LIVING_HOSTS, Host).all()
        beats = {name: (agent_id, boot, beat) for name, agent_id, boot, beat, _ in found}
        return beats, [name for name, *_, is_enrolled in found if not is_enrolled]

    def lost_hosts(self) -> set[str]:
        """Return the lost hosts of all shards."""
        return set(self._execute(statements.LOST_HOSTS, Host).scalars())

    def unconfirmed_hosts(self) -> set[str]:
        """Return the enrolled hosts whose data address is not known yet: their next heartbeat sets it."""
        return set(self._execute(statements.UNCONFIRMED_HOSTS).scalars())

    def enrolment(self, host: str) -> Enrolment | None:
        """Return the enrolment of a host, or None."""
        row = self._execute(statements.by_key(Enrolment, lock=False), values={"key": host}).one_or_none()
        return None if row is None else from_columns(Enrolment, row)

    def slot_by_uuid(self, uuid: str) -> Slot:
        """Return the slot with this uuid."""
        found = self._all(Slot, statements.all_of(Slot).where(SLOTS.c.uuid == uuid))
        if not found:
            raise NotFound(f"no {called(Slot, uuid)}")
        return found[0]

    def hosts(self) -> Sequence[Host]:
        return self._whole(Host, statements.ALL_HOSTS)

    def hosts_by_shard(self) -> dict[str, int]:
        """Return the number of hosts of each shard."""
        counted = select(HOSTS.c.shard, func.count()).group_by(HOSTS.c.shard)
        return dict(self._execute(counted, Host).tuples().all())

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        if host is None:
            return self._whole(Slot, statements.ALL_SLOTS)
        return self._all(Slot, statements.SLOTS_OF_HOST, {"host": host})

    def slot_counts(self) -> dict[tuple[str, str], int]:
        """Return the number of slots by board and kind."""
        return {(board, kind): count for board, kind, count in self._execute(statements.SLOT_COUNTS, Slot)}

    def batches(self) -> Sequence[Batch]:
        """Return all batches, newest first."""
        return self.page(Batch, Page(descending=True))

    def generations(self) -> dict[str, int]:
        """Return the generation of every shard."""
        return dict(self._execute(statements.SHARD_GENERATIONS, Shard).tuples().all())

    def batch_jobs(self, batch_uuid: str) -> Sequence[Job]:
        return self._all(Job, statements.all_of(Job).where(JOBS.c.batch_uuid == batch_uuid).order_by(JOBS.c.index))

    def batch_job_summaries(
        self, batch_uuid: str, *, states: Collection[JobState] = (), changed_after: Mapping[str, int] | None = None
    ) -> Sequence[Job]:
        """Return the jobs of a batch (in some states, changed after these generations of the shards), by index.

        The jobs have no histories.
        """
        values: dict[str, Any] = {"batch": batch_uuid, "states": list(states)}
        if changed_after is not None:
            values["seen"] = list(changed_after)
            for place, (shard, seen) in enumerate(changed_after.items()):
                values |= {f"shard_{place}": shard, f"seen_{place}": seen}
        after = None if changed_after is None else len(changed_after)
        found = self._execute(statements.jobs_of_batch(in_states=bool(states), after=after), Job, values=values)
        return [from_columns(Job, row) for row in found]

    def job_summaries(self, uuids: Collection[str]) -> dict[str, Job]:
        """Return the existing jobs among these by uuid, without their histories."""
        found: dict[str, Job] = {}
        for some in chunks(list(uuids)):
            rows = self._execute(statements.JOB_SUMMARIES, Job, values={"keys": some})
            found |= {job.uuid: job for job in (from_columns(Job, row) for row in rows)}
        return found

    def waiting_batches(self) -> Mapping[str, Mapping[str, BatchState | None]]:
        states: dict[str, BatchState] = {}
        waiting = dict(self._execute(statements.WAITING_BATCHES, Batch).tuples().all())
        for some in chunks(sorted({uuid for others in waiting.values() for uuid in others})):
            states |= dict(self._execute(statements.BATCH_STATES, Batch, values={"keys": some}).tuples().all())
        return {uuid: {other: states.get(other) for other in others} for uuid, others in waiting.items()}

    def policies_at_work(self) -> Collection[str]:
        return {policy for (policy,) in self._execute(statements.POLICIES_AT_WORK, Job)}

    def newest_jobs(self, policies: Collection[str], since: float, most: int) -> Sequence[Job]:
        return self._all(Job, statements.NEWEST_JOBS, {"policies": policies, "since": since, "most": most})

    def pending_functions(self, batch_uuid: str) -> set[str]:
        """Return the functions of the jobs of a batch in state PENDING."""
        return set(self._execute(statements.PENDING_FUNCTIONS, Job, values={"batch": batch_uuid}).scalars())

    def pending_jobs(self, batches: Collection[str]) -> Sequence[Job]:
        place = {uuid: place for place, uuid in enumerate(batches)}
        found = [
            job for some in chunks(list(batches)) for job in self._all(Job, statements.PENDING_JOBS, {"batches": some})
        ]
        return sorted(found, key=lambda job: (place[job.batch_uuid], job.index))

    def unchanged(self, jobs: Sequence[Job], found_in: int | None = None) -> Sequence[Job]:
        stored: dict[str, int] = {}
        for some in chunks([job.uuid for job in jobs]):
            stored |= dict(self._execute(statements.JOB_GENERATIONS, Job, values={"keys": some}).tuples().all())
        same = [job for job in jobs if stored.get(job.uuid) == job.generation]
        self._known.update({(Job, job.uuid): job for job in same})
        return same

    def design_jobs(self, function: str = "", but: Collection[str] = ()) -> Sequence[Job]:
        """Return the pending and active jobs of one design's function, or of all designs `but` some."""
        of = JOBS.c.function
        named = of == function if function else of.contains(".") & of.not_in(but)
        query = statements.all_of(Job).where(JOBS.c.state.in_(ACTIVE_JOBS | {JobState.PENDING}), named)
        return self._all(Job, query.where(JOBS.c.shard == self._scope) if self._scope else query)

    def exhausted_jobs(self, attempts: int) -> Sequence[Job]:
        return self._all(Job, statements.EXHAUSTED_JOBS, {"attempts": attempts})

    def overdue_inputs(self, due_before: float, *, above_bytes: int = -1) -> Sequence[Job]:
        values = {"due_before": due_before, "above_bytes": above_bytes}
        return self._all(Job, statements.OVERDUE_INPUTS, values)

    def inputs_due(self, due_after: float) -> Sequence[Job]:
        return self._all(Job, statements.INPUTS_DUE, {"due_after": due_after})

    def astray(self) -> Sequence[Job]:
        return self._all(Job, statements.ASTRAY)

    def overdue(self, due_before: float) -> dict[str, float]:
        query, values = statements.OVERDUE, {"due_before": due_before}
        return dict(self._execute(query, Job, values=values).tuples().all())

    def jobs_by_shard(self) -> dict[str, int]:
        open_jobs = select(JOBS.c.shard, func.count()).where(JOBS.c.state.in_(ACTIVE_JOBS | {JobState.PENDING}))
        return dict(self._execute(open_jobs.group_by(JOBS.c.shard), Job).tuples().all())

    def active_jobs(
        self, *, slot: str | None = None, host: str | None = None, flow: str | None = None
    ) -> Sequence[Job]:
        named = {"slot": slot, "host": host, "flow": flow}.items()
        on, place = next(((name, value) for name, value in named if value is not None), ("", None))
        return self._all(Job, statements.ACTIVE[on], {"place": place})

    def backlogs(self) -> Sequence[Backlog]:
        found = self._execute(statements.BACKLOGS, Job)
        return [
            Backlog(slot=slot, free_at=free_at, inputs_due_at=inputs_due_at, last_order=order)
            for slot, free_at, inputs_due_at, order in found
        ]

    def occupied(self, slots: Collection[str]) -> set[str]:
        return {
            slot
            for some in chunks(list(slots))
            for slot in self._execute(
                statements.SLOTS_WITH_JOBS, Job, values={"slots": some, "states": ACTIVE_JOBS}
            ).scalars()
        }

    def held_results(self, host: str) -> Sequence[Job]:
        return self._all(Job, statements.HELD_RESULTS, {"host": host})

    def leases(
        self, *, slots: Collection[str] | None = None, host: str | None = None, holders: Collection[str] | None = None
    ) -> Sequence[Lease]:
        if slots is not None:
            return self._leases(statements.LEASES_ON_SLOTS, slots)
        if host is not None:
            return self._all(Lease, statements.LEASES_ON_HOST, {"host": host})
        if holders is not None:
            return self._leases(statements.LEASES_OF_HOLDERS, holders)
        return self._all(Lease, statements.HELD_LEASES)

    def _leases(self, query: Select[Any] | Scoped, keys: Collection[str]) -> Sequence[Lease]:
        found = [lease for some in chunks(list(keys)) for lease in self._all(Lease, query, {"keys": some})]
        return sorted(found, key=attrgetter("slot"))

    def commands(self) -> Sequence[Command]:
        """Return the commands in the outbox, in the order of their commits."""
        return self._all(Command, statements.all_of(Command).order_by(COMMANDS.c.position))

    def completions(self, batch_uuid: str) -> dict[str, int]:
        """Return the jobs of a batch whose completion is recorded, with the attempt that completed."""
        recorded = select(RUNS.c.job, RUNS.c.attempt).join(JOBS, JOBS.c.uuid == RUNS.c.job)
        return dict(self._execute(recorded.where(JOBS.c.batch_uuid == batch_uuid), Run).tuples().all())

    def policy_memory(self, uuid: str) -> PolicyMemory | None:
        found = self._all(PolicyMemory, statements.by_key(PolicyMemory, lock=False), {"key": uuid})
        return found[0] if found else None

    def time_models(self) -> dict[tuple[str, str], TimeModel]:
        rows = self._connection.execute(statements.FITS)
        return {(row.function, row.board): TimeModel(row.a_s, row.b_s_per_byte) for row in rows}

    def refits(self, function: str) -> list[tuple[str, tuple[HistoryEntry, ...]]]:
        """Return for each board, with the number of runs, an event for the last fit of a function's time model."""
        rows = self._connection.execute(statements.REFITS, {"function": function})
        return [
            (f"board {row.board}: {row.samples} runs", (HistoryEntry(row.fitted_at, "Refitted", "", ""),))
            for row in rows
        ]

    def ended_instances(self, newest: int) -> list[tuple[str, str, float]]:
        """Return project, function and seconds of the instances' leases that ended last, in the whole pool."""
        held_s = LEASES.c.released_at - LEASES.c.granted_at
        query = select(LEASES.c.project_id, LEASES.c.function, held_s).where(
            LEASES.c.kind == LeaseKind.INSTANCE, LEASES.c.released_at.is_not(None)
        )
        rows = self._connection.execute(query.order_by(LEASES.c.released_at.desc()).limit(newest))
        return [(project_id, function, float(seconds)) for project_id, function, seconds in rows]

    def _one(self, cls: type[ValueT], key: str, *, lock: bool = False) -> ValueT:
        """Return a value by its key, which is read at most once; NotFound if it does not exist."""
        known: ValueT | None = self._known.get((cls, key))
        if known is not None:
            return known
        kind: type = cls  # a type that the cached functions accept
        found = self._all(cls, statements.by_key(kind, lock=lock), values={"key": key})
        if not found:
            raise NotFound(f"no {called(cls, key)}")
        return found[0]

    def _all(
        self, cls: type[ValueT], query: Select[Any] | Scoped, values: Mapping[str, Any] | None = None
    ) -> list[ValueT]:
        """Return the values of a class that a query finds."""
        rows = self._execute(query, cls, values=values).all()
        key = PLACES[cls].key
        found = [from_columns(cls, row) for row in rows]
        return [self._known.setdefault((cls, getattr(value, key)), value) for value in found]

    def _whole(self, cls: type[ValueT], query: Select[Any] | Scoped) -> list[ValueT]:
        """Return all values of a class; for the whole pool they are read only once, as nothing is removed then."""
        kind: type = cls  # a type that mappings accept
        if self._scope or kind not in self._listed:
            self._listed[kind] = [getattr(value, PLACES[kind].key) for value in self._all(cls, query)]
        return [self._known[kind, key] for key in self._listed[kind]]

    def _execute(
        self, query: Select[Any] | Scoped, *classes: type, values: Mapping[str, Any] | None = None
    ) -> Result[Any]:
        """Execute a query on these classes, after writing their changes; it may have the parameter `scope`."""
        self.flush(classes)
        if isinstance(query, Scoped):
            query = query.of_shard if self._scope else query.of_pool
        return self._connection.execute(query, {"scope": self._scope, **(values or {})})

    def flush(self, classes: Collection[type] = ()) -> None:
        """Write changes (of some classes only); a transaction that only reads has none."""
