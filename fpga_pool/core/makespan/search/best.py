"""`makespan`, the default batch policy: the shortest plan that a given effort finds, with a proven bound."""

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

#: Up to here, in jobs and in pairs of job and accelerator, all policies together take some tenths of a second at most.
SMALL_JOBS, SMALL_PAIRS = 300, 10_000
#: From here on, in pairs, the linear programs of some take many seconds.
LARGE_PAIRS = 500_000
#: Effort from which on the plans of other policies are looked at, however near the bound ours is.
THOROUGH_EFFORT = 300
#: Relative to the bound: where they are looked at before the search if seconds are limited, and where they are not
#: looked at any more with less effort, unless the batch is small.
_FAR, _NEAR = 1.3, 1.02
#: What is as near to the bound is at it.
_NOISE = 1e-9
#: Share of the seconds in which the search may begin a step; the rest is for that step and for writing the plan down.
_SEARCHING = 0.85
#: The same where plans are made backwards: that search keeps what its last step takes by itself.
_BACKWARDS = 0.93
#: Share of the seconds that other policies may take before the search.
_PORTFOLIO_FIRST = 0.5
#: Without such a limit: pairs up to which they are looked at, per unit of effort.
_PORTFOLIO_PAIRS = 500
#: Share of what is left that goes into other orders of a placement, where results flow back; what one costs; and how
#: many are tried at most.
_REORDERING, _PAIRS_PER_ORDERED_JOB, _ORDERS = 0.5, 10_000, 60


#: Ingress of a responder relative to the bound, where plans are made forwards only.
_INGRESS_CAPS = (1.0, 1.03, 0.97, 1.06)

#: Work to search again around what is under way: it is done again and again.
_REPLAN_EFFORT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MakespanParams(Parameters):
    """Parameters of `makespan`."""

    #: About a third of a second of search for 1000 jobs on 100 accelerators, after which little more is found.
    effort: int = parameter(
        THOROUGH_EFFORT, "Search effort in millions of job-accelerator pairs; results are reproducible.", min=0
    )
    time_limit_s: float = parameter(0.0, "Search time in seconds instead, if a clock is given; 0 = by effort.", min=0.0)
    #: Differences below this are not distinguished from optimal by the benchmarks of this package.
    gap: float = parameter(1e-5, "Relative gap to the proven bound at which the search ends.", min=0.0)


