"""Transfers of results back to the requesters, which the makespan paper leaves to future work.

A result leaves the responder when its job ends, over the responder's egress and the requester's ingress.  A job on the
host of its requester sends nothing.  In reversed time results are inputs, so the methods for inputs apply to both.
"""

from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound, simple_bound
from fpga_pool.core.makespan.fluid import Segments, seconds_per_bit, transmit
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: A result counts as late if it arrives after this share of the completion time.
_LATE = 0.85


def there_only(problem: BatchProblem) -> BatchProblem:
    """Return the problem without results."""
    return replace(problem, output_bytes=np.zeros(problem.jobs, np.int64))


def back_only(problem: BatchProblem) -> BatchProblem:
    """Return the problem in reversed time and without inputs: results move first, then jobs compute.

    Ready and release times are dropped, since they would become deadlines in reversed time.
    """
    return replace(
        problem,
        input_bytes=problem.output_bytes,
        output_bytes=np.zeros(problem.jobs, np.int64),
        egress_bps=problem.requester_ingress_bps,
        requester_ingress_bps=problem.egress_bps,
        ingress_bps=problem.responder_egress_bps,
        responder_egress_bps=problem.ingress_bps,
        ready_s=np.zeros(problem.accelerators),
        release_s=np.zeros(problem.jobs),
    )


def send_back(problem: BatchProblem, accelerator: Ints, end_s: Floats) -> tuple[Segments, float]:
    """Return the transfers of the results and the time when the last one is back; `end_s` (J,) are the jobs' ends.

    Jobs send their results in the order in which they end.
    """
    back = replace(back_only(problem), release_s=floats(end_s))
    moved = transmit(back, accelerator, np.argsort(end_s, kind="stable"))
    return moved.segments, float(moved.arrived_s.max(initial=0.0))


def completion_bound(problem: BatchProblem, makespan: LowerBound) -> float:
    """Return a lower bound on the arrival of the last result, given a lower bound on the end of the last job.

    It is the largest of three bounds: the makespan bound plus the quickest result transfer; the simple bound with the
    result transfer added to each job's compute time; and the simple bound of the results, with transfer of the input
    and compute added (Jackson's rule in both directions).
    """
    # A slot may be loaded while the input moves, so a load does not delay a result for certain.
    back = replace(back_only(problem), load_s=np.zeros(problem.accelerators))
    there_s, back_s = _transfers_s(problem), _transfers_s(back)
    heads_s = np.maximum(problem.ready_s, problem.release_s[:, None] + there_s) + problem.seconds
    quickest_s = back_s[np.isfinite(problem.seconds)].min(initial=np.inf)
    return max(
        makespan.seconds + float(quickest_s),
        simple_bound(replace(there_only(problem), seconds=floats(problem.seconds + back_s))).seconds,
        simple_bound(replace(back, seconds=floats(heads_s))).seconds,
    )


def orders(problem: BatchProblem, accelerator: Ints, planned: Ints) -> list[Ints]:
    """Return the orders (J,) to try for a placement (J,): as `planned`, by Johnson's rule, and longest tail first."""
    jobs = np.arange(problem.jobs)
    there_s = _transfers_s(problem)[jobs, accelerator]
    back_s = _transfers_s(back_only(problem))[jobs, accelerator]
    tail_s = problem.seconds[jobs, accelerator] + back_s
    head_s = problem.seconds[jobs, accelerator] + there_s
    grows = head_s <= tail_s
    by_johnson = np.lexsort((np.where(grows, head_s, -tail_s), ~grows, problem.group))
    return [planned, by_johnson, np.lexsort((-tail_s, problem.group))]


def sooner(problem: BatchProblem, back_s: Floats) -> Floats:
    """Return (J,) factors that reduce the turns of late jobs and of all jobs of their requesters, so they go sooner.

    `back_s` (J,) is the time when each result is back.
    """
    late = np.maximum(0.0, back_s / max(float(back_s.max()), 1e-300) - _LATE) / (1.0 - _LATE)
    latest = np.zeros(len(problem.egress_bps))
    np.maximum.at(latest, problem.requester, late)
    factors: Floats = (1.0 - 0.1 * late) * (1.0 - 0.15 * latest[problem.requester])
    return factors


def _transfers_s(problem: BatchProblem) -> Floats:
    """Return (J, A) the transfer time of each input to each accelerator if it had both links to itself."""
    hosts, column = np.unique(problem.responder, return_inverse=True)
    s_per_bit = seconds_per_bit(problem, hosts)[problem.requester]
    return (8.0 * problem.input_bytes[:, None] * s_per_bit)[:, column]
