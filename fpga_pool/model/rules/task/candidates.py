"""Slots that a task could get: grouped by host with their links, and as the enclosures of the lattice paper.

An enclosure is a line, a ring or fully linked, and its members are single slots.  In a line or ring of cards with
several slots each, the slots of a card follow each other.  This may miss a path (such as a ring within one of several
cards), but never yields one that does not exist. A task without a place in an enclosure is placed by `family.choose`.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.lattice.listing import Placed
from fpga_pool.core.lattice.tasks import TaskProblem, TaskSchedule
from fpga_pool.core.lattice.topology import Links
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.core.types import floats, ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.links import slot_links
from fpga_pool.model.objects.pool import CPU, Slot, SlotState
from fpga_pool.model.objects.tasks import Task
from fpga_pool.model.rules.instance.linking import SlotCandidate, choose_candidates, largest_linked

#: Costs of preparing a slot: none, a load into an empty slot, a load that replaces a function others may need again.
_LOADED, _EMPTY, _REPLACED = 0.0, 1.0, 2.0


# ---- Slots of a host


@dataclass(frozen=True, slots=True)
class HostSlots:
    """Slots of one host that a function fits."""

    host: str
    shard: str
    #: (S,) the slots, and the same slots as candidates for the search of linked paths.
    slots: tuple[Slot, ...]
    candidates: tuple[SlotCandidate, ...]


def slots_by_host(slots: Iterable[Slot], function: str, catalogue: Catalogue) -> list[HostSlots]:
    """Return the slots that a function fits, for each host that has any, ordered by host name."""
    boards = catalogue.functions[function].fpga_time
    of_host: defaultdict[str, list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.kind != CPU and slot.board in boards and catalogue.fits(function, slot.board, slot.kind):
            of_host[slot.host].append(slot)
    return [
        HostSlots(host, some[0].shard, tuple(some), tuple(_candidate(slot, function) for slot in some))
        for host, some in sorted(of_host.items())
    ]


def _candidate(slot: Slot, function: str) -> SlotCandidate:
    if slot.state is SlotState.READY and slot.function == function:
        cost = _LOADED
    else:
        cost = _EMPTY if slot.state is SlotState.EMPTY else _REPLACED
    return SlotCandidate(slot.card, slot.card, slot_links(slot.links), cost)


def choose_slots(
    on_host: HostSlots, topology: Topology, count: int, takeable: Collection[str]
) -> tuple[str, ...] | None:
    """Return the names of `count` takeable slots with the requested links, in path order; None = there are none.

    Slots that hold the function are preferred, then slots that leave most of the other slots connected.
    """
    there = [index for index, slot in enumerate(on_host.slots) if slot.name in takeable]
    if len(there) < count:
        return None
    path = choose_candidates([on_host.candidates[index] for index in there], Links[topology.name], count)
    return None if path is None else tuple(on_host.slots[there[index]].name for index in path)


def holds(on_host: HostSlots, topology: Topology, count: int) -> bool:
    """Return whether a host has this many slots with the requested links."""
    return choose_slots(on_host, topology, count, {slot.name for slot in on_host.slots}) is not None


def largest(on_host: HostSlots, topology: Topology, below: int) -> int:
    """Return the largest number of slots of a host, less than `below`, with the requested links."""
    return largest_linked(on_host.candidates, Links[topology.name], below)


#: Seconds until the slots are free, and the names of the slots.
Found = tuple[float, tuple[str, ...]]


def earliest_slots(on_host: HostSlots, topology: Topology, count: int, ready_s: Mapping[str, float]) -> Found | None:
    """Return when `count` slots of a host with the requested links are first free, and which; None = never.

    `ready_s` has the seconds until each slot is expected to be free; slots without an entry are not considered.
    """
    known = {slot.name: ready_s[slot.name] for slot in on_host.slots if slot.name in ready_s}
    moments = sorted(set(known.values()))

    def by(moment: float) -> tuple[str, ...] | None:
        return choose_slots(on_host, topology, count, {name for name, at in known.items() if at <= moment})

    # Later moments have more free slots, so a choice that is possible once stays possible.
    first = bisect_left(moments, True, key=lambda moment: by(moment) is not None)
    slots = by(moments[first]) if first < len(moments) else None
    return None if slots is None else (moments[first], slots)


class EarliestStart:
    """Finds the slots that are free soonest, while one task after the other takes slots.

    Results are cached for each host until some of its slots are taken, so that equal requests are searched once.
    """

    def __init__(self, candidates: Mapping[str, Collection[HostSlots]], ready_s: Mapping[str, float]) -> None:
        self.ready_s = dict(ready_s)
        self._candidates = candidates
        self._found: defaultdict[str, dict[tuple[str, Topology, int], Found | None]] = defaultdict(dict)

    def find(self, function: str, topology: Topology, count: int) -> Found | None:
        """Return when `count` linked slots for a function are first free, and which; ties go to the first host."""
        best: Found | None = None
        for on_host in self._candidates[function]:
            known = self._found[on_host.host]
            asked = function, topology, count
            if asked not in known:
                known[asked] = earliest_slots(on_host, topology, count, self.ready_s)
            found = known[asked]
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def take(self, slots: Collection[str], until_s: float) -> None:
        """Mark slots as taken for `until_s` seconds from now."""
        self.ready_s.update(dict.fromkeys(slots, until_s))
        for slot in slots:
            self._found.pop(slot.partition("/")[0], None)


# ---- Enclosures


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Slots in the order of their links; `cables` is the topology of the links."""

    cables: Cables
    #: (M,) slots; None = there is no slot at this position, or the function does not fit it.
    members: tuple[Slot | None, ...]


def enclosures_of(candidates: Iterable[HostSlots]) -> list[Enclosure]:
    """Return the enclosures of the slots of each host.

    A card outside an enclosure forms one, or one for each slot if its slots are not linked.
    """
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
        # Use a single slot per card if the slots of a card are not linked, or if the cards are fully linked but their
        # slots are not: any two members of a fully linked enclosure may be chosen together.
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
    """Return the problem of tasks whose functions fit the same slots, on these slots.

    Parameters
    ----------
    tasks, enclosures
        The waiting tasks, and the enclosures of the slots.
    shapes
        By task uuid, the shapes in which it can run: (number of slots, seconds).
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
    """Return members of an enclosure in path order; a path across the seam of a ring begins before the seam."""
    ordered = sorted(places)
    if box.cables != Cables.RING or not ordered or len(ordered) == len(box.members):
        return ordered
    begin = next((i for i, place in enumerate(ordered) if (place - 1) % len(box.members) not in places), 0)
    return ordered[begin:] + ordered[:begin]


#: Returns a schedule; None = it cannot make one now.
Solve = Callable[[TaskProblem], TaskSchedule | Placed | None]


def grouped(tasks: Sequence[Task], candidates: Mapping[str, Sequence[HostSlots]]) -> Iterator[list[Task]]:
    """Yield the groups of tasks whose functions fit the same slots; each group is a separate problem."""
    groups: defaultdict[frozenset[str], list[Task]] = defaultdict(list)
    for task in tasks:
        groups[frozenset(slot.name for on_host in candidates[task.function] for slot in on_host.slots)].append(task)
    yield from groups.values()
