"""Reconciliation of desired and observed state, with a reason for each repair.

The database owns the desired state, the agents own the observed state.  Every heartbeat carries the whole observed
state of its host. Every tick looks for silent hosts and for jobs that make no progress.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fpga_pool.model.exceptions import InvalidInput, LateMessage, NotFound, StaleEpoch
from fpga_pool.model.lifecycle.job import Displaced, GaveUp
from fpga_pool.model.lifecycle.notifications import HOST_RETURNED
from fpga_pool.model.lifecycle.slot import HostLost
from fpga_pool.model.messages.agents import (
    NO_EFFECT,
    Heartbeat,
    ObservedJob,
    ObservedSlot,
    ReleaseJob,
    ResultExpired,
    SlotChanged,
)
from fpga_pool.model.objects.history import created, with_event
from fpga_pool.model.objects.links import slot_links
from fpga_pool.model.objects.pool import ACTIVE_JOBS, Host, Job, JobState, Slot, SlotState
from fpga_pool.model.rules.batch.admission import settle_dependencies
from fpga_pool.model.rules.gang.decisions import give_up_gangs
from fpga_pool.model.rules.gang.reports import (
    compare_gangs,
    lose_processes,
    note_process_progress,
    refuse_foreign_processors,
)
from fpga_pool.model.rules.instance.instances import compare_hold
from fpga_pool.model.rules.shared.admission import note_servers
from fpga_pool.model.rules.shared.changes import change_job, change_slot, displace_jobs, send
from fpga_pool.model.rules.shared.reports import require_agent
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

#: The two states in the history of a host.
_UP, _LOST = "UP", "LOST"
#: Reason of a faulted slot that its agent no longer reports.
CARD_GONE = "its card has disappeared"


@dataclass(frozen=True, slots=True)
class Repair:
    """One reconciled difference: its subject and its reason."""

    subject: str
    reason: str


def apply_heartbeat(tx: Transaction, heartbeat: Heartbeat, now_s: float) -> list[Repair]:
    """Store the observed state of a host, and reconcile differences from the desired state.

    If nothing differs, nothing is stored: the caller records that the host is alive.

    Raises
    ------
    StaleEpoch
        If the host has executed commands of a later owner of the shard.
    HostTaken
        If the host is represented by another agent, which is not lost.
    LateMessage
        If a later heartbeat of this agent has already been stored.
    InvalidInput
        If it names a slot or processor that cannot belong to the host, or invalid links.

    """
    _refuse_wrong_slots(heartbeat)
    refuse_foreign_processors(heartbeat)
    _refuse_later_epoch(tx, heartbeat)
    returned = _store_host(tx, heartbeat, now_s)
    note_servers(tx, heartbeat)
    note_progress(tx, heartbeat.jobs, heartbeat.at)
    note_process_progress(tx, heartbeat)
    repairs = [
        Repair(reconciled.subject, reconciled.reason)
        for reconciled in compare_gangs(tx, heartbeat, now_s, returned=returned)
    ]
    stored = {slot.name for slot in tx.slots(heartbeat.host)}
    behind = _missed(tx, heartbeat, returned=returned)
    held = {lease.slot: lease for lease in tx.leases(slots=stored) if lease.of_instance}
    for observed in heartbeat.slots:
        new = observed.slot not in stored
        if new:
            tx.add(_new_slot(heartbeat.host, tx.shard.name, observed, now_s))
            repairs.append(Repair(observed.slot, "newly discovered"))
        else:
            # Read the slot again: a task that lost another slot has left this one too, with a command to its agent.
            repairs += _compare_slot(tx, tx.slot(observed.slot), observed, heartbeat, now_s)
        obeyed = heartbeat.unreported == 0 and observed.sequence >= tx.slot(observed.slot).sequence
        # No command to a host that has returned is under way: they were dropped when it was lost.
        settled = returned or obeyed
        if kept := compare_hold(tx, observed, held.get(observed.slot), now_s, new=new, settled=settled):
            repairs.append(Repair(observed.slot, kept))
    for name in sorted(stored - {observed.slot for observed in heartbeat.slots}):
        slot = tx.slot(name)
        if (slot.state, slot.reason) != (SlotState.FAULTED, CARD_GONE):
            gone = SlotChanged(slot=slot.name, at=heartbeat.at, state=SlotState.FAULTED, reason=CARD_GONE)
            change_slot(tx, slot, gone, now_s)
            repairs.append(Repair(slot.name, gone.reason))
    if returned:
        # When the host was lost, its commands were dropped and its jobs displaced. Release what it still holds of them.
        slots = {observed.slot for observed in heartbeat.slots}
        held_jobs = [held for held in heartbeat.jobs if held.slot in slots]
        repairs += _release_strays(tx, heartbeat.host, held_jobs, returned=True)
    elif heartbeat.unreported == 0:
        repairs += _compare_jobs(tx, heartbeat, now_s)
    for slot in behind:
        if tx.slot(slot.name).sequence == slot.sequence:
            send(tx, slot.name, NO_EFFECT)
            repairs.append(Repair(slot.name, "missed commands that will not be delivered any more"))
    return repairs


def _missed(tx: Transaction, heartbeat: Heartbeat, *, returned: bool) -> list[Slot]:
    """Return the slots whose last commands were dropped, or refused while the slot did not exist.

    None of these commands is under way. Until such a slot executes another command it seems to have outstanding ones.
    """
    slots = {slot.name: slot for slot in tx.slots(heartbeat.host)}
    return [
        slot
        for observed in heartbeat.slots
        if (slot := slots.get(observed.slot)) is not None
        and observed.sequence < slot.sequence
        and (returned or (slot.state, slot.reason) == (SlotState.FAULTED, CARD_GONE))
    ]


def note_progress(tx: Transaction, observed: Iterable[ObservedJob], at: float) -> None:
    """Record the progress of inputs that do not move as planned; `at` is the time of the observation."""
    reported = {job.job: job for job in observed if job.moved_bytes is not None}
    for job in tx.jobs(sorted(reported)) if reported else ():
        seen = reported[job.uuid]
        current = job.state is JobState.WAITING_INPUT and (job.attempt, job.slot) == (seen.attempt, seen.slot)
        # Ignore observations made before the current plan began.
        if current and at > (job.dispatched_at or 0.0):
            tx.save(replace(job, moved_bytes=seen.moved_bytes, moved_at=at))


def _refuse_wrong_slots(heartbeat: Heartbeat) -> None:
    named = [("slots", observed.slot) for observed in heartbeat.slots]
    for where, slot in [*named, *(("jobs", observed.slot) for observed in heartbeat.jobs)]:
        if not slot.startswith(f"{heartbeat.host}/"):
            raise InvalidInput(
                f"{where}: {slot} is not a slot of host {heartbeat.host}: expected a name that starts with the host"
            )
    for observed in heartbeat.slots:
        slot_links(observed.links)


def _refuse_later_epoch(tx: Transaction, heartbeat: Heartbeat) -> None:
    epochs = [slot.epoch for slot in heartbeat.slots] + [processor.epoch for processor in heartbeat.processors]
    epoch = max(epochs, default=0)
    if epoch > tx.shard.epoch:
        raise StaleEpoch(
            f"host {heartbeat.host} has executed commands of epoch {epoch} of a shard, but this database is at epoch "
            f"{tx.shard.epoch} of {tx.shard.name}: another scheduler has taken over, or the database was restored or "
            "recreated; in that case stop the agent and remove its state directory"
        )


def _compare_slot(
    tx: Transaction, slot: Slot, observed: ObservedSlot, heartbeat: Heartbeat, now_s: float
) -> list[Repair]:
    repairs = []
    known = replace(slot, **_facts(observed), sequence=max(slot.sequence, observed.sequence))
    if known != slot:
        facts = {name: getattr(known, name) for name in ("board", "kind", "links", "sequence")}
        differences = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact != "")
        repairs.append(Repair(slot.name, f"differs from the stored one: {differences}"))
        tx.save(known)
        slot = tx.slot(slot.name)
    if heartbeat.unreported == 0 and _differs(slot, observed):
        repairs.append(Repair(slot.name, f"stored as {slot.state} {slot.function}, but is {observed.state}"))
        change_slot(tx, slot, _as_report(observed, heartbeat.at), now_s)
    return repairs


def _facts(observed: ObservedSlot) -> dict[str, Any]:
    names = ("card", "region", "board", "kind", "links")
    return {name: getattr(observed, name) for name in names}


def require_later(heartbeat: Heartbeat, boot: int, beat: int) -> None:
    """Raise LateMessage unless a heartbeat is later than the given start and beat of the same agent."""
    if (heartbeat.boot, heartbeat.beat) <= (boot, beat):
        raise LateMessage(
            f"host {heartbeat.host}: heartbeat {heartbeat.beat} of start {heartbeat.boot} arrived after heartbeat "
            f"{beat} of start {boot}"
        )


def _store_host(tx: Transaction, heartbeat: Heartbeat, now_s: float) -> bool:
    """Store the reported host if more than its last heartbeat has changed; return whether it was lost before."""
    lives: dict[str, Any] = {"beat": heartbeat.beat, "heard_at": now_s}
    facts: dict[str, Any] = {
        "egress_bps": heartbeat.egress_bps,
        "ingress_bps": heartbeat.ingress_bps,
        "data_address": heartbeat.data_address,
        "data_port": heartbeat.data_port,
        "data_tls": heartbeat.data_tls,
        "refused_streams": heartbeat.refused_streams,
        "refused_commands": heartbeat.refused_commands,
        "availability_zone": heartbeat.availability_zone,
        "egress_driver": heartbeat.egress_driver,
        "node": heartbeat.node,
        "agent_id": heartbeat.agent_id,
        "boot": heartbeat.boot,
        "alive": True,
    }
    try:
        host = tx.host(heartbeat.host, heard=True)
    except NotFound:
        history = created(now_s, _UP)
        tx.add(Host(name=heartbeat.host, shard=tx.shard.name, history=history, **facts, **lives))
        return False
    if heartbeat.agent_id != host.agent_id:
        if host.alive:
            require_agent(host, heartbeat.agent_id)
        facts["reported"] = 0  # a new agent numbers its reports from the beginning
    else:
        require_later(heartbeat, host.boot, host.beat)
    if not host.alive:
        facts["history"] = with_event(host.history, now_s, HOST_RETURNED, _LOST, _UP)
    elif heartbeat.boot != host.boot:
        facts["history"] = with_event(host.history, now_s, "AgentRestarted", _UP, _UP)
    if (known := replace(host, **facts)) != host:
        tx.save(replace(known, **lives))
    return not host.alive


def _new_slot(host: str, shard: str, observed: ObservedSlot, now_s: float) -> Slot:
    return Slot(
        name=observed.slot,
        host=host,
        shard=shard,
        **_facts(observed),
        state=observed.state,
        function=observed.function,
        job=observed.job,
        reason=observed.reason,
        # If the database was lost, continue the agent's numbering: it would take lower numbers for old commands.
        sequence=observed.sequence,
        history=created(now_s, observed.state),
    )


def _differs(slot: Slot, observed: ObservedSlot) -> bool:
    if slot.state is SlotState.DRAINED and observed.state in (SlotState.EMPTY, SlotState.READY):
        return slot.function != observed.function
    return (slot.state, slot.function, slot.job) != (observed.state, observed.function, observed.job)


def _as_report(observed: ObservedSlot, at: float) -> SlotChanged:
    return SlotChanged(
        slot=observed.slot,
        at=at,
        state=observed.state,
        function=observed.function,
        job=observed.job,
        reason=observed.reason,
    )


def _compare_jobs(tx: Transaction, heartbeat: Heartbeat, now_s: float) -> list[Repair]:
    """Reconcile the jobs on slots that have executed all commands sent to them."""
    settled = {observed.slot for observed in heartbeat.slots if observed.sequence >= tx.slot(observed.slot).sequence}
    known = {observed.job: observed for observed in heartbeat.jobs}
    repairs = []
    for listed in [*tx.active_jobs(host=heartbeat.host), *tx.held_results(heartbeat.host)]:
        job = tx.job(listed.uuid)
        if job != listed:
            known.pop(job.uuid, None)
            continue  # changed together with another share of its task, which was unknown to its agent
        if job.slot not in settled:
            known.pop(job.uuid, None)
            continue
        observed = known.pop(job.uuid, None)
        if observed is not None and observed.attempt == job.attempt:
            if observed.moved_bytes is None and job.moved_bytes is not None:
                tx.save(replace(job, moved_bytes=None, moved_at=None))  # its input moves as planned again
            continue
        repairs.append(_reconcile_unknown_job(tx, job, heartbeat.at, now_s))
    return repairs + _release_strays(
        tx, heartbeat.host, [observed for observed in known.values() if observed.slot in settled]
    )


def _release_strays(tx: Transaction, host: str, held: Iterable[ObservedJob], *, returned: bool = False) -> list[Repair]:
    """Command a host to release jobs that no longer belong to it.

    The input of a pending job is kept for a retry, except on a host that has `returned`: its agent was not notified
    that the job was displaced, and would run it.
    """
    repairs = []
    for observed in held:
        if not _is_current(tx, observed.job, observed.attempt, host, pending=not returned):
            send(tx, observed.slot, ReleaseJob(job=observed.job))
            repairs.append(Repair(observed.job, f"held by {host}, though it has ended or moved elsewhere"))
    return repairs


def _reconcile_unknown_job(tx: Transaction, job: Job, at: float, now_s: float) -> Repair:
    if job.state is JobState.RESULT_HELD:
        reason = "its result is no longer held by its agent"
        change_job(tx, job, ResultExpired(job=job.uuid, attempt=job.attempt, at=at), now_s)
    else:
        reason = "unknown to its agent"
        change_job(tx, job, Displaced(reason=reason, agent_reachable=False), now_s)
    return Repair(job.uuid, reason)


def _is_current(tx: Transaction, uuid: str, attempt: int, host: str, *, pending: bool) -> bool:
    """Return whether an agent should hold this attempt of a job; with `pending`, also the input of a pending job."""
    try:
        job = tx.job(uuid)
    except NotFound:
        return False
    holds = job.state in (*ACTIVE_JOBS, JobState.RESULT_HELD) or (pending and job.state is JobState.PENDING)
    return (job.attempt, job.host) == (attempt, host) and holds


def tick(
    tx: Transaction, settings: PoolSettings, now_s: float, silent_s: Mapping[str, float], excluded: Iterable[str] = ()
) -> list[Repair]:
    """Apply all timeouts: silent hosts, jobs planned too often, inputs that never arrived.

    The `excluded` hosts, whose keys an operator has revoked, are lost at once.

    Batches that wait for others are updated (`settle_dependencies`), and gangs that failed too often are given up.
    `silent_s` is the time since the last heartbeat of each host by the receiver's clock: clocks of different machines
    are never compared.
    """
    gone = {name: f"no heartbeat for {s:.1f} s" for name, s in silent_s.items() if s > settings.host_timeout_s}
    gone |= dict.fromkeys(excluded, "its key was revoked")
    repairs = [_lose_host(tx, host, reason, now_s) for name, reason in gone.items() if (host := tx.host(name)).alive]
    for job in tx.exhausted_jobs(settings.max_attempts):
        if tx.job(job.uuid) != job:
            continue  # changed together with another share of its task
        reason = f"given up after {job.counted_attempts} attempts; last: {job.reason}"
        change_job(tx, job, GaveUp(code="fpga_pool.too_many_attempts", reason=reason), now_s)
        repairs.append(Repair(job.uuid, reason))
    for job in tx.overdue_inputs(now_s - settings.input_timeout_s):
        if tx.job(job.uuid) != job:
            continue
        reason = f"no complete input within {settings.input_timeout_s:g} s after its planned transfer"
        change_job(tx, job, GaveUp(code="fpga_pool.input_timeout", reason=reason), now_s)
        repairs.append(Repair(job.uuid, reason))
    repairs += [Repair(uuid, reason) for uuid, reason in settle_dependencies(tx, now_s)]
    repairs += [Repair(gang.uuid, gang.reason) for gang in give_up_gangs(tx, settings, now_s)]
    return repairs


def _lose_host(tx: Transaction, host: Host, reason: str, now_s: float) -> Repair:
    history = with_event(host.history, now_s, HostLost.__name__, _UP, _LOST, reason)
    tx.save(replace(host, alive=False, history=history))
    for slot in tx.slots(host.name):
        displace_jobs(tx, slot.name, f"host {host.name}: {reason}", now_s)
        change_slot(tx, tx.slot(slot.name), HostLost(), now_s)
    lose_processes(tx, host, reason, now_s)
    tx.drop_commands(host.name)
    return Repair(host.name, reason)
