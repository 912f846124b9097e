"""A plan under way, as re-planning sees it, and batches that arrive while inputs of earlier ones move (section 3.4).

The makespan paper's own policies plan in the bandwidth that earlier transfers leave; see `PlanningAround`.  For any
other policy `plan_arriving` tries the paper's two schemes for network batches and keeps the one that ends first: fill
what earlier transfers leave, in the order in which the policy sends on an idle network, or begin when these are over.
In either case only jobs whose input moves wait for the network.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.bounds import LowerBound
from fpga_pool.core.makespan.execution import as_plan, schedule
from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network
from fpga_pool.core.makespan.residual import Piece, ResidualLinks
from fpga_pool.core.policy import BatchPolicy, PlanningAround, PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints, floats

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Underway:
    """Jobs that do not compute yet, in a world where others do; time 0 is now.

    What has changed since the plan was made is in the problem: an accelerator that failed or is drained, or whose host
    left, can run nothing (`seconds` inf); one that is late has a later `ready_s`; bandwidths and seconds are those
    observed.
    """

    #: The jobs that do not compute yet: `input_bytes` is what has yet to move, `ready_s` when what computes will end.
    problem: BatchProblem
    #: (J,) where each job was planned; -1 = nowhere yet.
    accelerator: Ints
    #: (J,) when each was planned to start; any value where it was planned nowhere.
    start_s: Floats
    #: (J,) the input, which takes time to move, is on its way or there: the job stays where it is, as long as that can
    #: run it.
    begun: Bools
    #: What was planned of the transfers and has yet to happen; carries all of `input_bytes` where a job was planned.
    transfers: Segments
    #: The transfers that have not begun are planned again because those that have are late; otherwise they stay.
    retime: bool = False
    #: (J,) transfers that are not where they were planned to be: what is left of them gets new rates too, if others do.
    astray: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        jobs = self.problem.jobs
        if self.astray.shape == (0,):
            object.__setattr__(self, "astray", np.zeros(jobs, np.bool_))
        for name in ("accelerator", "start_s", "begun", "astray"):
            found = np.shape(getattr(self, name))
            if found != (jobs,):
                raise ValueError(f"{name}: expected shape {(jobs,)}, found {found}")
        if ((self.accelerator < -1) | (self.accelerator >= self.problem.accelerators)).any():
            raise ValueError(f"accelerator: index out of range, expected -1..{self.problem.accelerators - 1}")

    @property
    def kept(self) -> Bools:
        """(J,) whether each job has a place that can run it."""
        placed = self.accelerator >= 0
        possible = np.isfinite(self.problem.seconds[np.arange(self.problem.jobs), np.maximum(self.accelerator, 0)])
        kept: Bools = placed & possible
        return kept


def underway_at(
    problem: BatchProblem, plan: BatchPlan, now_s: float, *, lost: Collection[int] = (), arrived: Collection[int] = ()
) -> tuple[Underway, Ints]:
    """Return a plan as it is under way at `now_s`, on its clock, if all went as planned, and the jobs that are left.

    `lost` are accelerators that can run nothing from now on: what computes there fails and is to be planned again.
    `arrived` are jobs of the problem that arrive only now: their part of the plan is void.
    """
    jobs = np.arange(problem.jobs)
    new, gone = np.isin(jobs, list(arrived)), np.isin(plan.accelerator, list(lost))
    end_s = plan.start_s + problem.seconds[jobs, plan.accelerator]
    computing = (plan.start_s <= now_s) & (end_s > now_s) & ~new
    left = np.flatnonzero((plan.start_s > now_s) | new | (computing & gone))
    ready_s = np.maximum(problem.ready_s - now_s, 0.0)
    running = np.flatnonzero(computing & ~gone)
    np.maximum.at(ready_s, plan.accelerator[running], end_s[running] - now_s)
    loaded = np.array(problem.loaded)
    by_start = np.argsort(plan.start_s, kind="stable")
    started = by_start[(plan.start_s[by_start] <= now_s) & ~new[by_start]]
    loaded[plan.accelerator[started]] = problem.function[started]
    accelerator = np.where(new | gone, -1, plan.accelerator)[left]
    transfers, left_bytes, begun = _transfers_left(problem, plan, now_s, left[accelerator >= 0])
    input_bytes = np.where(np.isin(jobs, left[accelerator >= 0]), left_bytes, problem.input_bytes)
    seconds = problem.seconds[left]
    seconds[:, list(lost)] = np.inf
    rest = replace(
        problem.only(left),
        seconds=seconds, input_bytes=input_bytes[left], ready_s=ready_s,
        release_s=np.maximum(problem.release_s[left] - now_s, 0.0), loaded=loaded,
    )  # fmt: skip
    number = np.full(problem.jobs, -1)
    number[left] = np.arange(len(left))
    seen = Underway(
        problem=rest,
        accelerator=accelerator,
        start_s=floats(plan.start_s[left] - now_s),
        begun=begun[left] & (accelerator >= 0),
        transfers=replace(transfers, flow=number[transfers.flow]),
    )
    return seen, left


def _transfers_left(problem: BatchProblem, plan: BatchPlan, now_s: float, jobs: Ints) -> tuple[Segments, Ints, Bools]:
    """Return what is left of the transfers of `jobs` (n,), by time from now on; bytes left (J,); which have begun (J,).

    Bytes are whole, so rates are a little lower where a transfer is cut in the middle of one.
    """
    later = np.isin(plan.segment_job, jobs) & (plan.segment_end_s > now_s)
    job, bps = plan.segment_job[later], np.array(plan.segment_bps[later])
    begin_s, end_s = np.maximum(plan.segment_begin_s[later] - now_s, 0.0), plan.segment_end_s[later] - now_s
    begins_s = np.full(problem.jobs, np.inf)
    np.minimum.at(begins_s, plan.segment_job, plan.segment_begin_s)
    # What needs no segments moves in no time, elsewhere too.
    begun = begins_s < now_s
    exact_bits = np.bincount(job, bps * (end_s - begin_s), problem.jobs)
    whole = np.where(begun, np.floor(exact_bits / 8.0), problem.input_bytes).astype(np.int64)
    cut = begun[job] & (whole[job] > 0)
    bps[cut] *= 8.0 * whole[job[cut]] / exact_bits[job[cut]]
    carries = whole[job] > 0
    return Segments(job[carries], begin_s[carries], end_s[carries], bps[carries]), whole, begun


# ---- A batch that arrives


def plan_arriving(
    policy: BatchPolicy,
    problem: BatchProblem,
    earlier: EarlierTransfers,
    state: PolicyState,
    rng: np.random.Generator,
) -> BatchPlan:
    """Return the policy's plan of a batch for a network on which `earlier` transfers are planned, on the same clock.

    `problem` has the batch alone; its `ready_s` is c_j of section 3.4, when earlier jobs are computed.
    """
    if isinstance(policy, PlanningAround):
        return policy.decide_around(problem, earlier, state, rng)
    alone = policy.decide(problem, state, 0.0, rng)
    if len(earlier.bps) == 0 or not moves_over_network(problem, alone.accelerator).any():
        return alone
    inside = _sent(problem, alone, _filling(problem, alone, earlier), alone)
    if _ends(inside) <= _ends(alone):
        return inside
    later_s = np.where(problem.input_bytes > 0, np.maximum(problem.release_s, earlier.end_s.max()), problem.release_s)
    behind = policy.decide(replace(problem, release_s=floats(later_s)), state, 0.0, rng)
    behind = _sent(problem, behind, _transfers(problem, behind), alone)
    return behind if _ends(behind) < _ends(inside) else inside


def _ends(found: BatchPlan) -> tuple[float, float]:
    """Return when the last result is back, and when the last job ends."""
    return found.completion_s, found.makespan_s


def _sent(problem: BatchProblem, planned: BatchPlan, transfers: Transfers, bound: BatchPlan) -> BatchPlan:
    """Return what a plan's places and queues come to with other transfers, and the bound of another plan."""
    found = schedule(problem, planned.accelerator, np.argsort(planned.start_s, kind="stable"), transfers)
    # A bound that holds on an idle network holds on any.
    proven = LowerBound(bound.lower_bound_s, bound.bound_prices)
    return replace(as_plan(problem, found, proven, planned.policy), generation=planned.generation)


