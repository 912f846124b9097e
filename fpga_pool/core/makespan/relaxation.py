"""CIM-LP, the relaxed computation-intensive model (makespan paper, section 3.1), and Algorithm 1 in two forms.

A job may be split over accelerators, but only over those that could complete it alone in the makespan T.  With ready
times (section 3.4) these are the accelerators with ``c_j + e_ij <= T``; other pairs of job and accelerator are ignored.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads its parts when they are first used
from numpy.typing import NDArray

from fpga_pool.core.makespan.bounds import compute_bound
from fpga_pool.core.types import BatchProblem, Floats, Ints, floats

#: Cheapest pairs per job in the first reduced program; and the other pairs in it, or added in each further round.
_FIRST_PAIRS, _MORE_PAIRS = 8, 4
#: A linear program is solved if the relative gap between its value and the bound by its dual prices is within this.
_GAP = 1e-6
#: A share below this is rounding noise of the solver.
_NOISE = 1e-7
#: Makespans with a relative difference within this are equal.
_SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """A solution of CIM-LP at a vertex: job `job[k]` has the share `share[k]` > 0 of itself on `slot[k]`."""

    #: T; no accelerator is busy longer, and no job in `job` alone would end later on its `slot`.
    seconds: float
    #: (E,) each, one element per pair with a positive share.
    job: Ints
    slot: Ints
    share: Floats


def one_shot(seconds: Floats, ready_s: Floats) -> Relaxed:
    """Return the solution of least T with as few linear programs as possible, usually one.

    `seconds` (n, a) is inf if a job cannot run, with at least one finite value per row; accelerators become free at
    `ready_s` (a,).

    For the pairs allowed at a given time t, one linear program yields the least T, and t is feasible iff that T <= t.
    So instead of bisecting t from the start (Algorithm 1), t begins at a proven lower bound.  If this is infeasible,
    the T found is the answer unless it allows further pairs.  Then the least T over these is tried, and only if that is
    not the answer, t is bisected.

    Of the vertices at T, one with the least total computation is returned.  Other vertices may fill accelerators
    completely with split jobs although some accelerators have time to spare.
    """
    program = _Program(seconds, ready_s)
    if program.longest_s == 0.0:
        return program.solve(0.0)
    return program.least_work(_least(program, ready_s))


def _least(program: "_Program", ready_s: Floats) -> Relaxed:
    """Return a vertex of least T."""
    low_s = program.least_s()
    found = program.solve(low_s)
    if found.seconds <= low_s * (1 + _SAME):
        return replace(found, seconds=low_s)
    high_s = min(program.greedy_s, found.seconds)
    if len(program.thresholds(low_s, high_s)) == 0:
        return found if found.seconds <= high_s * (1 + _SAME) else replace(program.solve(high_s), seconds=high_s)
    relaxed = program.solve(high_s)
    # If every accelerator is ready by then, allowing fewer pairs never lowers T, so this T is a lower bound, too.
    if ready_s.max() <= low_s < relaxed.seconds:
        if found.seconds <= relaxed.seconds * (1 + _GAP):
            return found
        closer = program.solve(relaxed.seconds)
        if closer.seconds <= relaxed.seconds * (1 + _SAME):
            return replace(closer, seconds=relaxed.seconds)
    return _between(program, low_s, found, high_s, relaxed)


def _between(program: "_Program", low_s: float, low: Relaxed, high_s: float, high: Relaxed) -> Relaxed:
    """Bisect the times at which pairs become allowed, between an infeasible one and a feasible one."""
    while len(between := program.thresholds(low_s, high_s)):
        time_s = float(between[len(between) // 2])
        found = program.solve(time_s)
        if found.seconds <= time_s * (1 + _SAME):
            high_s, high = time_s, found
        else:
            low_s, low = time_s, found
            if found.seconds < high_s:
                high_s, high = found.seconds, found
    return low if low.seconds <= high_s * (1 + _SAME) else replace(high, seconds=high_s)


def bisection(seconds: Floats, ready_s: Floats, epsilon: float, rng: np.random.Generator) -> Relaxed:
    """Return the result of Algorithm 1: a vertex that is feasible at the last `t_max`.

    The accuracy `epsilon` is relative to `t_min`, which is not larger than the result.  Parameters as in `one_shot`.
    """
    program = _Program(seconds, ready_s)
    t_max_s = program.random_s(rng)
    t_min_s = program.longest_s
    feasible = None
    while t_max_s - t_min_s > epsilon * t_min_s:
        t_s = (t_max_s + t_min_s) / 2
        found = program.feasible(t_s)
        if found is None:
            t_min_s = t_s
        else:
            t_max_s, feasible = t_s, found
    return feasible or program.feasible(t_max_s) or program.solve(t_max_s)


class _Program:
    """The linear programs of one CIM-LP, on reduced sets of pairs."""

    def __init__(self, seconds: Floats, ready_s: Floats) -> None:
        self._seconds, self._ready_s = seconds, ready_s
        self._end_s = seconds + ready_s
        #: max_i min_j (c_j + e_ij): at a smaller T, some job could not be completed anywhere.
        self.longest_s = float(self._end_s.min(axis=1).max())
        self.greedy_s = self._greedy_s()
        self._prices: Floats | None = None

    def least_s(self) -> float:
        """Return a lower bound on T; if pairs have to be chosen, also find the prices that choose the first ones."""
        jobs, slots = self._seconds.shape
        if slots <= _FIRST_PAIRS:
            return self.longest_s
        problem = BatchProblem(
            seconds=self._seconds, ready_s=self._ready_s, responder=np.zeros(len(self._ready_s), np.int64),
            input_bytes=np.zeros(jobs, np.int64), requester=np.zeros(jobs, np.int64),
            egress_bps=floats([np.inf]), ingress_bps=floats([np.inf]),
        )  # fmt: skip
        bound = compute_bound(problem, self.greedy_s)
        self._prices = bound.prices
        return max(bound.seconds, self.longest_s)

    def thresholds(self, low_s: float, high_s: float) -> Floats:
        """Return the times strictly between `low_s` and `high_s` at which further pairs become allowed."""
        inside = (self._end_s > low_s * (1 + _SAME)) & (self._end_s < high_s * (1 - _SAME))
        return np.unique(self._end_s[inside])

    def random_s(self, rng: np.random.Generator) -> float:
        """Return the makespan of a random assignment (Algorithm 1, line 1)."""
        chosen = np.argmax(np.where(np.isfinite(self._seconds), rng.random(self._seconds.shape), -1.0), axis=1)
        busy_s = np.bincount(chosen, self._seconds[np.arange(len(chosen)), chosen], len(self._ready_s))
        used = np.unique(chosen)
        return float((busy_s + self._ready_s)[used].max())

    def solve(self, time_s: float) -> Relaxed:
        """Return a vertex of least T over the pairs that are allowed at `time_s`.

        Starts with few pairs per job and adds pairs that are cheap at the dual prices of the reduced program, until no
        missing pair could lower T.
        """
        allowed = self._end_s <= time_s * (1 + _SAME)
        unit_s = self.greedy_s or 1.0
        scaled = np.where(allowed, self._seconds / unit_s, np.inf)
        chosen = self._first_pairs(scaled)
        while True:
            job, slot = np.nonzero(chosen)
            result = _minimise(job, slot, scaled[job, slot], self._ready_s / unit_s)
            used = np.unique(slot)
            # An accelerator without a chosen pair has the price 0.
            prices = np.zeros(len(self._ready_s))
            prices[used] = -result.ineqlin.marginals
            priced = _priced(scaled, prices)
            proved = float(priced.min(axis=1).sum() + prices @ self._ready_s / unit_s)
            if result.fun <= proved * (1 + _GAP):
                return _relaxed(float(result.fun) * unit_s, job, slot, result.x[:-1])
            priced[chosen] = np.inf
            chosen |= _cheapest(priced, _MORE_PAIRS) & (priced < result.eqlin.marginals[:, None])

    def _first_pairs(self, seconds: Floats) -> NDArray[np.bool_]:
        """Return (n, a) the mask of each job's cheapest pairs and some random ones, as prices are inexact or equal."""
        if seconds.shape[1] <= _FIRST_PAIRS or self._prices is None:
            return np.isfinite(seconds)
        lottery = np.random.default_rng(0).random(seconds.shape)
        others = _cheapest(np.where(np.isfinite(seconds), lottery, np.inf), _MORE_PAIRS)
        return others | _cheapest(_priced(seconds, self._prices), _FIRST_PAIRS)

    def least_work(self, found: Relaxed) -> Relaxed:
        """Return a vertex of least total computation at the T of `found`, over its pairs and each job's shortest."""
        allowed = self._end_s <= found.seconds * (1 + _SAME)
        chosen = _cheapest(np.where(allowed, self._seconds, np.inf), _FIRST_PAIRS)
        chosen[found.job, found.slot] = True
        job, slot = np.nonzero(chosen)
        seconds = self._seconds[job, slot] / found.seconds
        rows, limits = _rows(job, slot, seconds, 1 + _SAME - self._ready_s / found.seconds)
        once = _once(job)
        result = scipy.optimize.linprog(
            seconds, A_ub=rows, b_ub=limits, A_eq=once, b_eq=np.ones(once.shape[0]), method="highs-ds"
        )
        return _relaxed(found.seconds, job, slot, result.x) if result.status == 0 else found

    def feasible(self, time_s: float) -> Relaxed | None:
        """Return a feasible vertex of CIM-LP with T fixed, on all allowed pairs; None if there is none."""
        job, slot = np.nonzero(self._end_s <= time_s * (1 + _SAME))
        unit_s = time_s or 1.0
        rows, limits = _rows(job, slot, self._seconds[job, slot] / unit_s, (time_s - self._ready_s) / unit_s)
        result = scipy.optimize.linprog(
            np.zeros(len(job)), A_ub=rows, b_ub=limits, A_eq=_once(job), b_eq=np.ones(int(job.max()) + 1),
            method="highs-ds",
        )  # fmt: skip
        return _relaxed(time_s, job, slot, result.x) if result.status == 0 else None

    def _greedy_s(self) -> float:
        """Return the makespan of a feasible assignment: longest jobs first, each where it ends first."""
        free_s = np.array(self._ready_s)
        longest_s = 0.0
        for job in np.argsort(-self._seconds.min(axis=1), kind="stable").tolist():
            end_s = free_s + self._seconds[job]
            slot = int(np.argmin(end_s))
            free_s[slot] = end_s[slot]
            longest_s = max(longest_s, float(end_s[slot]))
        return longest_s


