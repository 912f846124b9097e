"""Changes of one object and their consequences: commands, leases, the counts of its batch, the state of its task."""

import math
import uuid
from collections.abc import Collection, Iterable
from dataclasses import replace

from fpga_pool.model import values
from fpga_pool.model.lifecycle.batch import BATCH, JobEnded, JobReopened
from fpga_pool.model.lifecycle.job import JOB, CancelRequested, Displaced, Retimed, Skipped
from fpga_pool.model.lifecycle.slot import (
    LEASE,
    SLOT,
    DrainCompleted,
    DrainRequested,
    LeaseBroken,
    LeaseReleased,
    LeaseRestored,
    ResumeRequested,
)
from fpga_pool.model.lifecycle.task import TASK, TaskCancelled, TaskCompleted, TaskDisplaced, TaskFailed
from fpga_pool.model.messages.agents import Action, Command, ReleaseJob
from fpga_pool.model.objects.gangs import Processor
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    CPU,
    ENDED_JOBS,
    PIPELINE_POLICY,
    Job,
    JobState,
    Lease,
    LeaseKind,
    LeaseState,
    Slot,
    SlotState,
)
from fpga_pool.model.objects.tasks import ENDED_TASKS, TASK_POLICY, Task, TaskState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.pipeline.edges import skipped, unneeded
from fpga_pool.model.rules.shared.flows import hold_flow, release_flow
from fpga_pool.model.transaction import Transaction

# ---- Jobs


def change_job(tx: Transaction, job: Job, event: object, now_s: float, *, settle: bool = True) -> Job:
    """Apply `event` to a job: command its agent, count it in its batch when it ends, free its slot when it leaves.

    Without `settle` the caller must call `settle_slots`, once for all jobs that leave the slot.  If the job is a share
    of a task or a job of a pipeline, the other shares or the dependent jobs may change as well.
    """
    changed = _change_one(tx, job, event, now_s, settle=settle)
    left = job.state not in ENDED_JOBS and changed.state not in ACTIVE_JOBS
    if left:
        policy = tx.batch(job.batch_uuid).policy
        if policy == TASK_POLICY:
            settle_task(tx, job.batch_uuid, now_s)
        elif policy == PIPELINE_POLICY and changed.state in ENDED_JOBS:
            _settle_pipeline(tx, changed, now_s)
    return changed


def _change_one(tx: Transaction, job: Job, event: object, now_s: float, *, settle: bool) -> Job:
    changed, actions = JOB.transition(job, event, now_s)
    tx.save(changed)
    for action in actions:
        send(tx, changed.slot, action)
    if job.flow and job.state is JobState.WAITING_INPUT:
        if isinstance(event, Retimed):
            hold_flow(tx, changed)
        else:
            release_flow(tx, job)
    if changed.state in ENDED_JOBS and job.state not in ENDED_JOBS:
        batch, _ = BATCH.transition(tx.batch(job.batch_uuid), JobEnded(state=changed.state), now_s)
        tx.save(batch)
    elif job.state in ENDED_JOBS and changed.state not in ENDED_JOBS:
        batch, _ = BATCH.transition(tx.batch(job.batch_uuid), JobReopened(), now_s)
        tx.save(batch)
        tx.forget_run(job.uuid)
    if settle and job.state in ACTIVE_JOBS and changed.state not in ACTIVE_JOBS:
        settle_slots(tx, [job.slot], now_s)
    return changed


# ---- Commands


def send(tx: Transaction, slot_name: str, action: Action) -> None:
    """Send an action to the agent of a slot, as the slot's next command."""
    send_to(tx, tx.slot(slot_name), action)


def send_to(tx: Transaction, place: Slot | Processor, action: Action) -> None:
    """Send an action to the agent of a slot or processor, as the next command for it."""
    sequence = place.sequence + 1
    tx.save(values.changed(place, sequence=sequence))
    tx.send(
        Command(
            id=str(uuid.uuid5(uuid.UUID(place.uuid), str(sequence))),
            shard=tx.shard.name,
            epoch=tx.shard.epoch,
            host=place.host,
            slot=place.name,
            sequence=sequence,
            action=action,
        )
    )


