"""From the objects to a view, from a view to a policy's problem, from its plan back to the objects.

Deciding happens between two transactions: `snapshot` reads in one, `commit_plan` writes in another and leaves out
whatever has changed in between; those jobs stay PENDING and are planned again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.core.types import BatchPlan, BatchProblem, PoolView, floats, ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.lifecycle.batch import BATCH, BatchPlanned
from fpga_pool.model.lifecycle.job import Planned
from fpga_pool.model.messages import ReleaseJob
from fpga_pool.model.objects import (
    Backlog,
    Host,
    Job,
    Lease,
    LeaseKind,
    RateSegment,
    Slot,
    SlotState,
)
from fpga_pool.model.pool.changes import change_job, grant_pool_leases, send
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

TimeModels = Mapping[tuple[str, str], TimeModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is to be planned now, and the pool to plan it on."""

    view: PoolView
    #: Jobs of one batch that wait for a place.
    jobs: tuple[Job, ...]
    #: Policy the batch asks for; "" = the operator's default.
    policy: str
    #: (J,) seconds from now until the job's input may start to move.
    release_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """A problem, and what its indices mean."""

    problem: BatchProblem
    jobs: tuple[Job, ...]
    slots: tuple[str, ...]


def snapshot(
    tx: Transaction,
    catalogue: Catalogue,
    settings: PoolSettings,
    now_s: float,
    put_off: Collection[str] = (),
    is_planned: Callable[[str], bool] = lambda _: True,
) -> Snapshot | None:
    """Return the oldest batch with pending jobs and the pool as it is; None where nothing is to be planned.

    Batches that are `put_off` must wait, and those whose policy does not plan (`is_planned`, by its name) are left out.
    Jobs that were planned too often are left to `reconcile.tick`.
    """
    pending = tx.pending_batches()
    if not pending:
        return None
    backlogs = tx.backlogs()
    view = _view(tx, catalogue, now_s, backlogs)
    for batch_uuid, functions in pending.items():
        placeable = {function for function in functions if _has_place(view, function)}
        if batch_uuid in put_off or not placeable or not is_planned(tx.batch(batch_uuid).policy):
            continue
        waiting = tx.pending_jobs(batch_uuid)
        jobs = tuple(job for job in waiting if job.function in placeable and job.attempt < settings.max_attempts)
        if jobs:
            # When the transfers planned before are over: paper 000, section 3.4, first scheme for network batches.
            release_s = max([0.0, *(backlog.inputs_due_at - now_s for backlog in backlogs)])
            policy = tx.batch(batch_uuid).policy
            return Snapshot(view=view, jobs=jobs, policy=policy, release_s=(release_s,) * len(jobs))
    return None


def all_placed(tx: Transaction, catalogue: Catalogue, now_s: float, policy: str) -> Snapshot:
    """Return the pool as it is, with nothing that waits for a place."""
    return Snapshot(view=_view(tx, catalogue, now_s, tx.backlogs()), jobs=(), policy=policy, release_s=())


def _view(tx: Transaction, catalogue: Catalogue, now_s: float, backlogs: Sequence[Backlog]) -> PoolView:
    return pool_view(
        generation=tx.shard.pool_generation,
        hosts=tx.hosts(),
        slots=tx.slots(),
        leases=tx.leases(),
        backlogs=backlogs,
        catalogue=catalogue,
        models=known_time_models(catalogue, tx.time_models()),
        now_s=now_s,
    )


def known_time_models(catalogue: Catalogue, refitted: TimeModels) -> TimeModels:
    """Return the time model of each function on each board: refitted from observed runs, else the catalogue's."""
    catalogued = {
        (name, board): model
        for name, function in catalogue.functions.items()
        for board, model in function.fpga_time.items()
    }
    return catalogued | {key: model for key, model in refitted.items() if key in catalogued}


