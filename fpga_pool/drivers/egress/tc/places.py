"""Which numbers a flow has in the kernel: its class, and its filters' places in the hash tables.

The kernel's work for a new class grows with the classes of the same queue, because it looks through all of them for
filters to bind (`tc_bind_tclass`).  Ten thousand classes in one queue take longer by that than by all else.  So a
queue has 1024 at most: the first flows are classes of the device's own queue, the others of further queues below it.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.tc.addresses import packed
from fpga_pool.drivers.egress.tc.messages import ROOT, FlowFilter, bucket_of
from fpga_pool.model.exceptions import Conflict

#: The device's own queue, by which an agent knows what an earlier one left; the next GROUPS - 1 are those below it.
MAJOR = 0xF940
GROUPS = 64
GROUP_FLOWS = 1024
#: Plus g: the class of the device's own queue that holds the queue of group g.
_GROUP_CLASS = 0x8000
#: For classes that are there for a moment only, in any queue.
PASSING_MINOR = 0x7FFF
#: How many filters one bucket of a hash table takes.
_NODES = 0xFFF


@dataclass(frozen=True, slots=True)
class Group:
    """One queue of flows: `qdisc` is its handle, `parent` the class that holds it, or the root of the device."""

    qdisc: int
    parent: int

    @staticmethod
    def at(position: int) -> "Group":
        """Return the group of this position."""
        parent = MAJOR << 16 | _GROUP_CLASS + position if position else ROOT
        return Group((MAJOR + position) << 16, parent)


#: The group of the device's own queue.
ROOT_GROUP = Group.at(0)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a flow is in the kernel."""

    position: int
    group: Group
    classid: int
    filters: tuple[FlowFilter, ...]


class Numbers:
    """Gives the lowest number that is free, from 1 on."""

    def __init__(self, highest: int) -> None:
        self._fresh = count(1)
        self._returned: list[int] = []
        self._free = highest

    def take(self) -> int | None:
        """Return a number, None where all are taken."""
        if not self._free:
            return None
        self._free -= 1
        return heapq.heappop(self._returned) if self._returned else next(self._fresh)

    def give_back(self, number: int) -> None:
        """Free a number."""
        self._free += 1
        heapq.heappush(self._returned, number)


class Places:
    """The places of one device."""

    def __init__(self) -> None:
        self._minors = Numbers(GROUPS * GROUP_FLOWS)
        #: By queue, version of IP (as the length of an address) and bucket.
        self._nodes: defaultdict[tuple[int, int, int], Numbers] = defaultdict(lambda: Numbers(_NODES))

    def take(self, flow: Flow) -> Place:
        """Find room for a flow; Conflict where there is none."""
        source, destination = packed(flow)
        number = self._minors.take()
        if number is None:
            raise Conflict(f"flow {flow.key}: {GROUPS * GROUP_FLOWS} flows are open on the device, it takes no more")
        position, minor = divmod(number - 1, GROUP_FLOWS)
        group = Group.at(position)
        classid = group.qdisc | minor + 1
        # A packet meets the device's own queue first, which sends it on to the queue of its group.
        hops = [(group.qdisc, classid)]
        if group != ROOT_GROUP:
            hops.insert(0, (ROOT_GROUP.qdisc, group.parent))
        filters: list[FlowFilter] = []
        for qdisc, target in hops:
            node = self._nodes[qdisc, len(source), bucket_of(flow.source_port)].take()
            if node is None:
                self._free(number, filters)
                raise Conflict(f"flow {flow.key}: {_NODES} flows from port {flow.source_port} and its like are open")
            filters.append(
                FlowFilter(qdisc, target, node, source, flow.source_port, destination, flow.destination_port)
            )
        return Place(position, group, classid, tuple(filters))

    def give_back(self, place: Place) -> None:
        """Free a place."""
        number = place.position * GROUP_FLOWS + (place.classid & 0xFFFF)
        self._free(number, place.filters)

    def _free(self, number: int, filters: Iterable[FlowFilter]) -> None:
        self._minors.give_back(number)
        for used in filters:
            self._nodes[used.parent, len(used.source), bucket_of(used.source_port)].give_back(used.node)
