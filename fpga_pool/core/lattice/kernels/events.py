"""Scheduling on enclosures in order of events: no FPGA waits for which there is work (parallel schedule generation).

It looks at some enclosures and tasks only, which makes it a step of a search.  Sets of FPGAs of an enclosure are bits
of an integer.
"""

from typing import NamedTuple

import numpy as np

from fpga_pool.core.numba import compiled
from fpga_pool.core.types import Floats, Ints

#: How a class of tasks goes onto an enclosure: not at all, on any FPGAs, on neighbours.
NOWHERE, ANY, ARC = 0, 1, 2
#: FPGAs of an enclosure that fit into the bits of an integer.
MOST_FPGAS = 62
#: Relative difference of times that are the same but for rounding.
_SAME = 1e-12


class Instance(NamedTuple):
    """A problem as the loops read it: E enclosures, F FPGAs, T tasks, S shapes, C classes of width and links."""

    #: (E,) FPGAs, the index of the first, and whether the last is the neighbour of the first.
    size: Ints
    base: Ints
    wrap: Ints
    #: (E, C) `NOWHERE`, `ANY` or `ARC`; (C,) FPGAs.
    kind: Ints
    width: Ints
    #: (S,) class and seconds of each shape; (T + 1,) where the shapes of a task begin.
    shape_class: Ints
    seconds: Floats
    shape_begin: Ints
    #: (T,) not before; what follows a task's end before the schedule ends; function, -1 = none.
    arrival_s: Floats
    tail_s: Floats
    function: Ints
    #: (F,) free from; what follows the end of its last task; function that it has, -1 = none.
    ready_s: Floats
    lane_tail_s: Floats
    loaded: Ints
    load_s: float


class Room(NamedTuple):
    """Scratch for one schedule at a time."""

    #: (C + 1,), (T,), (T,) where the queue of each class begins; tasks, and their keys: the least goes first.
    queue_begin: Ints
    queue: Ints
    key: Floats
    #: (C,) place of the first task of each queue, and its key, inf = none.
    head: Ints
    head_key: Floats
    #: (E,) heap of enclosures by when something happens there next, and when it did last.
    heap_s: Floats
    heap_ring: Ints
    since_s: Floats
    #: (F,) until when each FPGA is taken, the function that it has, and scratch.
    until_s: Floats
    loaded: Ints
    lane_s: Floats


class Plan(NamedTuple):
    """A schedule while it is searched for."""

    #: (T,) from when, the enclosure, the FPGAs as bits.
    begin_s: Floats
    ring: Ints
    bits: Ints


@compiled(inner=True)
def _sift_down(room, count, next_s, ring):  # type: ignore[no-untyped-def]
    """Put an enclosure in place of the first of the heap."""
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
    """Order what is in the heap."""
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
    """Return how many neighbours are free at most."""
    if free == (1 << size) - 1:
        return size
    longest, bits = 0, free
    while bits:
        longest += 1
        bits &= (bits >> 1) | ((bits & 1) << (size - 1)) if wrap else bits >> 1
    return longest


@compiled(inner=True)
def _shortest_run(free, size, wrap, width):  # type: ignore[no-untyped-def]
    """Return the first FPGA and the length of the shortest run of free ones with `width` or more."""
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
    """Return the bits of `width` neighbours from `first` on, around the end if need be."""
    bits = ((1 << width) - 1) << first
    return (bits | (bits >> size)) & ((1 << size) - 1)


@compiled(inner=True)
def _choose_arc(instance, room, ring, free, width, end_s, best_fit):  # type: ignore[no-untyped-def]
    """Return bits of free neighbours: on the shortest run, at the side where the neighbour ends at about `end_s`."""
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
    """Return bits of free FPGAs, out of the shortest runs."""
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
    """Write the queues of the classes, for tasks in this order."""
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
    """Return the class whose first task has the least key of all that fit among the free FPGAs, -1 = none."""
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
    """Prepare queues and heap; return tasks, FPGAs and the FPGA-seconds of all, waiting before the first included."""
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
    """Schedule the tasks in the queues on some enclosures; return when all is over, inf if after `limit_s`.

    Whenever FPGAs become free, the task with the least key that fits there begins.  `until_s` (F,) says from when on
    FPGAs are free.  Arrivals and functions are not looked at.  `plan` is written, and `room.until_s`.
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
