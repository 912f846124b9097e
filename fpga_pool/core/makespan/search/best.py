"""`makespan`, the default batch policy: the shortest plan found with a given effort, and a proven lower bound."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.makespan.bounds import compute_bound, raised, raised_by_backlog, simple_bound
from fpga_pool.core.makespan.execution import Schedule, as_plan, schedule
from fpga_pool.core.makespan.fluid import Segments, transmit
from fpga_pool.core.makespan.greedy import Ect, fitting_effort, greedy_plan, largest_first, over_in_a_moment, place
from fpga_pool.core.makespan.paper.baselines import Ljf, Sjf
from fpga_pool.core.makespan.replan import Replan, ReplanParams, replan
from fpga_pool.core.makespan.results import back_only, completion_bound, orders, sooner, there_only
from fpga_pool.core.makespan.search.assignment import (
    Assignment,
    constant_rates,
    earliest_completion,
    improve,
    is_network_bound,
    place_for_network,
)
from fpga_pool.core.makespan.search.budget import Budget, Clock
from fpga_pool.core.makespan.search.late_acceptance import LateAcceptance
from fpga_pool.core.makespan.search.local_search import prepare_loops
from fpga_pool.core.makespan.search.reversed_time import ReversedSearch, can_reverse
from fpga_pool.core.makespan.underway import Underway
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import BatchPolicy, PolicyState
from fpga_pool.core.types import BatchPlan, BatchProblem, Floats, Ints

#: Up to these numbers of jobs and of job-accelerator pairs, all policies together take at most some tenths of a second.
SMALL_JOBS, SMALL_PAIRS = 300, 10_000
#: Above this number of pairs, the linear programs of some policies take many seconds.
LARGE_PAIRS = 500_000
#: From this effort on, the plans of other policies are tried even if our plan is close to the bound.
THOROUGH_EFFORT = 300
#: Makespan relative to the bound: above the first, other policies are tried before the search if time is limited; up to
#: the second, they are not tried if time is limited or effort is below `THOROUGH_EFFORT`, unless the batch is small.
_FAR, _NEAR = 1.3, 1.02
#: A makespan within this relative distance of the bound counts as equal to it.
_NOISE = 1e-9
#: Share of the time limit in which the search may begin a step; the rest is for that step and for writing the plan.
_SEARCHING = 0.85
#: The same for planning in reversed time, a search that itself reserves the time for its last step.
_BACKWARDS = 0.93
#: Share of the time limit that other policies may take before the search.
_PORTFOLIO_FIRST = 0.5
#: Without a time limit: pairs per unit of effort up to which other policies are tried.
_PORTFOLIO_PAIRS = 500
#: If results are sent back: the share of the remaining budget for trying other orders of a placement, the work per job
#: to try one, and the most orders to try.
_REORDERING, _PAIRS_PER_ORDERED_JOB, _ORDERS = 0.5, 10_000, 60


#: Ingress caps of a responder relative to the bound, if plans are made in forward time only.
_INGRESS_CAPS = (1.0, 1.03, 0.97, 1.06)

#: Effort of a search when re-planning, which happens often.
_REPLAN_EFFORT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MakespanParams(Parameters):
    """Parameters of `makespan`."""

    #: The default takes about a third of a second for 1000 jobs on 100 accelerators; more effort improves little.
    effort: int = parameter(
        THOROUGH_EFFORT, "Search effort in millions of job-accelerator pairs; results are reproducible.", min=0
    )
    time_limit_s: float = parameter(0.0, "Search time in seconds instead, if a clock is given; 0 = by effort.", min=0.0)
    #: The benchmarks of this package count plans with a smaller gap than the default as optimal.
    gap: float = parameter(1e-5, "Relative gap to the proven bound at which the search ends.", min=0.0)


class Makespan:
    """Anytime policy that chooses automatically among compute-bound, network-bound and joint planning.

    No other policy of this package makes a shorter plan of a small batch (`SMALL_JOBS`, `SMALL_PAIRS`): the plans of
    all others are tried, unless ours reaches the bound.  Up to half a million job-accelerator pairs the same holds, up
    to `gap`, if the search is limited by an effort of at least `THOROUGH_EFFORT`.  With less effort, or limited time,
    the plans of the others are tried while ours is more than 2 % above the bound: up to 500 pairs per unit of effort,
    or within the time limit.
    """

    name = "makespan"
    Params = MakespanParams

    def __init__(
        self,
        params: MakespanParams | None = None,
        clock: Clock | None = None,
        share: float = 0.0,
    ) -> None:
        self._params, self._clock, self._share = params or MakespanParams(), clock, share

    def searching(self, effort: int | None, time_limit_s: float | None, clock: Clock) -> "Makespan":
        """Return this policy with another budget of work, or of seconds by `clock`; unchanged if both are None."""
        if effort is not None:
            params, clocks = replace(self._params, effort=effort, time_limit_s=0.0), None
        else:
            params, clocks = replace(self._params, time_limit_s=time_limit_s or self._params.time_limit_s), clock
        return Makespan(params, clocks, self._share)

    def sparing(self, share: float) -> "Makespan":
        """Return this policy with the effort limited so that planning takes at most about a `share` of a batch's time.

        Very short batches are planned by `greedy_plan`.
        """
        return Makespan(self._params, self._clock, share)

    def prepare(self) -> None:
        """Compile the code that planning needs, or load it from the cache of an earlier run."""
        import scipy.optimize
        import scipy.sparse.csgraph  # noqa: F401  (the relaxation's)

        prepare_loops()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic if the search is limited by effort."""
        if self._share == 0.0:
            return plan(view, self._params, rng, self._clock)
        effort = fitting_effort(view, self._share, self._params.effort)
        if effort == 0:
            return greedy_plan(view, self.name)
        return plan(view, replace(self._params, effort=effort), rng, self._clock)

    def replan(self, underway: Underway, state: PolicyState, rng: np.random.Generator) -> Replan | None:
        """Plan the jobs that have not started again if that pays off (see `replan`); None if it clearly does not."""
        effort = self._params.effort
        if self._share > 0.0:
            if over_in_a_moment(underway.problem, self._share):
                return None
            effort = fitting_effort(underway.problem, self._share, effort)
        params = ReplanParams(effort=min(effort, ReplanParams().effort))
        search = replace(self._params, effort=min(effort, _REPLAN_EFFORT))
        return replan(underway, params, lambda problem: plan(problem, search, rng))


