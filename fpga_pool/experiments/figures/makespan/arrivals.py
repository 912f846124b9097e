"""Batches that come one after the other, and what each policy makes of them (section 3.4).

A policy plans a batch when it comes and knows of no later one.  The paper's own and its baselines do so by themselves
when they see all batches as one problem with release times.  Others change what is under way: by their own `replan`,
or, without one, each job of a new batch goes behind it.
"""

from collections.abc import Callable

import numpy as np

from fpga_pool.core.makespan.fluid import Segments, no_segments
from fpga_pool.core.makespan.replan import Replan, ReplanParams, replan
from fpga_pool.core.makespan.underway import Underway, underway_at
from fpga_pool.core.policy import Replanning
from fpga_pool.core.types import BatchPlan, BatchProblem, Ints
from fpga_pool.experiments.figures.makespan.planners import decide, planner

#: Policies that see releases as they come, however many there are in a problem.
_IN_TIME_ORDER = frozenset({"sjf", "ljf", "cim", "nim", "ncjm", "waves"})


def makespan_s(name: str, problem: BatchProblem, seed: int) -> float:
    """Return when the last job ends; jobs of one release time are a batch."""
    if name in _IN_TIME_ORDER:
        return decide(name, problem, seed).makespan_s
    return _Course(problem).makespan_s(_replanner(name, seed))


def _replanner(name: str, seed: int) -> Callable[[Underway], Replan]:
    policy = planner(name)
    rng = np.random.default_rng(seed)

    def replanned(underway: Underway) -> Replan:
        found = policy.replan(underway, None, rng) if isinstance(policy, Replanning) else None
        return found or replan(underway, ReplanParams(effort=0))

    return replanned


class _Course:
    """What is planned so far, on one clock, and how that changes with every batch that comes."""

    def __init__(self, problem: BatchProblem) -> None:
        self._problem = problem
        self._accelerator = np.zeros(problem.jobs, np.int64)
        self._start_s = np.zeros(problem.jobs)
        self._transfers = no_segments()

    def makespan_s(self, replanned: Callable[[Underway], Replan]) -> float:
        """Let all batches come; return when the last job ends."""
        problem = self._problem
        for now_s in np.unique(problem.release_s).tolist():
            known = np.flatnonzero(problem.release_s <= now_s)
            arrived = np.flatnonzero(problem.release_s[known] == now_s)
            underway, left = underway_at(problem.only(known), self._plan(known), now_s, arrived=arrived.tolist())
            self._take(known[left], replanned(underway).plan, now_s)
        ends_s = self._start_s + problem.seconds[np.arange(problem.jobs), self._accelerator]
        return float(ends_s.max(initial=0.0))

    def _plan(self, known: Ints) -> BatchPlan:
        """Return the plan of the jobs `known` (n,) so far, numbered by their place there."""
        transfers = self._transfers
        return BatchPlan(
            accelerator=self._accelerator[known],
            start_s=self._start_s[known],
            segment_job=np.searchsorted(known, transfers.flow),
            segment_begin_s=transfers.begin_s,
            segment_end_s=transfers.end_s,
            segment_bps=transfers.bps,
            makespan_s=0.0,
            lower_bound_s=0.0,
        )

    def _take(self, jobs: Ints, plan: BatchPlan, now_s: float) -> None:
        """Have a plan for `jobs` (n,), whose time 0 is now, in place of theirs so far."""
        self._accelerator[jobs] = plan.accelerator
        self._start_s[jobs] = plan.start_s + now_s
        kept = ~np.isin(self._transfers.flow, jobs)
        columns = zip(
            (self._transfers.flow, self._transfers.begin_s, self._transfers.end_s, self._transfers.bps),
            (jobs[plan.segment_job], plan.segment_begin_s + now_s, plan.segment_end_s + now_s, plan.segment_bps),
            strict=True,
        )
        flow, *rest = (np.append(before[kept], new) for before, new in columns)
        self._transfers = Segments(flow, *rest)
