"""Local search on schedules: the last tasks of a few enclosures are rescheduled in changing orders.

Random numbers come from a one-word generator (Park and Miller) whose state the caller owns, so the same state gives the
same result.
"""

from typing import NamedTuple

import numpy as np

from fpga_pool.core.lattice.kernels.events import Instance, Plan, Room, fill_queues, in_order_of_events
from fpga_pool.core.lattice.kernels.serial import one_after_the_other
from fpga_pool.core.numba import compiled
from fpga_pool.core.types import Floats, Ints

#: Weight, relative to the end, of the mean time from which FPGAs are free, in the cost of a partial schedule.
_IDLE_WEIGHT = 0.05
_SAME = 1e-12


class Search(NamedTuple):
    """A schedule that is being changed, and scratch memory."""

    instance: Instance
    room: Room
    #: The current schedule, and the one that is tried.
    plan: Plan
    trial: Plan
    #: (T,) current shape of each task.
    shape: Ints
    #: (E,) first task of each enclosure's linked list, (T,) the next one in the list, -1 = none; (E,) the end.
    first: Ints
    following: Ints
    end_s: Floats
    #: (E,) the enclosures, chosen ones first; (F,) until when the other tasks occupy each FPGA, and its function then.
    rings: Ints
    until_s: Floats
    loaded: Ints
    #: (T,) tasks to reschedule, in the best order so far, and in the order to try next.
    order: Ints
    next_order: Ints
    key: Floats
    #: (1,) state of the random numbers; (2,) work done and number of improvements.
    random: Ints
    counts: Ints


class Queues(NamedTuple):
    """Tasks by class, longest first in each class."""

    #: (C + 1,) index of the first task of each class; (N,) tasks; (N,) logarithms of their lengths, tails included.
    begin: Ints
    tasks: Ints
    log_s: Floats


@compiled(inner=True)
def _below(random, limit):  # type: ignore[no-untyped-def]
    random[0] = random[0] * 48271 % 2147483647
    return random[0] % limit


@compiled(inner=True)
def enclosure_end_s(search, ring):  # type: ignore[no-untyped-def]
    """Return the time when all tasks on an enclosure have ended, tails included."""
    instance, end_s = search.instance, 0.0
    i = search.first[ring]
    while i >= 0:
        over_s = instance.tail_s[i]
        for lane in range(instance.size[ring]):
            if (search.plan.bits[i] >> lane) & 1:
                over_s = max(over_s, instance.lane_tail_s[instance.base[ring] + lane])
        end_s = max(end_s, search.plan.begin_s[i] + instance.seconds[search.shape[i]] + over_s)
        i = search.following[i]
    return end_s


@compiled()
def link(search):  # type: ignore[no-untyped-def]
    """Build the task lists of all enclosures from the plan, and write the end of each."""
    for ring in range(len(search.first)):
        search.first[ring] = -1
    for i in range(len(search.following)):
        ring = search.plan.ring[i]
        search.following[i] = search.first[ring]
        search.first[ring] = i
    for ring in range(len(search.first)):
        search.end_s[ring] = enclosure_end_s(search, ring)


@compiled(inner=True)
def _choose_rings(search, count):  # type: ignore[no-untyped-def]
    """Move the enclosure that ends last, and `count` - 1 random others, to the front of `rings`."""
    rings, total = search.rings, len(search.rings)
    worst = 0
    for r in range(total):
        if search.end_s[rings[r]] > search.end_s[rings[worst]]:
            worst = r
    rings[0], rings[worst] = rings[worst], rings[0]
    for r in range(1, count):
        other = r + _below(search.random, total - r)
        second = r + _below(search.random, total - r)
        if search.end_s[rings[second]] < search.end_s[rings[other]]:
            other = second
        rings[r], rings[other] = rings[other], rings[r]


@compiled(inner=True)
def _sort(keys, values, count):  # type: ignore[no-untyped-def]
    """Sort both arrays by ascending key, then value (Shell sort with Ciura's gaps)."""
    for gap in (57, 23, 10, 4, 1):
        for k in range(gap, count):
            key, value, at = keys[k], values[k], k
            while at >= gap and (keys[at - gap] > key or (keys[at - gap] == key and values[at - gap] > value)):
                keys[at], values[at] = keys[at - gap], values[at - gap]
                at -= gap
            keys[at], values[at] = key, value


@compiled(inner=True)
def _copy(source, target, count):  # type: ignore[no-untyped-def]
    for k in range(count):
        target[k] = source[k]