# ---- Leases


def grant_pool_leases(tx: Transaction, slots: Iterable[str], now_s: float) -> None:
    """Grant the shard a revocable lease, for its jobs, on each of the slots that has no lease."""
    wanted = dict.fromkeys(slots)
    held = {lease.slot for lease in tx.leases(slots=wanted)}
    holder = tx.shard.name
    tx.add(*(new_lease(tx, slot, LeaseKind.POOL, holder, now_s) for slot in wanted if slot not in held))


def new_lease(
    tx: Transaction,
    slot_name: str,
    kind: LeaseKind,
    holder: str,
    now_s: float,
    *,
    project_id: str = "",
    function: str = "",
) -> Lease:
    """Return the next lease of a slot, for the caller to add, and count its epoch in the slot.

    Leases of the pool and of its tasks are revocable: a virtual machine may claim the slot.
    """
    slot = tx.slot(slot_name)
    epoch = slot.lease_epoch + 1
    tx.save(replace(slot, lease_epoch=epoch))
    return Lease(
        uuid=str(uuid.uuid5(uuid.UUID(slot.uuid), f"lease {epoch}")),
        slot=slot_name,
        kind=kind,
        holder=holder,
        project_id=project_id,
        epoch=epoch,
        revocable=kind in (LeaseKind.POOL, LeaseKind.TASK),
        granted_at=now_s,
        function=function,
        history=created(now_s, LeaseState.HELD) if kind is LeaseKind.INSTANCE else (),
    )


def end_lease(tx: Transaction, lease: Lease, now_s: float) -> None:
    """Release a lease: its holder loses the slot."""
    released, _ = LEASE.transition(lease, LeaseReleased(), now_s)
    tx.save(released)


def settle_slots(tx: Transaction, slots: Collection[str], now_s: float) -> None:
    """Release the pool's leases on slots without jobs, and complete drains that waited for the last user to leave."""
    occupied = tx.occupied(slots)
    empty = [slot for slot in slots if slot not in occupied]
    held = {lease.slot: lease for lease in tx.leases(slots=empty)}
    for slot in empty:
        _settle_slot(tx, slot, held.get(slot), now_s)


def _settle_slot(tx: Transaction, slot_name: str, held: Lease | None, now_s: float) -> None:
    is_pools = held is not None and held.kind is LeaseKind.POOL
    if held is not None and is_pools:
        end_lease(tx, held, now_s)
    slot = tx.slot(slot_name)
    free = held is None or is_pools
    if slot.drain_requested and free and SLOT.allows(slot.state, DrainCompleted):
        change_slot(tx, slot, DrainCompleted(), now_s)


# ---- Slots


def change_slot(tx: Transaction, slot: Slot, event: object, now_s: float) -> Slot:
    """Apply `event` to a slot; if the slot fails, displace its jobs and mark the lease of its instance as broken."""
    changed, _ = SLOT.transition(slot, event, now_s)
    tx.save(changed)
    if changed.reconfigurations > slot.reconfigurations:
        _charge_load(tx, changed, now_s)
    if changed.kind != CPU and _usability(slot) != _usability(changed):
        _follow_with_lease(tx, slot, changed, now_s)
    if changed.state is SlotState.FAULTED and slot.state is not SlotState.FAULTED:
        _displace_from_fault(tx, slot, changed.reason, now_s)
    elif changed.drain_requested and changed.state in (SlotState.EMPTY, SlotState.READY):
        settle_slots(tx, [slot.name], now_s)
    return changed


def _charge_load(tx: Transaction, slot: Slot, now_s: float) -> None:
    """Charge the load that begins in a slot to the project that needs it; a load ahead of demand is not charged."""
    lease = next((lease for lease in tx.leases(slots=[slot.name]) if lease.of_instance), None)
    holder = lease or _loaded_for(slot, tx.active_jobs(slot=slot.name))
    if holder is not None:
        tx.add(ChargedLoad.of(slot, holder.project_id, now_s))


