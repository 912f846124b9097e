"""What comes of a plan when jobs take other times than it expects (section 5.7)."""

import numpy as np

from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.policy import Adaptive
from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.makespan.planners import decide, planner


def makespan_s(name: str, believed: BatchProblem, actual: BatchProblem, seed: int) -> float:
    """Return when the last job really ends.

    A policy that decides as the batch goes on has a method `meet`, and is asked for what it does.  The plan of any
    other is kept: each job stays where it was put, and the queues keep their order.
    """
    policy = planner(name)
    if isinstance(policy, Adaptive):
        return policy.meet(believed, actual, np.random.default_rng(seed)).makespan_s
    plan = decide(name, believed, seed)
    arrived_s = np.array(actual.release_s)
    np.maximum.at(arrived_s, plan.segment_job, plan.segment_end_s)
    start_s = execute(actual, plan.accelerator, np.argsort(plan.start_s, kind="stable"), arrived_s)
    return float((start_s + actual.seconds[np.arange(actual.jobs), plan.accelerator]).max(initial=0.0))
