"""Event-driven list scheduling: whenever FPGAs become free or tasks arrive, the first task in order that fits begins.

Codes are those of `tasks.Links` (0 any, 1 line, 2 ring) and `tasks.Topology` (0 line, 1 ring, 2 full).  All functions
are compiled if numba is installed, and interpreted otherwise.  Tasks with the same links and number of FPGAs are of one
kind: if one of them fits, all do.  So only the first waiting task of each kind is tried, and placing a task takes
O(kinds + log tasks).
"""

import numpy as np

from fpga_pool.core.numba import compiled

INTS = "Array(int64, 1, 'C', readonly=True)"
FLOATS = "Array(float64, 1, 'C', readonly=True)"

_ANY, _RING = 0, 2
_RINGED, _FULL = 1, 2


# ---- FPGAs of one enclosure: runs of free ones, and the choice among them


@compiled("boolean(int64, int64, int64, int64, int64, int64)")
def fits(links, width, size, topology, count, longest):  # type: ignore[no-untyped-def]
    """Return whether an enclosure of `size` with `count` free FPGAs, `longest` in a run, can take a task now."""
    if links == _ANY or topology == _FULL:
        return width <= count
    if links == _RING and width > 2:
        return topology == _RINGED and width == size and count == size
    return width <= longest


@compiled("int64(boolean[::1], int64, int64, int64, int64[::1])")
def measure_runs(free, base, size, topology, runs):  # type: ignore[no-untyped-def]
    """Write for each FPGA the length of its run of free FPGAs, 0 = busy; return the length of the longest run.

    In a ring, runs wrap around the end; in a full enclosure all free FPGAs are one run.
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
    """Return whether an FPGA with the function `loaded` must first load a task's `function`; -1 = none, or any."""
    return switching and function >= 0 and loaded >= 0 and loaded != function


@compiled("void(int64[::1], int64[::1], int64, int64, int64, int64, boolean, int64[::1])")
def choose_any(runs, loaded, base, size, width, function, switching, out):  # type: ignore[no-untyped-def]
    """Write the indices of `width` free FPGAs, linked or not."""
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
    """Write the indices of a connected path of `width` free FPGAs, from one end to the other."""
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
    """Write the indices within the enclosure of the FPGAs that the task gets; the task must fit.

    FPGAs with the fewest loads are preferred, then the shortest sufficient run, one of its ends, and low indices.
    """
    if width == size:
        for i in range(size):
            out[i] = i
    elif links == _ANY or topology == _FULL:
        choose_any(runs, loaded, base, size, width, function, switching, out)
    else:
        choose_path(runs, loaded, base, size, topology, width, function, switching, out)


# ---- Heaps


@compiled("int64(float64[::1], int64[::1], int64, float64, int64)")
def push(times, ids, count, time, ident):  # type: ignore[no-untyped-def]
    """Push an entry onto a heap ordered by time, then number; return the new count."""
    at = count
    while at > 0:
        up = (at - 1) // 2
        if times[up] < time or (times[up] == time and ids[up] <= ident):
            break
        times[at], ids[at] = times[up], ids[up]
        at = up
    times[at], ids[at] = time, ident
    return count + 1


@compiled("int64(float64[::1], int64[::1], int64)")
def pop(times, ids, count):  # type: ignore[no-untyped-def]
    """Pop the first entry of a heap ordered by time, then number; return the new count."""
    count -= 1
    time, ident = times[count], ids[count]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        right = down + 1
        if right < count and (times[right] < times[down] or (times[right] == times[down] and ids[right] < ids[down])):
            down = right
        if time < times[down] or (time == times[down] and ident <= ids[down]):
            break
        times[at], ids[at] = times[down], ids[down]
        at = down
    times[at], ids[at] = time, ident
    return count


@compiled("void(int64[::1], int64, int64, int64)")
def wait(queue, begin, count, place):  # type: ignore[no-untyped-def]
    """Push a position of the order onto the heap of waiting tasks that begins at `begin`."""
    at = count
    while at > 0:
        up = (at - 1) // 2
        if queue[begin + up] < place:
            break
        queue[begin + at] = queue[begin + up]
        at = up
    queue[begin + at] = place


@compiled("void(int64[::1], int64, int64)")
def leave(queue, begin, count):  # type: ignore[no-untyped-def]
    """Pop the first of `count` entries of the heap of waiting tasks that begins at `begin`."""
    place = queue[begin + count - 1]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count - 1:
            break
        if down + 1 < count - 1 and queue[begin + down + 1] < queue[begin + down]:
            down += 1
        if place < queue[begin + down]:
            break
        queue[begin + at] = queue[begin + down]
        at = down
    queue[begin + at] = place


# ---- The schedule


@compiled(f"int64({INTS}, {INTS}, int64, int64, int64[::1], int64[::1], int64, int64[::1], int64)")
def first_that_fits(sizes, topologies, links, width, counts, longest, at, changed, total):  # type: ignore[no-untyped-def]
    """Return the index in `changed`, from `at` on, of the first enclosure that can take the task; `total` = none."""
    while at < total:
        e = changed[at]
        if fits(links, width, sizes[e], topologies[e], counts[e], longest[e]):
            return at
        at += 1
    return total


