"""Serial schedule generation: one task after the other is placed where it can begin first.

Unlike in order of events, FPGAs may stay idle to wait for a wide task or for a load.
"""

import numpy as np

from fpga_pool.core.lattice.kernels.events import ANY, ARC, arc
from fpga_pool.core.numba import compiled


@compiled(inner=True)
def _usable_s(instance, room, lane, function, arrival_s):  # type: ignore[no-untyped-def]
    """Return the time when a task can begin on an FPGA, after its arrival and, if needed, a load of its function."""
    there_s, has = max(room.until_s[lane], arrival_s), room.loaded[lane]
    if function >= 0 and has >= 0 and has != function:
        there_s += instance.load_s
    return there_s


@compiled(inner=True)
def _begin_on_arc(instance, room, ring, width, function, earliest_s):  # type: ignore[no-untyped-def]
    """Return the first time when `width` adjacent FPGAs can begin, their total idle time, and the first of them."""
    size, base = instance.size[ring], instance.base[ring]
    places = size if instance.wrap[ring] and width < size else size - width + 1
    best_s, best_idle_s, best = np.inf, np.inf, -1
    for lane in range(size):
        room.lane_s[lane] = _usable_s(instance, room, base + lane, function, earliest_s)
    for first in range(places):
        begin_s, sum_s = earliest_s, 0.0
        for step in range(width):
            lane = first + step
            if lane >= size:
                lane -= size
            sum_s += room.until_s[base + lane]
            if room.lane_s[lane] > begin_s:
                begin_s = room.lane_s[lane]
                if begin_s > best_s:
                    break
        if begin_s <= best_s:
            idle_s = begin_s * width - sum_s
            if begin_s < best_s or idle_s < best_idle_s:
                best_s = begin_s
                best_idle_s = idle_s
                best = first
    return best_s, best_idle_s, best


@compiled(inner=True)
def _begin_on_any(instance, room, ring, width, function, earliest_s):  # type: ignore[no-untyped-def]
    """Return the first time when any `width` FPGAs can begin, their total idle time, and their bits."""
    size, base = instance.size[ring], instance.base[ring]
    for lane in range(size):
        room.lane_s[lane] = _usable_s(instance, room, base + lane, function, earliest_s)
    bits, begin_s, sum_s = 0, earliest_s, 0.0
    for _ in range(width):
        first = -1
        for lane in range(size):
            if not (bits >> lane) & 1 and (first < 0 or room.lane_s[lane] < room.lane_s[first]):
                first = lane
        bits |= 1 << first
        begin_s = max(begin_s, room.lane_s[first])
    # Of the FPGAs that are usable by then, choose those with the shortest idle time.
    bits = 0
    for _ in range(width):
        last = -1
        for lane in range(size):
            can = not (bits >> lane) & 1 and room.lane_s[lane] <= begin_s
            if can and (last < 0 or room.until_s[base + lane] > room.until_s[base + last]):
                last = lane
        bits |= 1 << last
        sum_s += room.until_s[base + last]
    return begin_s, begin_s * width - sum_s, bits


@compiled(inner=True)
def one_after_the_other(  # type: ignore[no-untyped-def]
    instance, room, shape, order, tasks, rings, ring_count, until_s, loaded, limit_s, plan
):
    """Schedule the first `tasks` of `order` on some enclosures; return the end, inf if after `limit_s`.

    Each task is placed where it can begin first after the tasks there; of equal places, where FPGAs are idle shortest.
    `until_s` and `loaded` (F,) are the times from which FPGAs are free, and their functions.  Writes `plan` and
    `room.until_s`.
    """
    for r in range(ring_count):
        ring = rings[r]
        for lane in range(instance.base[ring], instance.base[ring] + instance.size[ring]):
            room.until_s[lane] = until_s[lane]
            room.loaded[lane] = loaded[lane]
    end_s = 0.0
    for k in range(tasks):
        i = order[k]
        c = instance.shape_class[shape[i]]
        width, function, arrival_s = instance.width[c], instance.function[i], instance.arrival_s[i]
        best_s, best_idle_s, best_ring, best = np.inf, np.inf, -1, 0
        for r in range(ring_count):
            ring = rings[r]
            if instance.kind[ring, c] == ARC:
                begin_s, idle_s, place = _begin_on_arc(instance, room, ring, width, function, arrival_s)
            elif instance.kind[ring, c] == ANY:
                begin_s, idle_s, place = _begin_on_any(instance, room, ring, width, function, arrival_s)
            else:
                continue
            if begin_s < best_s or (begin_s == best_s and idle_s < best_idle_s):
                best_s = begin_s
                best_idle_s = idle_s
                best_ring = ring
                best = place
        if best_ring < 0:
            return np.inf
        bits = arc(best, width, instance.size[best_ring]) if instance.kind[best_ring, c] == ARC else best
        task_end_s = best_s + instance.seconds[shape[i]]
        over_s, base = instance.tail_s[i], instance.base[best_ring]
        for lane in range(instance.size[best_ring]):
            if (bits >> lane) & 1:
                room.until_s[base + lane] = task_end_s
                if function >= 0:
                    room.loaded[base + lane] = function
                over_s = max(over_s, instance.lane_tail_s[base + lane])
        end_s = max(end_s, task_end_s + over_s)
        if end_s > limit_s:
            return np.inf
        plan.begin_s[i] = best_s
        plan.ring[i] = best_ring
        plan.bits[i] = bits
    return end_s


@compiled()
def settle(instance, room, shape, order, plan):  # type: ignore[no-untyped-def]
    """Begin each task on its FPGAs as early as the tasks before it in `order` allow; write `plan.begin_s`."""
    for lane in range(len(instance.ready_s)):
        room.until_s[lane] = instance.ready_s[lane]
        room.loaded[lane] = instance.loaded[lane]
    for i in order:
        ring, bits, function = plan.ring[i], plan.bits[i], instance.function[i]
        base, size = instance.base[ring], instance.size[ring]
        begin_s = instance.arrival_s[i]
        for lane in range(size):
            if (bits >> lane) & 1:
                begin_s = max(begin_s, _usable_s(instance, room, base + lane, function, instance.arrival_s[i]))
        plan.begin_s[i] = begin_s
        for lane in range(size):
            if (bits >> lane) & 1:
                room.until_s[base + lane] = begin_s + instance.seconds[shape[i]]
                if function >= 0:
                    room.loaded[base + lane] = function
