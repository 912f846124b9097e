"""Deep Q-network of the learned placement paper, section 4.2, with torch; imported only where a network is needed.

Weights are drawn from the caller's generator, not from torch's, so a seed gives the same network whatever ran before.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fpga_pool.core.cluster.metrics import require_finite
from fpga_pool.core.types import Floats, Ints

#: Hidden layers (section 5.1).
HIDDEN = (256, 128)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch to the calling thread.

    With networks this small, torch's threads mostly wait for each other, and sums depend on the number of threads.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def perceptron(sizes: Sequence[int], rng: np.random.Generator) -> nn.Sequential:
    """Return a network with ReLU between its layers; weights are uniform within 1 / sqrt(inputs), torch's default."""
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
    """Copy the weights whose names and shapes match those of the network."""
    own = network.state_dict()
    for name, tensor in own.items():
        if name in weights and weights[name].shape == tuple(tensor.shape):
            own[name] = torch.from_numpy(np.ascontiguousarray(weights[name])).to(tensor.dtype)
    network.load_state_dict(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Parameters of the training."""

    learning_rate: float
    gamma: float
    batch: int
    replay: int
    copy_every: int
    adam: bool = False


class Network:
    """Network for the action values of a state, with replay memory, target network and optimizer (algorithm 1)."""

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
        #: Mean squared error of the batch of each step so far.
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
        """Store a transition (line 10), replacing the oldest one if memory is full; `next_state` None = final."""
        at = self._stored % self._training.replay
        self._states[at], self._actions[at], self._rewards[at] = state, action, reward
        self._next_states[at] = 0 if next_state is None else next_state
        self._ends[at] = next_state is None
        self._stored += 1

    @one_thread()
    def step(self) -> None:
        """Take one gradient step on a random batch (lines 11 to 14), if there are enough transitions for a batch."""
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


# ---- Neural collaborative filtering

#: Hidden layers (section 5.1).  Not given in the paper: size of both embeddings, weight decay, measurements per step
#: and in memory, learning rates, and steps of the pre-training.
_NCF_HIDDEN = (128, 64, 32)
EMBEDDING, PENALTY, BATCH, MEMORY = 16, 1e-5, 64, 4096
SGD_RATE, ADAM_RATE, PRETRAINING_STEPS = 0.05, 3e-3, 200


class Ncf:
    """Embeddings of type and metric, followed by a perceptron with an output between 0 and 1 (equation 4)."""

    def __init__(
        self,
        types: int,
        metrics: int,
        history: Floats | None = None,
        *,
        rng: np.random.Generator,
        pretrain_after: int = 200,
    ) -> None:
        """Create a network.

        After `pretrain_after` measurements, those of `history` included (0 = never), Adam fits the network to them;
        otherwise SGD updates it.  The rows of `history` are further types, used for training only.
        """
        rows = np.zeros((0, metrics)) if history is None else history
        self._rng, self._metrics, self._pretrain_after = rng, metrics, pretrain_after
        latent = [rng.normal(0, 0.1, (count, EMBEDDING)).astype(np.float32) for count in (types + len(rows), metrics)]
        self._embeddings = nn.ModuleList(
            [nn.Embedding(len(array), EMBEDDING, _weight=torch.from_numpy(array)) for array in latent]
        )
        self._perceptron = perceptron((2 * EMBEDDING, *_NCF_HIDDEN, 1), rng)
        self._parameters = [*self._embeddings.parameters(), *self._perceptron.parameters()]
        self._sgd = torch.optim.SGD(self._parameters, lr=SGD_RATE, weight_decay=PENALTY)
        self._cells = np.zeros((MEMORY, 2), dtype=np.int64)
        self._values = np.zeros(MEMORY, dtype=np.float32)
        self._stored = 0
        #: Mean squared error of each step.
        self.losses: list[float] = []
        self._predicted: Floats | None = None
        self._types = types
        for row, metric in np.argwhere(np.isfinite(rows)):
            self._store(types + int(row), int(metric), float(rows[row, metric]))

    @one_thread()
    def observe(self, type_: int, metric: int, value: float) -> None:
        """Store a measurement, and take a gradient step for every two, the number that each subtask yields."""
        require_finite(value)
        self._store(type_, metric, value)
        if self._stored == self._pretrain_after:
            self.fit(PRETRAINING_STEPS)
        elif self._stored >= BATCH and self._stored % 2 == 0:
            self._step(self._sgd)
        self._predicted = None

    @one_thread()
    def fit(self, steps: int) -> None:
        """Take `steps` steps of Adam: the training from random weights (section 4.3.4)."""
        adam = torch.optim.Adam(self._parameters, lr=ADAM_RATE, weight_decay=PENALTY)
        for _ in range(steps):
            self._step(adam)
        self._predicted = None

    @one_thread()
    def predict(self, type_: int) -> Floats:
        """Return the metrics of a type, (N,)."""
        if self._predicted is None:
            types, metrics = np.divmod(np.arange(self._types * self._metrics), self._metrics)
            with torch.no_grad():
                values = self._output(torch.from_numpy(types), torch.from_numpy(metrics)).numpy()
            self._predicted = values.astype(np.float64).reshape(self._types, self._metrics)
        row: Floats = self._predicted[type_]
        return row

    def _output(self, types: torch.Tensor, metrics: torch.Tensor) -> torch.Tensor:
        latent = torch.cat([self._embeddings[0](types), self._embeddings[1](metrics)], dim=1)
        output: torch.Tensor = torch.sigmoid(self._perceptron(latent))[:, 0]
        return output

    def _store(self, type_: int, metric: int, value: float) -> None:
        at = self._stored % MEMORY
        self._cells[at], self._values[at] = (type_, metric), value
        self._stored += 1

    def _step(self, optimiser: torch.optim.Optimizer) -> None:
        drawn = self._rng.integers(0, min(self._stored, MEMORY), BATCH)
        cells = torch.from_numpy(self._cells[drawn])
        error = nn.functional.mse_loss(self._output(cells[:, 0], cells[:, 1]), torch.from_numpy(self._values[drawn]))
        optimiser.zero_grad()
        # Equation 5, with the batch instead of all M N cells; the optimizer adds the squared weights (weight decay).
        (0.5 * error).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        self.losses.append(float(error.detach()))
