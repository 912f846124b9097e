"""From the objects to a view, from a view to a policy's problem, from its plan back to the objects.

Deciding happens between two transactions: `snapshot` reads in one, `commit_plan` writes in another and leaves out
whatever has changed in between; those jobs stay PENDING and are planned again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.cluster.slowdown import SlowdownModel
from fpga_pool.core.makespan.greedy import simple_bound_s
from fpga_pool.core.timemodel import SizeModel, TimeModel
from fpga_pool.core.types import BatchPlan, BatchProblem, Ints, PoolView, floats, ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.lifecycle.batch import BATCH, BatchPlanned
from fpga_pool.model.messages.requests import SMALL_INPUT_BYTES, SMALL_RESULT_BYTES
from fpga_pool.model.objects.pool import Host, Job, Lease, Slot
from fpga_pool.model.rules.batch.interference import beside_neighbours
from fpga_pool.model.rules.batch.placing import (
    PlanRequest,
    held_by_others,
    least_scarce_first,
    placements,
    unchanged,
    usable,
)
from fpga_pool.model.rules.shared.admission import servers_among
from fpga_pool.model.rules.shared.changes import change_job
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Backlog, PendingBatch, Transaction

TimeModels = Mapping[tuple[str, str], TimeModel]

#: Small batches that wait at the same time are planned together, up to this many jobs.
TOGETHER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The jobs to plan now, and the pool to plan them on."""

    view: PoolView
    #: Jobs that wait for a place, of one batch or of several small ones, in order of their rank.
    jobs: tuple[Job, ...]
    #: Policy their batches ask for; "" = the operator's default.
    policy: str
    #: Until when inputs of earlier jobs were planned to move that are not complete, UTC seconds; 0 = all are.
    inputs_due_at: float
    #: By function, how large its results are; empty where their way back is not planned.
    result_sizes: Mapping[str, SizeModel]
    #: Time between the commit of a plan and its time 0.
    lead_s: float = 0.0
    #: Other batches wait for a place, too.
    others: bool = False

    def result_bytes(self, job: Job) -> int:
        """Return how many bytes of a job's result are planned to flow back; a small one needs no rates of its own."""
        size = self.result_sizes.get(job.function)
        expected = 0 if size is None else size.bytes(job.input_bytes)
        return expected if expected > SMALL_RESULT_BYTES else 0


def snapshot(
    tx: Transaction,
    catalogue: Catalogue,
    settings: PoolSettings,
    now_s: float,
    put_off: Collection[str] = (),
    is_planned: Callable[[str], bool] = lambda _: True,
    may_join: Callable[[str], bool] = lambda _: False,
    slowdown: SlowdownModel | None = None,
) -> Snapshot | None:
    """Return the first batch with pending jobs and the pool as it is; None where nothing is to be planned.

    The first is the one of the highest priority, and of these the oldest.

    Batches that are `put_off` must wait, and those whose policy does not plan (`is_planned`, by its name) are left out.
    Where the policy allows it (`may_join`), small batches that come next, with the same policy, are planned together
    with the first.  Jobs that were planned too often are left to `reconcile.tick`.  Neighbours of the jobs
    cost what `slowdown` says.
    """
    pending = tx.pending_batches().items()
    ours = {uuid: batch for uuid, batch in pending if uuid not in put_off and is_planned(batch.policy)}
    if not ours:
        return None  # before the view is built, which costs most
    backlogs, leases = tx.backlogs(), tx.leases()
    slots = least_scarce_first(tx.slots(), catalogue, leases)
    view = _view(tx, catalogue, now_s, backlogs, leases, slots)
    functions = {name for batch in ours.values() for name in batch.functions}
    placeable = {name for name in functions if _has_place(view, name)}
    with_place = {uuid: batch for uuid, batch in ours.items() if batch.functions & placeable}
    jobs: list[Job] = []
    group: Sequence[str] = []
    for group in _planned_together(with_place, may_join):
        waiting = tx.pending_jobs(group)
        jobs = [job for job in waiting if job.function in placeable and job.counted_attempts < settings.max_attempts]
        if jobs:
            break
    if not jobs:
        return None
    snap = Snapshot(
        view=view if slowdown is None else beside_neighbours(view, jobs, slots, slowdown),
        jobs=tuple(jobs),
        policy=ours[group[-1]].policy,
        inputs_due_at=_inputs_due_at(backlogs),
        result_sizes=_result_sizes(catalogue, settings),
        lead_s=_lead_s(jobs, settings),
        others=group[-1] != next(reversed(ours)),
    )
    return with_servers(tx, snap, jobs)


