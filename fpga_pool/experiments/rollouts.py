"""Simulated runs of policies in random worlds, in this process, several processes, or on a Dask cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Self

import numpy as np

from fpga_pool.conf.learned import shipped_network
from fpga_pool.conf.policies import policy_with
from fpga_pool.core.cluster.learned import OUTPUT, SHORTLIST, Floats32, Learned, LearnedParams, Network, features
from fpga_pool.core.cluster.nodes import SlowdownUnit
from fpga_pool.core.cluster.views import ACCELERATOR, ClusterView
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.cluster.bound import bounds, summary
from fpga_pool.sim.cluster.generator import random_world
from fpga_pool.sim.cluster.node import Interference
from fpga_pool.sim.cluster.simulator import Outcome, simulate
from fpga_pool.sim.cluster.tables import World
from fpga_pool.sim.cluster.workload import draw


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy in one world with one seed, as plain data, so that any process can carry it out."""

    suite: str
    world: int
    seed: int
    tasks: int
    #: Name and parameters of an installed policy.
    policy: str = "learned"
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Arrays of a network for `learned`; None = the network of `policy`.
    network: Mapping[str, Any] | None = None
    #: Whether the policy's nodes know true durations and true interference.
    perfect: bool = False
    bounds: bool = False


Result = Mapping[str, float]
#: Carries out runs and returns their results, in the same order.
Runner = Callable[[Sequence[Run]], Iterator[Result]]


def network_data(network: Network) -> Mapping[str, Any]:
    """Return the arrays of a network as data for a run."""
    return {name: getattr(network, name) for name in ("weights", "low", "high", "limit")}


def result_of(run: Run) -> Result:
    """Carry out a run and return its result."""
    world = _world(run.suite, run.world, run.tasks)
    if run.perfect:
        world = replace(world, estimates=replace(world.estimates, error=0.0))
    workload = draw(world, run.seed)
    if run.network is None:
        policy: Any = policy_with("cluster", run.policy, run.values)
    else:
        policy = Learned(LearnedParams(**run.values), Network(**run.network))
    if run.perfect:
        policy.node = _KnowingUnit(world)
    found = dict(summary(world, workload, simulate(world, workload, policy, run.seed)))
    if run.bounds:
        limits = bounds(world, workload)
        found |= {"bound_per_minute": limits.per_minute, "bound_mean_response_s": limits.mean_response_s}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The features that the policy saw when it placed tasks, and the outcomes."""

    features: Floats32
    #: (n,) logarithm of actual / estimated response.
    log_ratio: Floats


def samples_of(run: Run, random_share: float) -> Samples:
    """Return the decisions of a run of `learned`, a share of which is random among the nodes with good estimates."""
    world = _world(run.suite, run.world, run.tasks)
    workload = draw(world, run.seed)
    network = None if run.network is None else Network(**run.network)
    policy: Any = _Exploring(network, random_share)
    outcome = simulate(world, workload, policy, run.seed)
    response_s = _in_order(outcome)
    return Samples(
        features=np.array(policy.seen, dtype=np.float32), log_ratio=np.log(response_s / np.array(policy.expected_s))
    )


def _in_order(outcome: Outcome) -> Floats:
    """Return the response times in the order of the decisions; raise ValueError if a task was not placed just once."""
    response_s: Floats = outcome.end_s - outcome.arrival_s
    if not (outcome.placements == 1).all():
        raise ValueError("samples need worlds without failures")
    return response_s


class _Exploring(Learned):
    """Records the features that it saw; a share of its decisions is random."""

    def __init__(self, network: Network | None, random_share: float) -> None:
        super().__init__(LearnedParams(guard=False), network)
        self._share = random_share
        self.seen: list[Floats32] = []
        self.expected_s: list[float] = []

    def learner(self, rng: np.random.Generator) -> Self:
        return self

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        nodes = view.candidates()
        completion_s = self._cost(view, nodes, now_s, rng)
        if rng.random() < self._share:
            place = int(rng.choice(np.flatnonzero(completion_s <= 2 * SHORTLIST * completion_s.min())))
        else:
            place = self._proposed(view, nodes, completion_s, now_s)
        self.seen.append(features(view, nodes, completion_s, now_s)[place])
        self.expected_s.append(float(completion_s[place]))
        return int(nodes[place])


class _KnowingUnit(SlowdownUnit):
    """The node policy `slowdown` with the true law of the world instead of a learned model."""

    def __init__(self, world: World) -> None:
        super().__init__(corun=True, admission=True)
        self._interference = Interference(world)

    def learner(self, rng: np.random.Generator) -> Self:
        return self

    def _total_rate(self, types: list[int]) -> float:
        ordered = sorted(types)
        slowdowns = self._interference.slowdowns(ACCELERATOR, ordered)
        return sum(1 / slowdowns[type_] for type_ in ordered)


@lru_cache(maxsize=256)
def _world(suite: str, number: int, tasks: int) -> World:
    return random_world(suite, number, tasks)


@contextmanager
def runner(processes: int, dask: str | None = None) -> Iterator[Runner]:
    """Yield a runner: on the Dask cluster at the address `dask`, in several processes, or else in this process."""
    if dask is not None:
        with _dask_client(dask) as client:
            yield lambda runs: iter(client.gather(client.map(result_of, list(runs), pure=False)))
    elif processes > 1:
        with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
            yield lambda runs: pool.map(result_of, runs)
    else:
        yield lambda runs: map(result_of, runs)


def _dask_client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInput("--dask: Dask is not installed: pip install 'fpga_pool[learning]'") from None
    try:
        return Client(address, timeout=30)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--dask: {address}: cannot be reached: {error}") from None


# ---- Paired comparisons of policy stacks in random worlds, with the same worlds, seeds, estimates and noise for all

_CALIBRATED = {"calibrate": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A cluster policy with its parameters, and how the weights of `learned` are sabotaged, if at all."""

    policy: str
    values: Mapping[str, Any] = field(default_factory=dict)
    sabotage: str = ""
    #: Whether the policy knows true durations and true interference.
    perfect: bool = False


