"""Invariants of a pool: those that hold at every moment, whatever has failed, and further ones of an idle pool.

Each rule yields its violations as messages for an operator.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import Tier
from fpga_pool.model.lifecycle.job import ResultLost
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import is_design
from fpga_pool.model.objects.gangs import PLACED_GANGS, Gang, GangState, Process, Processor, ProcessState
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    ENDED_BATCHES,
    ENDED_JOBS,
    Batch,
    Host,
    Job,
    JobState,
    Lease,
    LeaseKind,
    Shard,
    Slot,
    SlotState,
)
from fpga_pool.model.objects.tasks import Task, TaskState

# ---- Gangs

_TO_END = frozenset({ProcessState.STOPPING, ProcessState.STOPPED})


def audit_gangs(processors: Sequence[Processor], gangs: Sequence[Gang], processes: Sequence[Process]) -> Iterator[str]:
    """Check gangs that have not ended, processes that have a place, and processors against each other."""
    known = {processor.name: processor for processor in processors}
    for process in processes:
        there = known.get(process.processor)
        if there is None or (there.host, there.shard) != (process.host, process.shard):
            yield f"process {process.uuid}: is {process.state} on {process.processor}, which does not exist"
    for place, count in Counter(process.held_place for process in processes).items():
        if count > 1:
            yield f"{place}: used by {count} processes"
    yield from _audit_priorities(processes)
    of_gang: dict[str, list[Process]] = {}
    for process in processes:
        of_gang.setdefault(process.gang_uuid, []).append(process)
    for gang in gangs:
        present = [process for process in of_gang.pop(gang.uuid, []) if process.attempt == gang.attempt]
        yield from _audit_gang(gang, present)
    for uuid, left in of_gang.items():
        if any(process.state not in _TO_END for process in left):
            yield f"gang {uuid}: has ended, but a process of it was not stopped"


def _audit_priorities(processes: Sequence[Process]) -> Iterator[str]:
    """Check that a foreground process yields to the background exactly if the process there is in a trial."""
    in_front = {process.processor: process for process in processes if process.tier is Tier.FOREGROUND}
    behind = {process.processor: process for process in processes if process.tier is Tier.BACKGROUND}
    for name, front in in_front.items():
        tried = name in behind and behind[name].exchanged
        if front.exchanged is not tried:
            yield f"process {front.uuid}: {'yields' if front.exchanged else 'does not yield'} to background on {name}"


def _audit_gang(gang: Gang, present: Sequence[Process]) -> Iterator[str]:
    going_on = [process for process in present if process.state not in _TO_END]
    if gang.state not in PLACED_GANGS or gang.cancel_requested:
        if going_on:
            yield f"gang {gang.uuid}: should have no processes, but has {len(going_on)}"
        return
    if sorted(process.index for process in going_on) != list(range(gang.processes)):
        yield f"gang {gang.uuid}: is {gang.state}, but has {len(going_on)} of its {gang.processes} processes"
    tier = Tier.BACKGROUND if gang.state is GangState.BACKGROUND else Tier.FOREGROUND
    astray = [process for process in going_on if process.tier is not tier]
    if astray:
        yield f"gang {gang.uuid}: is {gang.state}, but {len(astray)} of its processes are in another tier"
    tried = gang.trial_ends_at is not None
    if tier is Tier.BACKGROUND and any(process.exchanged is not tried for process in going_on):
        yield f"gang {gang.uuid}: is {'' if tried else 'not '}in a trial, but its processes say otherwise"


def audit_gangs_at_rest(gangs: Sequence[Gang], processes: Sequence[Process]) -> Iterator[str]:
    """Report the gangs and processes that an idle pool must not have."""
    for gang in gangs:
        yield f"gang {gang.uuid}: is {gang.state}"
    for process in processes:
        yield f"process {process.uuid}: is {process.state} on {process.processor}"


# ---- Tasks


def audit_tasks(tasks: Sequence[Task], leases: Sequence[Lease], active_jobs: Sequence[Job]) -> Iterator[str]:
    """Check tasks that have not ended against leases in force and jobs on slots: a task has all its slots, or none."""
    held: defaultdict[str, set[str]] = defaultdict(set)
    for lease in leases:
        if lease.kind is LeaseKind.TASK:
            held[lease.holder].add(lease.slot)
    used: defaultdict[str, list[str]] = defaultdict(list)
    for job in active_jobs:
        used[job.batch_uuid].append(job.slot)
    for task in tasks:
        slots, places = held.pop(task.uuid, set()), used[task.uuid]
        wanted = task.slots if task.state is TaskState.RUNNING else 0
        if len(slots) != wanted:
            yield f"task {task.uuid}: is {task.state}, but has {len(slots)} slots instead of {wanted}"
        if task.state is TaskState.RUNNING and not places:
            yield f"task {task.uuid}: is {task.state}, but none of its shares is on a slot"
        if len({slot.partition("/")[0] for slot in slots}) > 1:
            yield f"task {task.uuid}: has slots on several hosts"
        shared = task.slots < task.shares
        if not slots.issuperset(places) or (len(set(places)) != len(places) and not shared):
            how = "not all on its slots" if shared else "not each on a separate slot"
            yield f"task {task.uuid}: has shares on {', '.join(sorted(places))}, {how}"
    for holder, slots in held.items():
        yield f"task {holder}: has ended, but holds {', '.join(sorted(slots))}"


# ---- Batches, slots, leases, and the outbox

#: States of jobs whose completion is recorded as a run.
COMPLETED = frozenset({JobState.RESULT_HELD, JobState.COMPLETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContents:
    """The contents of a pool except its batches, all at one moment."""

    shards: Sequence[Shard]
    hosts: Sequence[Host]
    slots: Sequence[Slot]
    #: Leases in force.
    leases: Sequence[Lease]
    active_jobs: Sequence[Job]
    #: The outbox, in the order of commits.
    commands: Sequence[Command]
    processors: Sequence[Processor] = ()
    #: Tasks that have not ended.
    tasks: Sequence[Task] = ()
    #: Gangs that have not ended, and processes that have a place.
    gangs: Sequence[Gang] = ()
    processes: Sequence[Process] = ()


def audit_batch(batch: Batch, jobs: Sequence[Job], runs: Mapping[str, int]) -> Iterator[str]:
    """Check a batch against its jobs, and the jobs against the recorded `runs`: attempt by job uuid."""
    states = Counter(job.state for job in jobs)
    counted = {
        "jobs": (batch.jobs, len(jobs)),
        "jobs completed": (batch.jobs_completed, sum(states[state] for state in COMPLETED)),
        "jobs failed": (batch.jobs_failed, states[JobState.FAILED]),
        "jobs cancelled": (batch.jobs_cancelled, states[JobState.CANCELLED]),
    }
    for what, (stored, found) in counted.items():
        if stored != found:
            yield f"batch {batch.uuid}: counts {stored} {what}, but {found} are stored"
    ended = all(job.state in ENDED_JOBS for job in jobs)
    if ended != (batch.state in ENDED_BATCHES):
        yield f"batch {batch.uuid}: is {batch.state}, but {'all' if ended else 'not all'} of its jobs have ended"
    for job in jobs:
        yield from _audit_completion(job, runs.get(job.uuid))


def _audit_completion(job: Job, run_attempt: int | None) -> Iterator[str]:
    completed = job.state in COMPLETED
    if completed and run_attempt is None:
        yield f"job {job.uuid}: is {job.state}, but no run is recorded"
    if run_attempt is not None and not completed:
        yield f"job {job.uuid}: is {job.state}, but a run of attempt {run_attempt} is recorded"
    if completed and run_attempt not in (None, job.attempt):
        yield f"job {job.uuid}: is complete at attempt {job.attempt}, but the recorded run is of attempt {run_attempt}"
    lost = [index for index, entry in enumerate(job.history) if entry.event == ResultLost.__name__]
    since = job.history[lost[-1] :] if lost else job.history
    completions = sum(entry.after == JobState.RESULT_HELD != entry.before for entry in since)
    if completions > 1:
        yield f"job {job.uuid}: was completed {completions} times"


def audit_contents(contents: PoolContents) -> Iterator[str]:
    """Check slots, leases, jobs on slots, gangs, tasks and the outbox against each other."""
    slots = {slot.name: slot for slot in contents.slots}
    yield from audit_gangs(contents.processors, contents.gangs, contents.processes)
    yield from _audit_places(contents, slots)
    yield from _audit_leases(contents, slots)
    yield from audit_tasks(contents.tasks, contents.leases, contents.active_jobs)
    yield from _audit_outbox(contents, slots)


def _audit_places(contents: PoolContents, slots: Mapping[str, Slot]) -> Iterator[str]:
    """Check that everything is in an existing shard, and that jobs are on the host and shard of their slot."""
    shards = {shard.name for shard in contents.shards}
    hosts = {host.name: host.shard for host in contents.hosts}
    for host in contents.hosts:
        if host.shard not in shards:
            yield f"host {host.name}: is in shard {host.shard}, which does not exist"
    for slot in contents.slots:
        if slot.shard != hosts.get(slot.host):
            yield f"slot {slot.name}: is in shard {slot.shard}, but its host is in {hosts.get(slot.host, 'none')}"
        if slot.state is SlotState.DRAINED and not slot.drain_requested:
            yield f"slot {slot.name}: is DRAINED without a drain request"
    for job in contents.active_jobs:
        found = slots.get(job.slot)
        if found is None or (found.host, found.shard) != (job.host, job.shard):
            yield f"job {job.uuid}: is {job.state} on {job.host} of shard {job.shard}, but has no slot {job.slot}"


def _audit_leases(contents: PoolContents, slots: Mapping[str, Slot]) -> Iterator[str]:
    """Check that the pool holds leases on the slots that have its jobs, and on no others."""
    held = Counter(lease.slot for lease in contents.leases)
    for name, count in held.items():
        if count > 1:
            yield f"slot {name}: {count} active leases"
    pool_leases = [lease for lease in contents.leases if lease.kind is LeaseKind.POOL]
    for lease in pool_leases:
        if lease.slot not in slots or lease.epoch != slots[lease.slot].lease_epoch:
            yield f"lease {lease.uuid}: epoch {lease.epoch} is not the latest granted on slot {lease.slot}"
    ours = {lease.slot for lease in pool_leases}
    used = {job.slot for job in contents.active_jobs}
    others = held - Counter(ours)
    for name in sorted(used - ours - set(others)):
        yield f"slot {name}: has jobs, but no lease of the pool"
    yield from _audit_placed_on_others(contents)
    yield from (f"slot {name}: has a lease of the pool, but no jobs" for name in sorted(ours - used))


def _audit_placed_on_others(contents: PoolContents) -> Iterator[str]:
    """Report jobs placed on a slot after someone else got its lease; jobs that were placed earlier are leaving."""
    foreign = {lease.slot: lease for lease in contents.leases if lease.kind is not LeaseKind.POOL}
    since = {slot: lease.granted_at for slot, lease in foreign.items()}
    for job in contents.active_jobs:
        if job.slot in foreign and foreign[job.slot].holder == job.batch_uuid:
            continue  # a share of the task that holds the slot
        placed_at = max((entry.at for entry in job.history if entry.event in ("Planned", "Moved")), default=0.0)
        if job.slot in since and placed_at > since[job.slot]:
            yield f"job {job.uuid}: is placed on slot {job.slot}, on which the pool has no lease"


def _audit_outbox(contents: PoolContents, slots: Mapping[str, Slot]) -> Iterator[str]:
    """Check that commands are numbered in order, and not beyond the numbers of their slot or processor and shard."""
    processors = {processor.name: processor for processor in contents.processors}
    epochs = {shard.name: shard.epoch for shard in contents.shards}
    last = Counter[str]()
    for command in contents.commands:
        if command.epoch > epochs.get(command.shard, 0):
            yield f"command {command.id}: epoch {command.epoch} of shard {command.shard} has not started yet"
        if not command.slot:  # a command for the host itself
            continue
        slot = slots.get(command.slot) or processors.get(command.slot)
        if slot is None or not last[command.slot] < command.sequence <= slot.sequence:
            yield f"command {command.id}: number {command.sequence} of slot {command.slot} is out of order"
        last[command.slot] = command.sequence


def audit_instances(leases: Iterable[Lease], slots: Iterable[Slot], catalogue: Catalogue) -> Iterator[str]:
    """Report instances that cannot use a slot they hold: it is gone, faulty or broken, or its function is missing."""
    by_name = {slot.name: slot for slot in slots}
    for lease in leases:
        if not lease.of_instance:
            continue
        slot = by_name.get(lease.slot)
        if slot is None:
            yield f"slot {lease.slot}: does not exist, but instance {lease.holder} holds it"
        elif slot.state is SlotState.FAULTED:
            yield f"slot {lease.slot}: is FAULTED, but instance {lease.holder} holds it"
        elif lease.broken:
            yield f"slot {lease.slot}: is {slot.state}, and instance {lease.holder} cannot use it: {lease.broken}"
        if lease.function and lease.function not in catalogue.functions:
            why = "whose design is not approved" if is_design(lease.function) else "which is not in the catalogue"
            yield f"slot {lease.slot}: instance {lease.holder} uses {lease.function}, {why}"


def audit_rest(contents: PoolContents, unfinished: Mapping[str, int]) -> Iterator[str]:
    """Report everything that an idle pool must not have; `unfinished` is the number of jobs not ended, by batch."""
    for batch, count in sorted(unfinished.items()):
        yield f"batch {batch}: {count} jobs have not ended"
    for job in contents.active_jobs:
        yield f"job {job.uuid}: is {job.state} on slot {job.slot}"
    for lease in contents.leases:
        if lease.kind is LeaseKind.POOL:
            yield f"lease {lease.uuid}: the pool holds slot {lease.slot}"
    for slot in contents.slots:
        if slot.state in (SlotState.BUSY, SlotState.LOADING) or slot.job:
            yield f"slot {slot.name}: is {slot.state} {slot.function} with job {slot.job or 'none'}"
    yield from audit_gangs_at_rest(contents.gangs, contents.processes)
    yield from (f"task {task.uuid}: is {task.state}" for task in contents.tasks)
    for command in contents.commands:
        yield f"command {command.id}: waits for host {command.host}"


def unfinished(jobs: Sequence[Job]) -> int:
    """Return the number of jobs that have not ended."""
    return sum(job.state in ACTIVE_JOBS or job.state is JobState.PENDING for job in jobs)
