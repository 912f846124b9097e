"""Evolution strategy: the response times of whole runs as the objective, which no gradient of a prediction knows.

Salimans et al. (2017): pairs of opposite perturbations, ranks instead of values; steps by Adam.  Only the output layer
evolves, for a few hundred runs say little about more parameters; the hidden layers are those of the supervised start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpga_pool.core.cluster.scorer import OUTPUT, Floats32, Network
from fpga_pool.core.types import Floats
from fpga_pool.experiments.learning.rollouts import Result, Run, Runner, network_data
from fpga_pool.experiments.learning.supervised import Adam

#: Weight of the logarithm of the 95th percentile beside that of the mean.
TAIL = 0.5
#: Standard deviation of the perturbations of a weight, and the rate of the steps.
_SIGMA, _RATE = 0.1, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much a generation simulates."""

    pairs: int = 6
    worlds: int = 5
    tasks: int = 200


@dataclass(slots=True, eq=False)
class Evolution:
    """The state of an evolution: the network, and the moments of Adam."""

    network: Network
    adam: Adam
    generation: int = 0

    @classmethod
    def of(cls, network: Network) -> "Evolution":
        """Return the first generation."""
        return cls(network, Adam(OUTPUT, _RATE))

    def step(self, seed: int, effort: Effort, run_all: Runner) -> float:
        """Simulate one generation; return the mean objective of its members, the lower the better."""
        rng = np.random.default_rng([seed, self.generation])
        noise = rng.standard_normal((effort.pairs, OUTPUT))
        worlds = rng.integers(1_000_000, size=effort.worlds).tolist()
        members = [sign * each for each in noise for sign in (1, -1)]
        runs = [
            Run(
                suite="train",
                world=world,
                seed=0,
                tasks=effort.tasks,
                values={"guard": False},
                network=network_data(self._moved(_SIGMA * member)),
            )
            for member in members
            for world in worlds
        ]
        costs = np.array([cost(result) for result in run_all(runs)]).reshape(len(members), len(worlds)).mean(axis=1)
        ranks = costs.argsort().argsort() / (len(costs) - 1) - 0.5
        ascent = -(ranks @ np.array(members)) / (len(members) * _SIGMA)
        self.network = self._moved(self.adam.step(ascent))
        self.generation += 1
        return float(costs.mean())

    def _moved(self, change: Floats | Floats32) -> Network:
        weights = self.network.weights.copy()
        weights[-OUTPUT:] += change.astype(np.float32)
        return replace(self.network, weights=weights)

    def to_arrays(self) -> Mapping[str, Any]:
        """Return the state, for a file."""
        adam = self.adam
        return {"generation": self.generation, "mean": adam.mean, "square": adam.square, "steps": adam.steps}

    @classmethod
    def from_arrays(cls, network: Network, arrays: Mapping[str, Any]) -> "Evolution":
        """Return the state that a file has."""
        found = cls.of(network)
        found.generation = int(arrays["generation"])
        found.adam.mean, found.adam.square = np.array(arrays["mean"]), np.array(arrays["square"])
        found.adam.steps = int(arrays["steps"])
        return found


def cost(result: Result) -> float:
    """Return the objective of a run, the lower the better; a run that lost tasks counts as if they took its length."""
    lost = 1 + result["tasks"] - result["completed"]
    return float(np.log(result["mean_response_s"]) + TAIL * np.log(result["p95_response_s"]) + np.log(lost))


def ratios(results: Sequence[Result], references: Sequence[Result], name: str) -> Floats:
    """Return (n,) each result in parts of its reference."""
    return np.array([a[name] / b[name] for a, b in zip(results, references, strict=True)])
