"""Batches that come one after the other, and what each policy makes of them (section 3.4).

A policy plans a batch when it comes and knows of no later one.  The paper's own and its baselines do so by themselves
when they see all batches as one problem with release times.  Others are asked batch by batch: what came before keeps
its places and goes before in every queue and on every link.
"""

from dataclasses import replace

import numpy as np

from fpga_pool.core.makespan.execution import Schedule, schedule
from fpga_pool.core.makespan.forwards import transmit_in_order
from fpga_pool.core.types import BatchProblem, Ints
from fpga_pool.experiments.figures.makespan.planners import decide

#: Policies that see releases as they come, however many there are in a problem.
_IN_TIME_ORDER = frozenset({"sjf", "ljf", "cim", "nim", "ncjm", "waves"})


def makespan_s(name: str, problem: BatchProblem, seed: int) -> float:
    """Return when the last job ends; jobs of one release time are a batch."""
    if name in _IN_TIME_ORDER:
        return decide(name, problem, seed).makespan_s
    return _batch_by_batch(name, problem, seed).makespan_s


def _batch_by_batch(name: str, problem: BatchProblem, seed: int) -> Schedule:
    """Plan each batch on the accelerators as earlier ones leave them, and send it after these."""
    accelerator, order = np.zeros(problem.jobs, np.int64), np.zeros(0, np.int64)
    free_s = np.array(problem.ready_s)
    for release_s in np.unique(problem.release_s).tolist():
        jobs = np.flatnonzero(problem.release_s == release_s)
        batch = replace(
            _only(problem, jobs), release_s=np.zeros(len(jobs)), ready_s=np.maximum(free_s - release_s, 0.0)
        )
        plan = decide(name, batch, seed)
        accelerator[jobs] = plan.accelerator
        order = np.append(order, jobs[np.argsort(plan.start_s, kind="stable")])
        known = np.sort(order)
        found = _follow(_only(problem, known), accelerator[known], np.searchsorted(known, order))
        np.maximum.at(free_s, accelerator[known], found.start_s + problem.seconds[known, accelerator[known]])
    return found


def _follow(problem: BatchProblem, accelerator: Ints, order: Ints) -> Schedule:
    return schedule(problem, accelerator, order, transmit_in_order(problem, accelerator, order))


def _only(problem: BatchProblem, jobs: Ints) -> BatchProblem:
    """Return the problem of some of the jobs."""
    columns = ("seconds", "input_bytes", "requester", "release_s", "group", "function")
    return replace(problem, **{name: getattr(problem, name)[jobs] for name in columns})
