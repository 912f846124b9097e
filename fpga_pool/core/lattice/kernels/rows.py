"""A problem of tasks as the loops of `events` read it."""

from dataclasses import replace

import numpy as np

from fpga_pool.core.lattice.kernels.events import ANY, ARC, NOWHERE, Instance, Plan, Room
from fpga_pool.core.lattice.listing import Placed
from fpga_pool.core.lattice.tasks import Links, TaskProblem, Topology
from fpga_pool.core.types import Floats, Ints


def placement_kind(width: int, links: int, fpgas: int, topology: int) -> int:
    """Return how FPGAs for such a task are found on such an enclosure: `NOWHERE`, `ANY` or `ARC` (neighbours)."""
    if width > fpgas:
        return NOWHERE
    if width == 1 or links == Links.ANY or topology == Topology.FULL:
        return ANY
    if links == Links.LINE or width == 2 or (topology == Topology.RING and width == fpgas):
        return ARC
    return NOWHERE


def instance_of(problem: TaskProblem) -> Instance:
    """Return the arrays of a problem; classes are the pairs of width and links that shapes have."""
    links = np.repeat(problem.links, np.diff(problem.shape_begin))
    # An enclosure knows only neighbours and any: rings of one or two are lines, and one FPGA has no links.
    links = np.where(problem.shape_fpgas == 1, Links.ANY, links)
    links = np.where((problem.shape_fpgas == 2) & (links == Links.RING), Links.LINE, links)
    pairs, shape_class = np.unique(np.stack((problem.shape_fpgas, links), axis=1), axis=0, return_inverse=True)
    size, topology = problem.enclosure_fpgas, problem.enclosure_links
    kinds = {
        (fpgas, there): [placement_kind(width, wish, fpgas, there) for width, wish in pairs.tolist()]
        for fpgas, there in set(zip(size.tolist(), topology.tolist(), strict=True))
    }
    kind = [kinds[fpgas, there] for fpgas, there in zip(size.tolist(), topology.tolist(), strict=True)]
    tasks, fpgas = problem.tasks, problem.fpgas
    return Instance(
        size=_own(size),
        base=np.concatenate(([0], np.cumsum(size)[:-1])),
        wrap=((topology == Topology.RING) & (size > 2)).astype(np.int64),
        kind=np.array(kind, np.int64).reshape(len(size), len(pairs)),
        width=np.ascontiguousarray(pairs[:, 0]),
        shape_class=shape_class.reshape(-1).astype(np.int64),
        seconds=_own(problem.shape_seconds),
        shape_begin=_own(problem.shape_begin),
        arrival_s=_own(problem.arrival_s),
        tail_s=np.zeros(tasks),
        function=_own(problem.function),
        ready_s=_own(problem.ready_s),
        lane_tail_s=np.zeros(fpgas),
        loaded=_own(problem.loaded),
        load_s=float(problem.load_s),
    )


def sorted_by_class(problem: TaskProblem, placed: Placed) -> tuple[TaskProblem, Placed, Ints]:
    """Return both with tasks by the class of their shape, the longest first, and (T,) which task each was.

    So they lie in memory as they are asked for, which makes schedules of 100,000 tasks twice as quick.
    """
    links, fpgas = problem.links, problem.shape_fpgas[placed.shape]
    order = np.lexsort((-(problem.shape_seconds[placed.shape] + problem.arrival_s), links, fpgas))
    number = np.diff(problem.shape_begin)[order]
    shape_begin = np.concatenate(([0], np.cumsum(number)))
    shapes = np.arange(shape_begin[-1]) + np.repeat(problem.shape_begin[:-1][order] - shape_begin[:-1], number)
    by_class = replace(
        problem, shape_begin=shape_begin, shape_fpgas=problem.shape_fpgas[shapes],
        shape_seconds=problem.shape_seconds[shapes], links=links[order], arrival_s=problem.arrival_s[order],
        function=problem.function[order],
    )  # fmt: skip
    moved = _rearranged(placed, order, placed.shape[order] - problem.shape_begin[:-1][order] + shape_begin[:-1])
    return by_class, moved, order


def in_order(placed: Placed, by_class: TaskProblem, order: Ints) -> Placed:
    """Return a schedule of `sorted_by_class` for the tasks as they were."""
    back = np.argsort(order)
    number = np.diff(by_class.shape_begin)[back]
    first = np.concatenate(([0], np.cumsum(number)[:-1]))
    return _rearranged(placed, back, (placed.shape - by_class.shape_begin[:-1])[back] + first)


def _rearranged(placed: Placed, order: Ints, shape: Ints) -> Placed:
    width = np.diff(placed.member_begin)[order]
    member_begin = np.concatenate(([0], np.cumsum(width)))
    places = np.arange(member_begin[-1]) + np.repeat(placed.member_begin[:-1][order] - member_begin[:-1], width)
    return Placed(
        enclosure=placed.enclosure[order], shape=shape, begin_s=placed.begin_s[order], end_s=placed.end_s[order],
        member_begin=member_begin, members=placed.members[places],
    )  # fmt: skip


def reversed_in_time(instance: Instance) -> Instance:
    """Return the problem read backwards: what was before the first task of an FPGA, or a task, now follows the last.

    A schedule of the one, read backwards, is one of the other, as long as no functions have to be loaded.
    """
    return instance._replace(
        arrival_s=np.zeros(len(instance.arrival_s)),
        tail_s=instance.arrival_s.copy(),
        ready_s=np.zeros(len(instance.ready_s)),
        lane_tail_s=instance.ready_s.copy(),
        function=np.full(len(instance.function), -1),
        loaded=np.full(len(instance.loaded), -1),
    )


def room_for(instance: Instance) -> Room:
    """Return scratch for schedules of the instance."""
    classes, tasks = len(instance.width), len(instance.arrival_s)
    rings, fpgas = len(instance.size), len(instance.ready_s)
    return Room(
        queue_begin=np.zeros(classes + 1, np.int64),
        queue=np.zeros(tasks, np.int64),
        key=np.zeros(tasks),
        head=np.zeros(classes, np.int64),
        head_key=np.zeros(classes),
        heap_s=np.zeros(rings),
        heap_ring=np.zeros(rings, np.int64),
        since_s=np.zeros(rings),
        until_s=np.zeros(fpgas),
        loaded=np.zeros(fpgas, np.int64),
        lane_s=np.zeros(int(instance.size.max(initial=1))),
    )


def plan_for(tasks: int) -> Plan:
    """Return an empty plan."""
    return Plan(begin_s=np.zeros(tasks), ring=np.zeros(tasks, np.int64), bits=np.zeros(tasks, np.int64))


def _own(array: Floats | Ints) -> np.ndarray:
    """Return a copy that can be written: the loops are compiled for one kind of array only."""
    return np.array(array)
