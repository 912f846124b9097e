"""`lattice_plus`, the default for multi-FPGA tasks: the shortest schedule that a given effort finds."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from fpga_pool.core.lattice.bounds import paper_bound_s, tight_bound_s
from fpga_pool.core.lattice.listing import Placed, loops
from fpga_pool.core.lattice.paper import Fifo, Heft, HeftShortest, Lattice, ListPolicy, Mfit
from fpga_pool.core.lattice.search import TaskSearch
from fpga_pool.core.lattice.shapes import allotted_shapes
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.weighing import weigh
from fpga_pool.core.makespan.budget import Budget, Clock
from fpga_pool.core.policy import PolicyState

#: Share of the seconds in which a step of the search may begin; the rest is for that step and for writing down.
_SEARCHING = 0.85
#: Share of the budget for weights of classes where functions are loaded; the rest is for changes of single tasks.
_WEIGHING = 0.25
#: The policies that are never better, because their schedules are looked at first.
BASELINES: tuple[type[ListPolicy], ...] = (Fifo, Heft, HeftShortest, Mfit, Lattice)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatticePlusParams:
    """Parameters of `lattice_plus`."""

    effort: int = field(
        default=1000,
        metadata={"min": 0, "help": "Work to search, about a millisecond per unit; the same result each time."},
    )
    time_limit_s: float = field(
        default=0.0, metadata={"min": 0.0, "help": "Seconds to search instead, where a clock is given; 0 = by effort."}
    )

    def __post_init__(self) -> None:
        if not isinstance(self.effort, int) or self.effort < 0:
            raise ValueError(f"effort: expected a whole number, 0 or more, got {self.effort!r}")
        if not 0 <= self.time_limit_s < np.inf:
            raise ValueError(f"time_limit_s: expected a number, 0 or more, got {self.time_limit_s!r}")


class LatticePlus:
    """The shortest schedule found by the policies of the paper and by a search that begins with theirs; anytime.

    No schedule is longer than those of `BASELINES`, however little effort or time there is: theirs are always made.
    """

    name = "lattice_plus"
    Params: ClassVar[type[LatticePlusParams]] = LatticePlusParams

    def __init__(self, params: LatticePlusParams | None = None, clock: Clock | None = None) -> None:
        self._params, self._clock = params or LatticePlusParams(), clock

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Clock) -> "LatticePlus":
        """Return this policy with another budget: of work, or of seconds by `clock`; as before where both are None."""
        if effort is not None:
            return LatticePlus(replace(self._params, effort=effort, time_limit_s=0.0))
        return LatticePlus(replace(self._params, time_limit_s=time_limit_s or self._params.time_limit_s), clock)

    def prepare(self) -> None:
        """Compile what scheduling needs, or load it from the cache of an earlier run."""
        loops()
        for problem in _SMALL:
            LatticePlus(LatticePlusParams(effort=20)).decide(problem, None, 0.0, np.random.default_rng(0))

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic where the search is limited by effort.

        Raises
        ------
        ValueError
            Where a task fits in no enclosure.

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
        """Return the shortest schedule that a search finds from one on."""
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
    """Return a problem that makes the search compile everything it may need."""
    fpgas = [3, 2, 2, 1, 1]
    arrays: dict[str, object] = {
        "enclosure_fpgas": [3, 2], "enclosure_links": [1, 2], "shape_begin": range(6), "shape_fpgas": fpgas,
        "shape_seconds": [2.0, 2.5, 3.0, 1.5, 4.0], "links": [1, 2, 0, 1, 1],
    }  # fmt: skip
    return TaskProblem(**(arrays | changes))  # type: ignore[arg-type]


#: One that is searched forwards, and one where functions are loaded.
_SMALL = (_small(), _small(function=[0, 1, 0, 1, 0], load_s=0.5))