def with_servers(tx: Transaction, snap: Snapshot, jobs: Iterable[Job]) -> Snapshot:
    """Return a snapshot in whose view the servers among the requesters of jobs stand as hosts without slots do.

    So does a host that was removed.  It has no limit, nor has a server that has ended: nothing comes of it in any case.
    """
    view = snap.view
    fresh = [job for job in jobs if job.requester and job.requester not in view.host_index]
    if not fresh:
        return snap
    names = sorted({job.requester for job in fresh})
    known = servers_among(tx, fresh)
    egress_bps = [known[name].egress_bps if name in known else np.inf for name in names]
    ingress_bps = [tx.host(known[name].host).ingress_bps if name in known else np.inf for name in names]
    extended = replace(
        view,
        hosts=(*view.hosts, *names),
        egress_bps=floats([*view.egress_bps, *egress_bps]),
        ingress_bps=floats([*view.ingress_bps, *ingress_bps]),
    )
    return replace(snap, view=extended)


def _is_small(batch: PendingBatch, others: int = 0) -> bool:
    """Return whether a batch may be planned together with this many jobs of others: no input needs rates of its own."""
    return batch.largest_input_bytes <= SMALL_INPUT_BYTES and batch.jobs + others <= TOGETHER


def _planned_together(batches: Mapping[str, PendingBatch], may_join: Callable[[str], bool]) -> Iterator[Sequence[str]]:
    """Yield the uuids of the batches that are planned together: one, and small ones of its policy that come next."""
    group: list[str] = []
    jobs = 0
    for uuid, batch in batches.items():
        last = batches[group[-1]] if group else None
        joins = last is not None and batch.policy == last.policy and _is_small(last) and _is_small(batch, jobs)
        if group and not (joins and may_join(batch.policy)):
            yield group
            group, jobs = [], 0
        group.append(uuid)
        jobs += batch.jobs
    if group:
        yield group


def jobs_by_batch(jobs: Sequence[Job]) -> dict[str, Ints]:
    """Return the indices (n,) of the jobs of each batch."""
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        rows.setdefault(job.batch_uuid, []).append(row)
    return {batch_uuid: ints(of_batch) for batch_uuid, of_batch in rows.items()}


def fairness_groups(jobs: Sequence[Job], rank: Mapping[str, int]) -> Ints:
    """Return (J,) the groups of jobs in a problem: those of each batch behind those of the batches of lower `rank`."""
    of_jobs = [(rank[job.batch_uuid], job.group) for job in jobs]
    number = {group: number for number, group in enumerate(sorted(set(of_jobs)))}
    return ints([number[group] for group in of_jobs])


def _lead_s(jobs: Sequence[Job], settings: PoolSettings) -> float:
    """Return how long before its time 0 a plan must be known: not at all where all inputs move in one burst."""
    return settings.dispatch_lead_s if any(job.input_bytes > SMALL_INPUT_BYTES for job in jobs) else 0.0


def all_placed(tx: Transaction, catalogue: Catalogue, settings: PoolSettings, now_s: float, policy: str) -> Snapshot:
    """Return the pool as it is, with nothing that waits for a place."""
    backlogs, leases = tx.backlogs(), tx.leases()
    slots = least_scarce_first(tx.slots(), catalogue, leases)
    return Snapshot(
        view=_view(tx, catalogue, now_s, backlogs, leases, slots),
        jobs=(),
        policy=policy,
        inputs_due_at=_inputs_due_at(backlogs),
        result_sizes=_result_sizes(catalogue, settings),
    )


def _inputs_due_at(backlogs: Sequence[Backlog]) -> float:
    return max((backlog.inputs_due_at for backlog in backlogs), default=0.0)


def _view(
    tx: Transaction,
    catalogue: Catalogue,
    now_s: float,
    backlogs: Sequence[Backlog],
    leases: Sequence[Lease],
    slots: Sequence[Slot],
) -> PoolView:
    return pool_view(
        generation=tx.shard.pool_generation,
        hosts=tx.hosts(),
        slots=slots,
        leases=leases,
        backlogs=backlogs,
        catalogue=catalogue,
        models=known_time_models(catalogue, tx.time_models()),
        now_s=now_s,
    )


