"""The supervised start, and the evolution strategy, whose objective is the response times of whole runs.

Salimans et al. (2017): pairs of opposite perturbations, ranks instead of values; steps by Adam.  Only the output layer
evolves, for a few hundred runs say little about more parameters; the hidden layers are those of the supervised start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpga_pool.core.cluster.scorer import FEATURES, OUTPUT, PARAMETERS, Floats32, Network, layers
from fpga_pool.core.types import Floats
from fpga_pool.experiments.learning.rollouts import Result, Run, Runner, Samples, network_data

# ---- Supervised start: the network predicts the log of actual / estimated response, with a Huber loss

_STEPS, _BATCH, _LEARNING_RATE, _HUBER = 3000, 128, 3e-3, 0.5
#: Shares of samples that are outside of the ranges of features, and of the corrections, on each side.
_OUTSIDE = 0.002


def fresh_network(rng: np.random.Generator) -> Network:
    """Return a network with random hidden layers that corrects nothing: its output layer is 0."""
    weights = np.zeros(PARAMETERS, dtype=np.float32)
    parts = layers(weights)
    for matrix in (parts[0], parts[2]):
        matrix[:] = rng.normal(0, np.sqrt(2 / len(matrix)), matrix.shape)
    count = len(FEATURES)
    return Network(weights=weights, low=np.zeros(count, np.float32), high=np.ones(count, np.float32), limit=0.0)


def fitted(network: Network, samples: Sequence[Samples], rng: np.random.Generator) -> tuple[Network, list[float]]:
    """Return the network after training on samples, and the mean loss of each 100 steps."""
    table = np.concatenate([each.features for each in samples])
    target = np.concatenate([each.log_ratio for each in samples]).astype(np.float32)
    target -= np.median(target)
    low, high = (np.quantile(table, q, axis=0).astype(np.float32) for q in (_OUTSIDE, 1 - _OUTSIDE))
    network = replace(network, low=low, high=high, limit=float(np.quantile(np.abs(target), 1 - _OUTSIDE)))
    span = high - low
    x = (np.clip(table, low, high) - low) / np.where(span > 0, span, np.float32(1))
    weights = network.weights.copy()
    adam = Adam(len(weights), _LEARNING_RATE)
    losses = []
    for step in range(_STEPS):
        batch = rng.integers(len(x), size=_BATCH)
        loss, gradient = _gradient(weights, x[batch], target[batch])
        weights += adam.step(-gradient)
        losses.append(loss)
        if step == _STEPS * 2 // 3:
            adam.rate /= 5
    means = [float(np.mean(losses[i : i + 100])) for i in range(0, _STEPS, 100)]
    return replace(network, weights=weights), means


def _gradient(weights: Floats32, x: Floats32, target: Floats32) -> tuple[float, Floats32]:
    """Return the Huber loss and its gradient by the weights."""
    w1, b1, w2, b2, w3, b3, direct = layers(weights)
    first = np.maximum(x @ w1 + b1, 0)
    second = np.maximum(first @ w2 + b2, 0)
    error = (second @ w3 + x @ direct + b3)[:, 0] - target
    slope = np.clip(error, -_HUBER, _HUBER)
    loss = float(np.mean(np.where(np.abs(error) <= _HUBER, error**2 / 2, _HUBER * (np.abs(error) - _HUBER / 2))))
    d3 = slope[:, None] / np.float32(len(x))
    d2 = (d3 @ w3.T) * (second > 0)
    d1 = (d2 @ w2.T) * (first > 0)
    parts = (x.T @ d1, d1.sum(axis=0), first.T @ d2, d2.sum(axis=0), second.T @ d3, d3.sum(axis=0), x.T @ d3)
    return loss, np.concatenate([part.ravel() for part in parts]).astype(np.float32)


class Adam:
    """Steps of Kingma and Ba (2015), with their constants."""

    def __init__(self, size: int, rate: float) -> None:
        self.rate = rate
        self.mean: Floats = np.zeros(size)
        self.square: Floats = np.zeros(size)
        self.steps = 0

    def step(self, ascent: Floats32 | Floats) -> Floats32:
        """Return the change of the parameters for this gradient, uphill."""
        self.steps += 1
        self.mean += 0.1 * (ascent - self.mean)
        self.square += 0.001 * (ascent**2 - self.square)
        mean = self.mean / (1 - 0.9**self.steps)
        square = self.square / (1 - 0.999**self.steps)
        return (self.rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)


# ---- Evolution

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
