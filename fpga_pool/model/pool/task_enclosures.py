"""The slots of hosts as enclosures of the lattice paper, and what a policy plans on them as slots again.

An enclosure is a line, a ring or fully linked, and its members are single slots.  A card with several slots in a line
or ring of cards is unrolled: its slots follow each other.  So a path may be unknown here that there is (a ring within
one card of several), but none is known that there is not; who finds no place here is placed otherwise
(`task_choosing.choose`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.listing import Placed
from fpga_pool.core.lattice.tasks import Links, TaskProblem, TaskSchedule
from fpga_pool.core.lattice.tasks import Topology as Cables
from fpga_pool.core.types import floats, ints
from fpga_pool.model.links import slot_links
from fpga_pool.model.objects import Slot
from fpga_pool.model.pool.task_candidates import HostSlots
from fpga_pool.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Slots that are linked as `cables` says, in the order of their links."""

    cables: Cables
    #: (M,) None = there is no slot, or none that fits.
    members: tuple[Slot | None, ...]


def enclosures_of(candidates: Iterable[HostSlots]) -> list[Enclosure]:
    """Return the enclosures of the slots of each host; cards that are not in one make one each."""
    found: list[Enclosure] = []
    for on_host in candidates:
        boxes: defaultdict[str, list[Slot]] = defaultdict(list)
        for slot in on_host.slots:
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
    else:
        # Of a card the slots of which are not linked at all a path takes one; so it does where cards are linked each
        # with each and slots are not: it may not take any two of them.
        single = card.slots is None or Cables.FULL == card.topology != card.slots
        width = 1 if single else max(link.slots for link in links)
        members: list[Slot | None] = [None] * (card.cards * width)
        for slot, link in zip(reversed(slots), reversed(links), strict=True):
            members[link.card.position * width + (0 if single else link.position)] = slot
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


def problem_of(
    tasks: Sequence[Task],
    enclosures: Sequence[Enclosure],
    shapes: Mapping[str, Sequence[tuple[int, float]]],
    load_s: float,
) -> TaskProblem:
    """Return the problem of tasks whose functions fit in the same slots, on these slots.

    Parameters
    ----------
    tasks, enclosures
        What waits, and where.
    shapes
        On how many slots each task can run, and for how many seconds, by its uuid.
    load_s
        Seconds that a slot takes to load another function.

    """
    slots = [slot for box in enclosures for slot in box.members]
    names = {task.function for task in tasks} | {slot.function for slot in slots if slot is not None and slot.function}
    number = {name: index for index, name in enumerate(sorted(names))}
    of_all = [shape for task in tasks for shape in shapes[task.uuid]]
    return TaskProblem(
        enclosure_fpgas=ints([len(box.members) for box in enclosures]),
        enclosure_links=ints([int(box.cables) for box in enclosures]),
        shape_begin=np.cumsum([0, *(len(shapes[task.uuid]) for task in tasks)]),
        shape_fpgas=ints([count for count, _ in of_all]),
        shape_seconds=floats([seconds for _, seconds in of_all]),
        links=ints([int(Links[task.topology.name]) for task in tasks]),
        function=ints([number[task.function] for task in tasks]),
        loaded=ints([number.get(slot.function, -1) if slot else -1 for slot in slots]),
        load_s=load_s,
    )


def in_path_order(places: Collection[int], box: Enclosure) -> list[int]:
    """Return members in the order of their links: a path over the seam of a ring begins before it."""
    ordered = sorted(places)
    if box.cables != Cables.RING or not ordered or len(ordered) == len(box.members):
        return ordered
    begin = next((i for i, place in enumerate(ordered) if (place - 1) % len(box.members) not in places), 0)
    return ordered[begin:] + ordered[:begin]


#: Makes a schedule; None = it cannot say now.
Solve = Callable[[TaskProblem], TaskSchedule | Placed | None]


def grouped(tasks: Sequence[Task], candidates: Mapping[str, Sequence[HostSlots]]) -> Iterator[list[Task]]:
    """Yield the tasks whose functions fit in the same slots: each such group is a problem of its own."""
    groups: defaultdict[frozenset[str], list[Task]] = defaultdict(list)
    for task in tasks:
        groups[frozenset(slot.name for on_host in candidates[task.function] for slot in on_host.slots)].append(task)
    yield from groups.values()