@compiled(inner=True)
def _take_out(search, count, cut_s):  # type: ignore[no-untyped-def]
    """Write to `order` the tasks that begin at `cut_s` or later on the chosen enclosures, by begin; return how many.

    Sets `until_s` and `loaded` to the state of the FPGAs after the other tasks.
    """
    instance, tasks = search.instance, 0
    for r in range(count):
        ring = search.rings[r]
        base, size = instance.base[ring], instance.size[ring]
        for lane in range(base, base + size):
            search.until_s[lane] = instance.ready_s[lane]
            search.loaded[lane] = instance.loaded[lane]
            search.room.lane_s[lane - base] = -1.0
        i = search.first[ring]
        while i >= 0:
            begin_s = search.plan.begin_s[i]
            if begin_s >= cut_s:
                search.key[tasks] = begin_s
                search.next_order[tasks] = i
                tasks += 1
            else:
                for lane in range(size):
                    if (search.plan.bits[i] >> lane) & 1:
                        end_s = begin_s + instance.seconds[search.shape[i]]
                        search.until_s[base + lane] = max(search.until_s[base + lane], end_s)
                        if instance.function[i] >= 0 and begin_s > search.room.lane_s[lane]:
                            search.room.lane_s[lane] = begin_s
                            search.loaded[base + lane] = instance.function[i]
            i = search.following[i]
    _sort(search.key, search.next_order, tasks)
    _copy(search.next_order, search.order, tasks)
    return tasks


@compiled(inner=True)
def _change(search, tasks):  # type: ignore[no-untyped-def]
    """Write a neighbour of `order` into `next_order`."""
    random, order, new = search.random, search.order, search.next_order
    _copy(order, new, tasks)
    move = _below(random, 8)
    if move < 3:
        a, b = _below(random, tasks), _below(random, tasks)
        new[a], new[b] = new[b], new[a]
        return
    a, b = _below(random, tasks), _below(random, tasks)
    if move < 6 and b > a:
        a, b = b, a
    i = new[a]
    while a > b:
        new[a] = new[a - 1]
        a -= 1
    while a < b:
        new[a] = new[a + 1]
        a += 1
    new[b] = i
    if move == 7 and tasks > 2:
        a, b = _below(random, tasks), _below(random, tasks)
        new[a], new[b] = new[b], new[a]


@compiled(inner=True)
def _change_shape(search, tasks):  # type: ignore[no-untyped-def]
    """Change the shape of a random task if it has several; return the task and its previous shape."""
    i = search.order[_below(search.random, tasks)]
    old, begin, end = search.shape[i], search.instance.shape_begin[i], search.instance.shape_begin[i + 1]
    if end - begin > 1:
        search.shape[i] = begin + (old - begin + 1 + _below(search.random, end - begin - 1)) % (end - begin)
    return i, old


@compiled(inner=True)
def _try(search, order, tasks, count, manner, limit_s):  # type: ignore[no-untyped-def]
    search.counts[0] += tasks
    if manner < 2:
        fill_queues(search.instance, search.room, search.shape, order, tasks)
        return in_order_of_events(
            search.instance, search.room, search.shape, search.rings, count, search.until_s, manner == 1, limit_s,
            search.trial,
        )  # fmt: skip
    search.counts[0] += tasks * count
    return one_after_the_other(
        search.instance, search.room, search.shape, order, tasks, search.rings, count, search.until_s,
        search.loaded, limit_s, search.trial,
    )  # fmt: skip


@compiled(inner=True)
def _idle_s(search, count):  # type: ignore[no-untyped-def]
    """Return the mean time from which the FPGAs of the chosen enclosures stay free after a try."""
    sum_s, lanes = 0.0, 0
    for r in range(count):
        base = search.instance.base[search.rings[r]]
        for lane in range(base, base + search.instance.size[search.rings[r]]):
            sum_s += search.room.until_s[lane]
            lanes += 1
    return sum_s / lanes


@compiled(inner=True)
def _keep(search, tasks):  # type: ignore[no-untyped-def]
    for k in range(tasks):
        i = search.order[k]
        search.plan.begin_s[i] = search.trial.begin_s[i]
        search.plan.ring[i] = search.trial.ring[i]
        search.plan.bits[i] = search.trial.bits[i]


@compiled(inner=True)
def _relink(search, count):  # type: ignore[no-untyped-def]
    """Update the task lists of the chosen enclosures after tasks have moved between them."""
    head = -1
    for r in range(count):
        ring = search.rings[r]
        i = search.first[ring]
        search.first[ring] = -1
        while i >= 0:
            following = search.following[i]
            search.following[i] = head
            head = i
            i = following
    while head >= 0:
        following, ring = search.following[head], search.plan.ring[head]
        search.following[head] = search.first[ring]
        search.first[ring] = head
        head = following
    for r in range(count):
        search.end_s[search.rings[r]] = enclosure_end_s(search, search.rings[r])


