"""Lower bounds on the completion time of tasks: the paper's (section IV), and the tightest that we can prove.

The tightest comes from a linear program over fillings, which are sets of tasks that run side by side in an enclosure.
It finds the minimum time in which the enclosures can run the given seconds of each kind of task, in any order and cut
into any pieces.  There may be very many fillings, so columns are generated from the prices found so far (Gilmore and
Gomory, "A Linear Programming Approach to the Cutting-Stock Problem", 1961).  `Capacity` turns prices into a time bound.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts when they are first used
from numpy.typing import NDArray

from fpga_pool.core.lattice.listing import can_hold, first_fpgas, kinds, possible_shapes
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.types import Floats, Ints

Bools = NDArray[np.bool_]


# ---- Fillings and prices

#: Maximum number of rounds that add fillings; the prices of any round prove a bound.
_ROUNDS = 100
#: A filling is added if it earns more than allowed by this share.
_WORTH = 1e-7


class _Filling(NamedTuple):
    """The numbers of tasks of each kind (K,) that run together in an enclosure, and the type of the enclosure."""

    kind_counts: Ints
    of_type: int


def best_filling(size: int, width: Ints, prices: Floats) -> Floats:
    """Return (size + 1,) the maximum total price of tasks, of any kinds, that fit on 0, 1, ... `size` free FPGAs."""
    return _fill(size, width, prices)[0]


def filling_prices(size: Ints, number: Ints, width: Ints, held: Bools, demand_s: Floats) -> Floats:
    """Return (K,) the best prices found by the linear program over fillings; zeros if there is no demand.

    `size` and `number` (Y,) are the FPGAs and the count of each type of enclosure, `width` (K,) the FPGAs of each kind
    of task, `held` (K, Y) whether a type can take a kind, and `demand_s` (K,) the total seconds of the tasks of a kind.
    """
    best, best_s = np.zeros(len(width)), 0.0
    kinds, types = len(width), len(size)
    fillings = [
        _Filling(np.where(np.arange(kinds) == k, size[y] // width[k], 0), y)
        for y in range(types)
        for k in np.flatnonzero(held[:, y] & (demand_s > 0)).tolist()
    ]
    for _ in range(_ROUNDS if demand_s.any() else 0):
        prices, allowed = _cheapest(number, fillings, demand_s)
        found = [_best_of_type(int(size[y]), width, held[:, y], prices) for y in range(types)]
        earned = np.array([earned for earned, _ in found])
        if (rate := float(number @ earned)) > 0 and float(demand_s @ prices) / rate > best_s:
            best, best_s = prices, float(demand_s @ prices) / rate
        new = [
            _Filling(found[y][1], y)
            for y in range(types)
            if earned[y] > allowed[y] + _WORTH * max(earned.max(), 1e-300)
        ]
        if not new:
            break
        fillings += new
    return best


def _cheapest(number: Ints, fillings: list[_Filling], demand_s: Floats) -> tuple[Floats, Floats]:
    """Return the prices (K,), and the allowed earnings of an enclosure of each type (Y,), for these fillings.

    The program is solved in its dual form: it maximizes the total price of all tasks, while all enclosures together
    earn at most 1 per second with any of the fillings.
    """
    kinds, types = len(demand_s), len(number)
    rows = np.zeros((len(fillings) + 1, kinds + types))
    for row, filling in zip(rows, fillings, strict=False):
        row[:kinds] = filling.kind_counts
        row[kinds + filling.of_type] = -1.0
    rows[-1, kinds:] = number
    limits = np.zeros(len(rows))
    limits[-1] = 1.0
    wishes = np.concatenate((-demand_s / demand_s.max(), np.zeros(types)))
    solved = scipy.optimize.linprog(wishes, A_ub=rows, b_ub=limits, method="highs")
    if solved.x is None:
        return np.zeros(kinds), np.full(types, np.inf)
    return np.maximum(solved.x[:kinds], 0.0), solved.x[kinds:]


def _best_of_type(size: int, width: Ints, can: Bools, prices: Floats) -> tuple[float, Ints]:
    """Return the most that an enclosure can earn per second, and (K,) the numbers of tasks in that filling."""
    which = np.flatnonzero(can)
    values, last = _fill(size, width[which], prices[which])
    counts = np.zeros(len(width), np.int64)
    room = size
    while last[room] != -1:
        if last[room] >= 0:
            counts[which[last[room]]] += 1
            room -= int(width[which[last[room]]])
        else:
            room -= 1
    return float(values[size]), counts


def _fill(size: int, width: Ints, prices: Floats) -> tuple[Floats, Ints]:
    """Return (size + 1,) the most that each number of FPGAs earns, and the kind added last; -1 none, -2 one is idle."""
    values, last = np.zeros(size + 1), np.full(size + 1, -1)
    for room in range(1, size + 1):
        values[room], last[room] = values[room - 1], -1 if last[room - 1] == -1 else -2
        narrow = np.flatnonzero(width <= room)
        if len(narrow):
            earned = values[room - width[narrow]] + prices[narrow]
            at = int(np.argmax(earned))
            if earned[at] > values[room]:
                values[room], last[room] = earned[at], narrow[at]
    return values, last


# ---- Earnings over time


class Capacity:
    """The most that all enclosures can earn by a given time, piecewise linear as their FPGAs become ready."""

    def __init__(self, problem: TaskProblem, width: Ints, held: Bools, prices: Floats) -> None:
        # `width` and `prices` (K,) belong to each kind; `held` (K, E) tells which enclosure can take it.
        base = first_fpgas(problem)
        rate: dict[tuple[int, bytes], Floats] = {}
        times, more = [], []
        for e, size in enumerate(problem.enclosure_fpgas.tolist()):
            key = (size, held[:, e].tobytes())
            if key not in rate:
                can = held[:, e]
                rate[key] = best_filling(size, width[can], prices[can])
            times.append(np.sort(problem.ready_s[base[e] : base[e + 1]]))
            more.append(np.diff(rate[key]))
        time_s, step = np.concatenate(times), np.concatenate(more)
        order = np.argsort(time_s, kind="stable")
        self._time_s, first = np.unique(time_s[order], return_index=True)
        self._rate = np.cumsum(np.add.reduceat(step[order], first))
        earned = np.cumsum(self._rate[:-1] * np.diff(self._time_s))
        self._earned = np.concatenate(([0.0], earned))

    def earned_by(self, from_s: Floats, owed: Floats) -> Floats:
        """Return for each pair the earliest time by which tasks that begin at `from_s` or later can earn `owed`."""
        before = self._at(from_s) + owed
        after = np.searchsorted(self._earned, before, side="right") - 1
        after = np.maximum(after, 0)
        rate = self._rate[after]
        with np.errstate(divide="ignore", invalid="ignore"):
            waits_s = np.where(before > self._earned[after], (before - self._earned[after]) / rate, 0.0)
        found: Floats = np.where(owed > 0, np.maximum(self._time_s[after] + waits_s, from_s), 0.0)
        return found

    def _at(self, time_s: Floats) -> Floats:
        """Return the most that can be earned by each time."""
        at = np.searchsorted(self._time_s, time_s, side="right") - 1
        inside = np.maximum(at, 0)
        earned: Floats = np.where(
            at < 0, 0.0, self._earned[inside] + self._rate[inside] * (time_s - self._time_s[inside])
        )
        return earned


# ---- Bounds

#: Bounds that are sums are lowered by this share, so that rounding never makes them too large.
_ROUNDING = 1e-10


def paper_bound_s(problem: TaskProblem) -> float:
    """Return the bound of section IV: FPGA-seconds divided by FPGAs, or the longest task.

    The printed formula divides the time of workloads by FPGAs, ignoring the FPGAs that each task takes, and uses the
    longest workload, although tasks of a workload may run side by side.  Here each task counts with its smallest
    FPGA-seconds and, from its arrival on, its shortest time.
    """
    if problem.tasks == 0:
        return 0.0
    area = _least(problem, problem.shape_fpgas * problem.shape_seconds)
    longest = problem.arrival_s + _least(problem, problem.shape_seconds)
    return max(float(area.sum()) / problem.fpgas * (1.0 - _ROUNDING), float(longest.max()))


def tight_bound_s(problem: TaskProblem) -> float:
    """Return the largest of the paper's bound and all bounds below; 0 without tasks.

    Raises ValueError if a task fits in no enclosure.
    """
    if problem.tasks == 0:
        return 0.0
    possible = possible_shapes(problem)
    if not np.logical_or.reduceat(possible, problem.shape_begin[:-1]).all():
        raise ValueError("tasks: a task fits in no enclosure")
    return max(
        paper_bound_s(problem),
        longest_bound_s(problem, possible),
        filling_bound_s(problem, possible),
        pigeonhole_bound_s(problem, possible),
    )


def longest_bound_s(problem: TaskProblem, possible: Bools) -> float:
    """Return the latest end of a task if each ran alone, after its arrival and as soon as enough FPGAs are ready."""
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    kind, kind_links, kind_width = kinds(links, problem.shape_fpgas)
    begin_s = _earliest(problem, kind_links, kind_width)[kind]
    arrival_s = np.repeat(problem.arrival_s, np.diff(problem.shape_begin))
    end_s = np.where(possible, np.maximum(begin_s, arrival_s) + problem.shape_seconds, np.inf)
    return float(np.minimum.reduceat(end_s, problem.shape_begin[:-1]).max())


def filling_bound_s(problem: TaskProblem, possible: Bools) -> float:
    """Return the bound by the possible fillings of enclosures.

    Each kind of task has a price, earned for each second that such a task runs; the best filling gives the most that a
    free enclosure can earn per second.  All tasks together earn a known sum, so they take at least that sum divided by
    the most that all enclosures earn per second, counted from when each FPGA is ready.  The same holds for the tasks
    that arrive late, counted from their arrival.  Any prices prove a bound.  Two are tried: the number of FPGAs of a
    task, which yields the area bound less FPGAs that no task can fill, and the best prices of a linear program.
    """
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    kind, kind_links, kind_width = kinds(links, problem.shape_fpgas)
    held = can_hold(problem, kind_links, kind_width)
    # The program uses each task's shape with the fewest FPGA-seconds; the bound considers all its shapes.
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
    """Return the bound by wide tasks that have to follow each other.

    At most q tasks of w or more FPGAs run at a time, so they form q chains.  Of the m q + 1 longest of them, some chain
    has m + 1, which take at least as long as the m + 1 shortest of these.
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
    """Return (K,) the first time when an enclosure that can take such a task has enough FPGAs ready, linked or not."""
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
    """Return one enclosure of each type (size and topology), and the number of enclosures of that type."""
    key = problem.enclosure_fpgas * 4 + problem.enclosure_links
    _, first, number = np.unique(key, return_index=True, return_counts=True)
    return first.astype(np.int64), number.astype(np.int64)


def _least(problem: TaskProblem, values: Floats | Ints) -> Floats:
    """Return (T,) the smallest value over each task's shapes."""
    least: Floats = np.minimum.reduceat(values, problem.shape_begin[:-1])
    return least


def _first_least(problem: TaskProblem, values: Floats) -> Ints:
    """Return (T,) the first of each task's shapes with the smallest value."""
    least = np.repeat(_least(problem, values), np.diff(problem.shape_begin))
    index = np.where(values == least, np.arange(len(values)), len(values))
    first: Ints = np.minimum.reduceat(index, problem.shape_begin[:-1])
    return first