def plan(
    problem: BatchProblem,
    params: MakespanParams | None = None,
    rng: np.random.Generator | None = None,
    clock: Clock | None = None,
) -> BatchPlan:
    """Return the shortest plan found for a batch, with a proven lower bound.

    `params` limits the search and sets the gap at which it ends.  Without `rng` the seed is 0; `clock` returns the
    seconds of any monotonic clock and is required for `time_limit_s`.
    """
    params = params or MakespanParams()
    if problem.jobs == 0:
        return as_plan(problem, _nothing_to_do(), simple_bound(problem), Makespan.name)
    budget = Budget(effort=params.effort, time_limit_s=_SEARCHING * params.time_limit_s, clock=clock)
    longer = budget.prolonged((_BACKWARDS - _SEARCHING) * params.time_limit_s)
    return _Search(problem, params, budget, rng or np.random.default_rng(0), longer).run()


class _Search:
    """Tries one planner after the other until a schedule reaches the bound."""

    def __init__(
        self,
        problem: BatchProblem,
        params: MakespanParams,
        budget: Budget,
        rng: np.random.Generator,
        backwards: Budget | None = None,
    ) -> None:
        self._problem, self._params, self._budget, self._rng = problem, params, budget, rng
        self._backwards_budget = backwards or budget
        self._order = largest_first(problem)
        self._portfolio = _Portfolio(problem, rng)
        self._best: Schedule | None = None
        self._bound = simple_bound(problem)
        self._prices: Floats | None = None
        #: Lower bound on the arrival of the last result; 0 without results.
        self._completion_bound_s = 0.0

    def run(self) -> BatchPlan:
        """Return the shortest plan."""
        self._shortest(self._own(), self._params.gap)
        best = self._shortest(self._portfolio.schedules(lambda: self._portfolio_may_be_better(self._budget)), _NOISE)
        if not can_reverse(self._problem) and not self._within(1 + self._params.gap):
            improved = self._improved(best)
            best = improved if improved.completion_s <= best.completion_s else best
        return as_plan(self._problem, best, self._bound, Makespan.name)

    def _shortest(self, schedules: Iterator[Schedule], gap: float) -> Schedule:
        """Return the shortest schedule; stop at the first one within a relative `gap` of the bound."""
        for found in schedules:
            if self._best is None or found.completion_s < self._best.completion_s:
                self._best = found
            if self._within(1 + gap):
                break
        assert self._best is not None  # noqa: S101
        return self._best

    def _within(self, ratio: float) -> bool:
        """Return whether the best completion time is at most `ratio` times the bound."""
        bound_s = max(self._bound.seconds, self._completion_bound_s)
        return self._best is not None and self._best.completion_s <= bound_s * ratio

    def _own(self) -> Iterator[Schedule]:
        yield from self._there_and_back() if self._problem.output_bytes.any() else self._there()

    def _there(self) -> Iterator[Schedule]:
        problem = self._problem
        if is_network_bound(problem):
            yield self._network()
        elif _only_computes(problem):
            start = earliest_completion(problem.seconds, self._order, problem.ready_s)
            yield self._forwards(start.machine)
            yield self._assigned(start, self._budget)
        else:
            yield from self._joint()

    def _there_and_back(self) -> Iterator[Schedule]:
        """Place jobs for inputs alone, then, in reversed time, for results alone; send both in several orders."""
        problem = self._problem
        there = _Search(there_only(problem), self._params, self._budget.part(0.5), self._rng)
        found = there._shortest(there._there(), self._params.gap)
        self._bound = there._bound
        self._completion_bound_s = completion_bound(problem, self._bound)
        yield from self._in_orders(found.accelerator, np.argsort(found.start_s, kind="stable"))
        back = _Search(back_only(problem), self._params, self._budget, self._rng)
        found = back._shortest(back._there(), self._params.gap)
        yield from self._in_orders(found.accelerator, np.argsort(-found.start_s, kind="stable"))

    def _in_orders(self, accelerator: Ints, planned: Ints) -> Iterator[Schedule]:
        """Yield schedules of a placement for several orders of inputs and results, then improvements of the best."""
        problem, shortest, budget = self._problem, None, self._budget.part(_REORDERING)
        for order in orders(problem, accelerator, planned):
            found = self._sent(accelerator, order)
            if shortest is None or found.completion_s < shortest[0].completion_s:
                shortest = found, order
            yield found
        assert shortest is not None  # noqa: S101
        found, order = shortest
        turn = np.argsort(order).astype(np.float64)
        for _ in range(_ORDERS):
            if not budget.allows():
                break
            budget.spend(_PAIRS_PER_ORDERED_JOB * problem.jobs)
            turn *= sooner(problem, found.back_s(problem))
            order = np.lexsort((turn, problem.group))
            found = self._sent(accelerator, order)
            yield found

    def _portfolio_may_be_better(self, budget: Budget) -> bool:
        """Return whether to try the plan of one more policy: always if that is quick, or if effort is left."""
        if _are_fast(self._problem):
            return not self._within(1 + _NOISE)
        pairs, effort = self._problem.seconds.size, self._params.effort
        if budget.is_timed:
            return pairs <= LARGE_PAIRS and budget.allows() and not self._within(_NEAR)
        if effort >= THOROUGH_EFFORT:
            return pairs <= LARGE_PAIRS and not self._within(1 + self._params.gap)
        return pairs <= min(LARGE_PAIRS, _PORTFOLIO_PAIRS * effort) and not self._within(_NEAR)

    def _joint(self) -> Iterator[Schedule]:
        left_s = self._budget.left_s
        yield self._forwards(place(self._problem, self._order))
        forwards_s = left_s - self._budget.left_s if self._budget.is_timed else 0.0
        if self._budget.is_timed and not self._within(_FAR):
            first = self._budget.part(_PORTFOLIO_FIRST)
            yield from self._portfolio.schedules(lambda: self._portfolio_may_be_better(first))
        links_first = self._bound.seconds
        self._price()
        compute_s = self._bound.seconds
        if compute_s > links_first or self._problem.load_s.any():
            start = earliest_completion(self._problem.seconds, self._order, self._problem.ready_s)
            yield self._assigned(start, self._budget.part(0.3))
        self._bound = raised_by_backlog(self._problem, self._bound)
        if can_reverse(self._problem):
            yield from self._backwards(forwards_s)
        else:
            yield from self._capped()

    def _capped(self) -> Iterator[Schedule]:
        """Yield schedules placed in forward time with ingress balanced more or less strictly."""
        for cap in _INGRESS_CAPS:
            if not self._budget.allows():
                break
            self._budget.spend(self._problem.seconds.size)
            yield self._forwards(place(self._problem, self._order, cap * self._bound.seconds))

    def _improved(self, best: Schedule) -> Schedule:
        """Improve a schedule by local search in forward time, which changes one or two jobs at a time."""
        search = LateAcceptance(self._problem, self._sent, self._budget, self._rng)
        enough_s = max(self._bound.seconds, self._completion_bound_s) * (1 + self._params.gap)
        return search.run(best.accelerator, best.start_s, enough_s)

    def _network(self) -> Schedule:
        problem = self._problem
        gap, budget = self._params.gap, self._budget
        accelerator = place_for_network(problem, self._bound.seconds, gap, budget, self._rng)
        return schedule(problem, accelerator, self._order, constant_rates(problem, accelerator))

    def _assigned(self, start: Assignment, budget: Budget) -> Schedule:
        """Return a schedule with balanced compute, ignoring the network."""
        problem, prices = self._problem, self._price()
        enough_s = self._bound.seconds * (1 + self._params.gap)
        best = improve(problem.seconds, self._order, problem.ready_s, prices, start, enough_s, budget, self._rng)
        return self._forwards(best.machine)

    def _forwards(self, accelerator: Ints) -> Schedule:
        """Return the schedule that sends the longest tail first; if loads take time, slots run jobs by function."""
        problem, order = self._problem, self._order
        if problem.load_s.any():
            cold = problem.function != problem.loaded[accelerator]
            order = order[np.lexsort((problem.function[order], cold[order], problem.group[order]))]
        return self._sent(accelerator, order)

    def _sent(self, accelerator: Ints, order: Ints) -> Schedule:
        """Return the schedule of a placement (J,) if transfers and jobs are processed in `order` (J,)."""
        transfers = transmit(self._problem, accelerator, order)
        return schedule(self._problem, accelerator, order, transfers)

    def _backwards(self, forwards_s: float) -> Iterator[Schedule]:
        problem = self._problem
        search = ReversedSearch(problem, self._bound.seconds, self._backwards_budget, self._rng, forwards_s)
        at_most_s = self._best.makespan_s if self._best else np.inf
        for found in search.run(at_most_s):
            yield schedule(problem, found.accelerator, found.order, found.transfers)

    def _price(self) -> Floats:
        """Return the prices of compute; the first call also raises the bound."""
        if self._prices is None:
            at_most_s = self._best.makespan_s if self._best else np.inf
            compute = compute_bound(self._problem, at_most_s)
            self._prices = compute.prices
            self._bound = raised(self._problem, self._bound, compute)
        return self._prices


