"""From the rate that a user asks to what an HTB class is told."""

import math
from dataclasses import dataclass
from typing import NamedTuple

#: TCP's header with the timestamps option, which Linux sends unless told otherwise.
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
    """Say whether a flow that shall go faster may have to pay for its last packet for long."""
    return new.bytes_s > old.bytes_s and QUANTUM_BYTES / old.bytes_s > _SHORT_DEBT_S


def goodput_bps(bytes_s: int, link: Link, ip_version: int) -> float:
    """Return the rate that a class of this many bytes per second stands for; the inverse of `shape`."""
    if bytes_s == HELD_BYTES_S:
        return 0.0
    if bytes_s >= UNLIMITED_BYTES_S:
        return math.inf
    return bytes_s * 8 / wire_ratio(link, ip_version)
