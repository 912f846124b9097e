"""Rebalancing: move jobs away from the accelerator that ends last, with few changes to a plan that was good before."""

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.makespan.execution import Schedule
from fpga_pool.core.makespan.search.budget import Budget
from fpga_pool.core.types import BatchProblem, Floats, Ints

#: A step must shorten the makespan by at least this share, so that rounding cannot cause an endless loop.
_LEAST = 1e-9
#: Numbers of accelerators in the wider changes, which are tried in this order.
_WIDTHS = (8, 32, 128, 512)
#: Cost of a pair in one step, in pairs of the compiled loops, the unit of work.
_PAIR_COST = 20


def balance(
    problem: BatchProblem, start: Schedule, movable: NDArray[np.bool_], enough_s: float, budget: Budget
) -> Ints:
    """Return (J,) the accelerator of each job after moves and exchanges of `movable` (J,) jobs, then wider changes.

    The ends of queues are estimates: a moving input is assumed to have all bandwidth to itself, and if a job leaves a
    queue, so does the wait for its input.  The caller computes the exact times and compares with `start`.  The search
    ends at a makespan of `enough_s`.
    """
    best = _queues(problem, start, movable)
    best.descend(enough_s, budget)
    for width in _WIDTHS:
        if best.longest_s <= enough_s or not budget.allows():
            break
        found = best.rebuilt(width, budget)
        found.descend(enough_s, budget)
        if found.longest_s < best.longest_s * (1 - _LEAST):
            best = found
    return best.accelerator


def _queues(problem: BatchProblem, start: Schedule, movable: NDArray[np.bool_]) -> "_Queues":
    jobs, accelerator = np.arange(problem.jobs), np.array(start.accelerator)
    ends_s = start.start_s + problem.seconds[jobs, accelerator]
    by_end = np.lexsort((ends_s, accelerator))
    first = np.append(True, np.diff(accelerator[by_end]) > 0)[: len(by_end)]
    before_s = np.where(first, problem.ready_s[accelerator[by_end]], np.roll(ends_s[by_end], 1))
    own_s = np.zeros(problem.jobs)
    own_s[by_end] = np.maximum(ends_s[by_end] - before_s, 0.0)
    end_s = np.array(problem.ready_s)
    np.maximum.at(end_s, accelerator, ends_s)
    return _Queues(problem, movable, accelerator, own_s, end_s)


