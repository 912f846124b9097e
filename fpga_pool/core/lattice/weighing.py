"""A search that any problem allows: weights of classes, by which tasks are scheduled in order of events.

It stands in where `search` does not reach: enclosures too large for its loops, and functions that have to be loaded,
which `search` only places one after the other.
"""

import numpy as np

from fpga_pool.core.lattice.listing import Placed, kinds, list_schedule
from fpga_pool.core.lattice.shapes import thrifty_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.makespan.budget import Budget
from fpga_pool.core.types import Floats, Ints

#: Pairs of `Budget` that placing a task costs.
_PAIRS_PER_TASK = 1_000
#: Weight of a class per logarithm of its width, where climbs begin; the length of a task weighs 1 per logarithm.
_WIDTH_POWERS = (1.0, 0.0, 0.5, 2.0, 4.0, 20.0)
#: Shapes of malleable tasks to try: the thriftiest that takes at most this share of the bound.
_TIME_SHARES = (1.0, 0.5, 0.25)
#: Share of what is left for the beginnings of climbs; the shortest goes on.
_BEGINNING = 0.4
#: Size of changes at first, and by what it shrinks after so many in vain; it begins again below the least.
_FIRST, _SHRINK, _IN_VAIN, _LEAST = 1.0, 0.7, 8, 0.01
#: Classes that change at a time, on average.
_CHANGED = 2.0
_SAME = 1e-12


def weigh(problem: TaskProblem, start: Placed, bound_s: float, budget: Budget, rng: np.random.Generator) -> Placed:
    """Return the shortest schedule found; `start` where none is shorter.

    Parameters
    ----------
    problem, start
        The tasks, and a schedule of them.
    bound_s
        An end that no schedule beats.
    budget
        How much to try.
    rng
        Source of all changes.

    """
    shapes = [start.shape]
    if not problem.rigid:
        shapes += [thrifty_shapes(problem, share * bound_s) for share in _TIME_SHARES]
    for number, shape in enumerate(shapes):
        part = budget.part(1 / (len(shapes) - number))
        start = _Climbs(problem, shape, start, bound_s, part, rng).run()
    return start


class _Climbs:
    """Climbs with tasks in some shapes, from the shortest schedule known so far in any."""

    def __init__(
        self,
        problem: TaskProblem,
        shape: Ints,
        best: Placed,
        bound_s: float,
        budget: Budget,
        rng: np.random.Generator,
    ) -> None:
        self._problem, self._shape, self._best, self._budget, self._rng = problem, shape, best, budget, rng
        self._enough_s = bound_s * (1 + _SAME)
        self._class, self._class_width = _classes(problem, problem.shape_fpgas[shape])
        self._log_s = np.log(np.maximum(problem.shape_seconds[shape], 1e-300))

    def run(self) -> Placed:
        """Climb from each of the simple weights for a while, then on from the best of them."""
        logs, ones = np.log(self._class_width), np.ones(len(self._class_width))
        found: list[tuple[float, Floats]] = []
        part = self._budget.part(_BEGINNING)
        for number, power in enumerate(_WIDTH_POWERS):
            if found and self._done():
                return self._best
            weights = np.stack((power * logs, ones))
            found.append(self._climb(weights, self._end_s(weights), part.part(1 / (len(_WIDTH_POWERS) - number))))
        end_s, weights = min(found, key=lambda climb: climb[0])
        self._climb(weights, end_s, self._budget)
        return self._best

    def _done(self) -> bool:
        return self._best.wct_s <= self._enough_s or not self._budget.allows()

    def _end_s(self, weights: Floats) -> float:
        """Schedule by weights (2, C): of each class, and of a task's logarithm of seconds there."""
        urgency = weights[0, self._class] + weights[1, self._class] * self._log_s
        placed = list_schedule(self._problem, self._shape, np.argsort(-urgency, kind="stable"))
        self._budget.spend(_PAIRS_PER_TASK * self._problem.tasks)
        if placed.wct_s < self._best.wct_s:
            self._best = placed
        return placed.wct_s

    def _climb(self, weights: Floats, end_s: float, budget: Budget) -> tuple[float, Floats]:
        """Change weights at random, and keep what ends no later; return the end, and the weights."""
        size, in_vain = _FIRST, 0
        while budget.allows() and not self._done():
            chosen = self._rng.random(weights.shape) < _CHANGED / weights.size
            chosen[self._rng.integers(2), self._rng.integers(weights.shape[1])] = True
            changed = np.where(chosen, weights + size * self._rng.standard_normal(weights.shape), weights)
            changed_s = self._end_s(changed)
            in_vain = 0 if changed_s < end_s else in_vain + 1
            if changed_s <= end_s:
                weights, end_s = changed, changed_s
            if in_vain == _IN_VAIN:
                size, in_vain = (size * _SHRINK if size > _LEAST else _FIRST), 0
        return end_s, weights


def _classes(problem: TaskProblem, width: Ints) -> tuple[Ints, Ints]:
    """Return (T,) the class of each task and (C,) the width of each: what it asks for, and what has to be loaded."""
    kind, _, kind_width = kinds(problem.links, width)
    if problem.load_s == 0:
        return kind, kind_width
    key = kind * (problem.function.max(initial=0) + 2) + problem.function + 1
    _, first, of_task = np.unique(key, return_index=True, return_inverse=True)
    return of_task, width[first]
