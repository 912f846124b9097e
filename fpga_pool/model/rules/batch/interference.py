"""Slowdown of the jobs of a batch by their neighbors on a card, according to the learned interference model."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from fpga_pool.core.cluster.slowdown import SlowdownModel
from fpga_pool.core.types import PoolView, floats
from fpga_pool.model.objects.pool import CPU, Job, Slot, SlotState


def beside_neighbours(view: PoolView, jobs: Sequence[Job], slots: Sequence[Slot], slowdown: SlowdownModel) -> PoolView:
    """Return a view in which jobs take longer on slots with computing neighbors; `slots` are the slots of the view.

    The slowdown is the mean over the time that the jobs take on all slots together, from when the slot itself is free.
    A neighbor counts until its planned work ends, or all the time if it computes for an instance or a task.  How jobs
    that are planned together slow each other down is part of the refitted time models.
    """
    computing: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for row, slot in enumerate(slots):
        if slot.state is SlotState.BUSY and slot.kind != CPU:
            computing[slot.host, slot.card].append(row)
    until_s = [float(ready_s) if view.slot_usable[row] else inf for row, ready_s in enumerate(view.slot_ready_s)]
    horizon_s = _horizon_s(view, jobs) if computing else 0.0
    if not horizon_s:
        return view
    time_a_s, time_b_s = view.time_a_s.copy(), view.time_b_s_per_byte.copy()
    for row, slot in enumerate(slots):
        beside = [
            (min((until_s[other] - until_s[row]) / horizon_s, 1.0), slots[other].function)
            for other in computing.get((slot.host, slot.card), ())
            if other != row and view.slot_usable[row] and until_s[other] > until_s[row]
        ]
        for name in {job.function for job in jobs} if beside else ():
            column, factor = view.function_index[name], 1.0 + _mean_cost(slowdown, name, sorted(beside))
            time_a_s[row, column] *= factor
            time_b_s[row, column] *= factor
    return replace(view, time_a_s=floats(time_a_s), time_b_s_per_byte=floats(time_b_s))


def _mean_cost(slowdown: SlowdownModel, function: str, beside: Sequence[tuple[float, str]]) -> float:
    """Return the mean cost of neighbors; each has the share of the time until it is free, in increasing order."""
    cost, before = 0.0, 0.0
    for number, (until, _) in enumerate(beside):
        there = tuple(sorted(other for _, other in beside[number:]))
        cost += (until - before) * slowdown.cost(function, there)
        before = until
    return cost


def _horizon_s(view: PoolView, jobs: Sequence[Job]) -> float:
    """Estimate how long jobs take on all usable slots together, at least as long as one job; 0 if none can run."""
    total_s, counted = 0.0, 0
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for job in jobs:
        sizes[view.function_index[job.function]].append(job.input_bytes)
    for column, of_function in sizes.items():
        here = view.slot_usable & view.can_run[:, column]
        if here.any():
            mean_bytes = sum(of_function) / len(of_function)
            times_s = view.time_a_s[here, column] + view.time_b_s_per_byte[here, column] * mean_bytes
            total_s += len(of_function) * float(times_s.min())
            counted += len(of_function)
    return total_s / min(counted, int(view.slot_usable.sum())) if counted else 0.0
