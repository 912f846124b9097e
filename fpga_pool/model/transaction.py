"""Transactions: the interface of a store for the rules of the pool; they are serial and read their own writes.

`store` implements this on SQL, `sim` in memory.  Everything a transaction changed becomes visible at once, together
with the commands it sent, or not at all.  `PolicyMemory` is stored with a shard, so that its next owner goes on with
what a policy has learned.
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
    """The memory of one policy of one family, on one shard."""

    uuid: str
    shard: str
    family: str
    policy: str
    state: PolicyState = None
    #: Work placed by the policy whose end was not reported to it yet, by uuid.
    watched: tuple[str, ...] = ()
    generation: int = 0


def memory_uuid(shard: str, family: str, policy: str) -> str:
    """Return the deterministic uuid of a memory."""
    return str(uuid.uuid5(_NAMESPACE, f"{shard} {family} {policy}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBatch:
    """A batch with jobs that wait for a place."""

    created_at: Moment
    policy: str
    #: What these jobs ask for; how many there are, and how large the largest input is.
    functions: frozenset[str]
    jobs: int
    largest_input_bytes: int

    def joined(self, other: "PendingBatch") -> "PendingBatch":
        """Return the same batch with other jobs of it."""
        largest = max(self.largest_input_bytes, other.largest_input_bytes)
        functions, jobs = self.functions | other.functions, self.jobs + other.jobs
        return changed(self, functions=functions, jobs=jobs, largest_input_bytes=largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What the jobs that occupy a slot still ask of it."""

    slot: str
    #: Planned end of the last of them, UTC seconds.
    free_at: Moment
    #: Planned end of the last transfer that has not arrived, UTC seconds; 0 = all have.
    inputs_due_at: Moment
    #: Place of the last of them in the slot's queue.
    last_order: int


