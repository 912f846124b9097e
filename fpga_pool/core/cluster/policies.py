"""Cluster policies without a learned model: which node takes a task, and which policy decides within the nodes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fpga_pool.core.cluster.late import SlowdownUnit
from fpga_pool.core.cluster.nodes import EctUnit, NodePolicy, PatsUnit, RandomUnit
from fpga_pool.core.cluster.views import ClusterView
from fpga_pool.core.learned.iawp import Iawp
from fpga_pool.core.policy import Parametrised, PolicyState
from fpga_pool.core.types import Floats, parameter

#: By name: called with `corun`, `admission` and parameters of its own, a frozen dataclass `Params` where it has some.
NODE_POLICIES: Mapping[str, Callable[..., NodePolicy]] = {
    "ect": EctUnit,
    "iawp": Iawp,
    "pats": PatsUnit,
    "random": RandomUnit,
    "slowdown": SlowdownUnit,
}
_FLAGS: Mapping[str, bool] = {"true": True, "false": False}


def node_policy(text: str, *, corun: bool, admission: bool) -> NodePolicy:
    """Return the policy that a text names: NAME, or NAME:PARAMETER=VALUE,PARAMETER=VALUE.

    ValueError names what there is, or what is wrong.
    """
    name, colon, listed = text.partition(":")
    if name not in NODE_POLICIES:
        raise ValueError(f"node: expected one of {', '.join(NODE_POLICIES)}, got {name!r}")
    made = NODE_POLICIES[name]
    if not colon:
        return made(corun=corun, admission=admission)
    params: Any = made.Params if isinstance(made, Parametrised) else None
    defaults: dict[str, Any] = {field.name: field.default for field in fields(params)} if params else {}
    values = {}
    for assigned in listed.split(","):
        key, _, value = assigned.partition("=")
        if key not in defaults:
            raise ValueError(f"node: {name}: {key!r}: no such parameter; available: {', '.join(defaults) or 'none'}")
        kind: Any = type(defaults[key])
        try:
            values[key] = _FLAGS[value] if kind is bool else kind(value)
        except (KeyError, ValueError):
            raise ValueError(f"node: {name}: {key}: expected a value of type {kind.__name__}, got {value!r}") from None
    return made(corun=corun, admission=admission, params=params(**values))


# ---- Cluster policies


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParams:
    """What a cluster policy has its nodes do."""

    node: str = parameter("ect", f"Policy within a node: {', '.join(NODE_POLICIES)}.")
    corun: bool = parameter(True, "Whether subtasks share an accelerator.")
    admission: bool = parameter(True, "Whether a subtask waits until the node has memory for it.")
    calibrate: bool = parameter(False, "Whether estimates follow the times that subtasks took.")

    def node_policy(self) -> NodePolicy:
        """Return the policy within nodes."""
        return node_policy(self.node, corun=self.corun, admission=self.admission)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomParams(NodeParams):
    """As in the paper, where the baseline chooses nodes and units at random (section 5.3)."""

    node: str = parameter("random", f"Policy within a node: {', '.join(NODE_POLICIES)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatsParams(NodeParams):
    """PATS on both levels."""

    node: str = parameter("pats", f"Policy within a node: {', '.join(NODE_POLICIES)}.")


class Placing(ABC):
    """Chooses the candidate of the least cost; the first of equal ones."""

    Params: ClassVar[type[NodeParams]] = NodeParams
    name: ClassVar[str]

    def __init__(self, params: NodeParams | None = None) -> None:
        params = params or self.Params()
        self.node: NodePolicy = params.node_policy()
        self.calibrate = params.calibrate

    def decide(self, view: ClusterView, state: PolicyState, now_s: float, rng: np.random.Generator) -> int | None:
        nodes = view.candidates()
        if not len(nodes):
            return None
        return int(nodes[np.argmin(self._cost(view, nodes, now_s, rng))])

    @abstractmethod
    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        """Return the cost of each of `nodes`, (N,)."""


class Random(Placing):
    """Any node that can execute the task."""

    name = "random"
    Params = RandomParams

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        return rng.random(len(nodes))


class Jsq(Placing):
    """Join the shortest queue: tasks for each accelerator, or for each core of a node without accelerators."""

    name = "jsq"

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        cores, accelerators = view.units[nodes].T
        jsq: Floats = view.tasks[nodes] / np.where(accelerators > 0, accelerators, cores)
        return jsq


class Pats(Placing):
    """The least loaded node (Teodoro et al. 2012): by units that execute something, then by tasks.

    The paper names PATS as a baseline and describes it for units only (section 5.3); this is our reading for nodes.
    """

    name = "pats"
    Params = PatsParams

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        units = np.maximum(view.units[nodes], 1)
        load: Floats = (view.busy[nodes] / units).sum(axis=1)
        # Loads differ by 1 / (cores * accelerators) at least; tasks decide among equal ones.
        load += 1e-9 * view.tasks[nodes] / units.sum(axis=1)
        return load


class Ect(Placing):
    """The earliest completion by estimates, with feedback: behind the estimated work of the unfinished subtasks."""

    name = "ect"

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        return completion_s(view, nodes, self._wait_s(view, nodes, now_s), now_s)

    def _wait_s(self, view: ClusterView, nodes: np.ndarray, now_s: float) -> Floats:
        """Return how long new work waits for the units of each class, (N, 2)."""
        wait: Floats = view.backlog_s[nodes] / np.maximum(view.units[nodes], 1)
        return wait


class EctOpen(Ect):
    """The earliest completion by estimates alone: behind all work placed so far, had it taken as estimated."""

    name = "ect_open"

    def _wait_s(self, view: ClusterView, nodes: np.ndarray, now_s: float) -> Floats:
        wait: Floats = np.maximum(view.committed_s[nodes] - now_s, 0)
        return wait


def completion_s(view: ClusterView, nodes: np.ndarray, wait_s: Floats, now_s: float) -> Floats:
    """Return when each of `nodes` would have done the task, from now: input, the fullest class it uses, longest chain.

    `wait_s` is (N, 2); returns (N,).
    """
    kinds = view.kind[nodes]
    input_s = np.maximum(view.link_free_s[nodes] - now_s, 0) + view.task.input_mb / view.link_mb_per_s[nodes]
    used = view.task.work_s[kinds] > 0
    completion: Floats = np.maximum(input_s, np.where(used, wait_s, 0).max(axis=1)) + view.task.path_s[kinds]
    return completion
