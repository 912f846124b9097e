"""List scheduling of tasks (lattice paper, Algorithm 2), with the kinds and shapes of the tasks.

Index conventions are those of `tasks`.  There are K kinds of tasks; tasks of one kind need the same links and number of
FPGAs.  Malleable tasks first get their shapes (`allotted_shapes`, `thrifty_shapes`) and are then scheduled.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.core.types import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """When and where each task runs: the arrays of `TaskSchedule` without its bounds."""

    enclosure: Ints
    shape: Ints
    begin_s: Floats
    end_s: Floats
    member_begin: Ints
    members: Ints

    @property
    def wct_s(self) -> float:
        """The time when the last task ends."""
        return float(self.end_s.max(initial=0.0))


def loops() -> ModuleType:
    """Return the module of the loops; the first call compiles them, or loads them from the cache."""
    from fpga_pool.core.lattice.kernels import listing

    return listing


def first_fpgas(problem: TaskProblem) -> Ints:
    """Return (E + 1,) the index of each enclosure's first FPGA among all FPGAs."""
    return np.concatenate(([0], np.cumsum(problem.enclosure_fpgas))).astype(np.int64)


def kinds(links: Ints, width: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (T,) the kind of each task, and (K,) the links and the number of FPGAs that each kind needs."""
    key, kind = np.unique(width * len(Links) + links, return_inverse=True)
    return kind.astype(np.int64), key % len(Links), key // len(Links)


def can_hold(problem: TaskProblem, links: Ints, width: Ints) -> Bools:
    """Return (K, E) whether each enclosure, if all of its FPGAs are free, can take a task of each kind."""
    size, topology = problem.enclosure_fpgas, problem.enclosure_links
    holds = width[:, None] <= size
    closes = (topology == Topology.FULL) | ((topology == Topology.RING) & (width[:, None] == size))
    wants_ring: Bools = (links == Links.RING) & (width > 2)
    found: Bools = holds & (closes | ~wants_ring[:, None])
    return found


def possible_shapes(problem: TaskProblem) -> Bools:
    """Return (S,) whether any enclosure can take the shape."""
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    kind, kind_links, kind_width = kinds(links, problem.shape_fpgas)
    found: Bools = np.any(can_hold(problem, kind_links, kind_width), axis=1)
    return found[kind]


def misfit(problem: TaskProblem) -> int | None:
    """Return the first task that no enclosure can take in any shape; None if all can run."""
    if problem.tasks == 0:
        return None
    fits = np.logical_or.reduceat(possible_shapes(problem), problem.shape_begin[:-1])
    return None if fits.all() else int(np.argmin(fits))


class Work(NamedTuple):
    """Tasks in one shape each: (T,) FPGAs, seconds and kind; (K,) links and FPGAs of each kind."""

    width: Ints
    seconds: Floats
    kind: Ints
    kind_links: Ints
    kind_width: Ints


def rigid_work(problem: TaskProblem, shape: Ints) -> Work:
    """Return the tasks in their shapes (T,); raise a ValueError if one fits in no enclosure."""
    width = problem.shape_fpgas[shape]
    kind, kind_links, kind_width = kinds(problem.links, width)
    somewhere: Bools = np.any(can_hold(problem, kind_links, kind_width), axis=1)
    lost = np.flatnonzero(~somewhere[kind])
    if len(lost):
        raise ValueError(f"task {lost[0]}: {width[lost[0]]} FPGAs with the requested links are in no enclosure")
    return Work(width, problem.shape_seconds[shape], kind, kind_links, kind_width)


def empty_schedule(problem: TaskProblem, shape: Ints) -> Placed:
    """Return the arrays of a schedule, to be filled."""
    return _empty(shape, _member_begin(problem, shape))


def _member_begin(problem: TaskProblem, shape: Ints) -> Ints:
    return np.concatenate(([0], np.cumsum(problem.shape_fpgas[shape]))).astype(np.int64)


def _empty(shape: Ints, member_begin: Ints) -> Placed:
    tasks = len(shape)
    return Placed(
        enclosure=np.zeros(tasks, np.int64),
        shape=shape,
        begin_s=np.zeros(tasks),
        end_s=np.zeros(tasks),
        member_begin=member_begin,
        members=np.zeros(int(member_begin[-1]), np.int64),
    )


class ListScheduler:
    """Schedules tasks, each in one shape, by any number of orders, and shares the preparations between them.

    `shape` (T,) are indices of the problem's shapes.  Decisions are made only at multiples of `slice_s`; 0 = whenever
    FPGAs become free or a task arrives.  With `strict` no task overtakes the first waiting one.  Raises ValueError if a
    task fits in no enclosure.
    """

    def __init__(self, problem: TaskProblem, shape: Ints, *, slice_s: float = 0.0, strict: bool = False) -> None:
        work = rigid_work(problem, shape)
        self._shape, self._member_begin = shape, _member_begin(problem, shape)
        self._enclosures = problem.enclosure_fpgas, problem.enclosure_links, first_fpgas(problem)
        self._tasks = (
            work.width, work.seconds, problem.arrival_s, np.argsort(problem.arrival_s, kind="stable"), problem.function,
            work.kind, work.kind_links, work.kind_width, problem.loaded, problem.ready_s, self._member_begin,
            problem.load_s, slice_s, strict,
        )  # fmt: skip
        self._loop = loops().list_schedule

    def schedule(self, order: Ints) -> Placed:
        """Return the schedule in which, at each event, the first tasks of `order` (T,) that fit begin."""
        placed = _empty(self._shape, self._member_begin)
        count = self._loop(
            *self._enclosures, np.ascontiguousarray(order), *self._tasks,
            placed.enclosure, placed.begin_s, placed.end_s, placed.members,
        )  # fmt: skip
        if count != len(self._shape):
            raise AssertionError(f"{len(self._shape) - count} tasks were never placed")
        return placed


def list_schedule(
    problem: TaskProblem, shape: Ints, order: Ints, *, slice_s: float = 0.0, strict: bool = False
) -> Placed:
    """Return the schedule for one order (T,) of the tasks, most urgent first; see `ListScheduler`."""
    return ListScheduler(problem, shape, slice_s=slice_s, strict=strict).schedule(order)


# ---- Shapes of malleable tasks


def allotted_shapes(problem: TaskProblem) -> Ints:
    """Return (T,) a shape for each task that balances total FPGA-seconds and the longest task.

    Of its shapes within a common time limit, each task takes the one with the fewest FPGA-seconds.  The limit minimizes
    the larger of FPGA-seconds per FPGA and longest task (Turek, Wolf and Yu, "Approximate Algorithms for Scheduling
    Parallelizable Tasks", 1992).  Raises ValueError if a task fits in no enclosure in any shape.
    """
    if problem.rigid or problem.tasks == 0:
        return problem.shape_begin[:-1]
    area = np.where(possible_shapes(problem), problem.shape_fpgas * problem.shape_seconds, np.inf)
    limits = np.unique(problem.shape_seconds[np.isfinite(area)])
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if _area(problem, area, limits[middle]) / problem.fpgas <= limits[middle]:
            high = middle
        else:
            low = middle + 1
    if low > 0 and _area(problem, area, limits[low - 1]) / problem.fpgas < limits[low]:
        low -= 1
    least = _least(problem, area, limits[low] if len(limits) else np.inf)
    lost = np.flatnonzero(np.isinf(least))
    if len(lost):
        raise ValueError(f"task {lost[0]}: no enclosure can take it in any shape")
    within = np.where(problem.shape_seconds <= limits[low], area, np.inf)
    chosen = within == np.repeat(least, np.diff(problem.shape_begin))
    first: Ints = np.minimum.reduceat(np.where(chosen, np.arange(len(area)), len(area)), problem.shape_begin[:-1])
    return first


def _least(problem: TaskProblem, area: Floats, limit_s: float) -> Floats:
    """Return the smallest FPGA-seconds over each task's shapes within the limit, shape (T,); inf if no shape fits."""
    least: Floats = np.minimum.reduceat(
        np.where(problem.shape_seconds <= limit_s, area, np.inf), problem.shape_begin[:-1]
    )
    return least


def _area(problem: TaskProblem, area: Floats, limit_s: float) -> float:
    return float(_least(problem, area, limit_s).sum())


def thrifty_shapes(problem: TaskProblem, limit_s: float) -> Ints:
    """Return (T,) the shape with the fewest FPGA-seconds of those that take at most `limit_s`, or else the fastest."""
    possible = possible_shapes(problem)
    area = np.where(possible, problem.shape_fpgas * problem.shape_seconds, np.inf)
    seconds = np.where(possible, problem.shape_seconds, np.inf)
    quickest = np.repeat(np.minimum.reduceat(seconds, problem.shape_begin[:-1]), np.diff(problem.shape_begin))
    cost = np.where(seconds <= np.maximum(limit_s, quickest), area, np.inf)
    least = np.repeat(np.minimum.reduceat(cost, problem.shape_begin[:-1]), np.diff(problem.shape_begin))
    chosen = np.where(cost == least, np.arange(len(cost)), len(cost))
    found: Ints = np.minimum.reduceat(chosen, problem.shape_begin[:-1])
    return found
