"""One queue per enclosure; each task is appended where it would end first.  Compiled if numba is installed."""

import numpy as np

from fpga_pool.core.lattice.kernels.listing import FLOATS, INTS, must_load
from fpga_pool.core.numba import compiled

_ANY, _RING = 0, 2
_RINGED, _FULL = 1, 2


@compiled(f"boolean({INTS}, {INTS}, int64, int64, int64)")
def can_hold(sizes, topologies, e, links, width):  # type: ignore[no-untyped-def]
    """Return whether the enclosure can take the task if all its FPGAs are free."""
    if width > sizes[e]:
        return False
    if links != _RING or width <= 2 or topologies[e] == _FULL:
        return True
    return topologies[e] == _RINGED and width == sizes[e]


@compiled("float64(float64[::1], int64[::1], int64, int64, int64, int64, int64, int64, float64, int64[::1])")
def earliest(  # type: ignore[no-untyped-def]
    available, loaded, base, size, topology, links, width, function, load_s, out
):
    """Return the first time when enough FPGAs of an enclosure are available, loads included; write these FPGAs."""
    scattered = links == _ANY or topology == _FULL
    order = np.arange(size)
    if scattered and width < size:
        order = np.argsort(available[base : base + size], kind="mergesort")
    windows = size if topology == _RINGED and width < size else size - width + 1
    best_s, best = np.inf, 0
    for begin in range(1 if scattered else windows):
        ready_s = 0.0
        loads = False
        for i in range(width):
            fpga = base + order[(begin + i) % size]
            ready_s = max(ready_s, available[fpga])
            loads = loads or must_load(function, loaded[fpga], load_s > 0.0)
        if loads:
            ready_s += load_s
        if ready_s < best_s:
            best_s, best = ready_s, begin
    for i in range(width):
        out[i] = order[(best + i) % size]
    return best_s


@compiled(
    f"void({INTS}, {INTS}, {INTS}, {INTS}, {INTS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {INTS}, {INTS}, {FLOATS}, "
    f"{INTS}, float64, int64, int64[::1], float64[::1], float64[::1], int64[::1])"
)
def queue_tasks(  # type: ignore[no-untyped-def]
    sizes, topologies, base, order, width, seconds, arrival, links, function, kind, first_loaded, ready, member_begin,
    load_s, kinds, enclosure, begin, end, members,
):  # fmt: skip
    """Append each task, in `order`, to an enclosure's queue, whose tasks begin in order; fill the last four arrays."""
    enclosures = len(sizes)
    available, loaded = ready.copy(), first_loaded.copy()
    last_begin, queued = np.zeros(enclosures), np.zeros(enclosures, np.int64)
    known = np.full((enclosures, kinds), -1.0)
    out = np.empty(max(1, sizes.max()), np.int64)
    for task in order:
        best, best_begin = -1, np.inf
        for e in range(enclosures):
            if not can_hold(sizes, topologies, e, links[task], width[task]):
                continue
            if known[e, kind[task]] < 0.0:
                known[e, kind[task]] = earliest(
                    available, loaded, base[e], sizes[e], topologies[e], links[task], width[task], function[task],
                    load_s, out,
                )  # fmt: skip
            begin_s = max(known[e, kind[task]], last_begin[e])
            if begin_s < best_begin or (begin_s == best_begin and queued[e] < queued[best]):
                best, best_begin = e, begin_s
        earliest(
            available, loaded, base[best], sizes[best], topologies[best], links[task], width[task], function[task],
            load_s, out,
        )  # fmt: skip
        loads = False
        for i in range(width[task]):
            loads = loads or must_load(function[task], loaded[base[best] + out[i]], load_s > 0.0)
        begin[task] = max(best_begin, arrival[task] + (load_s if loads else 0.0))
        end[task] = begin[task] + seconds[task]
        enclosure[task] = best
        for i in range(width[task]):
            fpga = base[best] + out[i]
            members[member_begin[task] + i] = out[i]
            available[fpga] = end[task]
            if function[task] >= 0:
                loaded[fpga] = function[task]
        last_begin[best] = begin[task]
        queued[best] += 1
        known[best, :] = -1.0
