"""The slots of hosts as enclosures of paper 004, and what a policy plans on them as slots again.

An enclosure is a line, a ring or fully linked, and its members are single slots.  A card with several slots in a line
or ring of cards is unrolled: its slots follow each other.  So a path may be unknown here that there is (a ring within
one card of several), but none is known that there is not; who finds no place here is placed otherwise
(`tasks.choose`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.tasks import Links, TaskProblem
from fpga_pool.core.lattice.tasks import Topology as Cables
from fpga_pool.core.lattice.topology import choose
from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.flavor import Topology
from fpga_pool.model.links import slot_links
from fpga_pool.model.objects import Slot
from fpga_pool.model.pool.task_rooms import HostRoom
from fpga_pool.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Slots that are linked as `cables` says, in the order of their links."""

    cables: Cables
    #: (M,) None = there is no slot, or none that fits.
    members: tuple[Slot | None, ...]

    def there(self) -> list[int]:
        """Return the indices of the members that are slots."""
        return [index for index, slot in enumerate(self.members) if slot is not None]


def enclosures_of(rooms: Iterable[HostRoom]) -> list[Enclosure]:
    """Return the enclosures of the slots of each host; cards that are not in one make one each."""
    found: list[Enclosure] = []
    for room in rooms:
        boxes: defaultdict[str, list[Slot]] = defaultdict(list)
        for slot in room.slots:
            links = slot_links(slot.links)
            boxes[f"box {links.card.enclosure}" if links.card.enclosure else f"card {slot.card}"].append(slot)
        for _, slots in sorted(boxes.items()):
            found += _enclosures(slots)
    return found


def _enclosures(slots: Sequence[Slot]) -> Iterator[Enclosure]:
    links = [slot_links(slot.links) for slot in slots]
    card = links[0].card
    if not card.enclosure:
        yield from _of_one_card(slots)
    elif card.topology == Cables.FULL:
        # Of a card the slots of which are not linked each with each a path may not take any two.
        first = {link.card.position: slot for slot, link in zip(reversed(slots), reversed(links), strict=True)}
        yield Enclosure(Cables.FULL, tuple(slots if card.slots == Cables.FULL else first.values()))
    else:
        # Of a card the slots of which are not linked at all a path takes one.
        width = 1 if card.slots is None else max(link.slots for link in links)
        members: list[Slot | None] = [None] * (card.cards * width)
        for slot, link in zip(reversed(slots), reversed(links), strict=True):
            members[link.card.position * width + (0 if card.slots is None else link.position)] = slot
        yield Enclosure(card.topology, tuple(members))


def _of_one_card(slots: Sequence[Slot]) -> Iterator[Enclosure]:
    links = [slot_links(slot.links) for slot in slots]
    between = links[0].card.slots
    if between is None:
        yield from (Enclosure(Cables.FULL, (slot,)) for slot in slots)
    elif between == Cables.FULL:
        yield Enclosure(Cables.FULL, tuple(slots))
    else:
        members: list[Slot | None] = [None] * links[0].slots
        for slot, link in zip(slots, links, strict=True):
            members[link.position] = slot
        yield Enclosure(between, tuple(members))


def fits_somewhere(enclosures: Iterable[Enclosure], topology: Topology, count: int) -> bool:
    """Say whether some enclosure, all of its slots free, has so many that are linked as asked."""
    wish = Links[topology.name]
    return any(choose(box.there(), len(box.members), box.cables, wish, count) is not None for box in enclosures)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskRequestProblem:
    """A problem, and what its indices mean."""

    problem: TaskProblem
    tasks: tuple[Task, ...]
    enclosures: tuple[Enclosure, ...]


