"""`makespan`, the default batch policy: the shortest plan that a given effort finds, with a proven bound."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fpga_pool.core.makespan.assignment import Assignment, earliest_completion, improve
from fpga_pool.core.makespan.baselines import Ljf, Sjf
from fpga_pool.core.makespan.bounds import compute_bound, raised, simple_bound
from fpga_pool.core.makespan.budget import Budget, Clock
from fpga_pool.core.makespan.compiled import compile_all, go_without, kernels, missed
from fpga_pool.core.makespan.ect import Ect, largest_first
from fpga_pool.core.makespan.execution import Schedule, as_plan, schedule
from fpga_pool.core.makespan.fluid import Segments
from fpga_pool.core.makespan.forwards import place_ahead, transmit_in_order
from fpga_pool.core.makespan.network import constant_rates, is_network_bound, place_for_network
from fpga_pool.core.makespan.quick import fitting_effort, quick_plan
from fpga_pool.core.makespan.replan import Replan, ReplanParams, replan
from fpga_pool.core.makespan.reversed_time import ReversedSearch, can_reverse
from fpga_pool.core.makespan.underway import Underway
from fpga_pool.core.policy import Policy, PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints

#: Simple planners whose plans are looked at where ours is far from the bound or the batch is small.
_OTHERS: tuple[type[Policy[BatchProblem, BatchPlan]], ...] = (Ect, Sjf, Ljf)
#: Far from the bound; small, in pairs of job and accelerator; too large for the simple planners.
_FAR, _SMALL_PAIRS, _LARGE_PAIRS = 1.2, 5_000, 500_000


#: Work to search anew around what is under way: it is done again and again.
_REPLAN_EFFORT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MakespanParams:
    """Knobs of `makespan`."""

    #: About a third of a second of search for 1000 jobs on 100 accelerators, after which little more is found.
    effort: int = field(
        default=300,
        metadata={"min": 0, "help": "Work to search, in millions of job-accelerator pairs; the same result each time."},
    )
    time_limit_s: float = field(
        default=0.0, metadata={"min": 0.0, "help": "Seconds to search instead, where a clock is given; 0 = by effort."}
    )
    #: What the benchmarks of this package can tell from optimal.
    gap: float = field(
        default=1e-5, metadata={"min": 0.0, "help": "Relative distance to the proven bound that ends the search."}
    )

    def __post_init__(self) -> None:
        if not isinstance(self.effort, int) or self.effort < 0:
            raise ValueError(f"effort: expected a whole number, 0 or more, got {self.effort!r}")
        for name in ("time_limit_s", "gap"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}: expected a number, 0 or more, got {getattr(self, name)!r}")


class Makespan:
    """Picks by itself among compute-bound, network-bound and joint planning; anytime; never worse than simple rules."""

    name = "makespan"
    Params = MakespanParams

    def __init__(self, params: MakespanParams | None = None, clock: Clock | None = None, share: float = 0.0) -> None:
        self._params, self._clock, self._share = params or MakespanParams(), clock, share

    def supports(self, view: BatchProblem) -> bool:
        """Every batch."""
        return True

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Clock) -> "Makespan":
        """Return this policy with another budget: of work, or of seconds by `clock`; as before where both are None."""
        if effort is not None:
            return Makespan(replace(self._params, effort=effort, time_limit_s=0.0))
        return Makespan(replace(self._params, time_limit_s=time_limit_s or self._params.time_limit_s), clock)

    def sparing(self, share: float) -> "Makespan":
        """Return this policy with so little effort that planning takes at most about a share of what a batch does.

        A batch that is over in a moment gets `quick_plan`.
        """
        return Makespan(self._params, self._clock, share)

    def prepare(self) -> None:
        """Compile what planning needs, or load it from the cache of an earlier run."""
        compile_all()

    def put_off_preparing(self) -> None:
        """Have no plan wait for what `prepare` does: until that has ended, plans are made without."""
        go_without()

    @property
    def unprepared(self) -> bool:
        """Plans would be made quicker if `prepare` had been called."""
        return missed()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic where the search is limited by effort."""
        if self._share == 0.0:
            return plan(view, self._params, rng, self._clock)
        effort = fitting_effort(view, self._share, self._params.effort)
        if effort == 0:
            return quick_plan(view, self.name)
        return plan(view, replace(self._params, effort=effort), rng, self._clock)

    def replan(self, underway: Underway, rng: np.random.Generator) -> Replan:
        """Plan what does not compute yet anew, as far as that pays; see `replan`."""
        effort = self._params.effort
        if self._share > 0.0:
            effort = fitting_effort(underway.problem, self._share, effort)
        params = ReplanParams(effort=min(effort, ReplanParams().effort))
        search = replace(self._params, effort=min(effort, _REPLAN_EFFORT))
        # Without kernels a search takes so long that the plan is out of date when it is made.
        compiled = kernels() is not None
        return replan(underway, params, (lambda problem: plan(problem, search, rng)) if compiled else None)


