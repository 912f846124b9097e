"""Netlink: batches of messages to the kernel, and queries of devices and queues, which need no privileges."""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.messages import ACK, attributes_of, numbered
from fpga_pool.drivers.egress.tc.places import ROOT_GROUP, Link
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable

# ---- Messages and answers

#: Messages per batch. The kernel replies before `send` returns, so even a refusal of all must fit the socket's buffer.
_BATCH = 100
_BUFFER_BYTES = 1 << 20
#: Maximum size of a part of a dump, set by the kernel.
_PART_BYTES = 1 << 16
#: Attempts at a dump, which is repeated if something changed during it.
_DUMP_ATTEMPTS = 5
_TIMEOUT_S = 30.0

_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_HEADER = struct.Struct("=IHHII")
_ERROR = struct.Struct("=i")
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_DUMP_INTERRUPTED, _TEXT_FOLLOWS = 0x10, 0x200
_ERROR_TEXT = 1
#: Size of an error message without the original's content: the error number and the header of the failed message.
_ERROR_BYTES = _ERROR.size + _HEADER.size


class Refusal(NamedTuple):
    """A message that the kernel refused: its position, the error number, and the kernel's error text, if any."""

    position: int
    number: int
    text: str

    def __str__(self) -> str:
        return f"{os.strerror(self.number)}{f' ({self.text})' if self.text else ''}"


class _Answer(NamedTuple):
    kind: int
    flags: int
    sequence: int
    body: bytes


def transact(messages: Sequence[bytes]) -> list[Refusal]:
    """Let the kernel execute the messages in order; a refused message does not stop the others."""
    refusals = []
    with closing(_socket()) as sock:
        for begin in range(0, len(messages), _BATCH):
            batch = messages[begin : begin + _BATCH]
            last = begin + len(batch) - 1
            # Errors are always reported; the acknowledgement of the last message confirms that all were processed.
            flags = [0] * (len(batch) - 1) + [ACK]
            sock.send(b"".join(map(numbered, batch, range(begin, last + 1), flags)))
            refusals += [refusal for refusal in _acknowledged(sock, last) if refusal.number]
    return refusals


def query(message: bytes) -> list[bytes]:
    """Return the bodies of the kernel's reply messages. Raises OSError if it refuses the query."""
    for _ in range(_DUMP_ATTEMPTS):
        with closing(_socket()) as sock:
            # For a queue that cannot be configured the kernel sends only the acknowledgement.
            sock.send(numbered(message, 1, ACK))
            answers = list(_until_done(sock))
        if not any(answer.flags & _DUMP_INTERRUPTED for answer in answers):
            return [answer.body for answer in answers]
    raise ServiceUnavailable("the traffic control configuration changes faster than it can be read; try again later")


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    sock.settimeout(_TIMEOUT_S)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    sock.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
    sock.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
    sock.bind((0, 0))
    return sock


def _acknowledged(sock: socket.socket, last: int) -> Iterator[Refusal]:
    while True:
        for answer in _receive(sock):
            if answer.kind == _NLMSG_ERROR:
                yield _refusal(answer)
                if answer.sequence == last:
                    return


def _until_done(sock: socket.socket) -> Iterator[_Answer]:
    while True:
        for answer in _receive(sock):
            if answer.kind == _NLMSG_DONE:
                return
            if answer.kind == _NLMSG_ERROR:
                refusal = _refusal(answer)
                if refusal.number:
                    raise OSError(refusal.number, str(refusal))
                return
            yield answer


def _receive(sock: socket.socket) -> Iterator[_Answer]:
    try:
        data = sock.recv(_PART_BYTES)
    except OSError as error:
        if error.errno == errno.ENOBUFS or isinstance(error, TimeoutError):
            raise ServiceUnavailable(f"the kernel's answer was lost: {error}") from error
        raise
    at = 0
    while at < len(data):
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, at)
        yield _Answer(kind, flags, sequence, data[at + _HEADER.size : at + length])
        at += length + -length % 4