#: The stacks by name; all share accelerators and have memory admission, and all but one calibrate estimates.
STACKS: Mapping[str, Stack] = {
    "ect": Stack(policy="ect", values=_CALIBRATED),
    "ect_uncalibrated": Stack(policy="ect"),
    "ect_open": Stack(policy="ect_open", values=_CALIBRATED),
    "jsq": Stack(policy="jsq", values=_CALIBRATED),
    "pats": Stack(policy="pats", values=_CALIBRATED),
    "chain": Stack(policy="learned", values={"scorer": False}),
    "learned": Stack(policy="learned"),
    "unguarded": Stack(policy="learned", values={"guard": False}),
    "random_weights": Stack(policy="learned", sabotage="random"),
    "inverted_weights": Stack(policy="learned", sabotage="inverted"),
    "constant_weights": Stack(policy="learned", sabotage="constant"),
    "nan_weights": Stack(policy="learned", sabotage="nan"),
    "perfect": Stack(policy="learned", values={"scorer": False}, perfect=True),
}
HEURISTICS = ("ect", "ect_open", "jsq", "pats")
#: The metrics to compare: name in a result, and whether less is better.
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
    """One metric of one stack relative to a reference: geometric mean over worlds and seeds."""

    ratio: float
    #: 95 % bootstrap interval over worlds.
    low: float
    high: float
    #: Ratio in the worst world, averaged over its seeds, and the share of the worlds that are better.
    worst: float
    wins: float


def sabotaged(network: Network, how: str) -> Network:
    """Return the network with other weights: random, inverted (the best node is rated worst), constant, or NaN."""
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
    """The results of stacks in one suite, (worlds, seeds) for each stack."""

    suite: str
    results: Mapping[str, Sequence[Sequence[Result]]]

    def values(self, stack: str, metric: str) -> Floats:
        """Return the (worlds, seeds) values of a metric; NaN for a mean over no task."""
        return np.array([[result[metric] for result in row] for row in self.results[stack]])

    def best_heuristic(self, metric: str) -> Floats:
        """Return the (worlds, seeds) best values that any heuristic achieved in each case."""
        found = [self.values(name, metric) for name in HEURISTICS if name in self.results]
        return np.minimum.reduce(found) if METRICS[metric] else np.maximum.reduce(found)

    def compare(self, stack: str, reference: str, metric: str) -> Comparison:
        """Return a metric of a stack relative to that of a reference: a stack, or `best_heuristic`."""
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
