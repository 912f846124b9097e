"""The scorer: one small network, shared by all nodes, that corrects the estimated completion of a task at each of them.

The same weights score any number of nodes, in any order: a node's score depends on its own features and on the best
estimate only.  All times are in parts of the shortest estimated execution of the task, so the weights hold for tasks of
seconds and of hours.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.cluster.views import ACCELERATOR, CPU, ClusterView
from fpga_pool.core.types import Floats

Floats32 = NDArray[np.float32]

#: What the network reads of a node and the task, in this order; log = log(1 + x).
FEATURES = (
    "log of the task's work on accelerators",
    "log of the task's work on cores",
    "log of the task's longest chain",
    "log of the wait for the input",
    "log of the backlog of accelerators per unit",
    "log of the backlog of cores per unit",
    "log of the committed work of accelerators per unit",
    "log of the committed work of cores per unit",
    "busy share of accelerators",
    "busy share of cores",
    "log of the unfinished tasks per unit",
    "log of the number of accelerators",
    "log of the number of cores",
    "logarithm of estimated completion / the best of all nodes",
    "log of the backlog of memory: GB seconds of the unfinished subtasks per GB",
    "task's memory in parts of the node's",
)
HIDDEN = (32, 16)
_SHAPES = (
    (len(FEATURES), HIDDEN[0]),
    (HIDDEN[0],),
    (HIDDEN[0], HIDDEN[1]),
    (HIDDEN[1],),
    (HIDDEN[1], 1),
    (1,),
    (len(FEATURES), 1),
)
#: Nodes that are scored at once: few enough for the cache, and for one thread of the linear algebra.
_BLOCK = 512
#: Number of parameters.
PARAMETERS = sum(int(np.prod(shape)) for shape in _SHAPES)
#: The last of them are the output's: weights of the second hidden layer, a constant, and weights of the features.
OUTPUT = HIDDEN[1] + 1 + len(FEATURES)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Network:
    """Weights, and the ranges seen in training; whatever is outside of them is treated as at the edge."""

    #: (PARAMETERS,) float32, layer by layer: weights, then biases.
    weights: Floats32
    #: (F,) lowest and highest value of each feature in training.
    low: Floats32
    high: Floats32
    #: Corrections are limited to this, both ways.
    limit: float

    def __post_init__(self) -> None:
        for name, size in (("weights", PARAMETERS), ("low", len(FEATURES)), ("high", len(FEATURES))):
            found = getattr(self, name)
            if found.shape != (size,) or found.dtype != np.float32:
                raise ValueError(f"{name}: expected {size} numbers of type float32, got {found.shape} {found.dtype}")
        if not 0 <= self.limit < np.inf:
            raise ValueError(f"limit: expected a finite number, 0 or more, got {self.limit}")

    def corrections(self, features: Floats32) -> Floats32:
        """Return what to add to the logarithm of each estimate, (N,) float32; features are (N, F) float32.

        Not finite where a weight or a feature is not; callers have to check.
        """
        found = np.empty(len(features), dtype=np.float32)
        with np.errstate(all="ignore"):
            for begin in range(0, len(features), _BLOCK):
                found[begin : begin + _BLOCK] = self._outputs(features[begin : begin + _BLOCK])
        return found

    def _outputs(self, features: Floats32) -> Floats32:
        w1, b1, w2, b2, w3, b3, direct = layers(self.weights)
        span = self.high - self.low
        x = (np.clip(features, self.low, self.high) - self.low) / np.where(span > 0, span, np.float32(1))
        hidden = np.maximum(x @ w1 + b1, 0)
        hidden = np.maximum(hidden @ w2 + b2, 0)
        limited: Floats32 = np.clip((hidden @ w3 + x @ direct + b3)[:, 0], -self.limit, self.limit)
        return limited


def layers(weights: Floats32) -> list[Floats32]:
    """Return the matrices and vectors of the layers, as views of the flat weights."""
    parts, begin = [], 0
    for shape in _SHAPES:
        size = int(np.prod(shape))
        parts.append(weights[begin : begin + size].reshape(shape))
        begin += size
    return parts


def features(view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float) -> Floats32:
    """Return (N, F) float32, the features of the task at each of `nodes`; `completion_s` is (N,)."""
    task, kinds = view.task, view.kind[nodes]
    unit_s = max(float(task.path_s[kinds].min()), 1e-9)
    units = np.maximum(view.units[nodes], 1)
    table = np.empty((len(nodes), len(FEATURES)), dtype=np.float32)
    table[:, 0] = task.work_s[kinds, ACCELERATOR] / unit_s
    table[:, 1] = task.work_s[kinds, CPU] / unit_s
    table[:, 2] = task.path_s[kinds] / unit_s
    input_s = np.maximum(view.link_free_s[nodes] - now_s, 0) + task.input_mb / view.link_mb_per_s[nodes]
    table[:, 3] = input_s / unit_s
    table[:, 4:6] = (view.backlog_s[nodes] / units)[:, ::-1] / unit_s
    table[:, 6:8] = np.maximum(view.committed_s[nodes] - now_s, 0)[:, ::-1] / unit_s
    table[:, 8:10] = (view.busy[nodes] / units)[:, ::-1]
    accelerators = view.units[nodes, ACCELERATOR]
    table[:, 10] = view.tasks[nodes] / np.where(accelerators > 0, accelerators, units[:, CPU])
    table[:, 11] = accelerators
    table[:, 12] = view.units[nodes, CPU]
    table[:, 13] = completion_s / max(float(completion_s.min()), 1e-9)
    table[:, 14] = view.backlog_gb_s[nodes] / view.memory_gb[nodes, CPU] / unit_s
    table[:, 15] = task.memory_gb / view.memory_gb[nodes, CPU]
    np.log1p(table[:, :8], out=table[:, :8])
    np.log1p(table[:, 10:13], out=table[:, 10:13])
    np.log(table[:, 13], out=table[:, 13])
    np.log1p(table[:, 14], out=table[:, 14])
    return table
