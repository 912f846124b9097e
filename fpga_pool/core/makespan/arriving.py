"""A batch that arrives while inputs of earlier ones move (makespan paper, section 3.4).

The paper's own policies plan in what earlier transfers leave; see `PlanningAround`.  For any other policy the two
schemes that the paper has for network batches are tried, and the one that ends first is enforced: to fill what earlier
transfers leave, in the order in which the policy sends on an idle network; or to begin when these are over.  In either
case only what has to move waits for the network.
"""

from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound
from fpga_pool.core.makespan.execution import as_plan, schedule
from fpga_pool.core.makespan.fluid import Segments, Transfers, moves_over_network
from fpga_pool.core.makespan.residual_links import Piece, ResidualLinks
from fpga_pool.core.policy import BatchPolicy, PlanningAround, PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, EarlierTransfers, Floats, Ints, floats


def plan_arriving(
    policy: BatchPolicy,
    problem: BatchProblem,
    earlier: EarlierTransfers,
    state: PolicyState,
    rng: np.random.Generator,
) -> BatchPlan:
    """Return the policy's plan of a batch for a network on which `earlier` transfers are planned.

    Parameters
    ----------
    policy
        Whose plan it is.
    problem
        The batch alone; `ready_s` is c_j of section 3.4, when earlier jobs are computed.
    earlier
        What is planned of the network already, on the same clock.
    state, rng
        What the policy remembers, and the source of its random choices.

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
    found = schedule(problem, planned.accelerator, np.argsort(planned.start_s, kind="stable"), transfers, None)
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