@compiled()
def improve(search, bound_s, work, tries, most_rings, most_tasks, manners, malleable):  # type: ignore[no-untyped-def]
    """Change the schedule until about `work` tasks have been placed or its end reaches `bound_s`; return the end.

    In each round about `most_tasks` tasks, of at most `most_rings` enclosures, are rescheduled `tries` times.
    `manners`: 1 = in order of events only, 2 = one after the other only, 3 = both.
    """
    total = len(search.first)
    search.counts[0] = 0
    while search.counts[0] < work:
        search.counts[0] += total
        count = min(total, 2 + _below(search.random, max(most_rings - 1, 1))) if total > 1 else 1
        _choose_rings(search, count)
        old_s = search.end_s[search.rings[0]]
        if old_s <= bound_s * (1 + _SAME):
            return old_s
        number = 0
        for r in range(count):
            i = search.first[search.rings[r]]
            while i >= 0:
                number += 1
                i = search.following[i]
        goal = 2 + _below(search.random, 2 * most_tasks)
        cut_s = old_s * (1 - goal / number) if goal < number else 0.0
        tasks = _take_out(search, count, cut_s)
        if tasks < 2:
            continue
        manner = _below(search.random, 2)
        if manners == 2 or (manners == 3 and _below(search.random, 4) == 0):
            manner = 2
        _copy(search.order, search.next_order, tasks)
        best, kept = old_s * (1 + _IDLE_WEIGHT), False
        for step in range(tries):
            changed, old_shape = -1, 0
            if step > 0:
                _change(search, tasks)
                if malleable and _below(search.random, 2) == 0:
                    changed, old_shape = _change_shape(search, tasks)
            end_s = _try(search, search.next_order, tasks, count, manner, old_s)
            taken = False
            if end_s < np.inf:
                cost = end_s + _IDLE_WEIGHT * _idle_s(search, count)
                taken = cost <= best or not kept
                if taken:
                    best = cost
                    kept = True
                    _copy(search.next_order, search.order, tasks)
                    _keep(search, tasks)
            if changed >= 0 and not taken:
                search.shape[changed] = old_shape
        if kept:
            _relink(search, count)
            if search.end_s[search.rings[0]] < old_s:
                search.counts[1] += 1
    worst_s = 0.0
    for ring in range(total):
        worst_s = max(worst_s, search.end_s[ring])
    return worst_s


@compiled(inner=True)
def _noise(random):  # type: ignore[no-untyped-def]
    """Return a random number around 0, mostly between -1 and 1: the sum of three uniform ones."""
    total = _below(random, 2001) + _below(random, 2001) + _below(random, 2001)
    return (total - 3000) / 1500.0


@compiled()
def by_weights(search, queues, rings, weights, best_fit, limit_s):  # type: ignore[no-untyped-def]
    """Schedule tasks on the first `rings` enclosures by class weight + slope * log length, largest first.

    `queues` has the tasks by class, longest first; `weights` (2, C) has weights and slopes.  Slopes are not negative,
    so the order within a class is always that of the queues.  Returns the end, inf if after `limit_s`.
    """
    room, instance = search.room, search.instance
    _copy(queues.begin, room.queue_begin, len(queues.begin))
    _copy(queues.tasks, room.queue, len(queues.tasks))
    for c in range(len(instance.width)):
        for at in range(queues.begin[c], queues.begin[c + 1]):
            room.key[at] = -weights[0, c] - weights[1, c] * queues.log_s[at]
    search.counts[0] += len(queues.tasks)
    return in_order_of_events(
        instance, room, search.shape, search.rings, rings, instance.ready_s, best_fit, limit_s, search.trial
    )


@compiled()
def take_trial(search):  # type: ignore[no-untyped-def]
    """Copy the schedule that was tried into the plan."""
    for i in range(len(search.following)):
        search.plan.begin_s[i] = search.trial.begin_s[i]
        search.plan.ring[i] = search.trial.ring[i]
        search.plan.bits[i] = search.trial.bits[i]


@compiled(inner=True)
def _change_weights(random, weights):  # type: ignore[no-untyped-def]
    classes = weights.shape[1]
    scale = 0.02 * 4.0 ** _below(random, 4)
    for _ in range(1 + _below(random, 3)):
        c = _below(random, classes)
        move = _below(random, 8)
        if move == 0:
            weights[0, c] = weights[0, _below(random, classes)] + scale * _noise(random)
        elif move < 6:
            weights[0, c] += scale * _noise(random)
        else:
            weights[1, c] = max(0.0, weights[1, c] + 0.5 * scale * _noise(random))
    if _below(random, 8) == 0:
        shift = 0.5 * scale * _noise(random)
        for c in range(classes):
            weights[1, c] = max(0.0, weights[1, c] + shift)


@compiled()
def reweigh(search, queues, rings, weights, best_s, bound_s, work):  # type: ignore[no-untyped-def]
    """Change weights step by step until about `work` tasks have been placed; return the end of the best schedule.

    The best schedule is stored in the plan and its weights in `weights`.
    """
    new = weights.copy()
    search.counts[0] = 0
    while search.counts[0] < work and best_s > bound_s * (1 + _SAME):
        for c in range(weights.shape[1]):
            new[0, c], new[1, c] = weights[0, c], weights[1, c]
        _change_weights(search.random, new)
        end_s = by_weights(search, queues, rings, new, _below(search.random, 2) == 1, best_s)
        if end_s <= best_s:
            if end_s < best_s:
                take_trial(search)
                search.counts[1] += 1
            best_s = end_s
            for c in range(weights.shape[1]):
                weights[0, c], weights[1, c] = new[0, c], new[1, c]
    return best_s