@compiled(
    f"int64({INTS}, {INTS}, {INTS}, {INTS}, {INTS}, {FLOATS}, {FLOATS}, {INTS}, {INTS}, {INTS}, {INTS}, {INTS}, "
    f"{INTS}, {FLOATS}, {INTS}, float64, float64, boolean, int64[::1], float64[::1], float64[::1], int64[::1])"
)
def list_schedule(  # type: ignore[no-untyped-def]
    sizes, topologies, base, order, width, seconds, arrival, by_arrival, function, kind, kind_links, kind_width,
    first_loaded, ready, member_begin, load_s, slice_s, strict, enclosure, begin, end, members,
):  # fmt: skip
    """Schedule the tasks by `order`; fill `enclosure`, `begin`, `end`, `members`; return how many were placed.

    With `strict` no task overtakes the first waiting one.  If `slice_s` > 0, decisions are made only at its multiples.
    """
    tasks, enclosures, kinds, fpgas = len(order), len(sizes), len(kind_links), len(ready)
    place_of = np.empty(tasks, np.int64)
    for place in range(tasks):
        place_of[order[place]] = place
    queue_begin, waiting = np.zeros(kinds + 1, np.int64), np.zeros(kinds, np.int64)
    for task in range(tasks):
        queue_begin[kind[task] + 1] += 1
    for k in range(kinds):
        queue_begin[k + 1] += queue_begin[k]
    queue = np.empty(tasks, np.int64)
    times, ids = np.empty(2 * fpgas + 1), np.empty(2 * fpgas + 1, np.int64)
    events = 0
    for fpga in range(fpgas):
        events = push(times, ids, events, ready[fpga], fpga)
    enclosure_of = np.empty(fpgas, np.int64)
    for e in range(enclosures):
        enclosure_of[base[e] : base[e + 1]] = e
    free, runs, loaded = np.zeros(fpgas, np.bool_), np.zeros(fpgas, np.int64), first_loaded.copy()
    counts, longest = np.zeros(enclosures, np.int64), np.zeros(enclosures, np.int64)
    changed, is_changed = np.empty(enclosures, np.int64), np.zeros(enclosures, np.bool_)
    tried = np.empty(kinds, np.int64)
    arrived = placed = 0
    while placed < tasks and (events > 0 or arrived < tasks):
        now = times[0] if events > 0 else arrival[by_arrival[arrived]]
        if arrived < tasks:
            now = min(now, arrival[by_arrival[arrived]])
        if slice_s > 0.0:
            now = max(now, np.ceil(now / slice_s) * slice_s)
        total = 0
        while events > 0 and times[0] <= now:
            ident = ids[0]
            events = pop(times, ids, events)
            if ident < fpgas:
                e = enclosure_of[ident]
                free[ident] = True
            else:
                task = ident - fpgas
                e = enclosure[task]
                for m in range(member_begin[task], member_begin[task] + width[task]):
                    free[base[e] + members[m]] = True
            if not is_changed[e]:
                is_changed[e] = True
                changed[total] = e
                total += 1
        for i in range(total):
            e = changed[i]
            is_changed[e] = False
            longest[e] = measure_runs(free, base[e], sizes[e], topologies[e], runs)
            counts[e] = free[base[e] : base[e + 1]].sum()
        news = False
        while arrived < tasks and arrival[by_arrival[arrived]] <= now:
            task = by_arrival[arrived]
            k = kind[task]
            wait(queue, queue_begin[k], waiting[k], place_of[task])
            waiting[k] += 1
            arrived += 1
            news = True
        if news or strict:
            total = enclosures
            for e in range(enclosures):
                changed[e] = e
        else:
            changed[:total].sort()
        tried[:] = 0
        while True:
            best = -1
            for k in range(kinds):
                if waiting[k] == 0:
                    continue
                if best >= 0 and queue[queue_begin[k]] > queue[queue_begin[best]]:
                    continue
                if not strict:
                    tried[k] = first_that_fits(
                        sizes, topologies, kind_links[k], kind_width[k], counts, longest, tried[k], changed, total
                    )
                    if tried[k] == total:
                        continue
                best = k
            if best < 0:
                break
            if strict:
                tried[best] = first_that_fits(
                    sizes, topologies, kind_links[best], kind_width[best], counts, longest, 0, changed, total
                )
                if tried[best] == total:
                    break
            task = order[queue[queue_begin[best]]]
            leave(queue, queue_begin[best], waiting[best])
            waiting[best] -= 1
            e = changed[tried[best]]
            out = members[member_begin[task] : member_begin[task] + width[task]]
            choose(
                runs, loaded, base[e], sizes[e], topologies[e], kind_links[best], width[task], function[task],
                load_s > 0.0, out,
            )  # fmt: skip
            enclosure[task] = e
            begin[task] = now
            for m in out:
                if must_load(function[task], loaded[base[e] + m], load_s > 0.0):
                    begin[task] = now + load_s
                if function[task] >= 0:
                    loaded[base[e] + m] = function[task]
                free[base[e] + m] = False
            end[task] = begin[task] + seconds[task]
            events = push(times, ids, events, end[task], fpgas + task)
            longest[e] = measure_runs(free, base[e], sizes[e], topologies[e], runs)
            counts[e] -= width[task]
            placed += 1
    return placed