def _transfers(problem: BatchProblem, planned: BatchPlan) -> Transfers:
    """Return the transfers of a plan; what does not move is there when it is released."""
    segments = Segments(planned.segment_job, planned.segment_begin_s, planned.segment_end_s, planned.segment_bps)
    arrived_s = np.array(problem.release_s)
    np.maximum.at(arrived_s, segments.flow, segments.end_s)
    return Transfers(arrived_s, segments)


def _filling(problem: BatchProblem, planned: BatchPlan, earlier: EarlierTransfers) -> Transfers:
    """Return transfers that fill what earlier ones leave, in the order in which a plan begins them."""
    residual = ResidualLinks(
        problem.egress_bps, problem.ingress_bps, earlier.requester, earlier.responder, earlier.begin_s, earlier.end_s,
        earlier.bps,
    )  # fmt: skip
    arrived_s, sent = np.array(problem.release_s), list[tuple[int, list[Piece]]]()
    responder = problem.responder[planned.accelerator]
    for job in _in_order(problem, planned).tolist():
        release_s, bits = float(problem.release_s[job]), 8.0 * float(problem.input_bytes[job])
        pieces = residual.send(int(problem.requester[job]), int(responder[job]), release_s, bits)
        sent.append((job, pieces))
        arrived_s[job] = pieces[-1].end_s
    rows = np.array([(job, *piece) for job, pieces in sorted(sent) for piece in pieces]).reshape(-1, 4)
    return Transfers(arrived_s, Segments(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2], rows[:, 3]))


def _in_order(problem: BatchProblem, planned: BatchPlan) -> Ints:
    """Return the jobs that move, in the order in which a plan begins to send them."""
    begins_s: Floats = np.full(problem.jobs, np.inf)
    np.minimum.at(begins_s, planned.segment_job, planned.segment_begin_s)
    moving = np.flatnonzero(moves_over_network(problem, planned.accelerator))
    return moving[np.lexsort((planned.start_s[moving], begins_s[moving]))]
