"""Node policies: they decide which unit of a node executes a subtask, and when.

A subtask that becomes ready is bound to a unit at once (`bind`), or stays in the node's list of ready subtasks until a
unit with a free place picks it (`pick`).
"""

from collections.abc import Mapping
from heapq import heapify, heapreplace
from typing import Protocol, runtime_checkable

import numpy as np

from fpga_pool.core.cluster.slowdown import Companions, SlowdownModel
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit


class NodePolicy(Protocol):
    """Decides within a node; the shell calls `pick` only while a unit has a free place."""

    #: Whether subtasks share an accelerator, and whether they wait for memory of the node; the shell enforces both.
    corun: bool
    admission: bool

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        """Return the index of the unit that queues the subtask; None = the subtask waits in the ready list."""
        ...

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        """Return the subtask of the ready list that the unit executes next; None = none."""
        ...


@runtime_checkable
class ObservingNodePolicy(NodePolicy, Protocol):
    """A node policy that learns from completed runs, which the shell measures for it."""

    def observe(
        self,
        view: NodeView,
        kind: int,
        subtask: Subtask,
        estimated_s: float,
        actual_s: float,
        beside_s: Mapping[Companions, float],
    ) -> float:
        """Learn from a completed run on a unit of class `kind`; return how long it would have taken alone.

        `estimated_s` is not calibrated.  `beside_s` maps companions to the seconds that the run spent beside them.
        """
        ...


class _Binding:
    """Binds each subtask as soon as it is ready."""

    def __init__(self, *, corun: bool, admission: bool) -> None:
        self.corun, self.admission = corun, admission

    def pick(self, view: NodeView, unit: Unit) -> Subtask | None:
        return None


class RandomUnit(_Binding):
    """Chooses any unit with an implementation of the subtask, at random."""

    def bind(self, view: NodeView, subtask: Subtask, rng: np.random.Generator) -> int | None:
        able = [i for i, unit in enumerate(view.units) if can_execute(unit, subtask)]
        return able[int(rng.integers(len(able)))]


class EctUnit(_Binding):
    """Chooses the unit with the earliest estimated completion behind its backlog (Ali et al. 2000).

    Cores process the backlog in parallel; subtasks that share an accelerator are assumed to gain nothing by it.
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
    """Return the expected seconds until a subtask is complete on a unit, behind its backlog."""
    wait_s = unit.backlog_s
    if unit.kind == CPU:
        wait_s = wait_s / unit.places if len(unit.running) + len(unit.queue) >= unit.places else 0.0
    return wait_s + subtask.estimate_s[unit.kind]


class PatsUnit:
    """Gives an idle core the ready subtask of least speedup, and an accelerator that of greatest speedup.

    Teodoro et al. (2012).  Of equal speedups, the subtask that became ready first is chosen.
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
    """Return whether the unit has an implementation of the subtask and, when empty, enough memory for it."""
    if unit.kind == CPU:
        return subtask.estimate_s[CPU] < np.inf
    return subtask.estimate_s[ACCELERATOR] < np.inf and subtask.accelerator_memory_gb <= unit.memory_gb


# ---- The policy `slowdown`: late binding, by a model of interference that is learned from runs

#: Minimum gain of a companion: what it adds to the total rate of its unit; 1 = a run alone.
LEAST_GAIN = 0.2
#: The same if no other subtask waits.  Below a third, two equal subtasks on average complete earlier one by one.
LEAST_GAIN_ALONE = 0.35
#: The most urgent subtask that gains at least this share of the greatest gain is chosen.
TOLERANCE = 0.8
#: Cores take the most urgent subtask whose speedup on an accelerator is at most 1, or this multiple of the least one.
SIMILAR = 1.5
#: A subtask may be overtaken only by subtasks that are due at most this many seconds later.
PATIENCE_S = 30.0
#: Tolerance for rounding in sums of memory.
_ROUNDING = 1 + 1e-12


class SlowdownUnit:
    """Keeps subtasks waiting until a unit has a place, and gives it the most urgent one that suits what it executes.

    The gain of a subtask is what it adds to the sum of the rates of all subtasks on the unit.  The cores take the
    most urgent one of those that accelerators would speed up least, and only if it completes earlier on a core than
    behind the accelerators' work.
    """

    def __init__(self, *, corun: bool, admission: bool) -> None:
        self.corun, self.admission = corun, admission
        #: Model of the accelerators, learned from all nodes together.
        self.model = SlowdownModel()

    def learner(self, rng: np.random.Generator) -> "SlowdownUnit":
        """Return a copy of this policy with a new model."""
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
            limit = max(SIMILAR * min((each.speedup for each in able), default=0.0), 1.0)
            return next((each for each in able if each.speedup <= limit), None)
        running = [each.type for each in unit.running]
        if running and _idle_core(view):
            able = [each for each in able if self._together_s(each, running) < each.estimate_s[CPU]]
        before = self._total_rate(running)
        gains: dict[int, float] = {}
        for each in able:
            if each.type not in gains:
                gains[each.type] = self._total_rate([*running, each.type]) - before
        least = LEAST_GAIN if len(able) > 1 else LEAST_GAIN_ALONE
        least = max(TOLERANCE * max(gains.values(), default=0.0), least)
        return next((each for each in able if gains[each.type] >= least), None)

    def observe(
        self,
        view: NodeView,
        kind: int,
        subtask: Subtask,
        estimated_s: float,
        actual_s: float,
        beside_s: Mapping[Companions, float],
    ) -> float:
        if kind != ACCELERATOR:
            return actual_s
        self.model.observe(subtask.type, estimated_s, actual_s, beside_s, view.kind)
        return sum(seconds * self.model.rate(subtask.type, beside) for beside, seconds in beside_s.items())

    def _together_s(self, subtask: Subtask, running: list[int]) -> float:
        """Return the estimated seconds of a subtask on an accelerator beside the running ones."""
        alone_s: float = subtask.estimate_s[ACCELERATOR]
        return alone_s / self.model.rate(subtask.type, tuple(sorted(running)))

    def _total_rate(self, types: list[int]) -> float:
        return self.model.total_rate(sorted(types))

    def _better_on_cores(self, view: NodeView, able: list[Subtask]) -> list[Subtask]:
        """Return the subtasks of `able` that complete earlier on a core than behind the work of the accelerators."""
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
        """Return the subtasks of `able` that fit now and whose start does not delay the first one indefinitely."""
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


def _idle_core(view: NodeView) -> bool:
    return any(unit.kind == CPU and len(unit.running) < unit.places for unit in view.units)


def _urgency(subtask: Subtask) -> tuple[float, int, int]:
    return subtask.due_s, subtask.task, subtask.step