def backlogs_of(active: Iterable[Job]) -> list[Backlog]:
    """Return what is still to be done on each slot that has active jobs, by slot; these are all of them."""
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

    Lists of slots, jobs, leases, gangs and what is theirs are those of the shard (of the whole pool in a transaction on
    none); hosts are always all, because a job's input may come from any.
    `save` compares the object's `generation` with the stored one and raises Conflict if they differ; the stored one
    grows by one.  Objects read after a `save` in the same transaction are as saved.  Reads raise NotFound where a
    single named object does not exist.
    """

    #: The request on whose behalf changes are made.  Events and commands carry its ids from then on.
    cause: Cause

    @property
    def shard(self) -> Shard:
        """The shard as this transaction found it; its epoch fences commands and commits."""

    def batch(self, uuid: str) -> Batch:
        """Return a batch."""

    def take_batches(self, uuids: Collection[str]) -> None:
        """Read these batches, which are to be changed, at once: from then on `batch` needs no query."""

    def job(self, uuid: str) -> Job:
        """Return a job."""

    def jobs(self, uuids: Collection[str]) -> Sequence[Job]:
        """Return these jobs, as far as they exist; each is cached from then on, so that `job` needs no query."""

    def host(self, name: str, *, heard: bool = False) -> Host:
        """Return a host; its last heartbeat, `beat` and `heard_at`, is the stored one only if it is to be `heard`."""

    def slot(self, name: str) -> Slot:
        """Return a slot."""

    def hosts(self) -> Sequence[Host]:
        """Return all hosts, by name."""

    def servers(self, *, host: str | None = None, uuids: Collection[str] | None = None) -> Sequence[Server]:
        """Return the servers of one host, or with these uuids, of whatever shard, by name."""

    def remove_servers(self, names: Collection[str]) -> None:
        """Forget servers, by name."""

    def slots(self, host: str | None = None) -> Sequence[Slot]:
        """Return all slots (of one host), by name."""

    def batch_jobs(self, batch_uuid: str) -> Sequence[Job]:
        """Return the jobs of a batch, by index."""

    def pending_batches(self) -> Mapping[str, PendingBatch]:
        """Return the batches with jobs in state PENDING that are not withheld, by uuid in order of their rank."""

    def waiting_batches(self) -> Mapping[str, Mapping[str, BatchState | None]]:
        """Return the batches of the pool that wait for others, each with these and how they are; None = not stored."""

    def policies_at_work(self) -> Collection[str]:
        """Return the policies of batches with jobs in state PENDING or a state of ACTIVE_JOBS, by name."""

    def newest_jobs(self, policies: Collection[str], since: float, most: int) -> Sequence[Job]:
        """Return jobs, in any state, of the newest batches of these policies, created since then; newest first."""

    def planned_end(self, batch_uuid: str) -> float | None:
        """Return when the last of a batch's jobs in a state of ACTIVE_JOBS is planned to end; None = there is none."""

    def pending_jobs(self, batches: Collection[str]) -> Sequence[Job]:
        """Return the jobs of batches, by uuid, in state PENDING: batch by batch, in the order given, by index."""

    def unchanged(self, jobs: Sequence[Job], found_in: int | None = None) -> Sequence[Job]:
        """Return those of the jobs, read in an earlier transaction, that are still as they were; `job` knows them.

        `found_in` is the generation in which that one found the shard: all are, as long as it is in the same.
        """

    def active_jobs(
        self, *, slot: str | None = None, host: str | None = None, flow: str | None = None
    ) -> Sequence[Job]:
        """Return the jobs in a state of ACTIVE_JOBS (on one slot, one host, or of one flow), slot by slot in order."""

    def backlogs(self) -> Sequence[Backlog]:
        """Return what is still to be done on each slot that has active jobs, by slot."""

    def occupied(self, slots: Collection[str]) -> set[str]:
        """Return those of the slots in whose queue a job occupies a place."""

    def exhausted_jobs(self, attempts: int) -> Sequence[Job]:
        """Return the jobs in state PENDING with at least so many attempts that count."""

    def overdue_inputs(self, due_before: float, *, above_bytes: int = -1) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose planned transfer was over before a point in time.

        Only those with inputs of more than `above_bytes`.
        """

    def inputs_due(self, due_after: float) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose planned transfer is not over by a point in time."""

    def overdue(self, due_before: float) -> dict[str, float]:
        """Return the jobs that were to have begun or ended before a point in time and have not, each with its time.

        In state RUNNING the end counts, else the start.
        """

    def astray(self) -> Sequence[Job]:
        """Return the jobs in state WAITING_INPUT whose inputs do not move as planned."""

    def jobs_by_shard(self) -> dict[str, int]:
        """Return how many jobs of each shard are pending or active."""

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
        """Return a processor that gangs can have."""

    def processors(self, host: str | None = None) -> Sequence[Processor]:
        """Return all such processors of the shard (of one host), by name."""

    def gang(self, uuid: str) -> Gang:
        """Return a gang."""

    def open_gangs(self) -> Sequence[Gang]:
        """Return the gangs of the shard that have not ended, in order of arrival."""

    def gang_run_times(self, user_id: str, most: int) -> Sequence[float]:
        """Return `Gang.ran_s` of the last gangs of a user that are done, in whatever shard, the oldest first."""

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
        """Return what a policy remembers of the shard; None = nothing yet."""

    def time_models(self) -> dict[tuple[str, str], TimeModel]:
        """Return the refitted time models, by (function, board)."""

    def add(self, *things: Stored | ChargedLoad) -> None:
        """Store new objects; raises DuplicateId if one exists, Conflict where a place is held by another one."""

    def save(self, thing: Stored) -> None:
        """Store a changed object."""

    def send(self, command: Command) -> None:
        """Put a command into the outbox."""

    def drop_commands(self, host: str) -> None:
        """Remove what the outbox holds for the slots of a host that is lost; what is about its flows waits for it."""

    def record_run(self, run: Run) -> None:
        """Record the completion of a job; at most one per job: a second one raises DuplicateId, now or at the end."""

    def forget_run(self, job_uuid: str) -> None:
        """Remove the recorded completion of a job that has to compute again."""
