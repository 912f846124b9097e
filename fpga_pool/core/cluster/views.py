"""Views of a cluster, which cluster and node policies read; the shell keeps them up to date.

Index conventions: M nodes, K kinds of nodes, 2 classes of units: cores of the CPU, and accelerators.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import Floats, Ints

#: Classes of units.
CPU, ACCELERATOR = 0, 1
#: A task is due when it has been in the cluster for this multiple of its longest chain, or of the usual one if shorter.
STRETCH = 2.0
#: Weight of the latest task in the usual length of the longest chain.
_WEIGHT = 0.05


@dataclass(slots=True, eq=False, kw_only=True)
class Subtask:
    """A step of a task, at its node."""

    #: Number of the task in order of arrival, and of the step in its pipeline.
    task: int
    step: int
    #: Index of the type of subtask.
    type: int
    #: Estimated seconds alone on a unit of each class of its node; infinite if there is no implementation.
    estimate_s: tuple[float, float]
    memory_gb: float
    accelerator_memory_gb: float
    #: Time at which its input was complete.
    ready_s: float
    input_mb: float = 0.0
    #: (metric, value) of its profiling runs, if the node policy is `Profiling`.
    measured: tuple[tuple[int, float], ...] = ()
    #: Virtual deadline of its task (`Deadlines`): earlier is more urgent.
    due_s: float = 0.0

    @property
    def speedup(self) -> float:
        """Estimated speedup of the accelerator over a core; 0 = runs on cores only, infinite = on accelerators only."""
        return self.estimate_s[CPU] / self.estimate_s[ACCELERATOR]


@dataclass(slots=True, eq=False, kw_only=True)
class Unit:
    """All cores of a node, or one accelerator; it executes several subtasks at once, which interfere."""

    kind: int
    #: Maximum number of subtasks executed at once: the cores, or the subtasks that may share an accelerator.
    places: int
    #: Memory of the accelerator; infinite for cores, which use that of the node.
    memory_gb: float
    used_gb: float = 0.0
    #: Estimated seconds of all subtasks that it runs or has queued.
    backlog_s: float = 0.0
    running: list[Subtask] = field(default_factory=list)
    #: Subtasks that the node policy has bound to it, in this order.
    queue: deque[Subtask] = field(default_factory=deque)


@dataclass(slots=True, eq=False, kw_only=True)
class NodeView:
    """One node: unit 0 is its cores, the others are its accelerators."""

    #: Number of the node, and index of its kind.
    number: int
    kind: int
    #: Number of types of subtasks, and the resources of accelerators that they contend for.  The metrics of a subtask
    #: are its shares of the node's cores and memory, its share of each resource, and its speedup, in this order.
    types: int
    resources: tuple[str, ...]
    units: list[Unit]
    memory_gb: float
    #: Memory of the running subtasks; beyond `memory_gb` the cores slow down.
    used_gb: float = 0.0
    #: Ready subtasks that are bound to no unit, in the order in which they became ready.
    ready: list[Subtask] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class TaskView:
    """A task to be placed, with estimates by kind of node; infinite if nodes of the kind cannot execute it."""

    #: Number of the task in order of arrival, and index of its pipeline.
    number: int
    pipeline: int
    input_mb: float
    #: (K, 2) estimated seconds on cores and on accelerators, each subtask on the faster of both.
    work_s: Floats
    #: (K,) estimated seconds of its longest chain of subtasks, without waiting.
    path_s: Floats
    #: Largest memory of one of its subtasks, and (K,) memory times estimated seconds summed over all of them.
    memory_gb: float = 0.0
    work_gb_s: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(slots=True, eq=False, kw_only=True)
class ClusterView:
    """All nodes, and the task to be placed."""

    task: TaskView
    #: (M,) index of the kind of node.
    kind: Ints
    #: (M, 2) cores and accelerators.
    units: Floats
    #: (M,) whether the node takes tasks.
    present: NDArray[np.bool_]
    #: (M,) number of unfinished tasks.
    tasks: Floats
    #: (M, 2) number of units that execute something.
    busy: Floats
    #: (M, 2) memory of the node and of all its accelerators, and the memory that running subtasks use.
    memory_gb: Floats
    used_gb: Floats
    #: (M, 2) estimated seconds of the unfinished subtasks, by class of unit.
    backlog_s: Floats
    #: (M, 2) time at which the units would have completed all work ever placed there, had the estimates been exact.
    committed_s: Floats
    #: (M,) time at which the link has delivered all inputs so far.
    link_free_s: Floats
    #: (M,) bandwidth of the link.
    link_mb_per_s: Floats
    #: Number of pipelines, and number of completed tasks.
    pipelines: int
    completed: int = 0
    #: (M,) memory of the node times estimated seconds of the unfinished subtasks.
    backlog_gb_s: Floats

    def candidates(self) -> NDArray[np.int64]:
        """Return the nodes that take tasks and can execute this one."""
        return np.flatnonzero(self.present & np.isfinite(self.task.path_s[self.kind]))


@dataclass(slots=True)
class Deadlines:
    """Virtual deadlines of tasks: the longer its chain, the later a task is due, up to the usual length."""

    #: Mean length of the chains of the latest tasks; None before the first one.
    _usual_s: float | None = None

    def due_s(self, arrival_s: float, path_s: float) -> float:
        """Return the deadline of the next task that is placed; its longest chain takes `path_s`."""
        if self._usual_s is None:
            self._usual_s = path_s
        self._usual_s += _WEIGHT * (path_s - self._usual_s)
        return arrival_s + STRETCH * min(path_s, self._usual_s)
