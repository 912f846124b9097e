"""The rtnetlink messages of HTB classes and u32 filters, as bytes.

pyroute2 builds the same messages from dictionaries, but only some hundred per second; 10,000 flows need 30,000.
Layouts: linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h.
"""

import functools
import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fpga_pool.drivers.egress.base import Flow
from fpga_pool.model.exceptions import InvalidInput

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
_REQUEST, ACK, _ECHO = 0x1, 0x4, 0x8
_EXCL, _CREATE, _DUMP = 0x200, 0x400, 0x300

_HEADER = struct.Struct("=IHHII")
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
#: tc_htb_glob: protocol version, rate2quantum, default class, debug, direct packets.
_HTB_GLOB = struct.Struct("=IIIII")
#: tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate.
_RATESPEC = struct.Struct("=BBHhHI")
#: The rest of tc_htb_opt: buffer, cbuffer, quantum, level, prio.
_HTB_OPT_REST = struct.Struct("=IIIII")
#: tc_u32_sel: flags, offshift, nkeys, offmask, off, offoff, hoff, hmask (hmask is big-endian).
_U32_SEL = struct.Struct("=BBBxHHhh4s")
#: tc_u32_key: mask, value, offset, offset mask.
_U32_KEY = struct.Struct("=4s4sii")

_TCA_KIND, _TCA_OPTIONS = 1, 2
_HTB_PARMS, _HTB_INIT, _HTB_RATE64, _HTB_CEIL64 = 1, 2, 6, 7
_U32_CLASSID, _U32_HASH, _U32_LINK, _U32_DIVISOR, _U32_SELECTOR, _U32_FLAGS = 1, 2, 3, 4, 5, 11
_U32_TERMINAL, _SKIP_HARDWARE = 0x1, 0x1
_LINKLAYER_ETHERNET = 1
_HTB_VERSION, _RATE2QUANTUM = 3, 10
#: The unit of HTB's bursts, in nanoseconds.
_TICK_NS = 64
#: Parents of a device's root and ingress queues, and the handle of every ingress queue.
ROOT, INGRESS, INGRESS_HANDLE = 0xFFFFFFFF, 0xFFFFFFF1, 0xFFFF0000

#: Buckets of a hash table: the maximum of u32.
BUCKETS = 256


class HtbClass(NamedTuple):
    """A class with its rate; `parent` and `handle` are major << 16 | minor."""

    parent: int
    handle: int
    bytes_s: int
    burst_bytes: int
    quantum_bytes: int


class FlowFilter(NamedTuple):
    """A filter that assigns the packets of one flow to a class; `node` distinguishes the filters of one bucket."""

    parent: int
    classid: int
    node: int
    source: bytes
    source_port: int
    destination: bytes
    destination_port: int

    @property
    def handle(self) -> int:
        """The u32 handle: hash table, bucket, node."""
        layout = layout_of(self.source)
        return layout.table << 20 | bucket_of(self.source_port) << 12 | self.node


