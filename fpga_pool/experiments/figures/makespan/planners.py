"""Who plans, and what is drawn of it."""

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.policy import BatchPolicy, Preparing, Searching
from fpga_pool.core.types import BatchPlan, BatchProblem
from fpga_pool.experiments.figures.figure import Sample, Samples, Settings, X

#: Our policy, the paper's baselines, and the curve of the best lower bound known.
OURS, BASELINES, BOUND = "makespan", ("sjf", "ljf"), "bound"


def curves(own: str, settings: Settings) -> list[str]:
    """Return the policies of a panel: baselines, the paper's own for it, further ones, ours."""
    return list(dict.fromkeys([*BASELINES, own, *settings.also, OURS]))


@cache
def planner(name: str, effort: int | None = None) -> BatchPolicy:
    """Return a policy with its default parameters but for the effort, compiled."""
    policy: BatchPolicy = policy_as("batch", name)
    if effort is not None and isinstance(policy, Searching):
        policy = policy.searching(effort, None, time.perf_counter)
    if isinstance(policy, Preparing):
        policy.prepare()
    return policy


def decide(name: str, problem: BatchProblem, seed: int, effort: int | None = None) -> BatchPlan:
    """Plan a batch."""
    return planner(name, effort).decide(problem, None, 0.0, np.random.default_rng(seed))


def makespans(panel: str, x: X, policies: Sequence[str], problem: BatchProblem, seed: int) -> Iterator[Sample]:
    """Measure the makespan of each policy on one batch, and the best bound that any of them proves."""
    bound_s = 0.0
    for name in policies:
        plan = decide(name, problem, seed)
        bound_s = max(bound_s, plan.lower_bound_s)
        yield Sample(panel, x, name, seed, plan.makespan_s)
    yield Sample(panel, x, BOUND, seed, bound_s)


def improvements(
    samples: Samples, panel: str, names: Sequence[str], over: str, places: Sequence[X]
) -> dict[str, list[float]]:
    """Return the improvement of each policy over another one, in percent, at each place."""
    return {name: [samples.improvement_percent(panel, name, over, x) for x in places] for name in names}


def ratios(samples: Samples, panel: str, names: Sequence[str], over: str) -> dict[str, list[float]]:
    """Return the ratio of each curve to another one, at each place."""
    return {name: [samples.ratio(panel, name, over, x) for x in samples.places(panel, name)] for name in names}
