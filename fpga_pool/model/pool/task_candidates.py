"""Where a task could go: the slots of each host that its function fits in, and which of them are linked as it asks."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fpga_pool.core.lattice.tasks import Links
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import Topology
from fpga_pool.model.links import slot_links
from fpga_pool.model.objects import CPU, Slot, SlotState
from fpga_pool.model.pool.linking import SlotCandidate, choose_candidates, largest_linked

#: What has to be done before a slot computes: nothing, a load, a load in place of what others may want again.
_LOADED, _EMPTY, _REPLACED = 0.0, 1.0, 2.0


@dataclass(frozen=True, slots=True)
class HostSlots:
    """Slots of one host that a function fits in."""

    host: str
    shard: str
    #: (S,) slots, and the same as candidates that paths are searched on.
    slots: tuple[Slot, ...]
    candidates: tuple[SlotCandidate, ...]


def slots_by_host(slots: Iterable[Slot], function: str, catalogue: Catalogue) -> list[HostSlots]:
    """Return the slots of each host that has some, by name."""
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
    """Return so many of the takeable slots, by name, linked as asked and in the order of their path; None = none are.

    Those that hold the function come first, and of others those that leave most of the rest connected.
    """
    there = [index for index, slot in enumerate(on_host.slots) if slot.name in takeable]
    if len(there) < count:
        return None
    path = choose_candidates([on_host.candidates[index] for index in there], Links[topology.name], count)
    return None if path is None else tuple(on_host.slots[there[index]].name for index in path)


def holds(on_host: HostSlots, topology: Topology, count: int) -> bool:
    """Say whether a host has so many slots that are linked as asked."""
    return choose_slots(on_host, topology, count, {slot.name for slot in on_host.slots}) is not None


def largest(on_host: HostSlots, topology: Topology, below: int) -> int:
    """Return the largest number of slots of a host, less than `below`, that are linked as asked."""
    return largest_linked(on_host.candidates, Links[topology.name], below)


#: In how many seconds slots are free, and which.
Found = tuple[float, tuple[str, ...]]


def earliest_slots(on_host: HostSlots, topology: Topology, count: int, ready_s: Mapping[str, float]) -> Found | None:
    """Return when so many slots of a host, linked as asked, are free first, and these slots; None = there are none.

    `ready_s` says in how many seconds each slot is expected to be free; one that is not there is out of the question.
    """
    known = {slot.name: ready_s[slot.name] for slot in on_host.slots if slot.name in ready_s}
    moments = sorted(set(known.values()))

    def by(moment: float) -> tuple[str, ...] | None:
        return choose_slots(on_host, topology, count, {name for name, at in known.items() if at <= moment})

    # With every moment there are more slots to choose from, so what is possible once stays possible.
    first = bisect_left(moments, True, key=lambda moment: by(moment) is not None)
    slots = by(moments[first]) if first < len(moments) else None
    return None if slots is None else (moments[first], slots)


class EarliestStart:
    """Which slots are free soonest, while one task after the other takes some.

    What was found for a host holds until some of its slots are taken: so each is searched once for all tasks that ask
    for the same.
    """

    def __init__(self, candidates: Mapping[str, Collection[HostSlots]], ready_s: Mapping[str, float]) -> None:
        self.ready_s = dict(ready_s)
        self._candidates = candidates
        self._found: defaultdict[str, dict[tuple[str, Topology, int], Found | None]] = defaultdict(dict)

    def find(self, function: str, topology: Topology, count: int) -> Found | None:
        """Return when so many slots for a function are free first, and these; the first host of equal ones."""
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
        """Have slots be free at a later time."""
        self.ready_s.update(dict.fromkeys(slots, until_s))
        for slot in slots:
            self._found.pop(slot.partition("/")[0], None)
