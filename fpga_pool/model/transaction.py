"""Transactions: the interface of a store for the rules of the pool.

Transactions are serializable and read their own writes.  All changes of a transaction, including the commands that it
sends, become visible at once or not at all.  `store` implements the interface on SQL, `sim` in memory.  `PolicyMemory`
is stored with a shard, so that the next owner of the shard continues with what a policy has learned.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fpga_pool.core.policy import PolicyState
from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.fields import Moment
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import Design
from fpga_pool.model.objects.gangs import Gang, Migration, Process, Processor
from fpga_pool.model.objects.history import Cause
from fpga_pool.model.objects.hosts import Server
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import (
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
from fpga_pool.model.values import changed

_NAMESPACE = uuid.UUID("0d8a1f6e-53b0-5c86-9f3c-2a77f1f3b0c4")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyMemory:
    """Memory of one policy of one family on one shard."""

    uuid: str
    shard: str
    family: str
    policy: str
    state: PolicyState = None
    #: Uuids of work placed by the policy whose end was not reported to it yet.
    watched: tuple[str, ...] = ()
    generation: int = 0


def memory_uuid(shard: str, family: str, policy: str) -> str:
    """Return the deterministic uuid of a policy's memory."""
    return str(uuid.uuid5(_NAMESPACE, f"{shard} {family} {policy}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """A batch with jobs that wait for a place."""

    created_at: Moment
    policy: str
    #: Functions of these jobs, their number, and the size of their largest input.
    functions: frozenset[str]
    jobs: int
    largest_input_bytes: int

    def joined(self, other: "PendingBatch") -> "PendingBatch":
        """Return the same batch with the waiting jobs of both."""
        largest = max(self.largest_input_bytes, other.largest_input_bytes)
        functions, jobs = self.functions | other.functions, self.jobs + other.jobs
        return changed(self, functions=functions, jobs=jobs, largest_input_bytes=largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Work that remains on a slot for its active jobs."""

    slot: str
    #: Planned end of the last job, UTC seconds.
    free_at: Moment
    #: Planned end of the last input transfer that is not complete, UTC seconds; 0 = all are.
    inputs_due_at: Moment
    #: Position of the last job in the slot's queue.
    last_order: int


def backlogs_of(active: Iterable[Job]) -> list[Backlog]:
    """Return the backlog of each slot that has active jobs, by slot; `active` are all active jobs."""
    by_slot: dict[str, list[Job]] = {}
    for job in active:
        by_slot.setdefault(job.slot, []).append(job)
    return [
        Backlog(
            slot=slot,
            free_at=max((job.dispatched_at or 0.0) + (job.end_s or 0.0) for job in jobs),
            inputs_due_at=max((input_due_at(job) for job in jobs if job.state is JobState.WAITING_INPUT), default=0.0),
            last_order=max(job.order for job in jobs),
        )
        for slot, jobs in sorted(by_slot.items())
    ]


Stored = (
    Batch | Job | Host | Server | Slot | Lease | Processor | Gang | Process | Migration | Task | Design | PolicyMemory
)


class Transaction(Protocol):
    """One transaction on one shard.

    Lists of slots, jobs, leases, gangs and their parts contain those of the shard only, or those of the whole pool if
    the transaction is not on a shard; `hosts` always returns all, because a job's input may come from any host.
    `save` raises Conflict if the object's `generation` differs from the stored one, which it then increments by one.
    Objects read after a `save` in the same transaction are as saved.  Reads of a single named object raise NotFound if
    it does not exist.
    """

    #: The request on whose behalf changes are made.  Once set, events and commands carry its ids.
    cause: Cause

    @property
    def shard(self) -> Shard:
        """The shard as it was at the start of this transaction; its epoch fences commands and commits."""

    def batch(self, uuid: str) -> Batch:
        """Return a batch."""

    def take_batches(self, uuids: Collection[str]) -> None:
        """Read, in one query, batches that are to be changed; afterwards `batch` needs no query for them."""

    def job(self, uuid: str) -> Job:
        """Return a job."""

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        """Return the existing jobs among these; afterwards `job` needs no query for them."""

    def host(self, name: str, *, heard: bool = False) -> Host:
        """Return a host; its last heartbeat (`beat` and `heard_at`) is up to date only with `heard`."""

    def slot(self, name: str) -> Slot:
        """Return a slot."""

    def hosts(self) -> Sequence[Host]:
        """Return all hosts, by name."""

    def servers(self, *, host: str | None = None, uuids: Collection[str] | None = None) -> Sequence[Server]:
        """Return the servers of one host, or those with these uuids, in any shard, by name."""

    def remove_servers(self, names: Collection[str]) -> None:
        """Remove the servers with these names."""

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        """Return all slots (of one host), by name."""

    def batch_jobs(self, batch_uuid: str) -> Sequence[Job]:
        """Return the jobs of a batch, by index."""

    def pending_batches(self) -> Mapping[str, PendingBatch]:
        """Return the batches with jobs in state PENDING that are not withheld, by uuid in order of their rank."""

    def waiting_batches(self) -> Mapping[str, Mapping[str, BatchState | None]]:
        """Return the batches of the pool that wait for others, each with the states of these (None = not stored)."""

    def policies_at_work(self) -> Collection[str]:
        """Return the names of the policies of batches with jobs in state PENDING or a state of ACTIVE_JOBS."""

    def newest_jobs(self, policies: Collection[str], since: float, most: int) -> Sequence[Job]:
        """Return the newest `most` jobs (any state) of batches with these policies created at `since` or later."""

    def planned_end(self, batch_uuid: str) -> float | None:
        """Return the latest planned end of a batch's jobs in a state of ACTIVE_JOBS; None if there are none."""

    def pending_jobs(self, batches: Collection[str]) -> Sequence[Job]:
        """Return the jobs in state PENDING of batches, given by uuid: in the order of the batches, then by index."""

    def unchanged(self, jobs: Sequence[Job], found_in: int | None = None) -> Sequence[Job]:
        """Return the jobs, read in an earlier transaction, that have not changed; `job` needs no query for them then.

        `found_in` is the generation of the shard in that transaction: if it is still the same, none has changed.
        """

    def active_jobs(
        self, *, slot: str | None = None, host: str | None = None, flow: str | None = None
    ) -> Sequence[Job]:
        """Return the jobs in a state of ACTIVE_JOBS (on one slot, one host, or of one flow), slot by slot in order."""

    def backlogs(self) -> Sequence[Backlog]:
        """Return the backlog of each slot that has active jobs, by slot."""

    def occupied(self, slots: Collection[str]) -> set[str]:
        """Return the slots among these that have active jobs in their queues."""

    def exhausted_jobs(self, attempts: int) -> Sequence[Job]:
        """Return the jobs in state PENDING with at least this number of counted attempts."""

    def overdue_inputs(self, due_before: float, *, above_bytes: int = -1) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose planned transfer ended before a point in time.

        Only jobs with inputs of more than `above_bytes` are returned.
        """

    def inputs_due(self, due_after: float) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose planned transfer ends after a point in time."""

    def overdue(self, due_before: float) -> dict[str, float]:
        """Return the jobs that were planned to begin or end before a point in time and have not, with the planned time.

        For jobs in state RUNNING it is the planned end, for other active jobs the planned start.
        """

    def astray(self) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose inputs do not move as planned."""

    def jobs_by_shard(self) -> dict[str, int]:
        """Return the number of pending and active jobs of each shard."""

    def held_results(self, host: str) -> Sequence[Job]:
        """Return the jobs in state RESULT_HELD on a host, oldest first."""

    def leases(
        self,
        *,
        slots: Collection[str] | None = None,
        host: str | None = None,
        holders: Collection[str] | None = None,
    ) -> Sequence[Lease]:
        """Return the HELD leases (of these slots, of the slots of one host, or of these holders), by slot."""

    def processor(self, name: str) -> Processor:
        """Return a processor that is reserved for gangs."""

    def processors(self, host: str | None = None) -> Sequence[Processor]:
        """Return all processors of the shard (of one host) that are reserved for gangs, by name."""

    def gang(self, uuid: str) -> Gang:
        """Return a gang."""

    def open_gangs(self) -> Sequence[Gang]:
        """Return the gangs of the shard that have not ended, in order of arrival."""

    def gang_run_times(self, user_id: str, most: int) -> Sequence[float]:
        """Return `Gang.ran_s` of the user's last `most` completed gangs, in any shard, oldest first."""

    def process(self, uuid: str) -> Process:
        """Return a process of a gang."""

    def processes(self, *, gang: str | None = None, host: str | None = None) -> Sequence[Process]:
        """Return the processes in a state of LIVE_PROCESSES (of one gang, on one host), by gang, attempt and index."""

    def migration(self, uuid: str) -> Migration:
        """Return a migration of a gang."""

    def migrations(self, gang_uuid: str) -> Sequence[Migration]:
        """Return the migrations of a gang, oldest first."""

    def task(self, uuid: str) -> Task:
        """Return a task."""

    def open_tasks(self) -> Sequence[Task]:
        """Return the tasks of the shard that have not ended, in order of arrival."""

    def design(self, uuid: str) -> Design:
        """Return a design."""

    def policy_memory(self, uuid: str) -> PolicyMemory | None:
        """Return the memory of a policy for the shard; None if there is none yet."""

    def time_models(self) -> dict[tuple[str, str], TimeModel]:
        """Return the refitted time models, by (function, board)."""

    def add(self, *things: Stored | ChargedLoad) -> None:
        """Store new objects; raises DuplicateId if one exists, Conflict if another one holds its slot or place."""

    def save(self, thing: Stored) -> None:
        """Store a changed object."""

    def send(self, command: Command) -> None:
        """Put a command into the outbox."""

    def drop_commands(self, host: str) -> None:
        """Remove a lost host's commands for slots from the outbox; those for its flows wait for its return."""

    def record_run(self, run: Run) -> None:
        """Record the completion of a job; a second one of the same job raises DuplicateId, here or at the commit."""

    def forget_run(self, job_uuid: str) -> None:
        """Remove the recorded completion of a job that has to be computed again."""
