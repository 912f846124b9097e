"""Neural collaborative filtering of metrics, section 4.3.2 of the paper, on torch; imported only where it is used."""

import numpy as np
import torch
from torch import nn

from fpga_pool.core.learned.dqn import one_thread, perceptron
from fpga_pool.core.learned.metrics import require_finite
from fpga_pool.core.types import Floats

#: Hidden layers (section 5.1); size of both embeddings, weight of the squared weights, measurements of a step and in
#: memory, learning rates, and steps of the pre-training: not given in the paper.
HIDDEN = (128, 64, 32)
EMBEDDING, PENALTY, BATCH, MEMORY = 16, 1e-5, 64, 4096
SGD_RATE, ADAM_RATE, PRETRAINING_STEPS = 0.05, 3e-3, 200


class Ncf:
    """Embeddings of the type and of the metric, then a perceptron whose output is between 0 and 1 (equation 4)."""

    def __init__(
        self,
        types: int,
        metrics: int,
        history: Floats | None = None,
        *,
        rng: np.random.Generator,
        pretrain_after: int = 200,
    ) -> None:
        """Make a network; `pretrain_after` measurements Adam fits it to them, from then on SGD goes on; 0 = never.

        Rows of `history` are further types, for its training only.
        """
        rows = np.zeros((0, metrics)) if history is None else history
        self._rng, self._metrics, self._pretrain_after = rng, metrics, pretrain_after
        latent = [rng.normal(0, 0.1, (count, EMBEDDING)).astype(np.float32) for count in (types + len(rows), metrics)]
        self._embeddings = nn.ModuleList(
            [nn.Embedding(len(array), EMBEDDING, _weight=torch.from_numpy(array)) for array in latent]
        )
        self._perceptron = perceptron((2 * EMBEDDING, *HIDDEN, 1), rng)
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
        """Remember a measurement; take a step for every two, which is what each subtask brings."""
        require_finite(value)
        self._store(type_, metric, value)
        if self._stored == self._pretrain_after:
            self.fit(PRETRAINING_STEPS)
        elif self._stored >= BATCH and self._stored % 2 == 0:
            self._step(self._sgd)
        self._predicted = None

    @one_thread()
    def fit(self, steps: int) -> None:
        """Take steps of Adam: the training from random weights (section 4.3.4)."""
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
        # Equation 5, with the batch in place of all M N cells; the squares of the weights are the optimiser's.
        (0.5 * error).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        self.losses.append(float(error.detach()))
