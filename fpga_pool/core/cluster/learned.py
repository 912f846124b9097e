"""The policy `learned`: ECT, corrected by a learned scorer, within guard rails."""

from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import erf, log, prod, sqrt
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.cluster.policies import NODE_POLICIES, Ect, NodeParams
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, ClusterView
from fpga_pool.core.parameters import parameter
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats

Floats32 = NDArray[np.float32]

#: Input features of the network for a node and the task, in this order; log = log(1 + x).
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
#: Nodes scored at once: few enough for the cache, and for the linear algebra to use one thread.
_BLOCK = 512
#: Offset of the parameters of each shape, and the number of parameters.
_BEGINS = (0, *accumulate(prod(shape) for shape in _SHAPES))
PARAMETERS = _BEGINS[-1]
#: Number of output parameters, the last ones: weights of the second hidden layer, a constant, weights of the features.
OUTPUT = HIDDEN[1] + 1 + len(FEATURES)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Network:
    """Weights, and the feature ranges seen in training; values outside a range are clipped to it."""

    #: (PARAMETERS,) float32, layer by layer: weights, then biases.
    weights: Floats32
    #: (F,) lowest and highest value of each feature in training.
    low: Floats32
    high: Floats32
    #: Corrections are clipped to between -limit and +limit.
    limit: float

    def __post_init__(self) -> None:
        for name, size in (("weights", PARAMETERS), ("low", len(FEATURES)), ("high", len(FEATURES))):
            found = getattr(self, name)
            if found.shape != (size,) or found.dtype != np.float32:
                raise ValueError(f"{name}: expected {size} numbers of type float32, got {found.shape} {found.dtype}")
        if not 0 <= self.limit < np.inf:
            raise ValueError(f"limit: expected a finite number, 0 or more, got {self.limit}")

    def corrections(self, features: Floats32) -> Floats32:
        """Return the correction to add to the logarithm of each estimate, (N,) float32; features are (N, F) float32.

        Corrections are not finite if a weight or a feature is not; callers have to check.
        """
        found = np.empty(len(features), dtype=np.float32)
        with np.errstate(all="ignore"):
            for begin in range(0, len(features), _BLOCK):
                found[begin : begin + _BLOCK] = self._outputs(features[begin : begin + _BLOCK])
        return found

    def _outputs(self, features: Floats32) -> Floats32:
        w1, b1, w2, b2, w3, b3, direct = layers(self.weights)
        span = self.high - self.low
        x = np.maximum(features, self.low)
        np.minimum(x, self.high, out=x)
        x -= self.low
        x /= np.where(span > 0, span, np.float32(1))
        hidden = x
        for weights, biases in ((w1, b1), (w2, b2)):
            hidden = hidden @ weights
            hidden += biases
            np.maximum(hidden, 0, out=hidden)
        limited: Floats32 = np.clip((hidden @ w3 + x @ direct + b3)[:, 0], -self.limit, self.limit)
        return limited


def layers(weights: Floats32) -> list[Floats32]:
    """Return the matrices and vectors of the layers as views of the flat weights."""
    parts = zip(_SHAPES, pairwise(_BEGINS), strict=True)
    return [weights[begin:end].reshape(shape) for shape, (begin, end) in parts]


