"""Proven lower bounds on the make-span of a batch: no plan can be shorter."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.fluid import transfer_s
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Steps of the price ascent, and the lengths (relative change of a price per relative overload) from the first one to
#: the last, falling geometrically: within 0.1 % of the linear program on the workload of paper 000, 5.2, with speeds
#: of accelerators apart up to 25 times, and within 1 % where each runs one of four functions.
_STEPS = 80
_STEP_LENGTHS = (1.0, 0.004)
#: The ascent looks at no more job-accelerator pairs than this; the bound itself looks at all.
_ASCENT_PAIRS = 400_000
#: Prices do not fall below this share of the even price, so that they can rise again.
_LEAST_PRICE = 1e-9
#: Pairs of one block where all of them are looked at, to bound memory.
_BLOCK_PAIRS = 4_000_000
#: Release times tried as the beginning of a busy stretch of a link; any subset is valid.
_RELEASES = 64
#: Claims are compared with this relative slack, far above rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LowerBound:
    """A bound, and the prices that prove it where it is the compute bound in the plan format's form."""

    seconds: float
    #: (A,) or empty.
    prices: Floats = field(default_factory=lambda: floats([]))


def lower_bound(problem: BatchProblem, at_most_s: float = np.inf) -> LowerBound:
    """Return the largest of the bounds of this module.

    Parameters
    ----------
    problem
        The batch.
    at_most_s
        Make-span of a known plan; jobs are not considered where they would end later.

    """
    if problem.jobs == 0:
        return LowerBound(0.0)
    others_s = max(job_path_s(problem), links_s(problem))
    compute_s, prices = compute_bound(problem, at_most_s)
    if compute_s <= others_s:
        return LowerBound(others_s)
    if _proved_by_format(problem, prices, compute_s):
        return LowerBound(compute_s, floats(prices))
    return LowerBound(compute_s)


def job_path_s(problem: BatchProblem) -> float:
    """Return the bound by the longest single job: transfer at the best rate, or slot made ready, then compute."""
    best_s = np.full(problem.jobs, np.inf)
    for responder in np.unique(problem.responder).tolist():
        arrives_s = problem.release_s + transfer_s(problem, responder)
        for slot in np.flatnonzero(problem.responder == responder).tolist():
            load_s = np.where(problem.function != problem.loaded[slot], problem.load_s[slot], 0.0)
            end_s = np.maximum(arrives_s, problem.ready_s[slot] + load_s) + problem.seconds[:, slot]
            np.minimum(best_s, end_s, out=best_s)
    return float(best_s.max(initial=0.0))


def links_s(problem: BatchProblem) -> float:
    """Return the bound by the egress of each requester, and by the ingress of all responders together.

    Only jobs that cannot run on the host that sends them count: the others might move no byte.
    """
    jobs = np.flatnonzero((problem.input_bytes > 0) & ~_may_stay_local(problem))
    jobs = jobs[np.argsort(-problem.seconds.min(axis=1)[jobs], kind="stable")]
    ingress_bps = float(problem.ingress_bps[np.unique(problem.responder)].sum())
    bound_s = _link_s(problem, jobs, ingress_bps)
    for requester in np.unique(problem.requester[jobs]).tolist():
        own = jobs[problem.requester[jobs] == requester]
        bound_s = max(bound_s, _link_s(problem, own, float(problem.egress_bps[requester])))
    return bound_s


def _may_stay_local(problem: BatchProblem) -> NDArray[np.bool_]:
    """Return (J,) whether some accelerator on the host that sends the job can run it."""
    local = problem.local_host[problem.requester]
    may = np.zeros(problem.jobs, np.bool_)
    for responder in np.unique(local[local >= 0]).tolist():
        jobs = np.flatnonzero(local == responder)
        slots = np.flatnonzero(problem.responder == responder)
        may[jobs] = np.isfinite(problem.seconds[np.ix_(jobs, slots)]).any(axis=1)
    return may


