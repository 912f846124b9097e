"""A transaction on the in-memory objects of a simulated pool: the simulator's implementation of `model.transaction`."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import Conflict, DuplicateId, NotFound
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.gangs import Gang, Migration, Process, Processor
from fpga_pool.model.objects.history import NO_CAUSE
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    Batch,
    BatchState,
    Host,
    Job,
    JobState,
    Lease,
    Run,
    Shard,
    Slot,
    input_due_at,
)
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.transaction import Backlog, PendingBatch, PolicyMemory, Stored, backlogs_of

if TYPE_CHECKING:
    from fpga_pool.sim.store import MemoryStore

T = TypeVar("T")
OfShard = TypeVar("OfShard", Slot, Job, Processor, Gang, Process, Task)


def key_of(thing: Stored | ChargedLoad) -> str:
    """Return the key under which an object is stored."""
    return thing.name if isinstance(thing, Host | Server | Slot | Processor) else thing.uuid


class MemoryTransaction:
    """One transaction; its changes are undone if it fails."""

    #: A simulation has no API requests that could be the cause of a change.
    cause = NO_CAUSE

    def __init__(self, store: "MemoryStore", shard: Shard) -> None:
        self._store = store
        self._shard = shard

    @property
    def shard(self) -> Shard:
        return self._shard

    def batch(self, uuid: str) -> Batch:
        return self._get(Batch, uuid)

    def take_batches(self, uuids: Collection[str]) -> None:
        """Do nothing, as all batches are in memory."""

    def design(self, uuid: str) -> Design:
        return self._get(Design, uuid)

    def job(self, uuid: str) -> Job:
        return self._get(Job, uuid)

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        # The order of a set differs between processes.
        return [job for uuid in sorted(uuids) if (job := self._store.get(Job, uuid)) is not None]

    def host(self, name: str, *, heard: bool = False) -> Host:
        return self._get(Host, name)

    def slot(self, name: str) -> Slot:
        return self._get(Slot, name)

    def hosts(self) -> Sequence[Host]:
        return sorted(self._all(Host), key=lambda host: host.name)

    def servers(self, *, host: str | None = None, uuids: Collection[str] | None = None) -> Sequence[Server]:
        found = [one for one in self._all(Server) if host in (None, one.host) and (uuids is None or one.uuid in uuids)]
        return sorted(found, key=attrgetter("name"))

    def remove_servers(self, names: Collection[str]) -> None:
        for name in names:
            self._store.remove(Server, name)

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        found = [slot for slot in self._ours(Slot) if host in (None, slot.host)]
        return sorted(found, key=lambda slot: slot.name)

    def batch_jobs(self, batch_uuid: str) -> Sequence[Job]:
        return sorted(self._store.members("batch", batch_uuid), key=lambda job: job.index)

    def pending_batches(self) -> Mapping[str, PendingBatch]:
        pending: dict[str, list[Job]] = {}
        for job in self._pending():
            pending.setdefault(job.batch_uuid, []).append(job)
        batches = [batch for batch in map(self.batch, pending) if not batch.withheld]
        by_rank = sorted(batches, key=attrgetter("rank"))
        return {
            batch.uuid: PendingBatch(
                created_at=batch.created_at,
                policy=batch.policy,
                functions=frozenset(job.function for job in jobs),
                jobs=len(jobs),
                largest_input_bytes=max(job.input_bytes for job in jobs),
            )
            for batch in by_rank
            for jobs in [pending[batch.uuid]]
        }

    def waiting_batches(self) -> Mapping[str, Mapping[str, BatchState | None]]:
        waiting = sorted(self._store.members("waiting"), key=lambda batch: (batch.created_at, batch.uuid))
        return {
            batch.uuid: {
                uuid: None if (other := self._store.get(Batch, uuid)) is None else other.state
                for uuid in batch.waits_for
            }
            for batch in waiting
        }

    def policies_at_work(self) -> Collection[str]:
        return {self.batch(job.batch_uuid).policy for job in [*self._pending(), *self.active_jobs()]}

    def newest_jobs(self, policies: Collection[str], since: float, most: int) -> Sequence[Job]:
        batches = {batch.uuid: batch for batch in self._all(Batch) if batch.policy in policies}
        found = [job for job in self._ours(Job) if job.batch_uuid in batches]
        found = [job for job in found if batches[job.batch_uuid].created_at >= since]
        found.sort(key=lambda job: (batches[job.batch_uuid].created_at, job.batch_uuid, job.index), reverse=True)
        return found[:most]

    def planned_end(self, batch_uuid: str) -> float | None:
        active = (job for job in self._store.members("batch", batch_uuid) if job.state in ACTIVE_JOBS)
        return max(((job.dispatched_at or 0.0) + (job.end_s or 0.0) for job in active), default=None)

    def pending_jobs(self, batches: Collection[str]) -> Sequence[Job]:
        place = {uuid: place for place, uuid in enumerate(batches)}
        found = (job for job in self._pending() if job.batch_uuid in place)
        return sorted(found, key=lambda job: (place[job.batch_uuid], job.index))

    def unchanged(self, jobs: Sequence[Job], found_in: int | None = None) -> Sequence[Job]:
        stored = {job.uuid: job.generation for job in self.jobs([job.uuid for job in jobs])}
        return [job for job in jobs if stored.get(job.uuid) == job.generation]

    def exhausted_jobs(self, attempts: int) -> Sequence[Job]:
        return [job for job in self._pending() if job.counted_attempts >= attempts]

    def overdue_inputs(self, due_before: float, *, above_bytes: int = -1) -> Sequence[Job]:
        waiting = [job for job in self.active_jobs() if job.state is JobState.WAITING_INPUT]
        return [job for job in waiting if input_due_at(job) < due_before and job.input_bytes > above_bytes]

    def inputs_due(self, due_after: float) -> Sequence[Job]:
        waiting = [job for job in self.active_jobs() if job.state is JobState.WAITING_INPUT]
        return [job for job in waiting if input_due_at(job) > due_after]

    def overdue(self, due_before: float) -> dict[str, float]:
        due_at = {
            job.uuid: (job.dispatched_at or 0.0)
            + ((job.end_s if job.state is JobState.RUNNING else job.start_s) or 0.0)
            for job in self.active_jobs()
        }
        return {uuid: at for uuid, at in due_at.items() if at < due_before}

    def astray(self) -> Sequence[Job]:
        waiting = (job for job in self.active_jobs() if job.state is JobState.WAITING_INPUT)
        return [job for job in waiting if job.moved_bytes is not None]

    def jobs_by_shard(self) -> dict[str, int]:
        return dict(Counter(job.shard for noun in ("pending", "active") for job in self._store.members(noun)))

    def active_jobs(
        self, *, slot: str | None = None, host: str | None = None, flow: str | None = None
    ) -> Sequence[Job]:
        active = self._store.members("active") if slot is None else self._store.members("slot", slot)
        found = [job for job in self._of_shard(active) if host in (None, job.host) and flow in (None, job.flow)]
        return sorted(found, key=lambda job: (job.slot, job.order, job.uuid))

    def backlogs(self) -> Sequence[Backlog]:
        return backlogs_of(self.active_jobs())

    def occupied(self, slots: Collection[str]) -> set[str]:
        return {slot for slot in slots if self._of_shard(self._store.members("slot", slot))}

    def held_results(self, host: str) -> Sequence[Job]:
        return sorted(self._store.members("held", host), key=lambda job: (job.finished_at or 0.0, job.uuid))

    def leases(
        self, *, slots: Collection[str] | None = None, host: str | None = None, holders: Collection[str] | None = None
    ) -> Sequence[Lease]:
        if slots is not None:
            found = [lease for slot in set(slots) for lease in self._store.members("lease", slot)]
        else:
            known = self._store.table(Slot)
            found = [
                lease
                for lease in self._store.members("lease")
                if (held := known.get(lease.slot))
                and self._is_ours(held)
                and host in (None, held.host)
                and (holders is None or lease.holder in holders)
            ]
        return sorted(found, key=lambda lease: lease.slot)

    def processor(self, name: str) -> Processor:
        return self._get(Processor, name)

    def processors(self, host: str | None = None) -> Sequence[Processor]:
        found = [processor for processor in self._ours(Processor) if host in (None, processor.host)]
        return sorted(found, key=attrgetter("name"))

    def gang(self, uuid: str) -> Gang:
        return self._get(Gang, uuid)

    def open_gangs(self) -> Sequence[Gang]:
        return sorted(self._of_shard(self._store.members("gang")), key=attrgetter("created_at", "uuid"))

    def gang_run_times(self, user_id: str, most: int) -> Sequence[float]:
        done = [gang for gang in self._all(Gang) if gang.user_id == user_id and gang.ran_s is not None]
        done.sort(key=lambda gang: (gang.ended_at or 0.0, gang.created_at, gang.uuid))
        return [gang.ran_s for gang in done[-most:] if gang.ran_s is not None] if most else []

    def process(self, uuid: str) -> Process:
        return self._get(Process, uuid)

    def processes(self, *, gang: str | None = None, host: str | None = None) -> Sequence[Process]:
        found = [
            process
            for process in self._of_shard(self._store.members("process", gang or ""))
            if host in (None, process.host)
        ]
        return sorted(found, key=attrgetter("gang_uuid", "attempt", "index"))

    def migration(self, uuid: str) -> Migration:
        return self._get(Migration, uuid)

    def migrations(self, gang_uuid: str) -> Sequence[Migration]:
        found = [migration for migration in self._all(Migration) if migration.gang_uuid == gang_uuid]
        return sorted(found, key=attrgetter("attempt"))

    def task(self, uuid: str) -> Task:
        return self._get(Task, uuid)

    def open_tasks(self) -> Sequence[Task]:
        return sorted(self._of_shard(self._store.members("task")), key=attrgetter("created_at", "uuid"))

    def policy_memory(self, uuid: str) -> PolicyMemory | None:
        return self._store.get(PolicyMemory, uuid)

    def time_models(self) -> dict[tuple[str, str], TimeModel]:
        return dict(self._store.time_models)

    def add(self, *things: Stored | ChargedLoad) -> None:
        for thing in things:
            if self._store.get(type(thing), key_of(thing)) is not None:
                raise DuplicateId(f"{type(thing).__name__.lower()} {key_of(thing)}: exists already")
            if isinstance(thing, Lease) and self.leases(slots=[thing.slot]):
                raise Conflict(f"slot {thing.slot}: it already has an active lease")
            if isinstance(thing, Process):
                self._refuse_held(thing)
            self._store.put(thing)

    def save(self, thing: Stored) -> None:
        stored = self._get(type(thing), key_of(thing))
        if stored.generation != thing.generation:
            raise Conflict(
                f"{type(thing).__name__.lower()} {key_of(thing)}: changed concurrently (generation "
                f"{stored.generation}, expected {thing.generation}); read it again and retry"
            )
        if isinstance(thing, Process):
            self._refuse_held(thing)
        self._store.put(replace(thing, generation=thing.generation + 1))

    def send(self, command: Command) -> None:
        self._store.outbox.append(command)

    def drop_commands(self, host: str) -> None:
        self._store.outbox[:] = [command for command in self._store.outbox if command.host != host or not command.slot]

    def record_run(self, run: Run) -> None:
        if self._store.get(Run, run.job) is not None:
            raise DuplicateId(f"run {run.job}: exists already")
        self._store.put(run)

    def forget_run(self, job_uuid: str) -> None:
        self._store.remove(Run, job_uuid)

    def shards(self) -> Sequence[Shard]:
        """Return all shards."""
        return self._store.shards

    def commands(self) -> Sequence[Command]:
        """Return the commands in the outbox, in the order of their commits."""
        return list(self._store.outbox)

    def is_at_work(self) -> bool:
        """Return whether any job, task, gang or process has not ended, or any result is not yet fetched."""
        return bool(self._store.members("open"))

    def batches(self) -> Sequence[Batch]:
        """Return all batches, newest first."""
        return sorted(self._all(Batch), key=attrgetter("created_at", "uuid"), reverse=True)

    def completions(self, batch_uuid: str) -> Mapping[str, int]:
        """Return the attempt of each job of a batch whose completion is recorded, by job."""
        jobs = [job.uuid for job in self.batch_jobs(batch_uuid)]
        return {uuid: run.attempt for uuid in jobs if (run := self._store.get(Run, uuid)) is not None}

    def _refuse_held(self, wanted: Process) -> None:
        place = wanted.held_place
        others = (process for process in self._store.members("process") if process.uuid != wanted.uuid)
        if place is not None and any(process.held_place == place for process in others):
            raise Conflict(f"{place}: already used by another process")

    def _get(self, kind: type[T], key: str) -> T:
        found = self._store.get(kind, key)
        if found is None:
            raise NotFound(f"no {kind.__name__.lower()} {key}")
        return found

    def _all(self, kind: type[T]) -> list[T]:
        return self._store.all(kind)

    def _pending(self) -> list[Job]:
        return self._of_shard(self._store.members("pending"))

    def _ours(self, kind: type[OfShard]) -> list[OfShard]:
        """Return the objects of a kind in the transaction's shard, or in all shards if it is a transaction on none."""
        return self._of_shard(self._all(kind))

    def _of_shard(self, things: Iterable[OfShard]) -> list[OfShard]:
        return [thing for thing in things if self._is_ours(thing)]

    def _is_ours(self, thing: OfShard) -> bool:
        return self._shard.name in ("", thing.shard)
