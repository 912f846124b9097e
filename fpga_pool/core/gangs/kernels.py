"""The scans of lines and processors, compiled by numba; each does what its counterpart in `scans` does.

Signatures are explicit, so all compile when the module is imported (once per machine: the results are cached).
"""

import numpy as np
from numba import njit

_READ = "Array(int64, 1, 'C', readonly=True)"
_READ_S = "Array(float64, 1, 'C', readonly=True)"
_NOBODY = -1


@njit("int64(float64[::1], int64[::1], int64, float64, int64)", cache=True)
def place(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Find a place in the line."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < key or (keys[middle] == key and rows[middle] < gang):
            low = middle + 1
        else:
            high = middle
    return low


@njit("void(float64[::1], int64[::1], int64, float64, int64)", cache=True)
def insert(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Put a gang into the line."""
    at = count
    while at > 0 and (keys[at - 1] > key or (keys[at - 1] == key and rows[at - 1] > gang)):
        keys[at] = keys[at - 1]
        rows[at] = rows[at - 1]
        at -= 1
    keys[at] = key
    rows[at] = gang


@njit("boolean(float64[::1], int64[::1], int64, float64, int64)", cache=True)
def remove(keys, rows, count, key, gang):  # type: ignore[no-untyped-def]
    """Take a gang out of the line."""
    at = place(keys, rows, count, key, gang)
    if at == count or rows[at] != gang:
        return False
    for i in range(at, count - 1):
        keys[i] = keys[i + 1]
        rows[i] = rows[i + 1]
    return True


@njit(f"Tuple((float64, int64))(float64[::1], int64[::1], int64, {_READ}, int64, int64, float64, boolean)", cache=True)
def head_start(keys, rows, count, width, idle, need, now_s, all_ends):  # type: ignore[no-untyped-def]
    """Return when the head can start, and the extra processors."""
    begin_s = now_s
    for at in range(count):
        if idle >= need and not (all_ends and keys[at] <= begin_s):
            break
        idle += width[rows[at]]
        begin_s = max(begin_s, keys[at])
    return begin_s, idle - need


@njit(f"int64(int64[::1], int64, int64, {_READ}, {_READ_S}, int64, float64, float64, int64)", cache=True)
def next_fill(rows, begin, end, width, run_s, idle, now_s, begin_s, extra):  # type: ignore[no-untyped-def]
    """Return the place of the next gang that may be served before the head."""
    for at in range(begin, end):
        gang = rows[at]
        if width[gang] <= idle and (now_s + run_s[gang] <= begin_s or width[gang] <= extra):
            return at
    return -1


@njit(f"int64(int64[::1], int64, int64, {_READ}, int64[::1], float64[::1], float64)", cache=True)
def next_narrow(rows, begin, end, width, behind, front_usage, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the place of the next gang that is narrow enough for the processors with room behind."""
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


@njit(
    f"int64(int64[::1], int64, int64, {_READ}, {_READ_S}, int64[::1], float64[::1], float64)",
    cache=True,
)
def next_behind(rows, begin, end, width, highest_usage, behind, front_usage, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the place of the next gang with enough processors below its highest usage."""
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


@njit("void(float64[::1], int64[::1], int64)", cache=True)
def insertion_sort(keys, rows, count):  # type: ignore[no-untyped-def]
    """Sort rows by their keys; there are few different keys, mostly in long runs."""
    for i in range(1, count):
        key, row = keys[i], rows[i]
        at = i
        while at > 0 and keys[at - 1] > key:
            keys[at] = keys[at - 1]
            rows[at] = rows[at - 1]
            at -= 1
        keys[at] = key
        rows[at] = row


@njit("int64[::1](int64[::1], int64[::1], float64[::1], int64, int64, int64[::1])", cache=True)
def idle_in_front(front, behind, behind_usage, gang, width, spared):  # type: ignore[no-untyped-def]
    """Return processors for the foreground."""
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


@njit("int64[::1](int64[::1], float64[::1], float64, int64)", cache=True)
def idle_behind(behind, front_usage, usage_threshold, width):  # type: ignore[no-untyped-def]
    """Return processors for the background."""
    found, usage = np.empty(len(behind), np.int64), np.empty(len(behind))
    count = 0
    for i in range(len(behind)):
        if behind[i] == _NOBODY and front_usage[i] < usage_threshold:
            found[count] = i
            usage[count] = front_usage[i]
            count += 1
    insertion_sort(usage, found, count)
    return found[: min(count, width)].copy()


@njit("boolean(int64[::1], int64[::1])", cache=True)
def all_idle(tier, processors):  # type: ignore[no-untyped-def]
    """Return whether the tier is idle on all of them."""
    return (tier[processors] == _NOBODY).all()


@njit("float64(float64[::1], float64[::1], int64[::1], float64, float64)", cache=True)
def behind_rate(front_usage, behind_usage, processors, used, usage_threshold):  # type: ignore[no-untyped-def]
    """Return the rate of the slowest process."""
    slowest = 1.0
    for i in processors:
        usage = front_usage[i]
        if usage >= usage_threshold:
            return 0.0
        if usage > 0.0:
            slowest = min(slowest, used * min(1.0, (1.0 - usage) / behind_usage[i]))
    return slowest
