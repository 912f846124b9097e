"""Paired comparisons of policy stacks in random worlds: all meet the same worlds, seeds, estimates and noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fpga_pool.conf.learned import shipped_network
from fpga_pool.core.cluster.scorer import OUTPUT, Network
from fpga_pool.core.types import Floats
from fpga_pool.experiments.learning.rollouts import Result, Run, Runner, network_data

_CALIBRATED = {"calibrate": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A cluster policy with its parameters, and what is done to the weights of `learned`."""

    policy: str
    values: Mapping[str, Any] = field(default_factory=dict)
    sabotage: str = ""
    #: Whether it knows true durations and true interference.
    perfect: bool = False


#: All share accelerators and have memory admission.
STACKS: Mapping[str, Stack] = {
    "ect": Stack(policy="ect", values=_CALIBRATED),
    "ect_open": Stack(policy="ect_open", values=_CALIBRATED),
    "jsq": Stack(policy="jsq", values=_CALIBRATED),
    "pats": Stack(policy="pats", values=_CALIBRATED),
    "chain": Stack(policy="ect", values={"calibrate": True, "node": "slowdown"}),
    "learned": Stack(policy="learned"),
    "unguarded": Stack(policy="learned", values={"guard": False}),
    "random_weights": Stack(policy="learned", sabotage="random"),
    "inverted_weights": Stack(policy="learned", sabotage="inverted"),
    "constant_weights": Stack(policy="learned", sabotage="constant"),
    "nan_weights": Stack(policy="learned", sabotage="nan"),
    "perfect": Stack(policy="ect", values={"calibrate": True, "node": "slowdown"}, perfect=True),
}
HEURISTICS = ("ect", "ect_open", "jsq", "pats")
#: What is compared: name in a result, and whether less is better.
METRICS: Mapping[str, bool] = {
    "mean_response_s": True,
    "p95_response_s": True,
    "p99_response_s": True,
    "goodput_per_minute": False,
    "useful_share": False,
}
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric of one stack, in parts of a reference: geometric mean over worlds and seeds."""

    ratio: float
    #: Bootstrap interval of 95 %, over worlds.
    low: float
    high: float
    #: The worst world, its seeds together; and the share of the worlds that are better.
    worst: float
    wins: float


def sabotaged(network: Network, how: str) -> Network:
    """Return the network with other weights: random, inverted (what is best is called worst), constant, or NaN."""
    weights = network.weights
    if how == "random":
        weights = np.random.default_rng(0).normal(0, weights.std() * 3, weights.shape).astype(np.float32)
    elif how == "inverted":
        weights = weights.copy()
        weights[-OUTPUT:] *= -1
    elif how == "constant":
        weights = np.full_like(weights, weights.mean())
    elif how == "nan":
        weights = np.full_like(weights, np.nan)
    else:
        raise ValueError(f"sabotage: expected random, inverted, constant or nan, got {how!r}")
    return replace(network, weights=weights)


def runs_of(
    stacks: Sequence[str], suite: str, worlds: int, seeds: int, tasks: int, network: Network | None
) -> list[Run]:
    """Return the runs of all stacks, each in all worlds with all seeds."""
    network = network or shipped_network()
    runs = []
    for name in stacks:
        stack = STACKS[name]
        data = None
        if stack.policy == "learned":
            data = network_data(sabotaged(network, stack.sabotage) if stack.sabotage else network)
        runs += [
            Run(
                suite=suite,
                world=world,
                seed=seed,
                tasks=tasks,
                policy=stack.policy,
                values=stack.values,
                network=data,
                perfect=stack.perfect,
                bounds=name == stacks[0],
            )
            for world in range(worlds)
            for seed in range(seeds)
        ]
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The results of stacks in one suite, (worlds, seeds) of each."""

    suite: str
    results: Mapping[str, Sequence[Sequence[Result]]]

    def values(self, stack: str, metric: str) -> Floats:
        """Return (worlds, seeds) of a metric; of a mean of no task, NaN."""
        return np.array([[result[metric] for result in row] for row in self.results[stack]])

    def best_heuristic(self, metric: str) -> Floats:
        """Return (worlds, seeds) the best that any heuristic achieved in each case."""
        found = [self.values(name, metric) for name in HEURISTICS if name in self.results]
        return np.minimum.reduce(found) if METRICS[metric] else np.maximum.reduce(found)

    def compare(self, stack: str, reference: str, metric: str) -> Comparison:
        """Return how a stack does in parts of a reference: a stack, or `best_heuristic`."""
        other = self.best_heuristic(metric) if reference == "best_heuristic" else self.values(reference, metric)
        logs = np.log(np.maximum(self.values(stack, metric), 1e-9) / np.maximum(other, 1e-9)).mean(axis=1)
        rng = np.random.default_rng(0)
        means = logs[rng.integers(len(logs), size=(_RESAMPLES, len(logs)))].mean(axis=1)
        low, high = np.percentile(means, [2.5, 97.5])
        less = METRICS[metric]
        return Comparison(
            ratio=float(np.exp(logs.mean())),
            low=float(np.exp(low)),
            high=float(np.exp(high)),
            worst=float(np.exp(logs.max() if less else logs.min())),
            wins=float(((logs < 0) if less else (logs > 0)).mean()),
        )


def evaluate(suite: str, stacks: Sequence[str], runs: Sequence[Run], run_all: Runner) -> Evaluation:
    """Carry out the runs that `runs_of` returned for the stacks."""
    seeds = 1 + max(run.seed for run in runs)
    results = list(run_all(runs))
    each = len(results) // len(stacks)
    rows = {
        name: [results[begin : begin + seeds] for begin in range(i * each, (i + 1) * each, seeds)]
        for i, name in enumerate(stacks)
    }
    return Evaluation(suite=suite, results=rows)
