"""Deep Q-network of the learned placement paper, section 4.2, on torch; imported only where a network is needed.

Weights are drawn from the caller's generator, not from torch's: a seed gives the same network whatever ran before.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fpga_pool.core.types import Floats, Ints

#: Hidden layers (section 5.1).
HIDDEN = (256, 128)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have torch compute in this thread alone.

    For networks as small as these its threads wait for each other most of the time, and sums depend on their number.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def perceptron(sizes: Sequence[int], rng: np.random.Generator) -> nn.Sequential:
    """Return a network with ReLU between its layers; weights uniform within 1 / sqrt(inputs), torch's own range."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
        bound = inputs**-0.5
        with torch.no_grad():
            for tensor in (layer.weight, layer.bias):
                tensor.copy_(torch.from_numpy(rng.uniform(-bound, bound, tuple(tensor.shape))))
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def weights_of(network: nn.Module) -> dict[str, Floats]:
    """Return the weights as arrays."""
    return {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}


def set_weights(network: nn.Module, weights: Mapping[str, Floats]) -> None:
    """Copy those weights whose names and shapes the network has."""
    own = network.state_dict()
    for name, tensor in own.items():
        if name in weights and weights[name].shape == tuple(tensor.shape):
            own[name] = torch.from_numpy(np.ascontiguousarray(weights[name])).to(tensor.dtype)
    network.load_state_dict(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Parameters of the learning."""

    learning_rate: float
    gamma: float
    batch: int
    replay: int
    copy_every: int
    adam: bool = False


class Network:
    """Action values of one state, with replay memory, target network and optimiser (algorithm 1)."""

    def __init__(self, inputs: int, actions: int, training: Training, rng: np.random.Generator) -> None:
        self._training, self._rng = training, rng
        self.online = perceptron((inputs, *HIDDEN, actions), rng)
        self._target = perceptron((inputs, *HIDDEN, actions), rng)
        self._optimiser: torch.optim.Optimizer
        if training.adam:
            self._optimiser = torch.optim.Adam(self.online.parameters(), lr=training.learning_rate)
        else:
            self._optimiser = torch.optim.SGD(self.online.parameters(), lr=training.learning_rate)
        self._states = np.zeros((training.replay, inputs), dtype=np.float32)
        self._next_states = np.zeros_like(self._states)
        self._actions: Ints = np.zeros(training.replay, dtype=np.int64)
        self._rewards = np.zeros(training.replay, dtype=np.float32)
        self._ends = np.zeros(training.replay, dtype=np.float32)
        self._stored = self._steps = 0
        #: Squared errors of the batches so far, by step.
        self.losses: list[float] = []
        self.copy()

    def copy(self) -> None:
        """Clone the online network to the target network (line 14)."""
        self._target.load_state_dict(self.online.state_dict())

    @one_thread()
    def values(self, state: Floats) -> Floats:
        """Return the value of each action, (actions,)."""
        with torch.no_grad():
            values: Floats = self.online(torch.from_numpy(state.astype(np.float32))).numpy().astype(np.float64)
        return values

    def store(self, state: Floats, action: int, reward: float, next_state: Floats | None) -> None:
        """Keep a transition (line 10), in place of the oldest one where memory is full; None = it ends there."""
        at = self._stored % self._training.replay
        self._states[at], self._actions[at], self._rewards[at] = state, action, reward
        self._next_states[at] = 0 if next_state is None else next_state
        self._ends[at] = next_state is None
        self._stored += 1

    @one_thread()
    def step(self) -> None:
        """Take one gradient step on a random batch (lines 11 to 14), once there are enough transitions for one."""
        known, training = min(self._stored, self._training.replay), self._training
        if known < training.batch:
            return
        drawn = self._rng.choice(known, size=training.batch, replace=False)
        with torch.no_grad():
            best = self._target(torch.from_numpy(self._next_states[drawn])).max(dim=1).values
            going_on = torch.from_numpy(1 - self._ends[drawn])
            wanted = torch.from_numpy(self._rewards[drawn]) + training.gamma * going_on * best
        actions = torch.from_numpy(self._actions[drawn])[:, None]
        values = self.online(torch.from_numpy(self._states[drawn])).gather(1, actions)[:, 0]
        loss = nn.functional.mse_loss(values, wanted)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        self.losses.append(float(loss.detach()))
        self._steps += 1
        if self._steps % training.copy_every == 0:
            self.copy()
