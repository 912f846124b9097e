"""The scans of gangs in numpy, as a reference for `fpga_pool.core.gangs.scans`."""

import numpy as np

from fpga_pool.core.types import Floats, Ints

_NOBODY = -1


# ---- Scans of a queue


def place(keys: Floats, rows: Ints, count: int, key: float, gang: int) -> int:
    """Return the position of a gang in the order, or the position at which to insert it."""
    low = int(keys[:count].searchsorted(key))
    high = int(keys[:count].searchsorted(key, "right"))
    return low + int(rows[low:high].searchsorted(gang))


def insert(keys: Floats, rows: Ints, count: int, key: float, gang: int) -> None:
    """Insert a gang at its position; there must be room for one more."""
    at = place(keys, rows, count, key, gang)
    for array, value in ((keys, key), (rows, gang)):
        array[at + 1 : count + 1] = array[at:count]
        array[at] = value


def remove(keys: Floats, rows: Ints, count: int, key: float, gang: int) -> bool:
    """Remove a gang from the order; return whether it was present."""
    at = place(keys, rows, count, key, gang)
    if at == count or rows[at] != gang:
        return False
    for array in (keys, rows):
        array[at : count - 1] = array[at + 1 : count]
    return True


def head_start(
    keys: Floats, rows: Ints, count: int, width: Ints, idle: int, need: int, now_s: float, all_ends: bool
) -> tuple[float, int]:
    """Return when `need` processors are free by the end times of the foreground, and how many more are free then.

    If there are never that many, return the last end and the number missing as a negative number.
    """
    if idle >= need and not all_ends:
        return now_s, idle - need
    free = idle + np.cumsum(width[rows[:count]])
    at = min(int(free.searchsorted(need)), count - 1) if idle < need else -1
    begin_s = max(now_s, float(keys[at])) if at >= 0 else now_s
    if all_ends:
        at = int(keys[:count].searchsorted(begin_s, "right")) - 1
    return begin_s, int(free[at] if at >= 0 else idle) - need


def next_fill(
    rows: Ints,
    begin: int,
    end: int,
    width: Ints,
    run_s: Floats,
    idle: int,
    now_s: float,
    begin_s: float,
    extra: int,
) -> int:
    """Return the first position from `begin` of a gang that fits, and ends by `begin_s` or is narrow, else -1."""
    widths = width[rows[begin:end]]
    return _first((widths <= idle) & ((now_s + run_s[rows[begin:end]] <= begin_s) | (widths <= extra)), begin)


def next_narrow(
    rows: Ints, begin: int, end: int, width: Ints, behind: Ints, front_usage: Floats, usage_threshold: float
) -> int:
    """Return the first position from `begin` of a gang that finds enough processors with room behind, else -1.

    Processors whose usage reaches the threshold do not count.
    """
    room = int(((behind == _NOBODY) & (front_usage < usage_threshold)).sum())
    return _first(width[rows[begin:end]] <= room, begin)


def next_behind(
    rows: Ints,
    begin: int,
    end: int,
    width: Ints,
    highest_usage: Floats,
    behind: Ints,
    front_usage: Floats,
    usage_threshold: float,
) -> int:
    """Return the first position from `begin` of a gang with enough processors behind usages below its highest, else -1.

    Processors whose usage reaches the threshold do not count.
    """
    usage = np.sort(front_usage[(behind == _NOBODY) & (front_usage < usage_threshold)])
    return _first(usage.searchsorted(highest_usage[rows[begin:end]]) >= width[rows[begin:end]], begin)


# ---- Scans of processors


def idle_in_front(front: Ints, behind: Ints, behind_usage: Floats, gang: int, width: int, spared: Ints) -> Ints:
    """Return up to `width` processors without a foreground and not `spared`, those with the least usage behind first.

    The usage of the gang itself behind them does not count.
    """
    idle = front == _NOBODY
    idle[spared] = False
    return _least(np.flatnonzero(idle), np.where(behind == gang, 0.0, behind_usage), width)


def idle_behind(behind: Ints, front_usage: Floats, usage_threshold: float, width: int) -> Ints:
    """Return up to `width` processors with room behind, those with the least usage in front first."""
    return _least(np.flatnonzero((behind == _NOBODY) & (front_usage < usage_threshold)), front_usage, width)


def all_idle(tier: Ints, processors: Ints) -> bool:
    """Return whether a tier is idle on all these processors."""
    return bool((tier[processors] == _NOBODY).all())


def behind_rate(
    front_usage: Floats, behind_usage: Floats, processors: Ints, used: float, usage_threshold: float
) -> float:
    """Return the rate of the slowest process behind these processors."""
    usage = front_usage[processors]
    if (usage >= usage_threshold).any():
        return 0.0
    rates = np.where(usage == 0.0, 1.0, used * np.minimum(1.0, (1.0 - usage) / behind_usage[processors]))
    return float(rates.min())


def _first(fits: np.ndarray[tuple[int], np.dtype[np.bool_]], begin: int) -> int:
    at = int(fits.argmax()) if len(fits) else 0
    return begin + at if len(fits) and fits[at] else -1


def _least(processors: Ints, usage: Floats, width: int) -> Ints:
    return processors[usage[processors].argsort(kind="stable")[:width]]
