"""Supervised start: the network predicts the logarithm of actual / estimated response, with a Huber loss."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fpga_pool.core.cluster.scorer import FEATURES, PARAMETERS, Floats32, Network, layers
from fpga_pool.core.types import Floats
from fpga_pool.experiments.learning.rollouts import Samples

_STEPS, _BATCH, _RATE, _HUBER = 3000, 128, 3e-3, 0.5
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
    adam = Adam(len(weights), _RATE)
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