def _result_sizes(catalogue: Catalogue, settings: PoolSettings) -> Mapping[str, SizeModel]:
    if not settings.plan_results:
        return {}
    return {name: function.result_size for name, function in catalogue.functions.items() if function.result_size}


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
        slot_kind=tuple(slot.kind for slot in slots),
        slot_function=ints([function_index.get(slot.function, -1) for slot in slots]),
        slot_usable=np.array([usable(slot, hosts[host_index[slot.host]], foreign) for slot in slots], dtype=np.bool_),
        slot_ready_s=floats([max(free_at.get(slot.name, now_s) - now_s, 0.0) for slot in slots]),
        slot_load_s=floats([_load_s(slot, catalogue) for slot in slots]),
        can_run=can_run,
        time_a_s=floats(time_a),
        time_b_s_per_byte=floats(time_b),
    )


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
    rank = {batch_uuid: number for number, batch_uuid in enumerate(dict.fromkeys(job.batch_uuid for job in snap.jobs))}
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
        group=fairness_groups(snap.jobs, rank),
        local_host=ints(np.arange(len(view.hosts))),
        function=ints(functions),
        loaded=ints(view.slot_function[useful]),
        load_s=floats(view.slot_load_s[useful]),
        port=ints(view.slot_card[useful]),
        output_bytes=ints([snap.result_bytes(job) for job in snap.jobs]),
        requester_ingress_bps=view.ingress_bps,
        responder_egress_bps=view.egress_bps,
        head_start_s=snap.lead_s,
        generation=view.generation,
    )
    return PlanRequest(problem=problem, jobs=snap.jobs, slots=tuple(view.slots[s] for s in useful))


def commit_plan(
    tx: Transaction, request: PlanRequest, plan: BatchPlan, settings: PoolSettings, now_s: float
) -> list[Job]:
    """Give each job the place the plan chose, where that is still possible; return the jobs that got one."""
    dispatched_at = now_s + _lead_s(request.jobs, settings)
    rows = unchanged(tx, request, np.arange(len(request.jobs)))
    placed = [
        change_job(tx, request.jobs[row], place, now_s)
        for row, place in placements(tx, request, plan, rows, dispatched_at, now_s)
    ]
    of_placed = {job.batch_uuid for job in placed}
    tx.take_batches(of_placed)
    bounds_s: Bounds = {}
    for batch_uuid, of_batch in jobs_by_batch(request.jobs).items():
        if batch_uuid in of_placed and all(request.jobs[row].attempt == 0 for row in of_batch.tolist()):
            promised = promise(request.problem, plan, of_batch, dispatched_at, bounds_s)
            tx.save(BATCH.transition(tx.batch(batch_uuid), promised, now_s)[0])
    return placed


#: By all that tells jobs of a problem apart, the bound of a batch that consists of these.
Bounds = dict[tuple[bytes, ...], float]


def promise(problem: BatchProblem, plan: BatchPlan, rows: Ints, dispatched_at: float, bounds_s: Bounds) -> BatchPlanned:
    """Return what a plan promises to a batch, whose jobs are `rows` (n,) of the problem.

    Batches that arrive together are often alike: `bounds_s` are those of the ones before it, and get its own.
    """
    makespan_s, completion_s = plan.makespan_s, plan.completion_s
    if len(rows) < problem.jobs:
        makespan_s, completion_s = ends_of(problem, plan, rows)
        alike = tuple(each[rows].tobytes() for each in (problem.seconds, problem.input_bytes, problem.requester))
        if alike not in bounds_s:
            bounds_s[alike] = simple_bound_s(alone(problem, rows))
        bound_s = completion_bound_s = min(bounds_s[alike], makespan_s)
    else:
        bound_s, completion_bound_s = _proven_bounds_s(problem, plan)
    return BatchPlanned(
        dispatched_at=dispatched_at,
        makespan_s=makespan_s,
        lower_bound_s=bound_s,
        completion_s=completion_s,
        completion_bound_s=completion_bound_s,
    )


def ends_of(problem: BatchProblem, plan: BatchPlan, rows: Ints) -> tuple[float, float]:
    """Return when the last of the jobs `rows` (n,) has computed, and when the last of their results is back."""
    makespan_s = float((plan.start_s[rows] + problem.seconds[rows, plan.accelerator[rows]]).max())
    return makespan_s, max(makespan_s, float(plan.result_end_s[np.isin(plan.result_job, rows)].max(initial=0.0)))


def alone(problem: BatchProblem, jobs: Ints | None = None) -> BatchProblem:
    """Return a problem, or that of some of its jobs (n,), as if nothing were there before it."""
    nothing = floats([])
    if jobs is None:
        return replace(problem, ready_s=nothing, release_s=nothing)
    return problem.only(jobs, ready_s=nothing, release_s=nothing)


def _proven_bounds_s(problem: BatchProblem, plan: BatchPlan) -> tuple[float, float]:
    """Return what the batch, and all of it up to the last result, cannot take less than, whatever is before it.

    A policy proves its bounds for slots and links that are free when the problem says so: earlier work is only expected
    to take that long, and whatever is there first computes first.
    """
    if not (problem.ready_s.any() or problem.release_s.any()):
        return plan.lower_bound_s, plan.completion_bound_s
    bound_s = simple_bound_s(alone(problem))
    return min(plan.lower_bound_s, bound_s), min(plan.completion_bound_s, bound_s)