def features(view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float) -> Floats32:
    """Return the features of the task at each of `nodes`, (N, F) float32; `completion_s` is (N,)."""
    # If `nodes` are all nodes, a slice gives views instead of copies.
    at = slice(None) if np.array_equal(nodes, np.arange(len(view.kind))) else nodes
    task, kinds = view.task, view.kind[at]
    unit_s = max(float(task.path_s[kinds].min()), 1e-9)
    units = np.maximum(view.units[at], 1)
    # Column-major order, because the features are computed one after the other.
    table = np.empty((len(completion_s), len(FEATURES)), dtype=np.float32, order="F")
    table[:, 0] = task.work_s[kinds, ACCELERATOR] / unit_s
    table[:, 1] = task.work_s[kinds, CPU] / unit_s
    table[:, 2] = task.path_s[kinds] / unit_s
    input_s = np.maximum(view.link_free_s[at] - now_s, 0) + task.input_mb / view.link_mb_per_s[at]
    table[:, 3] = input_s / unit_s
    table[:, 4:6] = (view.backlog_s[at] / units)[:, ::-1] / unit_s
    table[:, 6:8] = np.maximum(view.committed_s[at] - now_s, 0)[:, ::-1] / unit_s
    table[:, 8:10] = (view.busy[at] / units)[:, ::-1]
    accelerators = view.units[at, ACCELERATOR]
    table[:, 10] = view.tasks[at] / np.where(accelerators > 0, accelerators, units[:, CPU])
    table[:, 11] = accelerators
    table[:, 12] = view.units[at, CPU]
    table[:, 13] = completion_s / max(float(completion_s.min()), 1e-9)
    table[:, 14] = view.backlog_gb_s[at] / view.memory_gb[at, CPU] / unit_s
    table[:, 15] = task.memory_gb / view.memory_gb[at, CPU]
    np.log1p(table[:, :8], out=table[:, :8])
    np.log1p(table[:, 10:13], out=table[:, 10:13])
    np.log(table[:, 13], out=table[:, 13])
    np.log1p(table[:, 14], out=table[:, 14])
    return table


#: Share of the learned policy until there are enough observations, and the limits of the share.
FIRST_SHARE, LEAST_SHARE, MOST_SHARE = 0.25, 0.02, 0.97
#: Completed tasks that each arm needs before the share changes.
_LEAST_COMPLETED = 6
#: Factor on the weight of an observation for each later one of its arm.
_DECAY = 0.99
_GOLDEN = 0.6180339887498949


@dataclass(slots=True)
class _Arm:
    completed: int = 0
    weight: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    def add(self, value: float) -> None:
        self.completed += 1
        self.weight = self.weight * _DECAY + 1
        self.mean += (value - self.mean) / self.weight
        self.square += (value**2 - self.square) / self.weight

    @property
    def variance(self) -> float:
        """Return the variance of the mean."""
        return max(self.square - self.mean**2, 0.01) / self.weight