def vertex(seconds: Floats, ready_s: Floats) -> Relaxed:
    """Return a vertex of least T over all pairs of finite `seconds` (n, a), even those that T does not allow."""
    return _Program(seconds, ready_s).solve(np.inf)


def _priced(seconds: Floats, prices: Floats) -> Floats:
    priced = np.full(seconds.shape, np.inf)
    np.multiply(seconds, prices, out=priced, where=np.isfinite(seconds))
    return priced


def _cheapest(cost: Floats, count: int) -> NDArray[np.bool_]:
    """Return (n, a) the mask of the `count` cheapest pairs of each job, those of finite cost."""
    if count >= cost.shape[1]:
        return np.isfinite(cost)
    mask = np.zeros(cost.shape, np.bool_)
    np.put_along_axis(mask, np.argpartition(cost, count, axis=1)[:, :count], values=True, axis=1)
    return mask & np.isfinite(cost)


def _minimise(job: Ints, slot: Ints, seconds: Floats, ready_s: Floats) -> "scipy.optimize.OptimizeResult":
    """Minimize T over the shares of the given pairs; the last variable is T."""
    rows, limits = _rows(job, slot, seconds, -ready_s, makespan=True)
    cost = np.append(np.zeros(len(job)), 1.0)
    jobs = int(job.max()) + 1
    once = scipy.sparse.coo_array((np.ones(len(job)), (job, np.arange(len(job)))), shape=(jobs, len(cost))).tocsr()
    result: scipy.optimize.OptimizeResult = scipy.optimize.linprog(
        cost, A_ub=rows, b_ub=limits, A_eq=once, b_eq=np.ones(jobs), method="highs-ds"
    )
    if result.status != 0:
        raise ArithmeticError(f"CIM-LP of {jobs} jobs: {result.message}")
    return result


def _rows(
    job: Ints, slot: Ints, seconds: Floats, limit: Floats, *, makespan: bool = False
) -> "tuple[scipy.sparse.csr_array, Floats]":
    """Return the rows of constraint (1aL), or (1a'), one per accelerator in use, and their limits."""
    used, row = np.unique(slot, return_inverse=True)
    columns = np.arange(len(job))
    if makespan:
        seconds = np.append(seconds, np.full(len(used), -1.0))
        row = np.append(row, np.arange(len(used)))
        columns = np.append(columns, np.full(len(used), len(job)))
    shape = (len(used), len(job) + makespan)
    return scipy.sparse.coo_array((seconds, (row, columns)), shape=shape).tocsr(), limit[used]


def _once(job: Ints) -> "scipy.sparse.csr_array":
    """Return the rows of constraint (1bL): the shares of each job add up to one."""
    once: scipy.sparse.csr_array = scipy.sparse.coo_array((np.ones(len(job)), (job, np.arange(len(job))))).tocsr()
    return once


def _relaxed(seconds: float, job: Ints, slot: Ints, share: Floats) -> Relaxed:
    kept = share > _NOISE
    return Relaxed(seconds, job[kept], slot[kept], share[kept])
