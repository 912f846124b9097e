"""A plan under way, as re-planning sees it, and batches that arrive during transfers of earlier ones (section 3.4).

The makespan paper's own policies plan with the bandwidth that earlier transfers leave; see `PlanningAround`.  For any
other policy `plan_arriving` tries the paper's two schemes for network batches and keeps the one that ends first: use
the residual bandwidth, in the order in which the policy sends on an idle network, or begin after the earlier transfers.
In both schemes, only jobs whose input moves wait for the network.
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
    """The jobs of a plan that have not started while others compute; time 0 is now.

    The problem reflects all changes since the plan was made: an accelerator that failed or is drained, or whose host
    left, cannot run any job (`seconds` is inf); a delayed one has a later `ready_s`; bandwidths and seconds are those
    observed.
    """

    #: The jobs that have not started: `input_bytes` have yet to move, and `ready_s` is when the running jobs end.
    problem: BatchProblem
    #: (J,) the planned accelerator of each job; -1 = not planned yet.
    accelerator: Ints
    #: (J,) the planned start of each job; any value if it is not planned yet.
    start_s: Floats
    #: (J,) whether the input takes time to move and its transfer has begun or ended: the job stays on its accelerator
    #: while that can run it.
    begun: Bools
    #: The remaining part of the planned transfers; carries all of `input_bytes` of each planned job.
    transfers: Segments
    #: Whether transfers that have not begun are planned again, because others are late; otherwise they stay.
    retime: bool = False
    #: (J,) transfers that deviate from their plan: if `retime` is set, their remaining parts get new rates too.
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
        """(J,) whether each job has an accelerator that can run it."""
        placed = self.accelerator >= 0
        possible = np.isfinite(self.problem.seconds[np.arange(self.problem.jobs), np.maximum(self.accelerator, 0)])
        kept: Bools = placed & possible
        return kept


def underway_at(
    problem: BatchProblem, plan: BatchPlan, now_s: float, *, lost: Collection[int] = (), arrived: Collection[int] = ()
) -> tuple[Underway, Ints]:
    """Return the state of a plan at `now_s`, on its clock, if all went as planned, and the jobs that have to be run.

    `lost` are accelerators that cannot run jobs from now on: jobs running there fail and have to be planned again.
    `arrived` are jobs of the problem that arrive only now: their part of the plan is ignored.
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
    """Return the rest of the transfers of `jobs` (n,), in times from now on, bytes left (J,), and if each began (J,).

    Bytes are whole numbers, so the rates of a transfer that is cut within a byte become slightly lower.
    """
    later = np.isin(plan.segment_job, jobs) & (plan.segment_end_s > now_s)
    job, bps = plan.segment_job[later], np.array(plan.segment_bps[later])
    begin_s, end_s = np.maximum(plan.segment_begin_s[later] - now_s, 0.0), plan.segment_end_s[later] - now_s
    begins_s = np.full(problem.jobs, np.inf)
    np.minimum.at(begins_s, plan.segment_job, plan.segment_begin_s)
    # An input without segments takes no time to move, so it never counts as begun.
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

    `problem` contains only the new batch; its `ready_s` is c_j of section 3.4, the time when earlier jobs end.
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
    """Return the times when the last result is back, and when the last job ends."""
    return found.completion_s, found.makespan_s


def _sent(problem: BatchProblem, planned: BatchPlan, transfers: Transfers, bound: BatchPlan) -> BatchPlan:
    """Return the plan with the placement and queues of `planned`, other transfers, and the lower bound of `bound`."""
    found = schedule(problem, planned.accelerator, np.argsort(planned.start_s, kind="stable"), transfers)
    # A lower bound for an idle network holds for a busy one, too.
    proven = LowerBound(bound.lower_bound_s, bound.bound_prices)
    return replace(as_plan(problem, found, proven, planned.policy), generation=planned.generation)


def _transfers(problem: BatchProblem, planned: BatchPlan) -> Transfers:
    """Return the transfers of a plan; inputs that do not move arrive at their release."""
    segments = Segments(planned.segment_job, planned.segment_begin_s, planned.segment_end_s, planned.segment_bps)
    arrived_s = np.array(problem.release_s)
    np.maximum.at(arrived_s, segments.flow, segments.end_s)
    return Transfers(arrived_s, segments)


def _filling(problem: BatchProblem, planned: BatchPlan, earlier: EarlierTransfers) -> Transfers:
    """Return transfers in the bandwidth that `earlier` ones leave, in the order in which `planned` begins them."""
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
    """Return the jobs whose inputs move, in the order in which a plan begins to send them."""
    begins_s: Floats = np.full(problem.jobs, np.inf)
    np.minimum.at(begins_s, planned.segment_job, planned.segment_begin_s)
    moving = np.flatnonzero(moves_over_network(problem, planned.accelerator))
    return moving[np.lexsort((planned.start_s[moving], begins_s[moving]))]