def pool_view(
    *,
    generation: int,
    hosts: Sequence[Host],
    slots: Sequence[Slot],
    leases: Sequence[Lease],
    backlogs: Sequence[Backlog],
    catalogue: Catalogue,
    models: TimeModels,
    now_s: float,
) -> PoolView:
    """Build the immutable view that policies read."""
    host_index = {host.name: i for i, host in enumerate(hosts)}
    card_index = {card: i for i, card in enumerate(dict.fromkeys((slot.host, slot.card) for slot in slots))}
    functions = tuple(sorted(catalogue.functions))
    function_index = {name: i for i, name in enumerate(functions)}
    foreign = held_by_others(leases)
    free_at = {backlog.slot: backlog.free_at for backlog in backlogs}
    can_run = np.array(
        [
            [(name, slot.board) in models and catalogue.fits(name, slot.board, slot.kind) for name in functions]
            for slot in slots
        ],
        dtype=np.bool_,
    ).reshape(len(slots), len(functions))
    time_a = np.zeros(can_run.shape)
    time_b = np.zeros(can_run.shape)
    for s, slot in enumerate(slots):
        for f, name in enumerate(functions):
            if can_run[s, f]:
                model = models[name, slot.board]
                time_a[s, f], time_b[s, f] = model.a_s, model.b_s_per_byte
    return PoolView(
        generation=generation,
        hosts=tuple(host_index),
        functions=functions,
        slots=tuple(slot.name for slot in slots),
        egress_bps=floats([host.egress_bps for host in hosts]),
        ingress_bps=floats([host.ingress_bps for host in hosts]),
        slot_host=ints([host_index[slot.host] for slot in slots]),
        slot_card=ints([card_index[slot.host, slot.card] for slot in slots]),
        slot_board=tuple(slot.board for slot in slots),
        slot_kind=tuple(slot.kind for slot in slots),
        slot_function=ints([function_index.get(slot.function, -1) for slot in slots]),
        slot_usable=np.array([usable(slot, hosts[host_index[slot.host]], foreign) for slot in slots], dtype=np.bool_),
        slot_ready_s=floats([max(free_at.get(slot.name, now_s) - now_s, 0.0) for slot in slots]),
        slot_load_s=floats([_load_s(slot, catalogue) for slot in slots]),
        can_run=can_run,
        time_a_s=floats(time_a),
        time_b_s_per_byte=floats(time_b),
    )


def held_by_others(leases: Sequence[Lease]) -> set[str]:
    """Return the slots that are not the pool's to plan on."""
    return {lease.slot for lease in leases if lease.kind is not LeaseKind.POOL}


def usable(slot: Slot, host: Host, foreign: set[str]) -> bool:
    """Say whether a slot can be given new work."""
    in_service = slot.state not in (SlotState.FAULTED, SlotState.DRAINED) and not slot.drain_requested
    return host.alive and in_service and slot.name not in foreign


def _load_s(slot: Slot, catalogue: Catalogue) -> float:
    board = catalogue.boards.get(slot.board)
    return board.load_s(slot.kind) if board is not None and slot.kind in board.regions else 0.0


def _has_place(view: PoolView, function: str) -> bool:
    # The catalogue may have lost the function since the jobs were accepted; they wait for it.
    index = view.function_index.get(function)
    return index is not None and bool((view.can_run[:, index] & view.slot_usable).any())


def batch_problem(snap: Snapshot) -> PlanRequest:
    """Build the problem of a snapshot: its jobs on the slots that can take at least one of them."""
    view = snap.view
    functions = np.array([view.function_index[job.function] for job in snap.jobs])
    useful = np.flatnonzero(view.slot_usable & view.can_run[:, np.unique(functions)].any(axis=1))
    input_bytes = np.array([job.input_bytes for job in snap.jobs], dtype=np.int64)
    problem = BatchProblem(
        seconds=floats(view.compute_s(useful, functions, input_bytes)),
        input_bytes=ints(input_bytes),
        requester=ints([view.host_index[job.requester] for job in snap.jobs]),
        egress_bps=view.egress_bps,
        responder=ints(view.slot_host[useful]),
        ingress_bps=view.ingress_bps,
        ready_s=floats(view.slot_ready_s[useful]),
        release_s=floats(np.maximum(snap.release_s, 0.0)),
        local_host=ints(np.arange(len(view.hosts))),
        function=ints(functions),
        loaded=ints(view.slot_function[useful]),
        load_s=floats(view.slot_load_s[useful]),
        generation=view.generation,
    )
    return PlanRequest(problem=problem, jobs=snap.jobs, slots=tuple(view.slots[s] for s in useful))


