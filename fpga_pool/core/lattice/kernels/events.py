"""Parallel schedule generation, in order of events: no FPGA stays idle while some waiting task could use it.

Only some enclosures and tasks are scheduled at a time, as a step of a search.  A set of FPGAs of an enclosure is
represented by the bits of an integer.
"""

from typing import NamedTuple

import numpy as np

from fpga_pool.core.numba import compiled
from fpga_pool.core.types import Floats, Ints

#: Which FPGAs of an enclosure a class of tasks can take: none, any, or adjacent ones.
NOWHERE, ANY, ARC = 0, 1, 2
#: Maximum number of FPGAs of an enclosure, so that they fit into the bits of an integer.
MOST_FPGAS = 62
#: Relative difference of times that is attributed to rounding.
_SAME = 1e-12


class Instance(NamedTuple):
    """A problem as used by the loops: E enclosures, F FPGAs, T tasks, S shapes, C classes of width and links."""

    #: (E,) number of FPGAs, index of the first one, and whether the last is adjacent to the first.
    size: Ints
    base: Ints
    wrap: Ints
    #: (E, C) `NOWHERE`, `ANY` or `ARC`; (C,) number of FPGAs.
    kind: Ints
    width: Ints
    #: (S,) class and seconds of each shape; (T + 1,) index of the first shape of each task.
    shape_class: Ints
    seconds: Floats
    shape_begin: Ints
    #: (T,) earliest begin; minimum time between a task's end and the end of the schedule; function, -1 = none.
    arrival_s: Floats
    tail_s: Floats
    function: Ints
    #: (F,) time from which it is free; minimum time after its last task; loaded function, -1 = none.
    ready_s: Floats
    lane_tail_s: Floats
    loaded: Ints
    load_s: float


class Room(NamedTuple):
    """Scratch memory for one schedule at a time."""

    #: (C + 1,), (T,), (T,) index of the first task of each class's queue; tasks, and their keys, smallest first.
    queue_begin: Ints
    queue: Ints
    key: Floats
    #: (C,) index of the first task left in each queue, and its key, inf = none.
    head: Ints
    head_key: Floats
    #: (E,) heap of enclosures by the time of their next event, and the time of the last event of each.
    heap_s: Floats
    heap_ring: Ints
    since_s: Floats
    #: (F,) time until which each FPGA is occupied, its function, and scratch.
    until_s: Floats
    loaded: Ints
    lane_s: Floats


class Plan(NamedTuple):
    """A schedule during a search."""

    #: (T,) the begin, the enclosure, and the FPGAs as bits.
    begin_s: Floats
    ring: Ints
    bits: Ints


