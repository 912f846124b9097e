"""`lattice_plus`, the default policy for tasks: the shortest schedule found with a given effort.

It begins with the schedules of the paper's policies and improves the best by `search`.  If enclosures are too large for
its loops, or if functions have to be loaded, `weigh` searches instead, or first: it finds weights for classes of tasks
that determine the order in which list scheduling takes the tasks.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.listing import ListScheduler, Placed, allotted_shapes, kinds, loops, thrifty_shapes
from fpga_pool.core.lattice.paper import Fifo, Heft, HeftShortest, Lattice, ListPolicy, Mfit
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.makespan.search.budget import Budget, Clock
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats, Ints

# ---- Search for weights of classes

#: Pairs of `Budget` that placing a task costs.
_PAIRS_PER_TASK = 1_000
#: Initial weights of a class per logarithm of its width, for hill climbs; the logarithm of a task's length weighs 1.
_WIDTH_POWERS = (1.0, 0.0, 0.5, 2.0, 4.0, 20.0)
#: Shapes of malleable tasks to try: those with the fewest FPGA-seconds that take at most this share of the bound.
_TIME_SHARES = (1.0, 0.5, 0.25)
#: Share of the remaining budget for the first part of all climbs; the best one continues.
_BEGINNING = 0.4
#: Initial size of changes, the factor applied after a number of failures, and that number; below the minimum, the size
#: is reset.
_FIRST, _SHRINK, _IN_VAIN, _LEAST = 1.0, 0.7, 8, 0.01
#: Average number of weights that are changed at a time, besides one that always is.
_CHANGED = 2.0
_SAME = 1e-12


def weigh(problem: TaskProblem, start: Placed, bound_s: float, budget: Budget, rng: np.random.Generator) -> Placed:
    """Return the shortest schedule found, `start` if none is shorter; `bound_s` is a lower bound on all schedules."""
    shapes = [start.shape]
    if not problem.rigid:
        shapes += [thrifty_shapes(problem, share * bound_s) for share in _TIME_SHARES]
    for number, shape in enumerate(shapes):
        part = budget.part(1 / (len(shapes) - number))
        start = _Climbs(problem, shape, start, bound_s, part, rng).run()
    return start


class _Climbs:
    """Hill climbs with fixed shapes of the tasks; `best` is the shortest schedule known so far for any shapes."""

    def __init__(
        self, problem: TaskProblem, shape: Ints, best: Placed, bound_s: float, budget: Budget, rng: np.random.Generator
    ) -> None:
        self._problem, self._best, self._budget, self._rng = problem, best, budget, rng
        self._best_s, self._listing = best.wct_s, ListScheduler(problem, shape)
        self._enough_s = bound_s * (1 + _SAME)
        self._class, self._class_width = _classes(problem, problem.shape_fpgas[shape])
        self._log_s = np.log(np.maximum(problem.shape_seconds[shape], 1e-300))

    def run(self) -> Placed:
        """Climb from each of the simple weights for a while, then continue the best climb."""
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
        return self._best_s <= self._enough_s or not self._budget.allows()

    def _end_s(self, weights: Floats) -> float:
        """Return the end of the schedule for weights (2, C): per class, and per logarithm of a task's seconds."""
        urgency = weights[0, self._class] + weights[1, self._class] * self._log_s
        placed = self._listing.schedule(np.argsort(-urgency, kind="stable"))
        self._budget.spend(_PAIRS_PER_TASK * self._problem.tasks)
        end_s = placed.wct_s
        if end_s < self._best_s:
            self._best, self._best_s = placed, end_s
        return end_s

    def _climb(self, weights: Floats, end_s: float, budget: Budget) -> tuple[float, Floats]:
        """Change weights at random and keep changes that do not end later; return the end and the weights."""
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
    """Return (T,) the class of each task (FPGAs, links, and function if loads take time) and (C,) their widths."""
    kind, _, kind_width = kinds(problem.links, width)
    if problem.load_s == 0:
        return kind, kind_width
    key = kind * (problem.function.max(initial=0) + 2) + problem.function + 1
    _, first, of_task = np.unique(key, return_index=True, return_inverse=True)
    return of_task, width[first]


# ---- The policy