def _link_s(problem: BatchProblem, jobs: Ints, limit_bps: float) -> float:
    """Return the bound by one link that all of `jobs`, sorted by falling tail, must cross.

    The transfers of any set of jobs begin at its first release at the earliest and keep the link busy for the sum of
    their bits; whichever ends last still has to compute.  The best sets are, per release time, the jobs released then
    or later whose tails are the longest (Jackson's rule).
    """
    if len(jobs) == 0 or np.isinf(limit_bps):
        return 0.0
    sent_s = 8.0 * problem.input_bytes[jobs] / limit_bps
    tail_s = problem.seconds.min(axis=1)[jobs] if len(jobs) == problem.jobs else problem.seconds[jobs].min(axis=1)
    release_s = problem.release_s[jobs]
    begins_s = np.unique(release_s)
    bound_s = 0.0
    for begin_s in begins_s[:: -(-len(begins_s) // _RELEASES)].tolist():
        late = release_s >= begin_s
        bound_s = max(bound_s, begin_s + float((np.cumsum(sent_s[late]) + tail_s[late]).max()))
    return bound_s


def compute_bound(problem: BatchProblem, at_most_s: float = np.inf) -> tuple[float, Floats]:
    """Return the bound by the work of all accelerators together, and the prices (A,) that prove it.

    For any prices y >= 0 of sum 1, sum_i min_j y_j e_ij <= sum_j y_j (work on j), and the work on j is at most
    max(0, T - ready_j).  The bound is the least T for which that can hold.  This is the dual of CIM-LP (paper 000,
    3.1 and 1a' in 3.4); the sets E_j(T) of jobs that can end on j in time are taken at T = `at_most_s`.
    """
    step = -(-problem.seconds.size // _ASCENT_PAIRS)
    sample = _usable(problem, problem.seconds[::step], at_most_s)
    slots = np.flatnonzero(np.isfinite(sample).any(axis=0))
    share = len(sample) / problem.jobs
    prices = np.zeros(problem.accelerators)
    prices[slots] = _ascend(np.ascontiguousarray(sample[:, slots]) / share, problem.ready_s[slots])
    return _least_s(_priced_work_s(problem, prices, at_most_s), prices, problem.ready_s), prices


def _ascend(seconds: Floats, ready_s: Floats) -> Floats:
    """Return the best prices that a short multiplicative ascent finds: dear is what would end late.

    Parameters
    ----------
    seconds : (n, a)
        inf = cannot run there; at least one finite value in each row and column.
    ready_s : (a,)
        When each accelerator becomes free.

    """
    rows, slots = np.arange(len(seconds)), seconds.shape[1]
    prices = np.full(slots, 1.0 / slots)
    best, best_s = prices, -1.0
    for length in np.geomspace(*_STEP_LENGTHS, _STEPS).tolist():
        cheapest = np.argmin(seconds * prices, axis=1)
        chosen_s = seconds[rows, cheapest]
        bound_s = _least_s(float((chosen_s * prices[cheapest]).sum()), prices, ready_s)
        if bound_s > best_s:
            best, best_s = prices, bound_s
        if bound_s == 0.0:
            break
        finish_s = np.bincount(cheapest, chosen_s, slots) + np.minimum(ready_s, bound_s)
        overload = np.clip(finish_s / bound_s - 1.0, -1.0, 2.0)
        prices = np.maximum(prices * np.exp(length * overload), _LEAST_PRICE / slots)
        prices = prices / prices.sum()
    return best


def _least_s(work_s: float, prices: Floats, ready_s: Floats) -> float:
    """Return the least T with sum_j y_j max(0, T - ready_j) >= `work_s`."""
    if work_s <= 0.0:
        return 0.0
    order = np.argsort(ready_s, kind="stable")
    order = order[prices[order] > 0]
    # With the first k accelerators in use, T = (work + sum y ready) / sum y; the least such T is the one that holds.
    priced = np.cumsum(prices[order])
    return float(((work_s + np.cumsum(prices[order] * ready_s[order])) / priced).min())


def _priced_work_s(problem: BatchProblem, prices: Floats, at_most_s: float) -> float:
    """Return sum_i min_j y_j e_ij over all jobs and the accelerators where they end by `at_most_s`."""
    return sum(float(_priced(rows, prices).min(axis=1).sum()) for rows in _blocks(problem, at_most_s))


def _priced(seconds: Floats, prices: Floats) -> Floats:
    priced_s = np.full(seconds.shape, np.inf)
    np.multiply(seconds, prices, out=priced_s, where=np.isfinite(seconds))
    return priced_s


def _blocks(problem: BatchProblem, at_most_s: float) -> Iterator[Floats]:
    rows = max(1, _BLOCK_PAIRS // problem.accelerators)
    for begin in range(0, problem.jobs, rows):
        yield _usable(problem, problem.seconds[begin : begin + rows], at_most_s)


def _usable(problem: BatchProblem, seconds: Floats, at_most_s: float) -> Floats:
    """Return some rows of `seconds` with inf where the job would end after `at_most_s`."""
    if np.isinf(at_most_s):
        return seconds
    return np.where(seconds + problem.ready_s > at_most_s * (1 + _ROUNDING), np.inf, seconds)


def _proved_by_format(problem: BatchProblem, prices: Floats, bound_s: float) -> bool:
    """Say whether sum_i min_j y_j e_ij + sum_j y_j ready_j, the plan format's formula, is valid and reaches the bound.

    It is no bound where a priced accelerator gets ready after T: that one may stay unused.
    """
    if (problem.ready_s[prices > 0] > bound_s).any():
        return False
    formula_s = _priced_work_s(problem, prices, np.inf) + float((prices * problem.ready_s).sum())
    return formula_s >= bound_s * (1 - _ROUNDING)
