"""`exact`: the shortest plan of a small batch, with the proof that none is shorter."""

from dataclasses import replace

import numpy as np

from fpga_pool.core.integer import ExactPolicy
from fpga_pool.core.makespan.bounds import LowerBound
from fpga_pool.core.makespan.execution import as_plan
from fpga_pool.core.makespan.search.best import Makespan, plan
from fpga_pool.core.makespan.search.exact_models import balance, is_balance, sequence, unknowns
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem


class Exact(ExactPolicy):
    """A reference for the other policies that solves mixed integer programs, however long that takes.

    It begins with the plan of `makespan` and searches for shorter ones until the best is proven optimal, up to `gap`,
    or the limit is reached.  It returns the best plan found and the proven lower bound.
    """

    def prepare(self) -> None:
        """Compile the code that the first plan needs, or load it from the cache."""
        Makespan().prepare()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic if the search is limited by effort.

        Raises ValueError if the batch has several fairness groups or has results, is too large, or if no solver is
        installed.
        """
        _require_modelled(view)
        self._params.require_few(unknowns(view))
        known = plan(view, rng=rng)
        self._report_progress(known.makespan_s, known.lower_bound_s)
        if known.makespan_s * (1 - self._params.gap) <= known.lower_bound_s:
            return replace(known, policy=self.name)
        horizon_s = known.makespan_s
        search = balance if is_balance(view) else sequence
        found = search(view, horizon_s, self._limits(horizon_s), known.lower_bound_s)
        bound_s = min(found.bound_s, horizon_s * (1 - self._params.gap))
        if view.head_start_s > 0 and view.load_s.any():
            bound_s = known.lower_bound_s  # the programs let loads begin at time 0, but a pool begins them earlier
        if found.schedule is None or found.schedule.makespan_s >= horizon_s:
            best = replace(known, policy=self.name, lower_bound_s=max(known.lower_bound_s, bound_s))
        else:
            best = as_plan(view, found.schedule, LowerBound(max(known.lower_bound_s, bound_s)), self.name)
        if best.lower_bound_s == known.lower_bound_s:
            best = replace(best, bound_prices=known.bound_prices)
        return best


def _require_modelled(problem: BatchProblem) -> None:
    """Raise a ValueError if a batch has features that the programs do not model."""
    if (problem.group != problem.group[:1]).any():
        raise ValueError(
            "group: more than one fairness group, whose order the makespan does not determine; plan each separately"
        )
    if problem.output_bytes.any():
        raise ValueError("output_bytes: the model does not include the transfer of results")
