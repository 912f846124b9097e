"""The ways to fill an enclosure with tasks, and prices of tasks for which even the best of them earn little.

A linear programme over all fillings says how long enclosures need at least for given seconds of each kind of task, in
whatever order and cut into whatever pieces.  There may be very many fillings, so only those are made that the prices
found so far call for (Gilmore and Gomory, "A Linear Programming Approach to the Cutting-Stock Problem", 1961).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from fpga_pool.core.types import Floats, Ints

Bools = NDArray[np.bool_]

#: Rounds of new fillings; the prices of any round prove a bound.
_ROUNDS = 100
#: A filling is new if it earns more than is allowed for by this share.
_WORTH = 1e-7


class _Filling(NamedTuple):
    """So many tasks of each kind (K,) in an enclosure of this type."""

    kind_counts: Ints
    of_type: int


def best_filling(size: int, width: Ints, prices: Floats) -> Floats:
    """Return (size + 1,) the most that 0, 1, ... `size` free FPGAs can earn at a time, with tasks of any kinds."""
    return _fill(size, width, prices)[0]


def filling_prices(size: Ints, number: Ints, width: Ints, held: Bools, demand_s: Floats) -> Floats:
    """Return prices (K,), the best of the linear programme over fillings; zeros where nothing is asked for.

    Parameters
    ----------
    size, number:
        (Y,) FPGAs of each type of enclosure, and how many there are.
    width:
        (K,) FPGAs of each kind of task.
    held:
        (K, Y) which type can take which kind.
    demand_s:
        (K,) seconds of all tasks of a kind.

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
    """Return prices (K,) and what an enclosure of each type may earn (Y,), of the programme with these fillings.

    It is solved in its dual form: the prices for which the tasks pay most, where all enclosures together earn at most 1
    a second with any of the fillings.
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
    solved = linprog(wishes, A_ub=rows, b_ub=limits, method="highs")
    if solved.x is None:
        return np.zeros(kinds), np.full(types, np.inf)
    return np.maximum(solved.x[:kinds], 0.0), solved.x[kinds:]


def _best_of_type(size: int, width: Ints, can: Bools, prices: Floats) -> tuple[float, Ints]:
    """Return the most that an enclosure earns, and (K,) with which tasks."""
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
    """Return (size + 1,) the most that each number of FPGAs earns, and the kind put last; -1 none, -2 one is idle."""
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