class Makespan:
    """Picks by itself among compute-bound, network-bound and joint planning; anytime.

    No other policy of this package has a shorter plan of a small batch (`SMALL_JOBS`, `SMALL_PAIRS`): the
    plans of all others are looked at, unless ours is at its bound.  Up to half a million pairs of job and accelerator
    that holds but for `gap` where the search is limited by an effort of `THOROUGH_EFFORT` or more.  With less effort,
    or where seconds are limited, the plans of the others are looked at while ours is more than 2 % above the bound: up
    to 500 pairs per unit of effort, or within the seconds.
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
        """Return this policy with another budget: of work, or of seconds by `clock`; as before where both are None."""
        if effort is not None:
            params, clocks = replace(self._params, effort=effort, time_limit_s=0.0), None
        else:
            params, clocks = replace(self._params, time_limit_s=time_limit_s or self._params.time_limit_s), clock
        return Makespan(params, clocks)

    def sparing(self, share: float) -> "Makespan":
        """Return this policy with so little effort that planning takes at most about a share of what a batch does.

        A batch that is over in a moment gets `greedy_plan`.
        """
        return Makespan(self._params, self._clock, share)

    def prepare(self) -> None:
        """Compile what planning needs, or load it from the cache of an earlier run."""
        import scipy.optimize
        import scipy.sparse.csgraph  # noqa: F401  (the relaxation's)

        prepare_loops()

    def decide(self, view: BatchProblem, state: PolicyState, now_s: float, rng: np.random.Generator) -> BatchPlan:
        """Plan the batch; deterministic where the search is limited by effort."""
        if self._share == 0.0:
            return plan(view, self._params, rng, self._clock)
        effort = fitting_effort(view, self._share, self._params.effort)
        if effort == 0:
            return greedy_plan(view, self.name)
        return plan(view, replace(self._params, effort=effort), rng, self._clock)

    def replan(self, underway: Underway, state: PolicyState, rng: np.random.Generator) -> Replan | None:
        """Plan what does not compute yet again, as far as that pays; see `replan`.  None where a glance says no."""
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
    """Return the shortest plan found for a batch, with the bound that no plan can be below.

    `params` say how long to search, and how near the bound is near enough.  Without `rng` the seed is 0; `clock`
    returns seconds by any steady clock, and is needed for `time_limit_s`.
    """
    params = params or MakespanParams()
    if problem.jobs == 0:
        return as_plan(problem, _nothing_to_do(), simple_bound(problem), Makespan.name)
    budget = Budget(effort=params.effort, time_limit_s=_SEARCHING * params.time_limit_s, clock=clock)
    longer = budget.prolonged((_BACKWARDS - _SEARCHING) * params.time_limit_s)
    return _Search(problem, params, budget, rng or np.random.default_rng(0), longer).run()


class _Search:
    """Takes schedules from one planner after the other until one is as short as the bound allows."""

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
        #: Of results, where there are any.
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
        """Take schedules until one is as short as the bound allows, but for a relative gap."""
        for found in schedules:
            if self._best is None or found.completion_s < self._best.completion_s:
                self._best = found
            if self._within(1 + gap):
                break
        assert self._best is not None  # noqa: S101
        return self._best

    def _within(self, ratio: float) -> bool:
        """Return whether the best makespan is at most that much above the bound."""
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
        """Place for inputs alone, then backwards for results alone; let both flow, in several orders."""
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
        """Let inputs and results flow in several orders, and improve the best of them."""
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
        """Place ahead with ingress balanced, more or less strictly."""
        for cap in _INGRESS_CAPS:
            if not self._budget.allows():
                break
            self._budget.spend(self._problem.seconds.size)
            yield self._forwards(place(self._problem, self._order, cap * self._bound.seconds))

    def _improved(self, best: Schedule) -> Schedule:
        """Change jobs of a schedule one by one, in forward time."""
        search = LateAcceptance(self._problem, self._sent, self._budget, self._rng)
        enough_s = max(self._bound.seconds, self._completion_bound_s) * (1 + self._params.gap)
        return search.run(best.accelerator, best.start_s, enough_s)

    def _network(self) -> Schedule:
        problem = self._problem
        gap, budget = self._params.gap, self._budget
        accelerator = place_for_network(problem, self._bound.seconds, gap, budget, self._rng)
        return schedule(problem, accelerator, self._order, constant_rates(problem, accelerator))

    def _assigned(self, start: Assignment, budget: Budget) -> Schedule:
        """Balance compute alone."""
        problem, prices = self._problem, self._price()
        enough_s = self._bound.seconds * (1 + self._params.gap)
        best = improve(problem.seconds, self._order, problem.ready_s, prices, start, enough_s, budget, self._rng)
        return self._forwards(best.machine)

    def _forwards(self, accelerator: Ints) -> Schedule:
        """Send the longest tail first; on each slot, jobs of one function follow each other where loads take time."""
        problem, order = self._problem, self._order
        if problem.load_s.any():
            cold = problem.function != problem.loaded[accelerator]
            order = order[np.lexsort((problem.function[order], cold[order], problem.group[order]))]
        return self._sent(accelerator, order)

    def _sent(self, accelerator: Ints, order: Ints) -> Schedule:
        """Let all happen in an order: transfers, and jobs on each slot."""
        transfers = transmit(self._problem, accelerator, order)
        return schedule(self._problem, accelerator, order, transfers)

    def _backwards(self, forwards_s: float) -> Iterator[Schedule]:
        problem = self._problem
        search = ReversedSearch(problem, self._bound.seconds, self._backwards_budget, self._rng, forwards_s)
        at_most_s = self._best.makespan_s if self._best else np.inf
        for found in search.run(at_most_s):
            yield schedule(problem, found.accelerator, found.order, found.transfers)

    def _price(self) -> Floats:
        """Return the prices of compute, and raise the bound by them once."""
        if self._prices is None:
            at_most_s = self._best.makespan_s if self._best else np.inf
            compute = compute_bound(self._problem, at_most_s)
            self._prices = compute.prices
            self._bound = raised(self._problem, self._bound, compute)
        return self._prices


def _nothing_to_do() -> Schedule:
    """Return the schedule of no jobs."""
    none, whole = np.zeros(0), np.zeros(0, np.int64)
    return Schedule(whole, none, Segments(whole, none, none, none), 0.0)


def _only_computes(problem: BatchProblem) -> bool:
    """Return whether nothing has to be waited for but accelerators."""
    waits = problem.release_s.any() or problem.load_s.any()
    limited = np.isfinite(problem.egress_bps).any() or np.isfinite(problem.ingress_bps).any()
    return not waits and not (limited and problem.input_bytes.any())


# ---- The other batch policies, asked for their plan where it might be shorter


class _Portfolio:
    """Asks one policy after the other, each once, the quickest first."""

    def __init__(self, problem: BatchProblem, rng: np.random.Generator) -> None:
        self._problem, self._rng = problem, rng
        self._left = _others()

    def schedules(self, wanted: Callable[[], bool]) -> Iterator[Schedule]:
        """Yield their schedules as long as they are wanted."""
        while wanted() and (policy := next(self._left, None)) is not None:
            found = policy.decide(self._problem, None, 0.0, self._rng)
            segments = Segments(found.segment_job, found.segment_begin_s, found.segment_end_s, found.segment_bps)
            results = Segments(found.result_job, found.result_begin_s, found.result_end_s, found.result_bps)
            yield Schedule(found.accelerator, found.start_s, segments, found.makespan_s, results, found.completion_s)


def _others() -> Iterator[BatchPolicy]:
    """Yield all policies; the linear programs of the last four take long to import, and are rarely needed."""
    yield from (Ect(), Ljf(), Sjf())
    from fpga_pool.core.makespan.paper.nim import Nim

    yield Nim()
    from fpga_pool.core.makespan.paper.cim import Cim

    yield Cim()
    from fpga_pool.core.makespan.paper.ncjm import Ncjm, Waves

    yield from (Ncjm(), Waves())


def _are_fast(problem: BatchProblem) -> bool:
    """Return whether asking all of them takes next to no time."""
    return problem.seconds.size <= SMALL_PAIRS and problem.jobs <= SMALL_JOBS
