"""Kernel handles of a flow, and the HTB parameters of its rate.

A flow has a class, and a filter in the hash table.  The kernel's work for a new class grows with the number of classes
in the queue, because it searches all of them for filters to bind (`tc_bind_tclass`).  With 10,000 classes in one queue
that would dominate.  So a queue has at most 1024 classes: the first flows are classes of the device's root queue, the
others of further queues below it (groups).
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

#: Major number of the device's root queue, by which an agent recognizes it. The next GROUPS - 1 are the queues below.
MAJOR = 0xF940
GROUPS = 64
GROUP_FLOWS = 1024
#: The class _GROUP_CLASS + g of the root queue contains the queue of group g.
_GROUP_CLASS = 0x8000
#: Minor number of temporary classes, in any queue.
PASSING_MINOR = 0x7FFF
#: Maximum number of filters in one bucket of a hash table.
_NODES = 0xFFF


@dataclass(frozen=True, slots=True)
class Group:
    """One queue of flows: `qdisc` is its handle, `parent` the class that contains it, or the root of the device."""

    qdisc: int
    parent: int

    @staticmethod
    def at(position: int) -> "Group":
        """Return the group at this position."""
        parent = MAJOR << 16 | _GROUP_CLASS + position if position else ROOT
        return Group((MAJOR + position) << 16, parent)


#: The group of the device's root queue.
ROOT_GROUP = Group.at(0)


@dataclass(frozen=True, slots=True)
class Place:
    """The kernel handles of a flow."""

    position: int
    group: Group
    classid: int
    filters: tuple[FlowFilter, ...]


class Numbers:
    """Allocates the lowest free number, starting at 1."""

    def __init__(self, highest: int) -> None:
        self._fresh = count(1)
        self._returned: list[int] = []
        self._free = highest

    def take(self) -> int | None:
        """Allocate a number; None if all are taken."""
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
        """Allocate a place for a flow. Raises Conflict if there is none left."""
        source, destination = packed(flow)
        number = self._minors.take()
        if number is None:
            raise Conflict(f"flow {flow.key}: {GROUPS * GROUP_FLOWS} flows are open on the device, which is the limit")
        position, minor = divmod(number - 1, GROUP_FLOWS)
        group = Group.at(position)
        classid = group.qdisc | minor + 1
        # A packet enters the device's root queue first, which passes it to the queue of its group.
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

#: Size of a TCP header with the timestamps option, which Linux sends by default.
_TCP_HEADER_BYTES = 20 + 12
_IP_HEADER_BYTES = {4: 20, 6: 40}
#: "Unlimited" rate, 8.8 Tbit/s. HTB accepts up to 2**64, but rates far above those of networks impair its precision.
UNLIMITED_BYTES_S = 2**40
#: HTB has no rate of 0.  A held flow trickles: negligible beside a planned rate, but enough that TCP neither gives up
#: nor forgets the capacity of the path.
HELD_BYTES_S = 100_000 // 8
#: One GSO packet: the amount with which classes that compete for a full link take turns.
QUANTUM_BYTES = 65_536
#: Time for which a class may accumulate unused rate while the host cannot send; with less a busy host loses rate.
_BURST_S = 0.04
_MIN_BURST_BYTES = 2 * QUANTUM_BYTES
#: A class pays for a packet after sending it, and the debt survives a change of rate: the new rate starts only when the
#: debt is paid off at the old one.  A debt up to this duration does not matter.
_SHORT_DEBT_S = 0.1


@dataclass(frozen=True, slots=True)
class Link:
    """A network device: its index, and the sizes that determine the sizes of its packets."""

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
    """Return the HTB parameters that limit a flow's goodput to the rate."""
    if rate_bps == 0:
        return Shape(HELD_BYTES_S, link.mtu_bytes + link.header_bytes)
    if math.isinf(rate_bps):
        return Shape(UNLIMITED_BYTES_S, UNLIMITED_BYTES_S)
    bytes_s = min(max(1, round(rate_bps / 8 * wire_ratio(link, ip_version))), UNLIMITED_BYTES_S)
    return Shape(bytes_s, max(_MIN_BURST_BYTES, round(bytes_s * _BURST_S)))


def debt_matters(old: Shape, new: Shape) -> bool:
    """Return whether the debt of the last packet may delay an increase of a flow's rate noticeably."""
    return new.bytes_s > old.bytes_s and QUANTUM_BYTES / old.bytes_s > _SHORT_DEBT_S


def goodput_bps(bytes_s: int, link: Link, ip_version: int) -> float:
    """Return the goodput in bits per second of a class with this rate in bytes/s; the inverse of `shape`."""
    if bytes_s == HELD_BYTES_S:
        return 0.0
    if bytes_s >= UNLIMITED_BYTES_S:
        return math.inf
    return bytes_s * 8 / wire_ratio(link, ip_version)
