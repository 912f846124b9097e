"""Conversion of plans into placements of jobs, as far as the planned places are still possible.

A decision is made between two transactions: the second leaves out what has changed since the first.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.lifecycle.job import Planned
from fpga_pool.model.messages.agents import ReleaseJob
from fpga_pool.model.objects.pool import Host, Job, Lease, LeaseKind, RateSegment, Slot, SlotState
from fpga_pool.model.rules.shared.changes import grant_pool_leases, send
from fpga_pool.model.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A problem, and the jobs and slots that its indices refer to."""

    problem: BatchProblem
    jobs: tuple[Job, ...]
    slots: tuple[str, ...]


def require_answer(request: PlanRequest, plan: BatchPlan) -> None:
    """Raise Conflict if a plan does not solve the problem: a policy is a plug-in and may have errors."""
    jobs, accelerators = request.problem.jobs, request.problem.accelerators
    if plan.generation != request.problem.generation:
        raise Conflict(
            f"policy {plan.policy}: its plan is for generation {plan.generation}, not {request.problem.generation}"
        )
    if plan.accelerator.shape != (jobs,) or not ((plan.accelerator >= 0) & (plan.accelerator < accelerators)).all():
        raise Conflict(f"policy {plan.policy}: its plan does not place each of the {jobs} jobs on a known accelerator")
    if not np.isfinite(request.problem.seconds[np.arange(jobs), plan.accelerator]).all():
        raise Conflict(f"policy {plan.policy}: its plan places a job on an accelerator that cannot run it")


def held_by_others(leases: Sequence[Lease]) -> set[str]:
    """Return the leased slots on which the pool must not plan jobs."""
    return {lease.slot for lease in leases if lease.kind is not LeaseKind.POOL}


def held_by_instances(leases: Sequence[Lease]) -> set[str]:
    """Return the slots that virtual machines hold."""
    return {lease.slot for lease in leases if lease.of_instance}


def usable(slot: Slot, host: Host, foreign: set[str]) -> bool:
    """Return whether a slot can be given new work."""
    in_service = slot.state not in (SlotState.FAULTED, SlotState.DRAINED) and not slot.drain_requested
    return host.alive and in_service and slot.name not in foreign


def end_at(job: Job) -> float:
    """Return when a job's computation is expected to end, UTC seconds."""
    planned_s = (job.end_s or 0.0) - (job.start_s or 0.0)
    if job.started_at is not None:
        return job.started_at + planned_s
    return (job.dispatched_at or job.created_at) + (job.end_s or 0.0)


def unchanged(tx: Transaction, request: PlanRequest, rows: Ints) -> Ints:
    """Return the subset of the jobs `rows` (n,) that have not changed since they were read."""
    jobs = [request.jobs[row] for row in rows.tolist()]
    same = {job.uuid for job in tx.unchanged(jobs, request.problem.generation)}
    return np.array([row for row in rows.tolist() if request.jobs[row].uuid in same], np.int64)


def placements(
    tx: Transaction, request: PlanRequest, plan: BatchPlan, rows: Ints, dispatched_at: float, now_s: float
) -> Iterator[tuple[int, Planned]]:
    """Yield each of the jobs `rows` (n,) whose planned slot is usable, with its place behind the jobs already there."""
    queues = list(_possible_queues(tx, request, plan, rows))
    grant_pool_leases(tx, [slot.name for slot, _ in queues], now_s)
    last = {backlog.slot: backlog.last_order for backlog in tx.backlogs()}
    transfers, results = transfers_of(plan, len(request.jobs)), results_of(request, plan)
    for slot, queue in queues:
        for order, row in enumerate(queue, start=last.get(slot.name, -1) + 1):
            start_s = float(plan.start_s[row])
            withdraw_from_former_host(tx, request.jobs[row], slot.host)
            yield (
                row,
                Planned(
                    host=slot.host,
                    slot=slot.name,
                    order=order,
                    dispatched_at=dispatched_at,
                    start_s=start_s,
                    end_s=start_s + planned_s(request, plan, row),
                    transfer=transfers[row],
                    result_transfer=results[row],
                ),
            )


def planned_s(request: PlanRequest, plan: BatchPlan, row: int) -> float:
    """Return the planned computation time of a job on its planned slot."""
    return float(request.problem.seconds[row, plan.accelerator[row]])


def _possible_queues(
    tx: Transaction, request: PlanRequest, plan: BatchPlan, rows: Ints
) -> Iterator[tuple[Slot, list[int]]]:
    """Yield each usable slot that gets some of the jobs `rows` (n,), with these jobs in order of start."""
    by_slot: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows[np.argsort(plan.start_s[rows], kind="stable")].tolist():
        by_slot[int(plan.accelerator[row])].append(row)
    foreign = held_by_others(tx.leases(slots=[request.slots[accelerator] for accelerator in by_slot]))
    slots = {slot.name: slot for slot in tx.slots()}
    for accelerator, queue in sorted(by_slot.items()):
        slot = slots.get(request.slots[accelerator])
        if slot is not None and usable(slot, tx.host(slot.host), foreign):
            yield slot, queue


def withdraw_from_former_host(tx: Transaction, job: Job, host: str) -> None:
    """Release the input that was kept for a retry on another host than the one where the job is placed now."""
    if job.host and job.host != host and tx.host(job.host).alive:
        send(tx, job.slot, ReleaseJob(job=job.uuid))


def transfers_of(plan: BatchPlan, jobs: int) -> list[tuple[RateSegment, ...]]:
    """Return the segments of the transfer of each job, in order of time; `jobs` is the number of jobs."""
    return _by_job(jobs, plan.segment_job, plan.segment_begin_s, plan.segment_end_s, plan.segment_bps)


def results_of(request: PlanRequest, plan: BatchPlan) -> list[tuple[RateSegment, ...]]:
    """Return the transfer of the result of each job, in seconds after the planned end of its computation."""
    jobs = np.arange(len(request.jobs))
    end_s = plan.start_s + request.problem.seconds[jobs, plan.accelerator]
    begin_s, stop_s = (moment_s - end_s[plan.result_job] for moment_s in (plan.result_begin_s, plan.result_end_s))
    return _by_job(len(jobs), plan.result_job, begin_s, stop_s, plan.result_bps)


def _by_job(jobs: int, job: Ints, begin_s: Floats, end_s: Floats, bps: Floats) -> list[tuple[RateSegment, ...]]:
    pieces: list[list[RateSegment]] = [[] for _ in range(jobs)]
    for row, *piece in zip(job.tolist(), begin_s.tolist(), end_s.tolist(), bps.tolist(), strict=True):
        pieces[row].append(RateSegment(*piece))
    return [tuple(sorted(segments, key=lambda segment: segment.begin_s)) for segments in pieces]


# ---- Order of otherwise equal slots: those that other functions need are taken last


def scarcity_by_kind(catalogue: Catalogue, leases: Iterable[Lease]) -> Mapping[tuple[str, str], float]:
    """Return `Catalogue.scarcity` by board and kind; the demand is the number of these leases per function."""
    return catalogue.scarcity(Counter(lease.function for lease in leases if lease.function))


def least_scarce_first(slots: Iterable[Slot], catalogue: Catalogue, leases: Iterable[Lease]) -> list[Slot]:
    """Return slots in increasing order of scarcity, in which policies take slots that are otherwise equal.

    Slots of equal scarcity keep their order; CPU workers and slots of boards that are not in the catalogue come first.
    """
    scarcity = scarcity_by_kind(catalogue, leases)
    return sorted(slots, key=lambda slot: scarcity.get((slot.board, slot.kind), 0.0))
