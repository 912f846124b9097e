"""In which shape each malleable task runs, where a policy wants one for each: allot first, then schedule."""

import numpy as np

from fpga_pool.core.lattice.listing import possible_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints


def allotted_shapes(problem: TaskProblem) -> Ints:
    """Return (T,) a shape for each task: those with which area and longest task are, together, the least.

    A limit on the time of each task trades FPGA-seconds for it: each takes, of its shapes within the limit, the one
    with the fewest FPGA-seconds.  The limit is the one with which the greater of FPGA-seconds per FPGA and longest task
    is least (Turek, Wolf and Yu, "Approximate Algorithms for Scheduling Parallelizable Tasks", 1992).

    Raises
    ------
    ValueError
        Where a task fits in no enclosure in any shape.

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
    """Return (T,) the least FPGA-seconds of each task's shapes within the limit; inf where there is none."""
    least: Floats = np.minimum.reduceat(
        np.where(problem.shape_seconds <= limit_s, area, np.inf), problem.shape_begin[:-1]
    )
    return least


def _area(problem: TaskProblem, area: Floats, limit_s: float) -> float:
    return float(_least(problem, area, limit_s).sum())


def thrifty_shapes(problem: TaskProblem, limit_s: float) -> Ints:
    """Return (T,) the shape with the fewest FPGA-seconds of those that take at most `limit_s`, else the quickest."""
    possible = possible_shapes(problem)
    area = np.where(possible, problem.shape_fpgas * problem.shape_seconds, np.inf)
    seconds = np.where(possible, problem.shape_seconds, np.inf)
    quickest = np.repeat(np.minimum.reduceat(seconds, problem.shape_begin[:-1]), np.diff(problem.shape_begin))
    cost = np.where(seconds <= np.maximum(limit_s, quickest), area, np.inf)
    least = np.repeat(np.minimum.reduceat(cost, problem.shape_begin[:-1]), np.diff(problem.shape_begin))
    chosen = np.where(cost == least, np.arange(len(cost)), len(cost))
    found: Ints = np.minimum.reduceat(chosen, problem.shape_begin[:-1])
    return found