class FilterId(NamedTuple):
    """The kernel's identification of a filter."""

    handle: int
    prio: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Offsets of addresses and ports in a TCP packet of one IP version."""

    ethertype: int
    prio: int
    table: int
    source_offset: int
    destination_offset: int
    ports_offset: int
    #: Conditions, as (mask, value, offset), of the packets that have this layout.
    marks: tuple[tuple[int, int, int], ...]


_LAYOUTS = {
    # No IP options, TCP, not a later fragment.
    4: _Layout(0x0800, 1, 0x100, 12, 16, 20, ((0xFF000000, 0x45000000, 0), (0x1FFF, 0, 4), (0xFF0000, 0x060000, 8))),
    # TCP follows the IPv6 header directly, without extension headers.
    6: _Layout(0x86DD, 2, 0x200, 8, 24, 40, ((0xF0000000, 0x60000000, 0), (0xFF00, 0x0600, 4))),
}
#: Linux connects from ports of one parity, so the lowest bit of the source port carries no information.
_BUCKET_MASK, _BUCKET_SHIFT = 0x01FE0000, 17


def layout_of(address: bytes) -> _Layout:
    """Return the layout of packets with this address, IPv4 or IPv6 by its length."""
    return _LAYOUTS[4 if len(address) == 4 else 6]


def bucket_of(source_port: int) -> int:
    """Return the bucket of the hash table for flows from this port."""
    return (source_port << 16 & _BUCKET_MASK) >> _BUCKET_SHIFT


def htb_qdisc(index: int, parent: int, handle: int) -> bytes:
    """Return the message that adds an HTB queue, in which unclassified packets pass unlimited."""
    glob = _HTB_GLOB.pack(_HTB_VERSION, _RATE2QUANTUM, 0, 0, 0)
    options = _attribute(_TCA_OPTIONS, _attribute(_HTB_INIT, glob))
    body = _TCMSG.pack(0, index, handle, parent, 0) + _KIND_HTB + options
    return _message(RTM_NEWQDISC, _CREATE | _EXCL, body)


def deleted_qdisc(index: int, parent: int, handle: int) -> bytes:
    """Return the message that removes a queue. The kernel refuses it if another queue is there."""
    return _message(RTM_DELQDISC, 0, _TCMSG.pack(0, index, handle, parent, 0))


def new_class(index: int, htb: HtbClass) -> bytes:
    """Return the message that adds a class. The kernel refuses it if the class exists."""
    return _message(RTM_NEWTCLASS, _CREATE | _EXCL, _class_body(index, htb))


def changed_class(index: int, htb: HtbClass) -> bytes:
    """Return the message that changes the rate of a class in use. The kernel refuses it if the class is missing."""
    return _message(RTM_NEWTCLASS, 0, _class_body(index, htb))


def deleted_class(index: int, handle: int) -> bytes:
    """Return the message that removes a class."""
    return _message(RTM_DELTCLASS, 0, _TCMSG.pack(0, index, handle, 0, 0))


def hash_tables(index: int, parent: int) -> Iterator[bytes]:
    """Yield messages that add a hash table of filters per IP version, and the filters that hash by source port."""
    for layout in _LAYOUTS.values():
        table = layout.table << 20
        divisor = _attribute(_U32_DIVISOR, struct.pack("=I", BUCKETS))
        yield _filter(RTM_NEWTFILTER, _CREATE | _EXCL, index, table, parent, layout, divisor)
        keys = [(mask.to_bytes(4), value.to_bytes(4), offset) for mask, value, offset in layout.marks]
        selector = _selector(keys, hash_offset=layout.ports_offset, hash_mask=_BUCKET_MASK)
        link = _attribute(_U32_LINK, struct.pack("=I", table)) + selector
        yield _filter(RTM_NEWTFILTER, _CREATE | _EXCL, index, 0, parent, layout, link)


def new_filter(index: int, flow: FlowFilter) -> bytes:
    """Return the message that adds the filter of a flow. The kernel refuses it if the node is taken."""
    layout = layout_of(flow.source)
    keys = [
        # Ports are compared first, as they differ most between the flows of one bucket.
        (b"\xff" * 4, struct.pack("!HH", flow.source_port, flow.destination_port), layout.ports_offset),
        *_address_keys(flow.source, layout.source_offset),
        *_address_keys(flow.destination, layout.destination_offset),
    ]
    options = (
        _attribute(_U32_CLASSID, struct.pack("=I", flow.classid))
        + _attribute(_U32_HASH, struct.pack("=I", flow.handle & 0xFFFFF000))
        + _selector(keys, flags=_U32_TERMINAL)
    )
    return _filter(RTM_NEWTFILTER, _CREATE | _EXCL, index, flow.handle, flow.parent, layout, options)


def deleted_filter(index: int, flow: FlowFilter) -> bytes:
    """Return the message that removes the filter of a flow."""
    return _filter(RTM_DELTFILTER, 0, index, flow.handle, flow.parent, layout_of(flow.source), b"")


def dump(kind: int, index: int, parent: int = 0) -> bytes:
    """Return the query for all classes of a device, or all filters of a queue."""
    return _message(kind, _DUMP, _TCMSG.pack(0, index, 0, parent, 0))


def get_qdisc(index: int, parent: int) -> bytes:
    """Return the query for the queue with this parent on the device."""
    return _message(RTM_GETQDISC, _ECHO, _TCMSG.pack(0, index, 0, parent, 0))


def numbered(message: bytes, sequence: int, flags: int = 0) -> bytes:
    """Return the message with a sequence number and additional flags."""
    length, kind, old_flags, _, port = _HEADER.unpack_from(message)
    return _HEADER.pack(length, kind, old_flags | flags, sequence, port) + message[_HEADER.size :]


def class_rate(body: bytes) -> tuple[int, int] | None:
    """Read handle and bytes per second from the body of a class; None if it is not an HTB class."""
    _, _, handle, _, _ = _TCMSG.unpack_from(body)
    attributes = dict(attributes_of(body[_TCMSG.size :]))
    if attributes[_TCA_KIND] != b"htb\0":
        return None
    options = dict(attributes_of(attributes[_TCA_OPTIONS]))
    if _HTB_RATE64 in options:
        return handle, struct.unpack("=Q", options[_HTB_RATE64])[0]
    return handle, _RATESPEC.unpack_from(options[_HTB_PARMS])[-1]


def qdisc_of(body: bytes) -> tuple[str, int]:
    """Read kind and handle from the body of a queue."""
    attributes = dict(attributes_of(body[_TCMSG.size :]))
    return attributes[_TCA_KIND].rstrip(b"\0").decode(), _TCMSG.unpack_from(body)[2]


def filter_of(body: bytes) -> FilterId:
    """Read handle and priority from the body of a filter."""
    _, _, handle, _, info = _TCMSG.unpack_from(body)
    return FilterId(handle, info >> 16)


def attributes_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of each attribute."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += max(length + -length % 4, _ATTRIBUTE.size)


def _class_body(index: int, htb: HtbClass) -> bytes:
    # The 32-bit field is limited to 4 GB/s; for higher rates the 64-bit attributes are added.
    rate = _RATESPEC.pack(0, _LINKLAYER_ETHERNET, 0, -1, 0, min(htb.bytes_s, 2**32 - 1))
    ticks = min(htb.burst_bytes * 10**9 // (htb.bytes_s * _TICK_NS), 2**32 - 1)
    options = _attribute(_HTB_PARMS, rate + rate + _HTB_OPT_REST.pack(ticks, ticks, htb.quantum_bytes, 0, 0))
    if htb.bytes_s >= 2**32:
        bytes_s = struct.pack("=Q", htb.bytes_s)
        options += _attribute(_HTB_RATE64, bytes_s) + _attribute(_HTB_CEIL64, bytes_s)
    return _TCMSG.pack(0, index, htb.handle, htb.parent, 0) + _KIND_HTB + _attribute(_TCA_OPTIONS, options)


def _filter(kind: int, flags: int, index: int, handle: int, parent: int, layout: _Layout, options: bytes) -> bytes:
    ethertype = struct.unpack("=H", struct.pack("!H", layout.ethertype))[0]
    body = _TCMSG.pack(0, index, handle, parent, layout.prio << 16 | ethertype) + _KIND_U32
    if options:
        flag = _attribute(_U32_FLAGS, struct.pack("=I", _SKIP_HARDWARE))
        body += _attribute(_TCA_OPTIONS, options + flag)
    return _message(kind, flags, body)


def _address_keys(address: bytes, offset: int) -> list[tuple[bytes, bytes, int]]:
    return [(b"\xff" * 4, address[at : at + 4], offset + at) for at in range(0, len(address), 4)]


def _selector(
    keys: list[tuple[bytes, bytes, int]], *, flags: int = 0, hash_offset: int = 0, hash_mask: int = 0
) -> bytes:
    selector = _U32_SEL.pack(flags, 0, len(keys), 0, 0, 0, hash_offset, hash_mask.to_bytes(4))
    return _attribute(_U32_SELECTOR, selector + b"".join(_U32_KEY.pack(*key, 0) for key in keys))


def _attribute(kind: int, content: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(length, kind) + content + bytes(-length % 4)


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 0, 0) + body


_KIND_HTB = _attribute(_TCA_KIND, b"htb\0")
_KIND_U32 = _attribute(_TCA_KIND, b"u32\0")


def packed(flow: Flow) -> tuple[bytes, bytes]:
    """Return the packed source and destination addresses of a flow; IPv4-mapped IPv6 addresses become IPv4."""
    source, destination = _packed(flow.source_address), _packed(flow.destination_address)
    if len(source) != len(destination):
        raise InvalidInput(
            f"flow {flow.key}: {flow.source_address} and {flow.destination_address} have different IP versions"
        )
    return source, destination


@functools.lru_cache(maxsize=4096)
def _packed(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise InvalidInput(f"expected an IPv4 or IPv6 address, got {text!r}") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).packed
