"""Planning of batches: read the objects into a view, build the policy's problem, and commit its plan.

A decision is made between two transactions: `snapshot` reads in one, `commit_plan` writes in another and leaves out
jobs that have changed in between; those still PENDING are planned again.
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

#: Maximum number of jobs of small batches that are planned together.
TOGETHER = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The jobs to plan now, and the pool to plan them on."""

    view: PoolView
    #: Pending jobs of one batch, or of several small ones in order of their rank.
    jobs: tuple[Job, ...]
    #: Policy requested by their batches; "" = the operator's default.
    policy: str
    #: Latest planned end of the incomplete inputs of earlier jobs, UTC seconds; 0 = all inputs are complete.
    inputs_due_at: float
    #: Size model of the results of each function; empty if the return of results is not planned.
    result_sizes: Mapping[str, SizeModel]
    #: Time between the commit of a plan and its time 0.
    lead_s: float = 0.0
    #: Whether more batches wait for a place.
    others: bool = False

    def result_bytes(self, job: Job) -> int:
        """Return the bytes of a job's result whose transfer is planned: 0 for small results, which need no rates."""
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
    """Return the first batch with pending jobs, and the state of the pool; None if nothing can be planned.

    The first batch is the one with the lowest `rank`: by priority, deadline and age.

    Batches that are `put_off`, and those whose policy makes no plans (`is_planned`, by its name), are left out.  If the
    policy allows it (`may_join`), the next batches are planned together with the first if they are small and have the
    same policy.  Jobs with too many attempts are left to `reconcile.tick`.  `slowdown` is the model of how neighbors
    on a card slow down jobs.
    """
    pending = tx.pending_batches().items()
    ours = {uuid: batch for uuid, batch in pending if uuid not in put_off and is_planned(batch.policy)}
    if not ours:
        return None  # before building the view, which is the most expensive step
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
    """Return a snapshot whose view also has the servers among the requesters of jobs, as hosts without slots.

    Hosts that were removed are added as well.  They and servers that have ended have no rate limits: they send nothing.
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
    """Return whether all inputs of a batch are small, and its jobs with `others` more are at most `TOGETHER`."""
    return batch.largest_input_bytes <= SMALL_INPUT_BYTES and batch.jobs + others <= TOGETHER


def _planned_together(batches: Mapping[str, PendingBatch], may_join: Callable[[str], bool]) -> Iterator[Sequence[str]]:
    """Yield the uuids of batches that are planned together: a single one, or successive small ones of one policy."""
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
    """Return the indices (n,) of the jobs of each batch, by the uuid of the batch."""
    rows: dict[str, list[int]] = {}
    for row, job in enumerate(jobs):
        rows.setdefault(job.batch_uuid, []).append(row)
    return {batch_uuid: ints(of_batch) for batch_uuid, of_batch in rows.items()}


def fairness_groups(jobs: Sequence[Job], rank: Mapping[str, int]) -> Ints:
    """Return the fairness group of each job, shape (J,): by the `rank` of its batch, then by its group in the batch."""
    of_jobs = [(rank[job.batch_uuid], job.group) for job in jobs]
    number = {group: number for number, group in enumerate(sorted(set(of_jobs)))}
    return ints([number[group] for group in of_jobs])


def _lead_s(jobs: Sequence[Job], settings: PoolSettings) -> float:
    """Return how long before its time 0 a plan must be committed: 0 if all inputs are small and move in one burst."""
    return settings.dispatch_lead_s if any(job.input_bytes > SMALL_INPUT_BYTES for job in jobs) else 0.0


def all_placed(tx: Transaction, catalogue: Catalogue, settings: PoolSettings, now_s: float, policy: str) -> Snapshot:
    """Return a snapshot of the pool without pending jobs."""
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
    # If the function was removed from the catalogue after the jobs were accepted, they wait until it is back.
    index = view.function_index.get(function)
    return index is not None and bool((view.can_run[:, index] & view.slot_usable).any())


def batch_problem(snap: Snapshot) -> PlanRequest:
    """Build the problem of a snapshot: its jobs, and the usable slots that can run at least one of them."""
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
    """Give each job the place chosen by the plan, as far as this is still possible; return the jobs that got one."""
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


#: Lower bound of a batch, by the data of its jobs that determine it.
Bounds = dict[tuple[bytes, ...], float]


def promise(problem: BatchProblem, plan: BatchPlan, rows: Ints, dispatched_at: float, bounds_s: Bounds) -> BatchPlanned:
    """Return the times that a plan promises to a batch, whose jobs are `rows` (n,) of the problem.

    `bounds_s` caches the bounds of batches planned together, which are often alike.
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
    """Return when the last of the jobs `rows` (n,) has computed, and when the last of their results has arrived."""
    makespan_s = float((plan.start_s[rows] + problem.seconds[rows, plan.accelerator[rows]]).max())
    return makespan_s, max(makespan_s, float(plan.result_end_s[np.isin(plan.result_job, rows)].max(initial=0.0)))


def alone(problem: BatchProblem, jobs: Ints | None = None) -> BatchProblem:
    """Return a problem, or that of some of its jobs (n,), as if the pool had no earlier work."""
    nothing = floats([])
    if jobs is None:
        return replace(problem, ready_s=nothing, release_s=nothing)
    return problem.only(jobs, ready_s=nothing, release_s=nothing)


def _proven_bounds_s(problem: BatchProblem, plan: BatchPlan) -> tuple[float, float]:
    """Return lower bounds of the makespan and of the completion time, valid even if earlier work ends at once.

    The policy's bounds assume that slots and links become free at the times of the problem. These are only estimates:
    earlier work may end sooner, and jobs compute in the order in which their inputs arrive.
    """
    if not (problem.ready_s.any() or problem.release_s.any()):
        return plan.lower_bound_s, plan.completion_bound_s
    bound_s = simple_bound_s(alone(problem))
    return min(plan.lower_bound_s, bound_s), min(plan.completion_bound_s, bound_s)