@dataclass(slots=True)
class Guard:
    """Guard of a learned policy: chooses the arm that places a task, by the response times of each arm's tasks.

    Arm 1 is the learned policy, arm 0 the fallback.  Tasks are divided by a share that follows the probability, given
    the responses so far, that the learned policy is the better one.  Both arms always get some of the tasks, so that
    the comparison continues and a change is noticed.
    """

    placed: int = 0
    arms: tuple[_Arm, _Arm] = field(default_factory=lambda: (_Arm(), _Arm()))
    #: By task: the arm that placed it, and its estimated execution time on an idle node.
    unfinished: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of the tasks that the learned policy places."""
        other, learned = self.arms
        if min(other.completed, learned.completed) < _LEAST_COMPLETED:
            return FIRST_SHARE
        deviation = sqrt(2 * (other.variance + learned.variance))
        better = 0.5 * (1 + erf((other.mean - learned.mean) / deviation))
        return min(max(better, LEAST_SHARE), MOST_SHARE)

    def arm(self, task: int, alone_s: float) -> int:
        """Return the arm that places a task; `alone_s` is its estimated execution time on an idle node."""
        self.placed += 1
        chosen = int(self.placed * _GOLDEN % 1.0 < self.share)
        self.unfinished[task] = chosen, alone_s
        return chosen

    def completed(self, task: int, response_s: float) -> None:
        """Record the response time of a completed task."""
        arm, alone_s = self.unfinished.pop(task, (0, 0.0))
        if alone_s > 0 and response_s > 0:
            self.arms[arm].add(log(response_s / alone_s))


#: Nodes whose estimate exceeds this multiple of the best one are never chosen.
SHORTLIST = 1.5
#: Share of the backlog of its units that a task waits for: units are shared, and the most urgent subtasks come first.
WAITED = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedParams(NodeParams):
    """Parameters of `learned`; by default all its parts are enabled."""

    node: str = parameter("slowdown", f"Policy within a node: {', '.join(NODE_POLICIES)}.")
    calibrate: bool = parameter(True, "Whether estimates are corrected by the observed times of subtasks.")
    scorer: bool = parameter(True, "Whether a network corrects the estimated completion times.")
    guard: bool = parameter(True, "Whether responses decide how many tasks the scorer places.")


class Learned(Ect):
    """Chooses the node of least cost near the best: completion * exp(correction), plus the delay of other tasks.

    Later tasks wait for the work of this one on the units of its node, so a task that would need much of a small node
    is better placed where it needs little.  Without a network, or if it returns any number that is not finite, nothing
    is corrected.
    """

    name = "learned"
    Params: ClassVar[type[LearnedParams]] = LearnedParams

    def __init__(self, params: LearnedParams | None = None, network: Network | None = None) -> None:
        self._params = params or self.Params()
        super().__init__(self._params)
        self._network = network if self._params.scorer else None
        self._guard = Guard() if self._params.guard else None

    def learner(self, rng: np.random.Generator) -> Self:
        """Return a copy of this policy with a separate guard."""
        mine = copy(self)
        mine._guard = Guard() if self._params.guard else None  # noqa: SLF001 - of the same class
        return mine

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        nodes = view.candidates()
        if not len(nodes):
            return None
        completion_s = self._cost(view, nodes, now_s, rng)
        best = int(np.argmin(completion_s + others_s(view, nodes)))
        if self._guard is not None:
            alone_s = float(view.task.path_s[view.kind[nodes]].min())
            if not self._guard.arm(view.task.number, alone_s):
                return int(nodes[best])
        return int(nodes[self._proposed(view, nodes, completion_s, now_s)])

    def _wait_s(self, view: ClusterView, nodes: NDArray[np.int64], now_s: float) -> Floats:
        # Subtasks also wait for the memory of a node.
        memory_s = view.backlog_gb_s[nodes] / view.memory_gb[nodes, 0]
        wait_s: Floats = np.maximum(WAITED * super()._wait_s(view, nodes, now_s), memory_s[:, None])
        return wait_s

    def completed(self, task: int, response_s: float) -> None:
        """Pass the response time to the guard."""
        if self._guard is not None:
            self._guard.completed(task, response_s)

    def _proposed(self, view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float) -> int:
        """Return the position in `nodes` of the node that the scorer chooses."""
        found = None
        if self._network is not None and len(nodes) > 1:
            found = scores(self._network, view, nodes, completion_s, now_s)
        return int(np.argmin((completion_s if found is None else np.exp(found)) + others_s(view, nodes)))


def others_s(view: ClusterView, nodes: NDArray[np.int64]) -> Floats:
    """Return how long other tasks would wait for this one on each of `nodes`, (N,): the longer of both classes.

    That is how long the task occupies all units of the class, times the share of the units of all `nodes` that are
    busy: on idle ones, nobody waits.
    """
    units = view.units[nodes]
    busy = view.busy[nodes].sum(axis=0) / np.maximum(units.sum(axis=0), 1)
    delay: Floats = (busy * view.task.work_s[view.kind[nodes]] / np.maximum(units, 1)).max(axis=1)
    return delay


def scores(
    network: Network, view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float
) -> Floats | None:
    """Return the (N,) logarithms of the corrected estimates of `nodes`, lower is better; inf beyond the shortlist.

    Returns None if the network returns any number that is not finite.
    """
    corrections = network.corrections(features(view, nodes, completion_s, now_s))
    if not np.isfinite(corrections).all():
        return None
    found = np.log(np.maximum(completion_s, 1e-9)) + corrections
    return np.where(completion_s <= SHORTLIST * completion_s.min(), found, np.inf)