def _loaded_for(slot: Slot, jobs: Iterable[Job]) -> Job | None:
    """Return the job for which a slot loads its function, by the rule of `core.dispatch`; None = ahead of demand."""
    needing = [job for job in jobs if job.function == slot.function]
    return min(needing, key=lambda job: (job.state is not JobState.STAGED, job.order), default=None)


def _usability(slot: Slot) -> tuple[bool, bool, str]:
    """Return the facts that matter to the holder of a slot: whether it failed, whether it is usable, its function."""
    return slot.state is SlotState.FAULTED, slot.state in (SlotState.READY, SlotState.BUSY), slot.function


def _follow_with_lease(tx: Transaction, before: Slot, slot: Slot, now_s: float) -> None:
    """Mark an instance's lease as broken if its slot fails or loses its function, as restored when that is back."""
    failed, usable, function = _usability(slot)
    if not (failed or usable or before.function):  # the slot was empty and is not loaded yet: nothing lost or restored
        return
    lease = next((lease for lease in tx.leases(slots=[slot.name]) if lease.of_instance), None)
    if lease is None:
        return
    wanted = lease.function or function
    if not lease.broken and (failed or (function != wanted and before.function == wanted)):
        reason = slot.reason or ("it has failed" if failed else f"{wanted} is not loaded")
        event: object = LeaseBroken(reason=reason)
    elif lease.broken and usable and function == wanted:
        event = LeaseRestored()
    else:
        return
    tx.save(LEASE.transition(lease, event, now_s)[0])


# ---- Tasks


def change_task(tx: Transaction, task: Task, event: object, now_s: float) -> Task:
    """Apply `event` to a task; return the stored task."""
    changed, _ = TASK.transition(task, event, now_s)
    tx.save(changed)
    return tx.task(task.uuid)


def settle_task(tx: Transaction, uuid: str, now_s: float) -> None:
    """Update the state of a task from its shares.

    A task has all its slots or none: if one share has lost its place, the others leave theirs, and all slots are
    released.  If a share has failed or is cancelled, the others are cancelled.  The task ends when all shares have.
    """
    task = tx.task(uuid)
    if task.state in ENDED_TASKS:
        return
    lost = next((share for share in tx.batch_jobs(uuid) if share.state is JobState.PENDING), None)
    if lost is not None and task.state is TaskState.RUNNING:
        _stop_task(tx, uuid, lost.reason, now_s, lost.counted_attempts)
    shares = tx.batch_jobs(uuid)
    if any(share.state in (JobState.FAILED, JobState.CANCELLED) for share in shares):
        for share in shares:
            if share.state not in ENDED_JOBS and not share.cancel_requested:
                _change_one(tx, share, CancelRequested(), now_s, settle=False)
        shares = tx.batch_jobs(uuid)
    if all(share.state in ENDED_JOBS for share in shares):
        change_task(tx, tx.task(uuid), _how_it_ended(shares), now_s)
        _give_back_slots(tx, uuid, now_s)


def displace_task(tx: Transaction, uuid: str, reason: str, now_s: float) -> None:
    """Take all slots from a task; complete shares are kept, the others wait for new slots, or end."""
    _stop_task(tx, uuid, reason, now_s)
    settle_task(tx, uuid, now_s)


def _stop_task(tx: Transaction, uuid: str, reason: str, now_s: float, counted: float = math.inf) -> None:
    """Take all slots from a task; the attempt is not counted for shares with more than `counted` attempts."""
    for share in tx.batch_jobs(uuid):
        if share.state in ACTIVE_JOBS:
            excused = share.counted_attempts > counted
            displaced = Displaced(reason=reason, agent_reachable=tx.host(share.host).alive, excused=excused)
            _change_one(tx, share, displaced, now_s, settle=False)
    change_task(tx, tx.task(uuid), TaskDisplaced(reason=reason), now_s)
    _give_back_slots(tx, uuid, now_s)


