"""What no schedule of the tasks can beat: the paper's bound (section IV), and the tightest that we prove."""

import math

import numpy as np

from fpga_pool.core.lattice.capacity import Capacity
from fpga_pool.core.lattice.filling import Bools, filling_prices
from fpga_pool.core.lattice.listing import can_hold, first_fpgas, kinds, possible_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints

#: Bounds that are sums are lowered by this share, so that one that was rounded upward claims nothing.
_ROUNDING = 1e-10


def paper_bound_s(problem: TaskProblem) -> float:
    """Return the bound of section IV: FPGA-seconds divided by FPGAs, or the longest task.

    As printed it divides the time of workloads by FPGAs, without the FPGAs that each task takes, and takes the longest
    workload, although tasks of one may run side by side.  Here each task counts with its least FPGA-seconds and,
    from its arrival on, its least time.
    """
    if problem.tasks == 0:
        return 0.0
    area = _least(problem, problem.shape_fpgas * problem.shape_seconds)
    longest = problem.arrival_s + _least(problem, problem.shape_seconds)
    return max(float(area.sum()) / problem.fpgas * (1.0 - _ROUNDING), float(longest.max()))


def tight_bound_s(problem: TaskProblem) -> float:
    """Return the largest of all bounds below and the paper's; 0 where there are no tasks.

    Raises
    ------
    ValueError
        Where a task fits in no enclosure.

    """
    if problem.tasks == 0:
        return 0.0
    possible = possible_shapes(problem)
    if not np.logical_or.reduceat(possible, problem.shape_begin[:-1]).all():
        raise ValueError("tasks: one fits in no enclosure")
    return max(
        paper_bound_s(problem),
        longest_bound_s(problem, possible),
        filling_bound_s(problem, possible),
        pigeonhole_bound_s(problem, possible),
    )


def longest_bound_s(problem: TaskProblem, possible: Bools) -> float:
    """Return when the last task could end if it were alone: it needs arrived work and FPGAs that are ready."""
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    kind, kind_links, kind_width = kinds(links, problem.shape_fpgas)
    begin_s = _earliest(problem, kind_links, kind_width)[kind]
    arrival_s = np.repeat(problem.arrival_s, np.diff(problem.shape_begin))
    end_s = np.where(possible, np.maximum(begin_s, arrival_s) + problem.shape_seconds, np.inf)
    return float(np.minimum.reduceat(end_s, problem.shape_begin[:-1]).max())


def filling_bound_s(problem: TaskProblem, possible: Bools) -> float:
    """Return the bound of the ways to fill an enclosure.

    A price per kind of task, paid for each second that one runs, says how much a free enclosure can earn per second:
    the best filling.  All tasks together earn a known sum, so they last at least that sum divided by what all
    enclosures earn at best, counted from when each FPGA is ready; and so do those that arrive late, counted from
    their arrival.  Any prices prove a bound.  Tried are the FPGAs of a task as its price, which is the area without
    what cannot be filled, and the best ones of a linear programme over fillings.
    """
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    kind, kind_links, kind_width = kinds(links, problem.shape_fpgas)
    held = can_hold(problem, kind_links, kind_width)
    # The programme takes each task in the shape with the least FPGA-seconds; the bound counts all its shapes.
    area = np.where(possible, problem.shape_fpgas * problem.shape_seconds, np.inf)
    thrifty = _first_least(problem, area)
    weights = problem.shape_seconds[thrifty]
    demand_s: Floats = np.bincount(kind[thrifty], weights=weights, minlength=len(kind_width)).astype(np.float64)
    types, number = _enclosure_types(problem)
    best = filling_prices(problem.enclosure_fpgas[types], number, kind_width, held[:, types], demand_s)
    late = np.argsort(-problem.arrival_s, kind="stable")
    found = 0.0
    for prices in (kind_width.astype(np.float64), best):
        earned = np.where(possible, prices[kind] * problem.shape_seconds, np.inf)
        owed = np.cumsum(np.minimum.reduceat(earned, problem.shape_begin[:-1])[late])
        capacity = Capacity(problem, kind_width, held, prices)
        found = max(found, float(capacity.earned_by(problem.arrival_s[late], owed).max()))
    return found * (1.0 - _ROUNDING)


def pigeonhole_bound_s(problem: TaskProblem, possible: Bools) -> float:
    """Return the bound of wide tasks that have to follow each other.

    At most q tasks of w or more FPGAs run at a time, so they are q chains, and of the m q + 1 longest of them some
    chain has m + 1: no less than the m + 1 shortest of these.
    """
    width = _least(problem, np.where(possible, problem.shape_fpgas, np.iinfo(np.int64).max))
    seconds = _least(problem, np.where(possible, problem.shape_seconds, np.inf))
    found = 0.0
    for least in np.unique(width):
        side_by_side = int((problem.enclosure_fpgas // least).sum())
        longest = -np.sort(-seconds[width >= least])
        total = np.concatenate(([0.0], np.cumsum(longest)))
        chain = np.arange((len(longest) - 1) // side_by_side + 1)
        last = chain * side_by_side + 1
        found = max(found, float((total[last] - total[last - chain - 1]).max()))
    return found * (1.0 - _ROUNDING) + float(problem.ready_s.min(initial=math.inf))


def _earliest(problem: TaskProblem, links: Ints, width: Ints) -> Floats:
    """Return (K,) when the first enclosure that can take such a task has that many FPGAs ready, linked or not."""
    held = can_hold(problem, links, width)
    if not problem.ready_s.any():
        return np.where(held.any(axis=1), 0.0, np.inf)
    base, found = first_fpgas(problem), np.full(len(width), np.inf)
    for e in range(len(problem.enclosure_fpgas)):
        ready_s = np.sort(problem.ready_s[base[e] : base[e + 1]])
        can = held[:, e]
        found[can] = np.minimum(found[can], ready_s[width[can] - 1])
    return found


def _enclosure_types(problem: TaskProblem) -> tuple[Ints, Ints]:
    """Return one enclosure of each size and topology, and how many there are of it."""
    key = problem.enclosure_fpgas * 4 + problem.enclosure_links
    _, first, number = np.unique(key, return_index=True, return_counts=True)
    return first.astype(np.int64), number.astype(np.int64)


def _least(problem: TaskProblem, values: Floats | Ints) -> Floats:
    """Return (T,) the least value of each task's shapes."""
    least: Floats = np.minimum.reduceat(values, problem.shape_begin[:-1])
    return least


def _first_least(problem: TaskProblem, values: Floats) -> Ints:
    """Return (T,) the first of each task's shapes that has its least value."""
    least = np.repeat(_least(problem, values), np.diff(problem.shape_begin))
    index = np.where(values == least, np.arange(len(values)), len(values))
    first: Ints = np.minimum.reduceat(index, problem.shape_begin[:-1])
    return first