class _Queues:
    """Accelerators of the jobs (J,), seconds that each adds to its queue including waits (J,), ends of queues (A,)."""

    def __init__(
        self, problem: BatchProblem, movable: NDArray[np.bool_], accelerator: Ints, own_s: Floats, end_s: Floats
    ) -> None:
        self._problem, self._movable = problem, movable
        self.accelerator, self._own_s, self._end_s = accelerator, own_s, end_s

    @property
    def last(self) -> int:
        """The accelerator that ends last, of those with jobs of the plan; running jobs are not part of the plan."""
        used = np.bincount(self.accelerator, minlength=len(self._end_s)) > 0
        return int(np.argmax(np.where(used, self._end_s, -np.inf)))

    @property
    def longest_s(self) -> float:
        """The time when that accelerator ends."""
        return float(self._end_s[self.last])

    def descend(self, enough_s: float, budget: Budget) -> None:
        """Move or exchange jobs of the accelerator that ends last, while that helps."""
        while budget.allows():
            last = self.last
            rows = np.flatnonzero(self._movable & (self.accelerator == last))
            if self._end_s[last] <= enough_s or len(rows) == 0:
                break
            budget.spend(_PAIR_COST * len(rows) * self._problem.accelerators)
            if self._move(rows, last):
                continue
            others = np.flatnonzero(self._movable & (self.accelerator != last))
            budget.spend(_PAIR_COST * len(rows) * len(others))
            if not self._exchange(rows, others, last):
                break

    def rebuilt(self, width: int, budget: Budget) -> "_Queues":
        """Return the queues after placing all movable jobs of `last` and the `width` best accelerators again."""
        problem, jobs, last = self._problem, np.flatnonzero(self._movable), self.last
        rows = jobs[self.accelerator[jobs] == last]
        if len(rows) == 0:
            return self
        fixed_s = self._end_s - np.bincount(self.accelerator[jobs], self._own_s[jobs], problem.accelerators)
        score_s = (fixed_s + problem.seconds[rows]).min(axis=0)
        chosen = np.append(np.argsort(score_s, kind="stable")[:width], last)
        moving = jobs[np.isin(self.accelerator[jobs], chosen)]
        moving = moving[np.argsort(-problem.seconds[moving].min(axis=1), kind="stable")]
        budget.spend(_PAIR_COST * len(moving) * problem.accelerators)
        accelerator, own_s, end_s = self.accelerator.copy(), self._own_s.copy(), self._end_s.copy()
        end_s[chosen] = fixed_s[chosen]
        arrivals_s = earliest_arrivals_s(problem, moving)
        costs_s = problem.seconds[moving] + _loads_s(problem, moving)
        for job, arrives_s, cost_s in zip(moving.tolist(), arrivals_s, costs_s, strict=True):
            there_s = np.maximum(end_s, arrives_s) + cost_s
            to = int(there_s.argmin())
            own_s[job] = there_s[to] - end_s[to]
            accelerator[job], end_s[to] = to, there_s[to]
        return _Queues(problem, self._movable, accelerator, own_s, end_s)

    def _move(self, rows: Ints, last: int) -> bool:
        """Move one of the jobs `rows` (n,) from `last` so that both accelerators end soonest; False if none helps."""
        problem, end_s = self._problem, self._end_s
        there_s = np.maximum(end_s, earliest_arrivals_s(problem, rows)) + problem.seconds[rows]
        there_s += _loads_s(problem, rows)
        there_s[:, last] = np.inf
        to = there_s.argmin(axis=1)
        here_s = end_s[last] - self._own_s[rows]
        there_s = there_s[np.arange(len(rows)), to]
        chosen = int(np.maximum(there_s, here_s).argmin())
        if max(there_s[chosen], here_s[chosen]) >= end_s[last] * (1 - _LEAST):
            return False
        self._put(int(rows[chosen]), int(to[chosen]), there_s[chosen] - end_s[to[chosen]])
        end_s[to[chosen]], end_s[last] = there_s[chosen], here_s[chosen]
        return True

    def _exchange(self, rows: Ints, others: Ints, last: int) -> bool:
        """Exchange one of the jobs `rows` (n,) on accelerator `last` for one of `others` (m,); False if none helps."""
        if len(others) == 0:
            return False
        problem, end_s, own_s = self._problem, self._end_s, self._own_s
        to = self.accelerator[others]
        here_s = end_s[last] - own_s[rows][:, None] + problem.seconds[others, last]
        left_s = end_s[to] - own_s[others]
        there_s = np.maximum(left_s, earliest_arrivals_s(problem, rows)[:, to]) + problem.seconds[np.ix_(rows, to)]
        longer_s = np.maximum(here_s, there_s)
        row, other = np.unravel_index(int(longer_s.argmin()), longer_s.shape)
        if longer_s[row, other] >= end_s[last] * (1 - _LEAST):
            return False
        self._put(int(rows[row]), int(to[other]), there_s[row, other] - left_s[other])
        self._put(int(others[other]), last, problem.seconds[others[other], last])
        end_s[last], end_s[to[other]] = here_s[row, other], there_s[row, other]
        return True

    def _put(self, job: int, slot: int, own_s: float) -> None:
        self.accelerator[job], self._own_s[job] = slot, own_s


def _loads_s(problem: BatchProblem, rows: Ints) -> Floats:
    """Return (n, A) the load time of each job's function; 0 if the accelerator holds it now."""
    if not problem.load_s.any():
        return np.zeros((1, 1))
    loads_s: Floats = np.where(problem.function[rows, None] != problem.loaded, problem.load_s, 0.0)
    return loads_s


def earliest_arrivals_s(problem: BatchProblem, jobs: Ints) -> Floats:
    """Return (n, A) the times when inputs of `jobs` (n,) would arrive if each had all bandwidth to itself."""
    requester = problem.requester[jobs, None]
    best_bps = np.minimum(problem.egress_bps[requester], problem.ingress_bps[problem.responder])
    alone_s = np.where(
        problem.local_host[requester] == problem.responder, 0.0, 8.0 * problem.input_bytes[jobs, None] / best_bps
    )
    arrivals_s: Floats = problem.release_s[jobs, None] + alone_s
    return arrivals_s
