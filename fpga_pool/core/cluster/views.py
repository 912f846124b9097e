"""Views of a cluster: what the policies for clusters and for nodes read; the shell keeps them up to date.

Index conventions: M nodes, K kinds of nodes, 2 classes of units: cores of the CPU, and accelerators.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.types import Floats, Ints

#: Classes of units.
CPU, ACCELERATOR = 0, 1
#: A task is due when it has been in the cluster for so many times its longest chain.
STRETCH = 1.5


@dataclass(slots=True, eq=False, kw_only=True)
class Subtask:
    """A step of a task, at its node."""

    #: Number of the task in order of arrival, and of the step in its pipeline.
    task: int
    step: int
    #: Index of the type of subtask.
    type: int
    #: Estimated seconds, alone on a unit of each class of its node; infinite where there is no implementation.
    estimate_s: tuple[float, float]
    memory_gb: float
    accelerator_memory_gb: float
    #: When its input was complete.
    ready_s: float
    input_mb: float = 0.0
    #: (metric, value) of its profiling runs, where the node policy is `Profiling`.
    measured: tuple[tuple[int, float], ...] = ()
    #: Virtual deadline of its task: less is more urgent (`due_s`).
    due_s: float = 0.0

    @property
    def speedup(self) -> float:
        """The estimated gain of the accelerator over a core; 0 = runs on the CPU only, infinite = never there."""
        return self.estimate_s[CPU] / self.estimate_s[ACCELERATOR]


@dataclass(slots=True, eq=False, kw_only=True)
class Unit:
    """The cores of a node together, or one accelerator: executes several subtasks at once, which interfere."""

    kind: int
    #: How many subtasks it executes at most: cores, or those that may share an accelerator.
    places: int
    #: Memory of its own; infinite for cores, which use that of the node.
    memory_gb: float
    used_gb: float = 0.0
    #: Estimated seconds of all that it runs and that is queued for it.
    backlog_s: float = 0.0
    running: list[Subtask] = field(default_factory=list)
    #: Subtasks that a node policy has bound to it, in this order.
    queue: deque[Subtask] = field(default_factory=deque)


@dataclass(slots=True, eq=False, kw_only=True)
class NodeView:
    """One node: the unit 0 is its cores, the others are its accelerators."""

    #: Number of the node, and index of its kind.
    number: int
    kind: int
    #: How many types of subtasks there are, and the resources of accelerators that they contend for.  The metrics of a
    #: subtask are its shares of the node's cores and memory, of each resource, and its speedup, in this order.
    types: int
    resources: tuple[str, ...]
    units: list[Unit]
    memory_gb: float
    #: Memory of the running subtasks; beyond `memory_gb` the cores slow down.
    used_gb: float = 0.0
    #: Subtasks that are ready and bound to no unit, in order of readiness.
    ready: list[Subtask] = field(default_factory=list)


@dataclass(slots=True, eq=False, kw_only=True)
class TaskView:
    """A task that has to be placed, by kind of node; infinite where a node of the kind cannot execute it."""

    #: Number of the task in order of arrival, and index of its pipeline.
    number: int
    pipeline: int
    input_mb: float
    #: (K, 2) estimated seconds on cores and on accelerators, each subtask where it is faster.
    work_s: Floats
    #: (K,) estimated seconds of its longest chain of subtasks, without waiting.
    path_s: Floats
    #: The most memory that one of its subtasks uses, and (K,) memory times estimated seconds of all of them.
    memory_gb: float = 0.0
    work_gb_s: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(slots=True, eq=False, kw_only=True)
class ClusterView:
    """All nodes, and the task that is to be placed."""

    task: TaskView
    #: (M,) index of the kind of node.
    kind: Ints
    #: (M, 2) cores and accelerators.
    units: Floats
    #: (M,) whether it takes tasks.
    present: NDArray[np.bool_]
    #: (M,) unfinished tasks.
    tasks: Floats
    #: (M, 2) units that execute something.
    busy: Floats
    #: (M, 2) memory of the node and of all its accelerators, and how much running subtasks use.
    memory_gb: Floats
    used_gb: Floats
    #: (M, 2) estimated seconds of the unfinished subtasks, by class of unit.
    backlog_s: Floats
    #: (M, 2) when the units would have done all work that was ever placed there, had the estimates been right.
    committed_s: Floats
    #: (M,) when the link has delivered all inputs so far.
    link_free_s: Floats
    #: (M,) what the link delivers.
    link_mb_per_s: Floats
    #: How many pipelines there are, and how many tasks have been completed.
    pipelines: int
    completed: int = 0
    #: (M,) memory of the node times estimated seconds of the unfinished subtasks.
    backlog_gb_s: Floats

    def candidates(self) -> NDArray[np.int64]:
        """Return the nodes that take tasks and can execute this one."""
        return np.flatnonzero(self.present & np.isfinite(self.task.path_s[self.kind]))


def due_s(arrival_s: float, path_s: float) -> float:
    """Return the virtual deadline of a task with a longest chain of `path_s`: long tasks can wait longer."""
    return arrival_s + STRETCH * path_s