def _how_it_ended(shares: Collection[Job]) -> object:
    failed = [share for share in shares if share.state is JobState.FAILED]
    if failed:
        return TaskFailed(reason=f"share {failed[0].index}: {failed[0].reason}")
    cancelled = any(share.state is JobState.CANCELLED for share in shares)
    return TaskCancelled() if cancelled else TaskCompleted()


def _give_back_slots(tx: Transaction, uuid: str, now_s: float) -> None:
    """End the leases of a task; slots that still have jobs of the pool are leased to the pool again."""
    held = tx.leases(holders=[uuid])
    for lease in held:
        end_lease(tx, lease, now_s)
    slots = [lease.slot for lease in held]
    grant_pool_leases(tx, sorted(tx.occupied(slots)), now_s)
    settle_slots(tx, slots, now_s)


# ---- Pipelines


def _settle_pipeline(tx: Transaction, ended: Job, now_s: float) -> None:
    """Propagate the end of a job along the edges: skip jobs without input, and release results without readers."""
    gone = {ended.uuid}
    for skip, reason in skipped(tx.batch_jobs(ended.batch_uuid)):
        _change_one(tx, tx.job(skip), Skipped(reason=reason), now_s, settle=False)
        gone.add(skip)
    for job in unneeded(tx.batch_jobs(ended.batch_uuid), gone):
        if tx.host(job.host).alive:
            send(tx, job.slot, ReleaseJob(job=job.uuid))


# ---- Displacement of jobs from slots


def _displace_from_fault(tx: Transaction, slot: Slot, reason: str, now_s: float) -> None:
    """Take all jobs off a failed slot; the attempt counts only for the job that it was running or loading for.

    `slot` is the slot as it was before it failed.
    """
    jobs = tx.active_jobs(slot=slot.name)
    begun = [job for job in jobs if job.state is JobState.RUNNING]
    if slot.state is SlotState.LOADING:
        needing = _loaded_for(slot, jobs)
        begun += [] if needing is None else [needing]
    failed = f"slot {slot.name} failed: {reason}"
    _displace(tx, begun, Displaced(reason=failed), now_s)
    waiting = [job for job in jobs if job not in begun]
    _displace(tx, waiting, Displaced(reason=f"{failed}; this attempt does not count", excused=True), now_s)
    settle_slots(tx, [slot.name], now_s)


def _displace(tx: Transaction, jobs: Iterable[Job], displaced: Displaced, now_s: float) -> None:
    for job in jobs:
        if tx.job(job.uuid) == job:  # not changed together with another share of its task
            change_job(tx, job, displaced, now_s, settle=False)


def displace_jobs(tx: Transaction, slot_name: str, reason: str, now_s: float) -> None:
    """Take all jobs off a slot whose agent cannot be reached."""
    _displace(tx, tx.active_jobs(slot=slot_name), Displaced(reason=reason, agent_reachable=False), now_s)
    settle_slots(tx, [slot_name], now_s)


def drain_slot(tx: Transaction, name: str, reason: str, now_s: float, seen: Seen = None) -> Slot:
    """Take a slot out of service: its running job may end there, the others are planned elsewhere."""
    require_seen(tx.slot(name), seen)
    change_slot(tx, tx.slot(name), DrainRequested(reason=reason or "drained by the operator"), now_s)
    waiting = [job for job in tx.active_jobs(slot=name) if job.state is not JobState.RUNNING]
    _displace(tx, waiting, Displaced(reason=f"slot {name} is being drained", excused=True), now_s)
    settle_slots(tx, [name], now_s)
    return tx.slot(name)


def resume_slot(tx: Transaction, name: str, now_s: float, seen: Seen = None) -> Slot:
    """Return a drained slot to service."""
    require_seen(tx.slot(name), seen)
    return change_slot(tx, tx.slot(name), ResumeRequested(), now_s)
