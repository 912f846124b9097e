"""What the kernel says about devices and queues; this needs no privilege."""

import errno
import socket
import struct

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.netlink import query
from fpga_pool.drivers.egress.tc.shaping import Link
from fpga_pool.model.exceptions import InvalidInput, NotFound

_RTM_GETLINK = 18
_REQUEST = 0x1
_HEADER = struct.Struct("=IHHII")
#: ifinfomsg: family, type, index, flags, change mask.
_IFINFOMSG = struct.Struct("=BxHiII")
_IFLA_MTU = 4
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


def qdisc_at(index: int, parent: int) -> tuple[str, int] | None:
    """Return kind and handle of the queue that was configured there; None where the kernel's default is."""
    try:
        found = query(messages.get_qdisc(index, parent=parent))
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.EINVAL, errno.ENODEV}:
            return None
        raise
    kind, handle = messages.qdisc_of(found[0]) if found else ("", 0)
    return (kind, handle) if handle else None


def class_rates(index: int) -> dict[int, int]:
    """Return bytes per second by handle of the device's HTB classes."""
    bodies = query(messages.dump(messages.RTM_GETTCLASS, index))
    return dict(found for body in bodies if (found := messages.class_rate(body)))


def filters(index: int, parent: int) -> list[messages.FilterId]:
    """Return the filters of a queue."""
    return [messages.filter_of(body) for body in query(messages.dump(messages.RTM_GETTFILTER, index, parent))]
