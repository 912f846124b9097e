"""`exact`: the shortest schedule of a few multi-FPGA tasks, with the proof that none is shorter."""

import numpy as np

from fpga_pool.core.integer import ExactPolicy
from fpga_pool.core.lattice.exact_model import Model
from fpga_pool.core.lattice.plus import LatticePlus, LatticePlusParams
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.policy import PolicyState

#: Of the search for the schedule to begin with.
_EFFORT = 10


class Exact(ExactPolicy):
    """A reference for the other policies: solves a mixed integer programme, for as long as that takes.

    It begins with the schedule of `lattice_plus`, and looks for a shorter one until it is proven that there is none,
    but for `gap`, or the time is over: then it returns the best one found, and `bound_tight_s` is what is proven.
    """

    def prepare(self) -> None:
        """Compile what the first schedule needs, or load it."""
        LatticePlus().prepare()

    def decide(self, view: TaskProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> TaskSchedule:
        """Schedule all tasks; deterministic where the search is limited by effort.

        Raises
        ------
        ValueError
            Where a task fits in no enclosure, the problem is too large or not in the model, or no solver is installed.

        """
        _require_modelled(view)
        known = LatticePlus(LatticePlusParams(effort=_EFFORT)).decide(view, None, now_s, rng)
        horizon_s, gap = known.wct_s, self._params.gap
        self._tell(horizon_s, known.bound_tight_s)
        if view.tasks == 0 or horizon_s * (1 - gap) <= known.bound_tight_s:
            return known
        model = Model(view, horizon_s, horizon_s * (1 - gap), known.bound_tight_s)
        self._params.require_few(model.unknowns)
        found, bound_s = model.solve(self._limits(horizon_s))
        best = known if found is None or found.wct_s >= horizon_s else found
        bound_s = max(known.bound_tight_s, min(bound_s, horizon_s * (1 - gap)))
        return TaskSchedule(
            enclosure=best.enclosure, shape=best.shape, begin_s=best.begin_s, end_s=best.end_s,
            member_begin=best.member_begin, members=best.members,
            bound_paper_s=known.bound_paper_s, bound_tight_s=min(bound_s, best.wct_s),
        )  # fmt: skip


def _require_modelled(problem: TaskProblem) -> None:
    """Raise a ValueError where functions are loaded for some tasks and others keep what is there."""
    if problem.load_s > 0 and (problem.function >= 0).any() and (problem.function < 0).any():
        raise ValueError("function: with load_s all tasks need one, or none; what stays loaded is not in the model")
