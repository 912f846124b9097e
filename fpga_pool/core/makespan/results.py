"""Results that flow back: a second transfer of each job, which makespan paper leaves to future work.

A result leaves the responder when its job ends, over the responder's way out and the requester's way in; a job on the
host of its requester has nothing to send.  Read backwards, results are inputs: what is known of these holds for both.
"""

from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.bounds import LowerBound, simple_bound
from fpga_pool.core.makespan.fluid import Segments, seconds_per_bit, transmit
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Share of the completion from which on a result counts as late.
_LATE = 0.85


def there_only(problem: BatchProblem) -> BatchProblem:
    """Return the problem without results."""
    return replace(problem, output_bytes=np.zeros(problem.jobs, np.int64))


def back_only(problem: BatchProblem) -> BatchProblem:
    """Return the problem backwards in time and without inputs: results move first, then jobs compute.

    What has to be waited for in the beginning, which would be an end there, is left out.
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
    """Return how the results of a schedule move and when the last one is back; `end_s` (J,) is when jobs end.

    Whichever job ends first sends first.
    """
    back = replace(back_only(problem), release_s=floats(end_s))
    moved = transmit(back, accelerator, np.argsort(end_s, kind="stable"))
    return moved.segments, float(moved.arrived_s.max(initial=0.0))


def completion_bound(problem: BatchProblem, makespan: LowerBound) -> float:
    """Return what no plan can be shorter than, up to the last result, given that for the last job to end.

    Any job's result takes at least its time at the best rate; so do, link by link, inputs that move while what their
    jobs have yet to do is compute and result, and results that move after input and compute (Jackson's rule, both
    ways).
    """
    # A slot may be loaded while the input moves, so that a load is no part of what comes before a result.
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
    """Return orders (J,) to try for a placement (J,): as `planned`, by Johnson's rule, by longest tail."""
    jobs = np.arange(problem.jobs)
    there_s = _transfers_s(problem)[jobs, accelerator]
    back_s = _transfers_s(back_only(problem))[jobs, accelerator]
    tail_s = problem.seconds[jobs, accelerator] + back_s
    head_s = problem.seconds[jobs, accelerator] + there_s
    grows = head_s <= tail_s
    by_johnson = np.lexsort((np.where(grows, head_s, -tail_s), ~grows, problem.group))
    return [planned, by_johnson, np.lexsort((-tail_s, problem.group))]


def sooner(problem: BatchProblem, back_s: Floats) -> Floats:
    """Return (J,) factors of the turns of jobs that let what was late go sooner, and all of its requester a little.

    `back_s` (J,) is when each result is back.
    """
    late = np.maximum(0.0, back_s / max(float(back_s.max()), 1e-300) - _LATE) / (1.0 - _LATE)
    latest = np.zeros(len(problem.egress_bps))
    np.maximum.at(latest, problem.requester, late)
    factors: Floats = (1.0 - 0.1 * late) * (1.0 - 0.15 * latest[problem.requester])
    return factors


def _transfers_s(problem: BatchProblem) -> Floats:
    """Return (J, A) how long each input takes with both links to itself."""
    hosts, column = np.unique(problem.responder, return_inverse=True)
    s_per_bit = seconds_per_bit(problem, hosts)[problem.requester]
    return (8.0 * problem.input_bytes[:, None] * s_per_bit)[:, column]
