"""The node policy `slowdown`: late binding, by a model of interference that is learned from the runs."""

from collections.abc import Mapping
from heapq import heapify, heapreplace

import numpy as np

from fpga_pool.core.cluster.nodes import can_execute
from fpga_pool.core.cluster.slowdown import Companions, SlowdownModel
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit

#: A companion has to add this much to what its unit does, in runs alone.
LEAST_GAIN = 0.2
#: The most urgent subtask is chosen unless another one gains more than this factor more.
TOLERANCE = 0.8
#: A subtask may be overtaken by those that are due at most so many seconds later.
PATIENCE_S = 30.0
#: Sums of memory are not exact.
_ROUNDING = 1 + 1e-12


class SlowdownUnit:
    """Subtasks wait until a unit has a place; it takes the most urgent of those that suit what it executes.

    The gain of a subtask is what it adds to the sum of the rates of all that run on the unit. The cores take a
    most urgent subtask, but one that an accelerator executes too only if it would complete there earlier than behind
    the accelerators' work.
    """

    def __init__(self, *, corun: bool, admission: bool) -> None:
        self.corun, self.admission = corun, admission
        #: Of accelerators, learned from all nodes together.
        self.model = SlowdownModel()

    def learner(self, rng: np.random.Generator) -> "SlowdownUnit":
        """Return this policy with a model of its own."""
        return SlowdownUnit(corun=self.corun, admission=self.admission)

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        return None

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        able = sorted((each for each in view.ready if can_execute(unit, each)), key=_urgency)
        if unit.kind == CPU:
            able = self._better_on_cores(view, able)
        if not able:
            return None
        able = self._startable(view, unit, able)
        if unit.kind == CPU:
            return able[0] if able else None
        running = [each.type for each in unit.running]
        before = self._total_rate(running)
        gains: dict[int, float] = {}
        for each in able:
            if each.type not in gains:
                gains[each.type] = self._total_rate([*running, each.type]) - before
        least = max(TOLERANCE * max(gains.values(), default=0.0), LEAST_GAIN)
        return next((each for each in able if gains[each.type] >= least), None)

    def observe(
        self, kind: int, subtask: Subtask, estimated_s: float, actual_s: float, beside_s: Mapping[Companions, float]
    ) -> None:
        """Learn from a completed run on a unit of class `kind`; `estimated_s` is without calibration."""
        if kind == ACCELERATOR:
            self.model.observe(subtask.type, estimated_s, actual_s, beside_s)

    def _total_rate(self, types: list[int]) -> float:
        return self.model.total_rate(sorted(types))

    def _better_on_cores(self, view: NodeView, able: list[Subtask]) -> list[Subtask]:
        """Return those of `able` that complete earlier on a core than behind the work of the accelerators."""
        free_s = [unit.backlog_s for unit in view.units if unit.kind == ACCELERATOR]
        if not free_s:
            return able
        heapify(free_s)
        until_s: dict[int, float] = {}
        for each in sorted((each for each in view.ready if each.estimate_s[ACCELERATOR] < np.inf), key=_urgency):
            until_s[id(each)] = free_s[0] + each.estimate_s[ACCELERATOR]
            heapreplace(free_s, until_s[id(each)])
        return [each for each in able if each.estimate_s[CPU] <= until_s.get(id(each), np.inf)]

    def _startable(self, view: NodeView, unit: Unit, able: list[Subtask]) -> list[Subtask]:
        """Return those that fit, and whose start does not delay the first one without end."""
        first = able[0]
        node_gb = view.memory_gb * _ROUNDING if self.admission else np.inf
        later_gb = sum(
            each.memory_gb for other in view.units for each in other.running if _urgency(each) > _urgency(first)
        )
        later_own_gb = sum(each.accelerator_memory_gb for each in unit.running if _urgency(each) > _urgency(first))
        startable = []
        for each in able:
            if each is not first:
                if each.due_s > first.due_s + PATIENCE_S:
                    break
                if later_gb + each.memory_gb > node_gb - first.memory_gb:
                    continue
                if unit.kind == ACCELERATOR and (
                    later_own_gb + each.accelerator_memory_gb > unit.memory_gb - first.accelerator_memory_gb
                ):
                    continue
            if view.used_gb + each.memory_gb > node_gb:
                continue
            if unit.kind == ACCELERATOR and unit.used_gb + each.accelerator_memory_gb > unit.memory_gb * _ROUNDING:
                continue
            startable.append(each)
        return startable


def _urgency(subtask: Subtask) -> tuple[float, int, int]:
    return subtask.due_s, subtask.task, subtask.step
