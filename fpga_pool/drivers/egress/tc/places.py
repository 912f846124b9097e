"""Handles of a flow in the kernel, and the HTB parameters of its rate.

A flow has a class, and a filter in the hash table.  The kernel's work for a new class grows with the classes of the
same queue, because it looks through all of them for filters to bind (`tc_bind_tclass`).  With ten thousand classes in
one queue that takes longer than everything else.  So a queue has 1024 at most: the first flows are classes of the
device's own queue, the others of further queues below it.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.tc.messages import ROOT, FlowFilter, bucket_of, packed
from fpga_pool.model.exceptions import Conflict

# ---- Handles

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
            raise Conflict(f"flow {flow.key}: {GROUPS * GROUP_FLOWS} flows are open on the device, which is the limit")
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
                raise Conflict(
                    f"flow {flow.key}: {_NODES} flows are open whose source ports share a hash with port "
                    f"{flow.source_port}, which is the limit"
                )
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


# ---- Rates

#: TCP's header with the timestamps option, which Linux sends by default.
_TCP_HEADER_BYTES = 20 + 12
_IP_HEADER_BYTES = {4: 20, 6: 40}
#: HTB takes 2**64, but the precision of its clock suffers from much more than any network has (8.8 Tbit/s).
UNLIMITED_BYTES_S = 2**40
#: HTB has no rate of 0.  A held flow trickles: nothing beside a planned rate, but enough that TCP does not give up or
#: forget what the path can do.
HELD_BYTES_S = 100_000 // 8
#: One GSO packet: classes that compete for a full link take turns with so much.
QUANTUM_BYTES = 65_536
#: What a class may save while the host does not get round to sending: less than this and a busy host loses rate.
_BURST_S = 0.04
_MIN_BURST_BYTES = 2 * QUANTUM_BYTES
#: A class pays for a packet after it was sent, and no change of rate forgives the debt: at the old rate it is paid off
#: before the new one begins.  Up to so long that does not matter.
_SHORT_DEBT_S = 0.1


@dataclass(frozen=True, slots=True)
class Link:
    """A network device, as far as the size of its packets goes."""

    index: int
    mtu_bytes: int
    header_bytes: int


class Shape(NamedTuple):
    """Rate and burst of an HTB class, in bytes on the wire."""

    bytes_s: int
    burst_bytes: int


def wire_ratio(link: Link, ip_version: int) -> float:
    """Return bytes on the wire per byte of payload in full TCP segments: 1514/1448 on Ethernet at MTU 1500."""
    payload_bytes = link.mtu_bytes - _IP_HEADER_BYTES[ip_version] - _TCP_HEADER_BYTES
    return (link.mtu_bytes + link.header_bytes) / payload_bytes


def shape(rate_bps: float, link: Link, ip_version: int) -> Shape:
    """Return what holds a flow's goodput to the rate."""
    if rate_bps == 0:
        return Shape(HELD_BYTES_S, link.mtu_bytes + link.header_bytes)
    if math.isinf(rate_bps):
        return Shape(UNLIMITED_BYTES_S, UNLIMITED_BYTES_S)
    bytes_s = min(max(1, round(rate_bps / 8 * wire_ratio(link, ip_version))), UNLIMITED_BYTES_S)
    return Shape(bytes_s, max(_MIN_BURST_BYTES, round(bytes_s * _BURST_S)))


def debt_matters(old: Shape, new: Shape) -> bool:
    """Return whether a flow that shall go faster may have to pay for its last packet for long."""
    return new.bytes_s > old.bytes_s and QUANTUM_BYTES / old.bytes_s > _SHORT_DEBT_S


def goodput_bps(bytes_s: int, link: Link, ip_version: int) -> float:
    """Return the rate that a class of this many bytes per second stands for; the inverse of `shape`."""
    if bytes_s == HELD_BYTES_S:
        return 0.0
    if bytes_s >= UNLIMITED_BYTES_S:
        return math.inf
    return bytes_s * 8 / wire_ratio(link, ip_version)