def _nothing_to_do() -> Schedule:
    """Return an empty schedule."""
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return Schedule(whole, none, Segments(whole, none, none, none), 0.0)


def _only_computes(problem: BatchProblem) -> bool:
    """Return whether jobs wait for nothing but accelerators."""
    waits = problem.release_s.any() or problem.load_s.any()
    limited = np.isfinite(problem.egress_bps).any() or np.isfinite(problem.ingress_bps).any()
    return not waits and not (limited and problem.input_bytes.any())


# ---- The other batch policies, whose plans might be shorter


class _Portfolio:
    """Runs the other policies one after the other, each once, the fastest first."""

    def __init__(self, problem: BatchProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._left = _others()

    def schedules(self, wanted: Callable[[], bool]) -> Iterator[Schedule]:
        """Yield their schedules while `wanted` returns true."""
        while wanted() and (policy := next(self._left, None)) is not None:
            found = policy.decide(self._problem, None, 0.0, self._rng)
            segments = Segments(found.segment_job, found.segment_begin_s, found.segment_end_s, found.segment_bps)
            results = Segments(found.result_job, found.result_begin_s, found.result_end_s, found.result_bps)
            yield Schedule(found.accelerator, found.start_s, segments, found.makespan_s, results, found.completion_s)


def _others() -> Iterator[BatchPolicy]:
    """Yield the other policies; the solver of the last four takes long to import and is rarely needed."""
    yield from (Ect(), Ljf(), Sjf())
    from fpga_pool.core.makespan.paper.nim import Nim

    yield Nim()
    from fpga_pool.core.makespan.paper.cim import Cim

    yield Cim()
    from fpga_pool.core.makespan.paper.ncjm import Ncjm, Waves

    yield from (Ncjm(), Waves())


def _are_fast(problem: BatchProblem) -> bool:
    """Return whether running all other policies takes almost no time."""
    return problem.seconds.size <= SMALL_PAIRS and problem.jobs <= SMALL_JOBS
