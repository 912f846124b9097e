"""Scans of queues of gangs and of processors, compiled where numba is installed.

A queue is passed as `rows` and `keys`, ordered by key and then by index; only the first `count` entries are in use.
"""

import numpy as np

from fpga_pool.core.numba import compiled

_READ = "Array(int64, 1, 'C', readonly=True)"
_READ_S = "Array(float64, 1, 'C', readonly=True)"
_NOBODY = -1


@compiled("int64(float64[::1], int64[::1], int64, float64, int64)")
def place(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Return the position of a gang in the order, or where it would be inserted."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (keys[middle] == key and rows[middle] < gang):
            low = middle + 1
        else:
            high = middle
    return low


@compiled("void(float64[::1], int64[::1], int64, float64, int64)")
def insert(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Insert a gang at its position in the order; the arrays must have room for one more."""
    at = count
    while at > 0 and (keys[at - 1] > key or (keys[at - 1] == key and rows[at - 1] > gang)):
        keys[at] = keys[at - 1]
        rows[at] = rows[at - 1]
        at -= 1
    keys[at] = key
    rows[at] = gang


@compiled("boolean(float64[::1], int64[::1], int64, float64, int64)")
def remove(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Remove a gang from the queue; return whether it was present."""
    at = place(keys, rows, count, key, gang)
    if at == count or rows[at] != gang:
        return False
    for i in range(at, count - 1):
        keys[i] = keys[i + 1]
        rows[i] = rows[i + 1]
    return True


@compiled(f"Tuple((float64, int64))(float64[::1], int64[::1], int64, {_READ}, int64, int64, float64, boolean)")
def head_start(keys, rows, count, width, idle, need, now_s, all_ends):  # type: ignore[no-untyped-def]
    """Return when `need` processors are free by the end times of the foreground, and how many more are free then.

    If there are never that many, return the last end and the number missing as a negative number.
    """
    begin_s = now_s
    for at in range(count):
        if idle >= need and not (all_ends and keys[at] <= begin_s):
            break
        idle += width[rows[at]]
        begin_s = max(begin_s, keys[at])
    return begin_s, idle - need


@compiled(f"int64(int64[::1], int64, int64, {_READ}, {_READ_S}, int64, float64, float64, int64)")
def next_fill(rows, begin, end, width, run_s, idle, now_s, begin_s, extra):  # type: ignore[no-untyped-def]
    """Return the first position from `begin` on of a gang that fits, and ends by `begin_s` or is narrow; else -1."""
    for at in range(begin, end):
        gang = rows[at]
        if width[gang] <= idle and (now_s + run_s[gang] <= begin_s or width[gang] <= extra):
            return at
    return -1


@compiled(f"int64(int64[::1], int64, int64, {_READ}, int64[::1], float64[::1], float64)")
def next_narrow(rows, begin, end, width, behind, front_usage, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the first position from `begin` on of a gang for which enough processors have a free background; else -1.

    Processors whose foreground usage is at or above the threshold do not count.
    """
    room = 0
    for i in range(len(behind)):
        if behind[i] == _NOBODY and front_usage[i] < usage_threshold:
            room += 1
    if room == 0:
        return -1
    for at in range(begin, end):
        if width[rows[at]] <= room:
            return at
    return -1


@compiled(f"int64(int64[::1], int64, int64, {_READ}, {_READ_S}, int64[::1], float64[::1], float64)")
def next_behind(rows, begin, end, width, highest_usage, behind, front_usage, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the first position from `begin` on of a gang that fits behind usages below its highest usage; else -1.

    Processors whose foreground usage is at or above the threshold do not count.
    """
    usage, room = np.empty(len(behind)), 0
    for i in range(len(behind)):
        if behind[i] == _NOBODY and front_usage[i] < usage_threshold:
            usage[room] = front_usage[i]
            room += 1
    if room == 0:
        return -1
    usage = np.sort(usage[:room])
    for at in range(begin, end):
        gang = rows[at]
        if width[gang] <= room and usage[width[gang] - 1] < highest_usage[gang]:
            return at
    return -1


@compiled("void(float64[::1], int64[::1], int64)")
def insertion_sort(keys, rows, count):  # type: ignore[no-untyped-def]
    """Sort rows by their keys, in place; there are few different keys, mostly in long runs."""
    for i in range(1, count):
        key, row = keys[i], rows[i]
        at = i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            rows[at] = rows[at - 1]
            at -= 1
        keys[at] = key
        rows[at] = row


@compiled("int64[::1](int64[::1], int64[::1], float64[::1], int64, int64, int64[::1])")
def idle_in_front(front, behind, behind_usage, gang, width, spared):  # type: ignore[no-untyped-def]
    """Return up to `width` processors with an idle foreground, none of `spared`, the least used background first.

    The gang's own background processes do not count.
    """
    found, usage = np.empty(len(front), np.int64), np.empty(len(front))
    count = 0
    for i in range(len(front)):
        if front[i] == _NOBODY:
            found[count] = i
            usage[count] = 0.0 if behind[i] == gang else behind_usage[i]
            count += 1
    for i in spared:
        for at in range(count):
            if found[at] == i:
                for later in range(at, count - 1):
                    found[later] = found[later + 1]
                    usage[later] = usage[later + 1]
                count -= 1
                break
    insertion_sort(usage, found, count)
    return found[: min(count, width)].copy()


@compiled("int64[::1](int64[::1], float64[::1], float64, int64)")
def idle_behind(behind, front_usage, usage_threshold, width):  # type: ignore[no-untyped-def]
    """Return up to `width` processors with a free background, the least used foreground first."""
    found, usage = np.empty(len(behind), np.int64), np.empty(len(behind))
    count = 0
    for i in range(len(behind)):
        if behind[i] == _NOBODY and front_usage[i] < usage_threshold:
            found[count] = i
            usage[count] = front_usage[i]
            count += 1
    insertion_sort(usage, found, count)
    return found[: min(count, width)].copy()


@compiled("boolean(int64[::1], int64[::1])")
def all_idle(tier, processors):  # type: ignore[no-untyped-def]
    """Return whether a tier is idle on all these processors."""
    return (tier[processors] == _NOBODY).all()


@compiled("float64(float64[::1], float64[::1], int64[::1], float64, float64)")
def behind_rate(front_usage, behind_usage, processors, used, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the rate of the slowest process in the background of these processors."""
    slowest = 1.0
    for i in processors:
        usage = front_usage[i]
        if usage >= usage_threshold:
            return 0.0
        if usage > 0.0:
            slowest = min(slowest, used * min(1.0, (1.0 - usage) / behind_usage[i]))
    return slowest
