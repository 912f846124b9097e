"""Cluster policies without a learned model, which choose the node of a task, and node policies by name."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from fpga_pool.core.cluster.iawp import Iawp
from fpga_pool.core.cluster.nodes import EctUnit, NodePolicy, PatsUnit, RandomUnit, SlowdownUnit, completion_s
from fpga_pool.core.cluster.slowdown import Companions, SlowdownModel
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, ClusterView, NodeView, Subtask, Unit
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import Parametrised, PolicyState
from fpga_pool.core.types import Floats

#: Constructors by name, called with `corun`, `admission` and, if there is a frozen dataclass `Params`, `params`.
NODE_POLICIES: Mapping[str, Callable[..., NodePolicy]] = {
    "ect": EctUnit,
    "iawp": Iawp,
    "pats": PatsUnit,
    "random": RandomUnit,
    "slowdown": SlowdownUnit,
}
_FLAGS: Mapping[str, bool] = {"true": True, "false": False}


def node_policy(text: str, *, corun: bool, admission: bool) -> NodePolicy:
    """Return the node policy that a text describes: NAME, or NAME:PARAMETER=VALUE,PARAMETER=VALUE.

    Raises ValueError for an unknown name, an unknown parameter or a value of the wrong type.
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
class NodeParams(Parameters):
    """Parameters of a cluster policy that concern its nodes."""

    node: str = parameter("ect", f"Policy within a node: {', '.join(NODE_POLICIES)}.")
    corun: bool = parameter(True, "Whether subtasks share an accelerator.")
    admission: bool = parameter(True, "Whether a subtask waits until the node has memory for it.")
    calibrate: bool = parameter(False, "Whether estimates are corrected by the observed times of subtasks.")

    def node_policy(self) -> NodePolicy:
        """Return the policy that decides within nodes."""
        return node_policy(self.node, corun=self.corun, admission=self.admission)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomParams(NodeParams):
    """Random choice of both nodes and units, as the baseline of the paper (section 5.3)."""

    node: str = parameter("random", f"Policy within a node: {', '.join(NODE_POLICIES)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PatsParams(NodeParams):
    """PATS both for nodes and within nodes."""

    node: str = parameter("pats", f"Policy within a node: {', '.join(NODE_POLICIES)}.")


class Placing(ABC):
    """Chooses the candidate of least cost; of equal ones, the first."""

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
    """Chooses any node that can execute the task, at random."""

    name = "random"
    Params = RandomParams

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        return rng.random(len(nodes))


class Jsq(Placing):
    """Joins the shortest queue: tasks per accelerator, or per core of a node without accelerators."""

    name = "jsq"

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        cores, accelerators = view.units[nodes].T
        jsq: Floats = view.tasks[nodes] / np.where(accelerators > 0, accelerators, cores)
        return jsq


class Pats(Placing):
    """Chooses the least loaded node (Teodoro et al. 2012): by the shares of busy units, then by tasks.

    The paper names PATS as a baseline and describes it for units only (section 5.3); this is our reading for nodes.
    """

    name = "pats"
    Params = PatsParams

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        units = np.maximum(view.units[nodes], 1)
        load: Floats = (view.busy[nodes] / units).sum(axis=1)
        # Loads differ by 1 / (cores * accelerators) at least; tasks break ties.
        load += 1e-9 * view.tasks[nodes] / units.sum(axis=1)
        return load


class Ect(Placing):
    """Chooses the earliest estimated completion, with feedback: behind the estimated work of unfinished subtasks."""

    name = "ect"

    def _cost(self, view: ClusterView, nodes: np.ndarray, now_s: float, rng: np.random.Generator) -> Floats:
        return completions_s(view, nodes, self._wait_s(view, nodes, now_s), now_s)

    def _wait_s(self, view: ClusterView, nodes: np.ndarray, now_s: float) -> Floats:
        """Return how long new work waits for the units of each class, in seconds, (N, 2)."""
        wait: Floats = view.backlog_s[nodes] / np.maximum(view.units[nodes], 1)
        return wait


class EctOpen(Ect):
    """Chooses the earliest completion by estimates alone: behind all work placed so far, as if estimates were exact."""

    name = "ect_open"

    def _wait_s(self, view: ClusterView, nodes: np.ndarray, now_s: float) -> Floats:
        wait: Floats = np.maximum(view.committed_s[nodes] - now_s, 0)
        return wait


def completions_s(view: ClusterView, nodes: np.ndarray, wait_s: Floats, now_s: float) -> Floats:
    """Return the estimated seconds from now until each of `nodes` completes the task, (N,); `wait_s` is (N, 2).

    The longer of the input's transfer and the wait for the fullest class used, followed by the longest chain.
    """
    kinds = view.kind[nodes]
    input_s = np.maximum(view.link_free_s[nodes] - now_s, 0) + view.task.input_mb / view.link_mb_per_s[nodes]
    used = view.task.work_s[kinds] > 0
    completion: Floats = np.maximum(input_s, np.where(used, wait_s, 0).max(axis=1)) + view.task.path_s[kinds]
    return completion


# ---- Placement of ready subtasks in a pool of hosts: the earliest completion over all hosts

# Within a host the node policy chooses the unit, exactly as in the simulator of clusters.  Hosts are compared by the
# estimated arrival of the input, the wait for the chosen unit, and the computation time there.


@dataclass(slots=True, eq=False, kw_only=True)
class HostUnit:
    """A slot, or all workers of a CPU pool; a decision updates it after each subtask that it places."""

    unit: Unit
    #: Names of its places: the slot, or the workers, in the order in which they become free.
    places: list[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Option:
    """A way to run a subtask on a host: its CPU pool, and accelerators that need the same time."""

    host: str
    #: The first unit is the CPU pool, the others are accelerators, as `nodes.NodePolicy` expects.
    units: Sequence[HostUnit]
    #: Seconds on a CPU, and on these accelerators; infinite if there is no implementation.
    estimate_s: tuple[float, float]
    #: Seconds until each unit can begin, in addition to its backlog: the load of the function, 0 for the CPU.
    load_s: Sequence[float]
    #: Seconds until the input has arrived.
    input_s: float
    #: Its function, and the functions that now compute on the card of each unit (sorted; none for the CPU pool).
    function: str = ""
    beside: Sequence[Companions] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HostsView:
    """The ready subtasks in order of urgency, each with its options."""

    options: Sequence[Sequence[Option]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Placement of a subtask: host and place, seconds from now until it begins, and seconds that it computes."""

    subtask: int
    host: str
    place: str
    start_s: float
    work_s: float


class EarliestHost:
    """Chooses the host, with the unit that the node policy chooses there, where a subtask is complete first."""

    name = "ect"

    def __init__(self, slowdown: Callable[[], SlowdownModel | None] = lambda: None) -> None:
        """Create the policy; `slowdown` returns the model of how functions slow each other down on a card, or None."""
        self._node, self._slowdown = EctUnit(corun=False, admission=False), slowdown

    def decide(self, view: HostsView, state: PolicyState, now_s: float, rng: np.random.Generator) -> Sequence[Placed]:
        """Place the subtasks one after the other, each behind the previous ones."""
        placed = []
        slowdown = self._slowdown()
        for number, options in enumerate(view.options):
            best: tuple[float, Option, int] | None = None
            for option in options if slowdown is None else [_with_slowdown(option, slowdown) for option in options]:
                unit, end_s = self._within(option, number, rng)
                if unit is not None and (best is None or end_s < best[0]):
                    best = end_s, option, unit
            if best is not None:
                placed.append(_take(number, *best))
        return placed

    def _within(self, option: Option, number: int, rng: np.random.Generator) -> tuple[int | None, float]:
        """Return the unit that the node policy chooses on a host, and the seconds until the subtask completes there."""
        units = [_with_load(held.unit, load_s) for held, load_s in zip(option.units, option.load_s, strict=True)]
        subtask = Subtask(
            task=number, step=0, type=0, estimate_s=option.estimate_s,
            memory_gb=0.0, accelerator_memory_gb=0.0, ready_s=0.0,
        )  # fmt: skip
        view = NodeView(number=0, kind=0, types=1, resources=(), units=units, memory_gb=np.inf)
        unit = self._node.bind(view, subtask, rng)
        if unit is None or not np.isfinite(option.estimate_s[units[unit].kind]):
            return None, np.inf
        wait_s = completion_s(units[unit], subtask) - option.estimate_s[units[unit].kind]
        return unit, max(option.input_s, wait_s) + option.estimate_s[units[unit].kind]


def _with_slowdown(option: Option, slowdown: SlowdownModel) -> Option:
    """Return an option whose load times include the time that other functions on each card add."""
    work_s = option.estimate_s[ACCELERATOR]
    added_s = [work_s * slowdown.cost(option.function, beside) for beside in option.beside]
    load_s = [load_s + more_s for load_s, more_s in zip(option.load_s, added_s, strict=True)]
    return replace(option, load_s=load_s)


def _with_load(unit: Unit, load_s: float) -> Unit:
    """Return a unit whose backlog includes the load of a function."""
    return Unit(
        kind=unit.kind, places=unit.places, memory_gb=unit.memory_gb, backlog_s=unit.backlog_s + load_s,
        running=unit.running, queue=unit.queue,
    )  # fmt: skip


def _take(number: int, end_s: float, option: Option, index: int) -> Placed:
    """Assign a place of the unit to the subtask, and update the unit for the next subtasks."""
    held, unit = option.units[index], option.units[index].unit
    work_s = option.estimate_s[unit.kind]
    place = held.places[0]
    if unit.kind == CPU:
        held.places.append(held.places.pop(0))
    unit.backlog_s += work_s + option.load_s[index]
    unit.queue.append(
        Subtask(
            task=number, step=0, type=0, estimate_s=option.estimate_s,
            memory_gb=0.0, accelerator_memory_gb=0.0, ready_s=0.0,
        )
    )  # fmt: skip
    return Placed(subtask=number, host=option.host, place=place, start_s=end_s - work_s, work_s=work_s)
