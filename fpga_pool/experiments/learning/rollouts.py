"""Simulated runs of policies in random worlds, in this process, several processes, or on a Dask cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Self

import numpy as np

from fpga_pool.conf.policies import policy_with
from fpga_pool.core.cluster.late import SlowdownUnit
from fpga_pool.core.cluster.learned import SHORTLIST, Learned, LearnedParams
from fpga_pool.core.cluster.scorer import Floats32, Network, features
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
    """One policy in one world with one seed: plain data, so that any process can carry it out."""

    suite: str
    world: int
    seed: int
    tasks: int
    #: Name and parameters of an installed policy.
    policy: str = "learned"
    values: Mapping[str, Any] = field(default_factory=dict)
    #: Arrays of a network for `learned`; None = that of `policy`.
    network: Mapping[str, Any] | None = None
    #: Whether the policy's nodes know true durations and true interference.
    perfect: bool = False
    bounds: bool = False


Result = Mapping[str, float]
#: Returns the results of runs, in their order.
Runner = Callable[[Sequence[Run]], Iterator[Result]]


def network_data(network: Network) -> Mapping[str, Any]:
    """Return a network as the arrays of a run."""
    return {name: getattr(network, name) for name in ("weights", "low", "high", "limit")}


def result_of(run: Run) -> Result:
    """Carry out a run."""
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
    """What the policy saw when it placed tasks, and what came of it."""

    features: Floats32
    #: (n,) logarithm of actual / estimated response.
    log_ratio: Floats


def samples_of(run: Run, random_share: float) -> Samples:
    """Return the decisions of a run of `learned`, a share of which is random among the shortlist."""
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
    """Return the responses; without failures and joins tasks are placed once each, in order of arrival."""
    response_s: Floats = outcome.end_s - outcome.arrival_s
    if not (outcome.placements == 1).all():
        raise ValueError("samples need worlds without failures")
    return response_s


class _Exploring(Learned):
    """Keeps what it saw; a share of its decisions is random."""

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
    """The node policy `slowdown` with the law of the world in place of a model."""

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
    """Give what carries out runs: on the Dask cluster at an address, in processes, or here where it is one process."""
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