def problem_of(
    tasks: Sequence[Task],
    enclosures: Sequence[Enclosure],
    work_s: Mapping[str, float],
    load_s: float,
    ready_s: Mapping[str, float],
) -> TaskRequestProblem:
    """Return the problem of tasks of one or several functions that fit in the same slots.

    Parameters
    ----------
    tasks, enclosures
        What waits, each of it fitting somewhere, and where.
    work_s
        Seconds that each task computes, by its uuid.
    load_s
        Seconds that a slot takes to load another function.
    ready_s
        Seconds until each slot is free, by name.

    """
    names = {task.function for task in tasks}
    names |= {slot.function for box in enclosures for slot in box.members if slot is not None and slot.function}
    number = {name: index for index, name in enumerate(sorted(names))}
    slots = [slot for box in enclosures for slot in box.members]
    # Nothing is planned onto what is not there: all that waits can be done before it is free.
    away_s = 1 + max(ready_s.values(), default=0.0) + 2 * sum(work_s[task.uuid] + load_s for task in tasks)
    problem = TaskProblem(
        enclosure_fpgas=[len(box.members) for box in enclosures],  # type: ignore[arg-type]
        enclosure_links=[int(box.cables) for box in enclosures],  # type: ignore[arg-type]
        shape_begin=range(len(tasks) + 1),  # type: ignore[arg-type]
        shape_fpgas=[task.slots for task in tasks],  # type: ignore[arg-type]
        shape_seconds=[work_s[task.uuid] for task in tasks],  # type: ignore[arg-type]
        links=[int(Links[task.topology.name]) for task in tasks],  # type: ignore[arg-type]
        function=[number[task.function] for task in tasks],  # type: ignore[arg-type]
        loaded=[number.get(slot.function, -1) if slot else -1 for slot in slots],  # type: ignore[arg-type]
        ready_s=[ready_s[slot.name] if slot else away_s for slot in slots],  # type: ignore[arg-type]
        load_s=load_s,
    )
    return TaskRequestProblem(problem=problem, tasks=tuple(tasks), enclosures=tuple(enclosures))


def begun_first(
    asked: TaskRequestProblem, enclosure: Ints, begin_s: Floats, member_begin: Ints, members: Ints
) -> list[tuple[Task, tuple[str, ...]]]:
    """Return the tasks that a schedule has first on each of their slots, in its order, with these.

    Those begin as soon as their slots are free: that delays nobody.  The arrays are those of a `TaskSchedule`.
    """
    used: set[str] = set()
    first = []
    for index in np.argsort(begin_s, kind="stable").tolist():
        box = asked.enclosures[int(enclosure[index])]
        places = members[member_begin[index] : member_begin[index + 1]].tolist()
        slots = [slot.name for place in in_path_order(places, box) if (slot := box.members[place]) is not None]
        if used.isdisjoint(slots) and len(slots) == asked.tasks[index].slots:
            first.append((asked.tasks[index], tuple(slots)))
        used.update(slots)
    return first


def in_path_order(places: Collection[int], box: Enclosure) -> list[int]:
    """Return members in the order of their links: a path over the seam of a ring begins before it."""
    ordered = sorted(places)
    if box.cables != Cables.RING or not ordered or len(ordered) == len(box.members):
        return ordered
    begin = next((i for i, place in enumerate(ordered) if (place - 1) % len(box.members) not in places), 0)
    return ordered[begin:] + ordered[:begin]


#: Enclosure, begin_s, member_begin and members of a `TaskSchedule`.
Solution = tuple[Ints, Floats, Ints, Ints]
#: Makes a schedule; None = it cannot say now.
Solve = Callable[[TaskProblem], Solution | None]


def grouped(tasks: Sequence[Task], rooms: Mapping[str, Sequence[HostRoom]]) -> Iterator[list[Task]]:
    """Yield the tasks whose functions fit in the same slots: each such group is a problem of its own."""
    groups: defaultdict[frozenset[str], list[Task]] = defaultdict(list)
    for task in tasks:
        groups[frozenset(slot.name for room in rooms[task.function] for slot in room.slots)].append(task)
    yield from groups.values()


def solved(
    tasks: Sequence[Task],
    rooms: Mapping[str, Sequence[HostRoom]],
    work_s: Mapping[str, float],
    load_s: Mapping[str, float],
    ready_s: Mapping[str, float],
    solve: Solve,
) -> list[tuple[Task, tuple[str, ...]]] | None:
    """Return the tasks that come first on their slots in a schedule of each group, those that it knows places for.

    None if no schedule can be had now.
    """
    ready, first = dict(ready_s), []
    for group in grouped(tasks, rooms):
        enclosures = enclosures_of(rooms[group[0].function])
        known = [task for task in group if fits_somewhere(enclosures, task.topology, task.slots)]
        if not known:
            continue
        asked = problem_of(known, enclosures, work_s, max(load_s[task.uuid] for task in known), ready)
        solution = solve(asked.problem)
        if solution is None:
            return None
        for task, slots in begun_first(asked, *solution):
            first.append((task, slots))
            ready.update(dict.fromkeys(slots, max(ready[name] for name in slots) + work_s[task.uuid]))
    return first
