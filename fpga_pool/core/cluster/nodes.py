"""Node policies: which unit of its node executes a subtask, and when.

A subtask that becomes ready is bound to a unit at once (`bind`), or stays in the node's list of ready subtasks until a
unit with a free place picks it.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from fpga_pool.core.cluster.slowdown import Companions
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit


class NodePolicy(Protocol):
    """Decides within a node; the shell asks for a pick only while a unit has a free place."""

    #: Whether subtasks share an accelerator, and whether they wait for memory of the node: the shell sees to both.
    corun: bool
    admission: bool

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        """Return the unit to whose queue the subtask goes; None = it waits in the ready list."""
        ...

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        """Return the subtask of the ready list that the unit executes next; None = none of them."""
        ...


@runtime_checkable
class ObservingNodePolicy(NodePolicy, Protocol):
    """A node policy that learns from the runs; the shell profiles them for it."""

    def observe(
        self, kind: int, subtask: Subtask, estimated_s: float, actual_s: float, beside_s: Mapping[Companions, float]
    ) -> None:
        """Learn from a completed run on a unit of class `kind`.

        `estimated_s` is without calibration, and `beside_s` says how long it ran beside which companions.
        """
        ...


class _Binding:
    """Binds each subtask as soon as it is ready."""

    def __init__(self, *, corun: bool, admission: bool) -> None:
        self.corun, self.admission = corun, admission

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        return None


class RandomUnit(_Binding):
    """Any unit with an implementation of the subtask."""

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        able = [i for i, unit in enumerate(view.units) if can_execute(unit, subtask)]
        return able[int(rng.integers(len(able)))]


class EctUnit(_Binding):
    """The unit of the earliest completion by estimates (Ali et al. 2000), behind its backlog.

    Cores work the backlog off side by side; subtasks that share an accelerator are taken to gain nothing by it.
    """

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        best, best_s = 0, np.inf
        for i, unit in enumerate(view.units):
            if can_execute(unit, subtask):
                end_s = completion_s(unit, subtask)
                if end_s < best_s:
                    best, best_s = i, end_s
        return best


def completion_s(unit: Unit, subtask: Subtask) -> float:
    """Return in how many seconds a subtask is expected to be complete on a unit, behind its backlog."""
    wait_s = unit.backlog_s
    if unit.kind == CPU:
        wait_s = wait_s / unit.places if len(unit.running) + len(unit.queue) >= unit.places else 0.0
    return wait_s + subtask.estimate_s[unit.kind]


class PatsUnit:
    """An idle core takes the ready subtask of the least speedup, an accelerator that of the greatest.

    Teodoro et al. (2012); of equal speedups the one that is ready first.
    """

    def __init__(self, *, corun: bool, admission: bool) -> None:
        self.corun, self.admission = corun, admission

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        return None

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        able = [subtask for subtask in view.ready if can_execute(unit, subtask)]
        if not able:
            return None
        if unit.kind == ACCELERATOR:
            return max(able, key=lambda subtask: subtask.speedup)
        return min(able, key=lambda subtask: subtask.speedup)


def can_execute(unit: Unit, subtask: Subtask) -> bool:
    """Return whether the unit has an implementation of the subtask, and enough memory for it when it is empty."""
    if unit.kind == CPU:
        return subtask.estimate_s[CPU] < np.inf
    return subtask.estimate_s[ACCELERATOR] < np.inf and subtask.accelerator_memory_gb <= unit.memory_gb