def plan(
    problem: BatchProblem,
    params: MakespanParams | None = None,
    rng: np.random.Generator | None = None,
    clock: Clock | None = None,
) -> BatchPlan:
    """Return the shortest plan found for a batch, with the bound that no plan can be below.

    Parameters
    ----------
    problem
        The batch; `BatchProblem` documents its arrays.
    params
        How long to search, and how near the bound is near enough.
    rng
        Source of all random choices; seed 0 without one.
    clock
        Seconds by any steady clock; needed for `time_limit_s`.

    """
    params = params or MakespanParams()
    if problem.jobs == 0:
        return as_plan(problem, _nothing_to_do(), simple_bound(problem), Makespan.name)
    budget = Budget(effort=params.effort, time_limit_s=params.time_limit_s, clock=clock)
    search = _Search(problem, params.gap, budget, rng or np.random.default_rng(0))
    return search.run()


class _Search:
    """Takes schedules from one planner after the other until one is as short as the bound allows."""

    def __init__(self, problem: BatchProblem, gap: float, budget: Budget, rng: np.random.Generator) -> None:
        self._problem, self._gap, self._budget, self._rng = problem, gap, budget, rng
        self._order = largest_first(problem)
        self._best: Schedule | None = None
        self._bound = simple_bound(problem)
        self._prices: Floats | None = None

    def run(self) -> BatchPlan:
        """Return the shortest plan."""
        for found in self._schedules():
            if self._best is None or found.makespan_s < self._best.makespan_s:
                self._best = found
            if self._best.makespan_s <= self._bound.seconds * (1 + self._gap):
                break
        assert self._best is not None  # noqa: S101
        return as_plan(self._problem, self._best, self._bound, Makespan.name)

    def _schedules(self) -> Iterator[Schedule]:
        problem = self._problem
        if is_network_bound(problem):
            yield self._network()
        elif _only_computes(problem):
            start = earliest_completion(problem.seconds, self._order, problem.ready_s)
            yield self._forwards(start.machine)
            yield self._assigned(start, self._budget)
        else:
            yield from self._joint()
        yield from self._simple()

    def _joint(self) -> Iterator[Schedule]:
        yield self._forwards(place_ahead(self._problem, self._order))
        links_first = self._bound.seconds
        self._price()
        compute_s = self._bound.seconds
        if compute_s > links_first or self._problem.load_s.any():
            start = earliest_completion(self._problem.seconds, self._order, self._problem.ready_s)
            yield self._assigned(start, self._budget.part(0.3))
        if can_reverse(self._problem):
            yield from self._backwards()

    def _network(self) -> Schedule:
        problem = self._problem
        accelerator = place_for_network(problem, self._bound.seconds, self._gap, self._budget, self._rng)
        return schedule(problem, accelerator, self._order, constant_rates(problem, accelerator))

    def _assigned(self, start: Assignment, budget: Budget) -> Schedule:
        """Balance compute alone."""
        problem, prices = self._problem, self._price()
        enough_s = self._bound.seconds * (1 + self._gap)
        best = improve(problem.seconds, self._order, problem.ready_s, prices, start, enough_s, budget, self._rng)
        return self._forwards(best.machine)

    def _forwards(self, accelerator: Ints) -> Schedule:
        """Send the longest tail first; on each slot, jobs of one function follow each other where loads take time."""
        problem, order = self._problem, self._order
        if problem.load_s.any():
            cold = problem.function != problem.loaded[accelerator]
            order = order[np.lexsort((problem.function[order], cold[order], problem.group[order]))]
        return schedule(problem, accelerator, order, transmit_in_order(problem, accelerator, order))

    def _backwards(self) -> Iterator[Schedule]:
        problem = self._problem
        search = ReversedSearch(problem, self._bound.seconds, self._budget, self._rng)
        at_most_s = self._best.makespan_s if self._best else np.inf
        for found in search.run(at_most_s):
            yield schedule(problem, found.accelerator, found.order, found.transfers)

    def _price(self) -> Floats:
        """Return the prices of compute, and raise the bound by them once."""
        if self._prices is None:
            at_most_s = self._best.makespan_s if self._best else np.inf
            compute_s, self._prices = compute_bound(self._problem, at_most_s)
            self._bound = raised(self._problem, self._bound, compute_s, self._prices)
        return self._prices

    def _simple(self) -> Iterator[Schedule]:
        """Look at the plans of simple rules where ours is far from the bound, or they take no time."""
        problem, pairs = self._problem, self._problem.seconds.size
        for other in _OTHERS:
            far = self._best is not None and self._best.makespan_s > _FAR * self._bound.seconds
            if pairs <= _SMALL_PAIRS or (far and pairs <= _LARGE_PAIRS and self._budget.allows()):
                found = other().decide(problem, None, 0.0, self._rng)
                segments = Segments(found.segment_job, found.segment_begin_s, found.segment_end_s, found.segment_bps)
                yield Schedule(found.accelerator, found.start_s, segments, found.makespan_s)


def _nothing_to_do() -> Schedule:
    """Return the schedule of no jobs."""
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return Schedule(whole, none, Segments(whole, none, none, none), 0.0)


def _only_computes(problem: BatchProblem) -> bool:
    """Say whether nothing has to be waited for but accelerators."""
    waits = problem.release_s.any() or problem.load_s.any()
    limited = np.isfinite(problem.egress_bps).any() or np.isfinite(problem.ingress_bps).any()
    return not waits and not (limited and problem.input_bytes.any())