def commit_plan(
    tx: Transaction, request: PlanRequest, plan: BatchPlan, settings: PoolSettings, now_s: float
) -> list[Job]:
    """Give each job the place the plan chose, where that is still possible; return the jobs that got one."""
    batch_uuid = request.jobs[0].batch_uuid
    dispatched_at = now_s + settings.dispatch_lead_s
    transfers = transfers_of(plan, len(request.jobs))
    queues = _possible_queues(tx, request, plan)
    grant_pool_leases(tx, [slot.name for slot, _ in queues], now_s)
    last = {backlog.slot: backlog.last_order for backlog in tx.backlogs()}
    placed = []
    for slot, queue in queues:
        for order, i in enumerate(queue, start=last.get(slot.name, -1) + 1):
            start_s = float(plan.start_s[i])
            event = Planned(
                host=slot.host,
                slot=slot.name,
                order=order,
                dispatched_at=dispatched_at,
                start_s=start_s,
                end_s=start_s + float(request.problem.seconds[i, plan.accelerator[i]]),
                transfer=transfers[i],
            )
            withdraw_from_former_host(tx, request.jobs[i], slot.host)
            placed.append(change_job(tx, request.jobs[i], event, now_s))
    if placed and all(job.attempt == 0 for job in request.jobs):
        promised = BatchPlanned(
            dispatched_at=dispatched_at, makespan_s=plan.makespan_s, lower_bound_s=plan.lower_bound_s
        )
        changed, _ = BATCH.transition(tx.batch(batch_uuid), promised, now_s)
        tx.save(changed)
    return placed


def _possible_queues(tx: Transaction, request: PlanRequest, plan: BatchPlan) -> list[tuple[Slot, list[int]]]:
    """Return each slot that can still be used, with those of its jobs that nobody has changed meanwhile."""
    untouched = {job.uuid for job in tx.unchanged(request.jobs)}
    foreign = held_by_others(tx.leases())
    slots = {slot.name: slot for slot in tx.slots()}
    possible = []
    for accelerator, queue in _queues(plan):
        slot = slots.get(request.slots[accelerator])
        left = [i for i in queue if request.jobs[i].uuid in untouched]
        if slot is not None and left and usable(slot, tx.host(slot.host), foreign):
            possible.append((slot, left))
    return possible


def _queues(plan: BatchPlan) -> list[tuple[int, list[int]]]:
    """Return each accelerator in use with its jobs in order of start."""
    by_start = np.lexsort((plan.start_s, plan.accelerator))
    used, begins = np.unique(plan.accelerator[by_start], return_index=True)
    return [
        (accelerator, queue.tolist())
        for accelerator, queue in zip(used.tolist(), np.split(by_start, begins[1:]), strict=True)
    ]


def withdraw_from_former_host(tx: Transaction, job: Job, host: str) -> None:
    """Release an input that was kept for a retry on a host where the job will not run after all."""
    if job.host and job.host != host and tx.host(job.host).alive:
        send(tx, job.slot, ReleaseJob(job=job.uuid))


def transfers_of(plan: BatchPlan, jobs: int) -> list[tuple[RateSegment, ...]]:
    """Return the transfer of each of so many jobs, in order of time."""
    pieces: list[list[RateSegment]] = [[] for _ in range(jobs)]
    columns = (plan.segment_job, plan.segment_begin_s, plan.segment_end_s, plan.segment_bps)
    for job, begin_s, end_s, bps in zip(*(column.tolist() for column in columns), strict=True):
        pieces[job].append(RateSegment(begin_s, end_s, bps))
    return [tuple(sorted(segments, key=lambda segment: segment.begin_s)) for segments in pieces]


def require_answer(request: PlanRequest, plan: BatchPlan) -> None:
    """Refuse a plan that does not answer the problem (a policy is a plug-in, and may be wrong)."""
    jobs, accelerators = request.problem.jobs, request.problem.accelerators
    if plan.generation != request.problem.generation:
        raise Conflict(
            f"policy {plan.policy}: a plan for generation {plan.generation}, not {request.problem.generation}"
        )
    if plan.accelerator.shape != (jobs,) or not ((plan.accelerator >= 0) & (plan.accelerator < accelerators)).all():
        raise Conflict(f"policy {plan.policy}: its plan does not place each of the {jobs} jobs on a known accelerator")
    if not np.isfinite(request.problem.seconds[np.arange(jobs), plan.accelerator]).all():
        raise Conflict(f"policy {plan.policy}: its plan puts a job where it cannot run")