def _refusal(answer: _Answer) -> Refusal:
    (number,) = _ERROR.unpack_from(answer.body)
    text = b""
    if answer.flags & _TEXT_FOLLOWS:
        text = dict(attributes_of(answer.body[_ERROR_BYTES:])).get(_ERROR_TEXT, b"")
    return Refusal(answer.sequence, -number, text.rstrip(b"\0").decode(errors="replace"))


# ---- Queries

_RTM_GETLINK = 18
_REQUEST = 0x1
#: ifinfomsg: family, type, index, flags, change mask.
_IFINFOMSG = struct.Struct("=BxHiII")
_IFLA_MTU, _IFLA_IFALIAS = 4, 20
#: Prefix of the alias of an ifb, followed by the name of the tap that is redirected to it.
IFB_ALIAS = "fpga_pool: into "
#: Priorities of our IPv4 and IPv6 filters at the ingress of a device; an agent recognizes earlier filters by them.
INGRESS_PRIOS = (0xF940, 0xF941)
#: Bytes of the link header by type of device (linux/if_arp.h): Ethernet, loopback, and tun without one.
_HEADER_BYTES = {1: 14, 772: 14, 0xFFFE: 0}


def link(device: str) -> Link:
    """Return a device by its name. Raises NotFound if it does not exist, InvalidInput if its type is unsupported."""
    index, device_type, attributes = _device(device)
    if device_type not in _HEADER_BYTES:
        raise InvalidInput(f"device {device}: expected Ethernet or tun, found type {device_type}")
    (mtu_bytes,) = struct.unpack("=I", attributes[_IFLA_MTU])
    return Link(index, mtu_bytes, _HEADER_BYTES[device_type])


def alias(device: str) -> str:
    """Return the alias of a device; "" = none."""
    return _device(device)[2].get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace")


def _device(device: str) -> tuple[int, int, dict[int, bytes]]:
    """Return index, type and attributes of a device."""
    try:
        index = socket.if_nametoindex(device)
        (body,) = query(_HEADER.pack(32, _RTM_GETLINK, _REQUEST, 0, 0) + _IFINFOMSG.pack(0, 0, index, 0, 0))
    except OSError as error:
        raise NotFound(f"no network device {device} on this host: {error}") from error
    return index, _IFINFOMSG.unpack_from(body)[1], dict(messages.attributes_of(body[_IFINFOMSG.size :]))


def is_ours(index: int) -> bool:
    """Return whether the device's root is our queue. Raises Conflict if another program has configured one."""
    found = _qdisc_at(index, messages.ROOT)
    if found is None:
        return False
    if found != ("htb", ROOT_GROUP.qdisc):
        raise Conflict(_foreign("root", *found))
    return True


def redirects(index: int, ifb: str) -> bool:
    """Return whether our filters redirect ingress of the device. Raises Conflict if another program's are there."""
    found = _qdisc_at(index, messages.INGRESS)
    if found is None:
        return False
    prios = {each.prio for each in filters(index, messages.INGRESS_HANDLE)}
    # An earlier agent that was killed before it added the filters has left at least the ifb.
    ours = prios <= set(INGRESS_PRIOS) if prios else any(name == ifb for _, name in socket.if_nameindex())
    if found[0] != "ingress" or not ours:
        raise Conflict(_foreign("ingress", *found))
    return True


def class_rates(index: int) -> dict[int, int]:
    """Return the rates, in bytes per second, of the device's HTB classes by handle."""
    bodies = query(messages.dump(messages.RTM_GETTCLASS, index))
    return dict(found for body in bodies if (found := messages.class_rate(body)))


def filters(index: int, parent: int) -> list[messages.FilterId]:
    """Return the filters of a queue."""
    return [messages.filter_of(body) for body in query(messages.dump(messages.RTM_GETTFILTER, index, parent))]


def _qdisc_at(index: int, parent: int) -> tuple[str, int] | None:
    """Return kind and handle of the configured queue with this parent; None if it is the kernel's default."""
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
        f"its {where} queue is {kind} {handle >> 16:x}:, configured by another program; remove it, or remove the "
        "device from this driver's configuration"
    )
