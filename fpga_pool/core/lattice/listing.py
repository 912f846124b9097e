"""List scheduling of tasks (lattice paper, Algorithm 2), and what it needs to know of a problem.

Index conventions are those of `tasks`.  K kinds: tasks with the same wish for links and the same number of FPGAs.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpga_pool.core.lattice.tasks import Links, TaskProblem, Topology
from fpga_pool.core.types import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """When and where each task runs; the arrays of `TaskSchedule` but for its bounds."""

    enclosure: Ints
    shape: Ints
    begin_s: Floats
    end_s: Floats
    member_begin: Ints
    members: Ints

    @property
    def wct_s(self) -> float:
        """When the last task ends."""
        return float(self.end_s.max(initial=0.0))


def loops() -> ModuleType:
    """Return the module of the loops; the first call compiles them, or loads what was compiled before."""
    from fpga_pool.core.lattice import listing_kernels

    return listing_kernels


def first_fpgas(problem: TaskProblem) -> Ints:
    """Return (E + 1,) where the FPGAs of each enclosure begin among all."""
    return np.concatenate(([0], np.cumsum(problem.enclosure_fpgas))).astype(np.int64)


def kinds(links: Ints, width: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (T,) the kind of each task, and (K,) the links and the FPGAs that each kind asks for."""
    key, kind = np.unique(width * len(Links) + links, return_inverse=True)
    return kind.astype(np.int64), key % len(Links), key // len(Links)


def can_hold(problem: TaskProblem, links: Ints, width: Ints) -> Bools:
    """Return (K, E): whether the enclosure, when all of it is free, can take a task that asks for this."""
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
    """Return the first task that no enclosure can take in any shape; None = all can run."""
    if problem.tasks == 0:
        return None
    fits = np.logical_or.reduceat(possible_shapes(problem), problem.shape_begin[:-1])
    return None if fits.all() else int(np.argmin(fits))


class Work(NamedTuple):
    """Tasks in one shape each: (T,) FPGAs, seconds and kind; (K,) what each kind asks for."""

    width: Ints
    seconds: Floats
    kind: Ints
    kind_links: Ints
    kind_width: Ints


def rigid_work(problem: TaskProblem, shape: Ints) -> Work:
    """Return the tasks in their shapes, or raise a ValueError where one fits in no enclosure."""
    width = problem.shape_fpgas[shape]
    kind, kind_links, kind_width = kinds(problem.links, width)
    somewhere: Bools = np.any(can_hold(problem, kind_links, kind_width), axis=1)
    lost = np.flatnonzero(~somewhere[kind])
    if len(lost):
        raise ValueError(f"task {lost[0]}: {width[lost[0]]} FPGAs linked as it asks are in no enclosure")
    return Work(width, problem.shape_seconds[shape], kind, kind_links, kind_width)


def empty_schedule(problem: TaskProblem, shape: Ints) -> Placed:
    """Return arrays to fill."""
    tasks = problem.tasks
    member_begin = np.concatenate(([0], np.cumsum(problem.shape_fpgas[shape]))).astype(np.int64)
    return Placed(
        enclosure=np.zeros(tasks, np.int64),
        shape=shape,
        begin_s=np.zeros(tasks),
        end_s=np.zeros(tasks),
        member_begin=member_begin,
        members=np.zeros(int(member_begin[-1]), np.int64),
    )


def list_schedule(
    problem: TaskProblem, shape: Ints, order: Ints, *, slice_s: float = 0.0, strict: bool = False
) -> Placed:
    """Return the schedule that begins, whenever something changes, the first tasks of the order that fit.

    Parameters
    ----------
    problem:
        The tasks and the enclosures.
    shape:
        (T,) the shape in which each task runs, an index of the problem's shapes.
    order:
        (T,) the tasks, the most urgent first.
    slice_s:
        Decide only at multiples of so many seconds; 0 = whenever FPGAs get free or a task arrives.
    strict:
        Whether the first task that waits is overtaken by nobody.

    Raises
    ------
    ValueError
        Where a task fits in no enclosure.

    """
    work = rigid_work(problem, shape)
    placed = empty_schedule(problem, shape)
    count = loops().list_schedule(
        problem.enclosure_fpgas, problem.enclosure_links, first_fpgas(problem), np.ascontiguousarray(order), work.width,
        work.seconds, problem.arrival_s, np.argsort(problem.arrival_s, kind="stable"), problem.function, work.kind,
        work.kind_links, work.kind_width, problem.loaded, problem.ready_s, placed.member_begin, problem.load_s, slice_s,
        strict, placed.enclosure, placed.begin_s, placed.end_s, placed.members,
    )  # fmt: skip
    if count != problem.tasks:
        raise AssertionError(f"{problem.tasks - count} tasks were never placed")
    return placed