@compiled(inner=True)
def _sift_down(room, count, next_s, ring):  # type: ignore[no-untyped-def]
    """Replace the first enclosure of the heap by another one."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        other = child + 1
        if other < count and (
            room.heap_s[other] < room.heap_s[child]
            or (room.heap_s[other] == room.heap_s[child] and room.heap_ring[other] < room.heap_ring[child])
        ):
            child = other
        if room.heap_s[child] > next_s or (room.heap_s[child] == next_s and room.heap_ring[child] > ring):
            break
        room.heap_s[at] = room.heap_s[child]
        room.heap_ring[at] = room.heap_ring[child]
        at = child
    room.heap_s[at] = next_s
    room.heap_ring[at] = ring


@compiled(inner=True)
def _fill_heap(room, count):  # type: ignore[no-untyped-def]
    """Establish the heap order of the first `count` entries."""
    for k in range(1, count):
        next_s, ring, at = room.heap_s[k], room.heap_ring[k], k
        while at > 0:
            parent = (at - 1) >> 1
            if room.heap_s[parent] < next_s or (room.heap_s[parent] == next_s and room.heap_ring[parent] < ring):
                break
            room.heap_s[at] = room.heap_s[parent]
            room.heap_ring[at] = room.heap_ring[parent]
            at = parent
        room.heap_s[at] = next_s
        room.heap_ring[at] = ring


@compiled(inner=True)
def _longest_run(free, size, wrap):  # type: ignore[no-untyped-def]
    """Return the largest number of adjacent free FPGAs."""
    if free == (1 << size) - 1:
        return size
    longest, bits = 0, free
    while bits:
        longest += 1
        bits &= (bits >> 1) | ((bits & 1) << (size - 1)) if wrap else bits >> 1
    return longest


@compiled(inner=True)
def _shortest_run(free, size, wrap, width):  # type: ignore[no-untyped-def]
    """Return the first FPGA and the length of the shortest run of at least `width` free FPGAs."""
    if free == (1 << size) - 1:
        return 0, size
    origin = 0
    if wrap:
        while (free >> origin) & 1:
            origin += 1
    best, best_length, length = -1, size + 1, 0
    for step in range(size + 1):
        at = origin + step
        if at >= size and wrap:
            at -= size
        if step < size and (free >> at) & 1:
            length += 1
        else:
            if width <= length < best_length:
                best_length = length
                best = at - length
                if best < 0:
                    best += size
            length = 0
    return best, best_length


@compiled(inner=True)
def arc(first, width, size):  # type: ignore[no-untyped-def]
    """Return the bits of `width` adjacent FPGAs from `first` on, wrapping around the end if necessary."""
    bits = ((1 << width) - 1) << first
    return (bits | (bits >> size)) & ((1 << size) - 1)


@compiled(inner=True)
def _choose_arc(instance, room, ring, free, width, end_s, best_fit):  # type: ignore[no-untyped-def]
    """Return bits of adjacent free FPGAs in the shortest run, with `best_fit` at its better side.

    That is the side where the next FPGA is occupied until about `end_s`, or where the enclosure ends.
    """
    size, wrap, base = instance.size[ring], instance.wrap[ring], instance.base[ring]
    first, length = _shortest_run(free, size, wrap, width)
    if best_fit and width < length < size:
        left, right = first - 1, first + length
        if wrap:
            left = left if left >= 0 else size - 1
            right = right if right < size else right - size
        left_s = abs(room.until_s[base + left] - end_s) if left >= 0 else 0.0
        right_s = abs(room.until_s[base + right] - end_s) if right < size else 0.0
        if right_s < left_s:
            first += length - width
            if first >= size:
                first -= size
    return arc(first, width, size)


@compiled(inner=True)
def _choose_any(instance, ring, free, width):  # type: ignore[no-untyped-def]
    """Return bits of free FPGAs, taken from the shortest runs."""
    size, wrap = instance.size[ring], instance.wrap[ring]
    bits, left = 0, width
    while left > 0:
        first, length = _shortest_run(free & ~bits, size, wrap, 1)
        taken = min(left, length)
        bits |= arc(first, taken, size)
        left -= taken
    return bits


@compiled(inner=True)
def _count(bits):  # type: ignore[no-untyped-def]
    count = 0
    while bits:
        bits &= bits - 1
        count += 1
    return count


@compiled(inner=True)
def fill_queues(instance, room, shape, order, tasks):  # type: ignore[no-untyped-def]
    """Write the queues of the classes from the first `tasks` of `order`, which is the order of their keys."""
    classes = len(instance.width)
    for c in range(classes + 1):
        room.queue_begin[c] = 0
    for k in range(tasks):
        room.queue_begin[instance.shape_class[shape[order[k]]] + 1] += 1
    for c in range(classes):
        room.queue_begin[c + 1] += room.queue_begin[c]
        room.head[c] = room.queue_begin[c]
    for k in range(tasks):
        c = instance.shape_class[shape[order[k]]]
        at = room.head[c]
        room.queue[at] = order[k]
        room.key[at] = k
        room.head[c] = at + 1


@compiled(inner=True)
def _next_class(instance, room, ring, free):  # type: ignore[no-untyped-def]
    """Return the class whose first task has the smallest key of those that fit on the free FPGAs, -1 = none."""
    longest = _longest_run(free, instance.size[ring], instance.wrap[ring])
    number = -1
    best, best_key = -1, np.inf
    for c in range(len(instance.width)):
        if room.head_key[c] < best_key:
            kind, width = instance.kind[ring, c], instance.width[c]
            if kind == NOWHERE:
                continue
            if width > longest:
                if kind == ARC:
                    continue
                if number < 0:
                    number = _count(free)
                if width > number:
                    continue
            best = c
            best_key = room.head_key[c]
    return best


@compiled(inner=True)
def _advance(room, c):  # type: ignore[no-untyped-def]
    room.head[c] += 1
    at = room.head[c]
    room.head_key[c] = room.key[at] if at < room.queue_begin[c + 1] else np.inf


@compiled(inner=True)
def _set_out(instance, room, shape, rings, ring_count, until_s):  # type: ignore[no-untyped-def]
    """Prepare queues and heap; return the numbers of tasks and FPGAs, and total FPGA-seconds including `until_s`."""
    classes, lanes, area_s = len(instance.width), 0, 0.0
    for c in range(classes):
        room.head[c] = room.queue_begin[c] - 1
        _advance(room, c)
        sum_s = 0.0
        for at in range(room.queue_begin[c], room.queue_begin[c + 1]):
            sum_s += instance.seconds[shape[room.queue[at]]]
        area_s += instance.width[c] * sum_s
    for r in range(ring_count):
        ring = rings[r]
        base, size = instance.base[ring], instance.size[ring]
        next_s = np.inf
        for lane in range(base, base + size):
            room.until_s[lane] = until_s[lane]
            area_s += until_s[lane]
            next_s = min(next_s, until_s[lane])
        lanes += size
        room.since_s[ring] = -1.0
        room.heap_s[r] = next_s
        room.heap_ring[r] = ring
    _fill_heap(room, ring_count)
    return room.queue_begin[classes], lanes, area_s


@compiled(inner=True)
def in_order_of_events(instance, room, shape, rings, ring_count, until_s, best_fit, limit_s, plan):  # type: ignore[no-untyped-def]
    """Schedule the tasks in the queues on some enclosures; return the end, inf if after `limit_s`.

    Whenever FPGAs become free, the task with the smallest key that fits there begins.  `until_s` (F,) are the times
    from which FPGAs are free.  Arrivals and functions are ignored.  Writes `plan` and `room.until_s`.
    """
    left, lanes, area_s = _set_out(instance, room, shape, rings, ring_count, until_s)
    idle_s = lanes * limit_s * (1 + _SAME) - area_s if limit_s < np.inf else np.inf
    end_s, count = 0.0, ring_count
    while left > 0:
        if count == 0:
            return np.inf
        now_s, ring = room.heap_s[0], room.heap_ring[0]
        size, base = instance.size[ring], instance.base[ring]
        same_s, since_s, free = now_s * (1 + _SAME), room.since_s[ring], 0
        for lane in range(size):
            lane_s = room.until_s[base + lane]
            if lane_s <= same_s:
                free |= 1 << lane
                now_s = max(now_s, lane_s)
                idle_s -= now_s - max(since_s, lane_s)
        room.since_s[ring] = now_s
        if idle_s < 0:
            return np.inf
        while free and left > 0:
            c = _next_class(instance, room, ring, free)
            if c < 0:
                break
            i = room.queue[room.head[c]]
            _advance(room, c)
            left -= 1
            task_end_s = now_s + instance.seconds[shape[i]]
            if instance.kind[ring, c] == ARC:
                bits = _choose_arc(instance, room, ring, free, instance.width[c], task_end_s, best_fit)
            else:
                bits = _choose_any(instance, ring, free, instance.width[c])
            over_s = instance.tail_s[i]
            for lane in range(size):
                if (bits >> lane) & 1:
                    room.until_s[base + lane] = task_end_s
                    over_s = max(over_s, instance.lane_tail_s[base + lane])
            end_s = max(end_s, task_end_s + over_s)
            if end_s > limit_s:
                return np.inf
            plan.begin_s[i] = now_s
            plan.ring[i] = ring
            plan.bits[i] = bits
            if task_end_s > now_s:
                free &= ~bits
        next_s = np.inf
        for lane in range(base, base + size):
            if now_s < room.until_s[lane] < next_s:
                next_s = room.until_s[lane]
        if next_s == np.inf:
            count -= 1
            next_s = room.heap_s[count]
            ring = room.heap_ring[count]
        _sift_down(room, count, next_s, ring)
    return end_s
