"""What the kernel says about devices and queues; this needs no privilege."""

import errno
import socket
import struct

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.netlink import query
from fpga_pool.drivers.egress.tc.places import ROOT_GROUP
from fpga_pool.drivers.egress.tc.shaping import Link
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound

_RTM_GETLINK = 18
_REQUEST = 0x1
_HEADER = struct.Struct("=IHHII")
#: ifinfomsg: family, type, index, flags, change mask.
_IFINFOMSG = struct.Struct("=BxHiII")
_IFLA_MTU = 4
#: By these priorities an agent knows the filters of an earlier one at the ingress of a device: for IPv4, for IPv6.
INGRESS_PRIOS = (0xF940, 0xF941)
#: Bytes of the link header by type of device (linux/if_arp.h): Ethernet, loopback, and tun without one.
_HEADER_BYTES = {1: 14, 772: 14, 0xFFFE: 0}


def link(device: str) -> Link:
    """Look a device up by its name."""
    try:
        index = socket.if_nametoindex(device)
        (body,) = query(_HEADER.pack(32, _RTM_GETLINK, _REQUEST, 0, 0) + _IFINFOMSG.pack(0, 0, index, 0, 0))
    except OSError as error:
        raise NotFound(f"no network device {device} on this host: {error.strerror}") from error
    device_type = _IFINFOMSG.unpack_from(body)[1]
    if device_type not in _HEADER_BYTES:
        raise InvalidInput(f"device {device}: expected Ethernet or tun, found type {device_type}")
    attributes = dict(messages.attributes_of(body[_IFINFOMSG.size :]))
    (mtu_bytes,) = struct.unpack("=I", attributes[_IFLA_MTU])
    return Link(index, mtu_bytes, _HEADER_BYTES[device_type])


def is_ours(index: int) -> bool:
    """Say whether the device's root is our queue; Conflict where it is someone else's."""
    found = _qdisc_at(index, messages.ROOT)
    if found is None:
        return False
    if found != ("htb", ROOT_GROUP.qdisc):
        raise Conflict(_foreign("root", *found))
    return True


def redirects(index: int, ifb: str) -> bool:
    """Say whether our filters redirect what enters at the device; Conflict where someone else's are there."""
    found = _qdisc_at(index, messages.INGRESS)
    if found is None:
        return False
    prios = {each.prio for each in filters(index, messages.INGRESS_HANDLE)}
    # An earlier agent that was killed between the queue and its filters left at least the ifb.
    ours = prios <= set(INGRESS_PRIOS) if prios else any(name == ifb for _, name in socket.if_nameindex())
    if found[0] != "ingress" or not ours:
        raise Conflict(_foreign("ingress", *found))
    return True


def class_rates(index: int) -> dict[int, int]:
    """Return bytes per second by handle of the device's HTB classes."""
    bodies = query(messages.dump(messages.RTM_GETTCLASS, index))
    return dict(found for body in bodies if (found := messages.class_rate(body)))


def filters(index: int, parent: int) -> list[messages.FilterId]:
    """Return the filters of a queue."""
    return [messages.filter_of(body) for body in query(messages.dump(messages.RTM_GETTFILTER, index, parent))]


def _qdisc_at(index: int, parent: int) -> tuple[str, int] | None:
    """Return kind and handle of the queue that was configured there; None where the kernel's default is."""
    try:
        found = query(messages.get_qdisc(index, parent=parent))
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EINVAL, errno.ENODEV}:
            return None
        raise
    kind, handle = messages.qdisc_of(found[0]) if found else ("", 0)
    return (kind, handle) if handle else None


def _foreign(where: str, kind: str, handle: int) -> str:
    return (
        f"its {where} queue is {kind} {handle >> 16:x}:, configured by someone else; "
        "remove it, or take the device from this driver's configuration"
    )
