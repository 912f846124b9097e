"""Batches that come one after the other, and what each policy makes of them (section 3.4).

A policy plans a batch when it comes and knows of no later one.  The paper's own and its baselines do so by themselves
when they see all batches as one problem with release times.  Others are asked anew with each batch: what has begun to
move or to compute by then keeps its place and goes before in every queue and on every link; all else is planned again.
"""

from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.execution import Schedule, schedule
from fpga_pool.core.makespan.forwards import transmit_in_order
from fpga_pool.core.types import BatchProblem, Floats, Ints
from fpga_pool.experiments.figures.makespan.planners import decide

#: Policies that see releases as they come, however many there are in a problem.
_IN_TIME_ORDER = frozenset({"sjf", "ljf", "cim", "nim", "ncjm", "waves"})


#: Work to search for each plan, in millions of pairs, where a policy searches: there is one plan per batch.
_EFFORT = 30


def makespan_s(name: str, problem: BatchProblem, seed: int) -> float:
    """Return when the last job ends; jobs of one release time are a batch."""
    if name in _IN_TIME_ORDER:
        return decide(name, problem, seed).makespan_s
    return _plan_anew(name, problem, seed).makespan_s


def _plan_anew(name: str, problem: BatchProblem, seed: int) -> Schedule:
    """Plan with each batch what has not begun, on the accelerators as the rest leaves them; it is sent after that."""
    accelerator, begun = np.zeros(problem.jobs, np.int64), np.zeros(0, np.int64)
    begins_s = np.full(problem.jobs, np.inf)
    order = begun
    for release_s in np.unique(problem.release_s).tolist():
        begun = order[begins_s[order] < release_s]
        free_s = np.maximum(problem.ready_s - release_s, 0.0)
        if len(begun):
            _, ends_s = _follow(problem, begun, accelerator)
            np.maximum.at(free_s, accelerator[begun], ends_s[begun] - release_s)
        jobs = np.setdiff1d(np.flatnonzero(problem.release_s <= release_s), begun)
        waiting = replace(problem.only(jobs), release_s=np.zeros(len(jobs)), ready_s=free_s)
        plan = decide(name, waiting, seed, _EFFORT)
        accelerator[jobs] = plan.accelerator
        order = np.append(begun, jobs[np.argsort(plan.start_s, kind="stable")])
        found, _ = _follow(problem, order, accelerator)
        known = np.sort(order)
        begins_s[known] = found.start_s
        np.minimum.at(begins_s, known[found.segments.flow], found.segments.begin_s)
    return found


def _follow(problem: BatchProblem, order: Ints, accelerator: Ints) -> tuple[Schedule, Floats]:
    """Return what comes of some jobs, first in `order` first, and when each job of the problem (J,) ends."""
    known = np.sort(order)
    part, places = problem.only(known), np.searchsorted(known, order)
    found = schedule(part, accelerator[known], places, transmit_in_order(part, accelerator[known], places))
    ends_s = np.zeros(problem.jobs)
    ends_s[known] = found.start_s + problem.seconds[known, accelerator[known]]
    return found, ends_s
