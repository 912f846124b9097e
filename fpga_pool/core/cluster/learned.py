"""The policy `learned`: ECT, corrected by the scorer, within guard rails."""

from copy import copy
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.cluster.guard import Guard
from fpga_pool.core.cluster.policies import Ect, NodeParams
from fpga_pool.core.cluster.registry import NODE_POLICIES
from fpga_pool.core.cluster.scorer import Network, features
from fpga_pool.core.cluster.views import ClusterView
from fpga_pool.core.policy import PolicyState
from fpga_pool.core.types import Floats

#: Nodes whose estimate is beyond this multiple of the best one are never chosen.
SHORTLIST = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedParams(NodeParams):
    """The whole chain by default."""

    node: str = field(default="slowdown", metadata={"help": f"Policy within a node: {', '.join(NODE_POLICIES)}."})
    calibrate: bool = field(default=True, metadata={"help": "Whether estimates follow the times that subtasks took."})
    guard: bool = field(default=True, metadata={"help": "Whether responses decide how many tasks the scorer places."})


class Learned(Ect):
    """The least of estimated completion times exp(correction), among the nodes around the best estimate.

    Without a network, or where it returns anything but finite numbers, this is ECT.
    """

    name = "learned"
    Params: ClassVar[type[LearnedParams]] = LearnedParams

    def __init__(self, params: LearnedParams | None = None, network: Network | None = None) -> None:
        self._params = params or self.Params()
        super().__init__(self._params)
        self._network = network
        self._guard = Guard() if self._params.guard else None

    def learner(self, rng: np.random.Generator) -> Self:
        """Return this policy with a guard of its own."""
        mine = copy(self)
        mine._guard = Guard() if self._params.guard else None  # noqa: SLF001 - of the same class
        return mine

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        nodes = view.candidates()
        if not len(nodes):
            return None
        completion_s = self._cost(view, nodes, now_s, rng)
        best = int(np.argmin(completion_s))
        if self._guard is not None:
            alone_s = float(view.task.path_s[view.kind[nodes]].min())
            if not self._guard.arm(view.task.number, alone_s):
                return int(nodes[best])
        return int(nodes[self._proposed(view, nodes, completion_s, now_s)])

    def completed(self, task: int, response_s: float) -> None:
        """Have the guard compare the response."""
        if self._guard is not None:
            self._guard.completed(task, response_s)

    def _proposed(self, view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float) -> int:
        """Return the position in `nodes` of what the scorer chooses."""
        if self._network is None or len(nodes) == 1:
            return int(np.argmin(completion_s))
        found = scores(self._network, view, nodes, completion_s, now_s)
        return int(np.argmin(completion_s if found is None else found))


def scores(
    network: Network, view: ClusterView, nodes: NDArray[np.int64], completion_s: Floats, now_s: float
) -> Floats | None:
    """Return (N,) logarithms of the corrected estimates of `nodes`, the least is best, infinite beyond the shortlist.

    None if the network returns anything but finite numbers.
    """
    corrections = network.corrections(features(view, nodes, completion_s, now_s))
    if not np.isfinite(corrections).all():
        return None
    found = np.log(np.maximum(completion_s, 1e-9)) + corrections
    return np.where(completion_s <= SHORTLIST * completion_s.min(), found, np.inf)
