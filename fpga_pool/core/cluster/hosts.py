"""Where a subtask that is ready runs in a pool of hosts: the earliest completion over all of them.

Within a host the node policy chooses the unit, exactly as in the simulator of clusters.  Hosts are compared by the
estimated arrival of the input, the wait for the unit that was chosen, and the work there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.cluster.nodes import EctUnit, NodePolicy, completion_s
from fpga_pool.core.cluster.slowdown import Companions, SlowdownModel
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit
from fpga_pool.core.policy import PolicyState


@dataclass(slots=True, eq=False, kw_only=True)
class HostUnit:
    """A slot, or the workers of a CPU pool together, as the policy knows it between the subtasks of one decision."""

    unit: Unit
    #: Names of its places: the slot, or the workers, the next to be free first.
    places: list[str]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Option:
    """A way to run a subtask on a host: its CPU pool, and accelerators that need the same time."""

    host: str
    #: The first is the CPU pool, the others are accelerators (`nodes.NodePolicy` reads them so).
    units: Sequence[HostUnit]
    #: Seconds on a CPU, and on these accelerators; infinite where there is no implementation.
    estimate_s: tuple[float, float]
    #: Seconds until each unit can begin beside its backlog: the load of the function, 0 for the CPU.
    load_s: Sequence[float]
    #: Seconds until the input is there.
    input_s: float
    #: Its function, and what computes on the card of each accelerator now (sorted); nothing beside the CPU pool.
    function: str = ""
    beside: Sequence[Companions] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HostsView:
    """The subtasks that are ready, in order of urgency, each with its options."""

    options: Sequence[Sequence[Option]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a subtask is to run: seconds from now until it begins, and that it computes."""

    subtask: int
    host: str
    place: str
    start_s: float
    work_s: float


class EarliestHost:
    """The host, and on it the unit of the node policy, where a subtask is complete first."""

    name = "ect"

    def __init__(
        self, node: NodePolicy | None = None, slowdown: Callable[[], SlowdownModel | None] = lambda: None
    ) -> None:
        """`slowdown` returns what is known of how functions slow each other down on a card."""
        self._node, self._slowdown = node or EctUnit(corun=False, admission=False), slowdown

    def decide(self, view: HostsView, state: PolicyState, now_s: float, rng: np.random.Generator) -> Sequence[Placed]:
        """Place the subtasks one after the other, each behind those before it."""
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
        """Return the unit of a host that the node policy chooses, and when the subtask is complete there."""
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
    """Return an option with what the neighbours on each card add to the time there; it counts as that of a load."""
    work_s = option.estimate_s[ACCELERATOR]
    added_s = [work_s * (1 / slowdown.rate(option.function, beside) - 1) if beside else 0.0 for beside in option.beside]
    load_s = [load_s + more_s for load_s, more_s in zip(option.load_s, added_s, strict=True)]
    return replace(option, load_s=load_s)


def _with_load(unit: Unit, load_s: float) -> Unit:
    """Return a unit whose backlog includes the load of a function."""
    return Unit(
        kind=unit.kind, places=unit.places, memory_gb=unit.memory_gb, backlog_s=unit.backlog_s + load_s,
        running=unit.running, queue=unit.queue,
    )  # fmt: skip


def _take(number: int, end_s: float, option: Option, index: int) -> Placed:
    """Give the subtask a place of the unit, and let the next ones see it there."""
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