#: Share of the time limit in which a step of the search may begin; the rest is for that step and for the result.
_SEARCHING = 0.85
#: Share of the budget for weights of classes if functions are loaded; the rest is for changes of single tasks.
_WEIGHING = 0.25
#: Policies whose schedules are never shorter, because the search starts from the best of them.
BASELINES: tuple[type[ListPolicy], ...] = (Fifo, Heft, HeftShortest, Mfit, Lattice)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticePlusParams(Parameters):
    """Parameters of `lattice_plus`."""

    effort: int = parameter(1000, "Search effort, about a millisecond per unit; results are reproducible.", min=0)
    time_limit_s: float = parameter(0.0, "Search time in seconds instead, if a clock is given; 0 = by effort.", min=0.0)


class LatticePlus:
    """Anytime policy: the best schedule of the paper's policies, improved by a search.

    Its schedules are never longer than those of `BASELINES`, however small the budget is, as these are always computed.
    """

    name = "lattice_plus"
    Params: ClassVar[type[LatticePlusParams]] = LatticePlusParams

    def __init__(self, params: LatticePlusParams | None = None, clock: Clock | None = None) -> None:
        self._params, self._clock = params or LatticePlusParams(), clock

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Clock) -> "LatticePlus":
        """Return this policy with another budget of work, or of seconds by `clock`; unchanged if both are None."""
        if effort is not None:
            return LatticePlus(replace(self._params, effort=effort, time_limit_s=0.0))
        return LatticePlus(replace(self._params, time_limit_s=time_limit_s or self._params.time_limit_s), clock)

    def prepare(self) -> None:
        """Compile the code that scheduling needs, or load it from the cache of an earlier run."""
        loops()
        for problem in _SMALL:
            LatticePlus(LatticePlusParams(effort=20)).decide(problem, None, 0.0, np.random.default_rng(0))

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic if the search is limited by effort.

        Raises ValueError if a task fits in no enclosure.
        """
        budget = Budget(
            effort=self._params.effort, time_limit_s=_SEARCHING * self._params.time_limit_s, clock=self._clock
        )
        bound_s = tight_bound_s(view)
        placed = self._best_baseline(view)
        if view.tasks and placed.wct_s > bound_s:
            placed = self._searched(view, placed, bound_s, budget, rng)
        return TaskSchedule(
            enclosure=placed.enclosure, shape=placed.shape, begin_s=placed.begin_s, end_s=placed.end_s,
            member_begin=placed.member_begin, members=placed.members,
            bound_paper_s=paper_bound_s(view), bound_tight_s=bound_s,
        )  # fmt: skip

    @staticmethod
    def _searched(
        problem: TaskProblem, placed: Placed, bound_s: float, budget: Budget, rng: np.random.Generator
    ) -> Placed:
        """Return the shortest schedule found by a search that starts from `placed`."""
        from fpga_pool.core.lattice.search import TaskSearch

        seed = int(rng.integers(1 << 31))
        reached = TaskSearch.supports(problem)
        if not reached or problem.load_s > 0:
            placed = weigh(problem, placed, bound_s, budget.part(_WEIGHING) if reached else budget, rng)
        if reached:
            placed = min(placed, TaskSearch(problem, placed, bound_s, budget, seed).run(), key=lambda each: each.wct_s)
        return placed

    @staticmethod
    def _best_baseline(problem: TaskProblem) -> Placed:
        shape = allotted_shapes(problem)
        return min((policy().place(problem, shape, None) for policy in BASELINES), key=lambda placed: placed.wct_s)


def _small(**changes: object) -> TaskProblem:
    """Return a small problem whose search compiles all code that a search may need."""
    fpgas = [3, 2, 2, 1, 1]
    arrays: dict[str, object] = {
        "enclosure_fpgas": [3, 2], "enclosure_links": [1, 2], "shape_begin": range(6), "shape_fpgas": fpgas,
        "shape_seconds": [2.0, 2.5, 3.0, 1.5, 4.0], "links": [1, 2, 0, 1, 1],
    }  # fmt: skip
    return TaskProblem(**(arrays | changes))  # type: ignore[arg-type]


#: A problem that is searched in forward time, and one in which functions are loaded.
_SMALL = (_small(), _small(function=[0, 1, 0, 1, 0], load_s=0.5))
