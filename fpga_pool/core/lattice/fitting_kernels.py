"""Which FPGAs of one enclosure a task can have: runs of free ones, and the choice among them.

Codes are those of `tasks.Links` (0 any, 1 line, 2 ring) and `tasks.Topology` (0 line, 1 ring, 2 full).  Every function
is compiled where numba is there and runs as it is where not.
"""

import numpy as np

from fpga_pool.core.lattice.compiled import compiled

INTS = "Array(int64, 1, 'C', readonly=True)"
FLOATS = "Array(float64, 1, 'C', readonly=True)"

_ANY, _RING = 0, 2
_RINGED, _FULL = 1, 2


@compiled("boolean(int64, int64, int64, int64, int64, int64)")
def fits(links, width, size, topology, count, longest):  # type: ignore[no-untyped-def]
    """Say whether an enclosure of `size` with `count` free FPGAs, at most `longest` in a run, can take a task now."""
    if links == _ANY or topology == _FULL:
        return width <= count
    if links == _RING and width > 2:
        return topology == _RINGED and width == size and count == size
    return width <= longest


@compiled("int64(boolean[::1], int64, int64, int64, int64[::1])")
def measure_runs(free, base, size, topology, runs):  # type: ignore[no-untyped-def]
    """Write for each FPGA the length of the run of free ones that it is in, 0 = busy; return the longest.

    Runs go round in a ring; in a full enclosure all free ones are one run.
    """
    offset = 0
    if topology == _FULL:
        count = 0
        for i in range(size):
            count += free[base + i]
        for i in range(size):
            runs[base + i] = count if free[base + i] else 0
        return count
    if topology == _RINGED:
        for i in range(size):
            if not free[base + i]:
                offset = i + 1
                break
    longest = 0
    length = 0
    for i in range(size + 1):
        if i < size and free[base + (offset + i) % size]:
            length += 1
            continue
        for back in range(1, length + 1):
            runs[base + (offset + i - back) % size] = length
        if i < size:
            runs[base + (offset + i) % size] = 0
        longest = max(longest, length)
        length = 0
    return longest


@compiled("boolean(int64, int64, boolean)")
def must_load(function, loaded, switching):  # type: ignore[no-untyped-def]
    """Say whether an FPGA with `loaded` has to load the function of a task first; -1 = none in particular."""
    return switching and function >= 0 and loaded >= 0 and loaded != function


@compiled("void(int64[::1], int64[::1], int64, int64, int64, int64, boolean, int64[::1])")
def choose_any(runs, loaded, base, size, width, function, switching, out):  # type: ignore[no-untyped-def]
    """Write free FPGAs, linked or not."""
    keys = np.empty(size, np.int64)
    count = 0
    for i in range(size):
        if runs[base + i] > 0:
            loads = 1 if must_load(function, loaded[base + i], switching) else 0
            keys[count] = (loads * (size + 1) + runs[base + i]) * size + i
            count += 1
    keys[:count].sort()
    for i in range(width):
        out[i] = keys[i] % size


@compiled("void(int64[::1], int64[::1], int64, int64, int64, int64, int64, boolean, int64[::1])")
def choose_path(runs, loaded, base, size, topology, width, function, switching, out):  # type: ignore[no-untyped-def]
    """Write a connected path of free FPGAs, from one end to the other."""
    best_key, best = -1, -1
    for begin in range(size if topology == _RINGED else size - width + 1):
        length = runs[base + begin]
        if length < width:
            continue
        loads = 0
        whole = True
        for i in range(width):
            fpga = base + (begin + i) % size
            if runs[fpga] == 0:
                whole = False
                break
            loads += must_load(function, loaded[fpga], switching)
        if not whole:
            continue
        before, after = begin - 1, begin + width
        if topology == _RINGED:
            before, after = before % size, after % size
        at_end = before < 0 or after >= size or runs[base + before] == 0 or runs[base + after] == 0
        key = (loads * (size + 1) + length) * 2 + (0 if at_end else 1)
        if best < 0 or key < best_key:
            best_key, best = key, begin
    for i in range(width):
        out[i] = (best + i) % size


@compiled("void(int64[::1], int64[::1], int64, int64, int64, int64, int64, int64, boolean, int64[::1])")
def choose(runs, loaded, base, size, topology, links, width, function, switching, out):  # type: ignore[no-untyped-def]
    """Write the FPGAs (their indices within the enclosure) that the task gets; it has to fit.

    Those with the fewest loads, of these the shortest run that is long enough, at one of its ends, the lowest numbers.
    """
    if width == size:
        for i in range(size):
            out[i] = i
    elif links == _ANY or topology == _FULL:
        choose_any(runs, loaded, base, size, width, function, switching, out)
    else:
        choose_path(runs, loaded, base, size, topology, width, function, switching, out)
