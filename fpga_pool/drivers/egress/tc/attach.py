"""Our queue at a device, and the way there for what enters the host."""

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.netlink import transact
from fpga_pool.drivers.egress.tc.observe import INGRESS_PRIOS, redirects
from fpga_pool.drivers.egress.tc.places import ROOT_GROUP
from fpga_pool.model.exceptions import NotFound, ServiceUnavailable

#: What a flow may have waiting for its turn, in packets: bounded, because senders in guests do not feel our queue.
_QUEUE_PACKETS = 100


def add_root(index: int) -> None:
    """Add our queue with its hash tables."""
    requests = [messages.htb_qdisc(index, messages.ROOT, ROOT_GROUP.qdisc)]
    requests += messages.hash_tables(index, ROOT_GROUP.qdisc)
    refusals = transact(requests)
    if refusals:
        raise ServiceUnavailable(f"traffic control: the kernel did not take our queue: {refusals[0]}")


def remove_root(index: int) -> None:
    """Remove our queue, which the kernel knows by its handle; the kernel puts its default there."""
    refusals = transact([messages.deleted_qdisc(index, messages.ROOT, ROOT_GROUP.qdisc)])
    if refusals and refusals[0].number != errno.ENODEV:
        raise ServiceUnavailable(f"traffic control: the kernel did not remove our queue: {refusals[0]}")


def redirect(device: str, index: int, ifb: str) -> None:
    """Redirect the TCP packets that enter at the device; everything else enters as before."""
    with _kernel() as ip:
        ip.link("add", ifname=ifb, kind="ifb", txqlen=_QUEUE_PACKETS)
        ifb_index = socket.if_nametoindex(ifb)
        (found,) = ip.get_links(index)
        ip.link("set", index=ifb_index, state="up", mtu=found.get_attr("IFLA_MTU"), ifalias=f"fpga_pool: into {device}")
        ip.tc("add", "ingress", index)
        rule = {
            "parent": messages.INGRESS_HANDLE,
            "target": 0x10001,
            "action": {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb_index},
        }
        # The protocol of IPv4 is at byte 9, the next header of IPv6 at byte 6; 6 is TCP.
        for prio, ethertype, key in zip(INGRESS_PRIOS, (0x0800, 0x86DD), ("0x06/0xff+9", "0x06/0xff+6"), strict=True):
            ip.tc("add-filter", "u32", index, prio=prio, protocol=ethertype, keys=[key], **rule)


def remove_redirect(index: int | None, ifb: str) -> None:
    """Remove the redirection and the device that it led to, whichever of them is there."""
    if index is not None and redirects(index, ifb):
        with contextlib.suppress(NotFound), _kernel() as ip:
            ip.tc("del", "ingress", index)
    with contextlib.suppress(NotFound), _kernel() as ip:
        for ifb_index in ip.link_lookup(ifname=ifb):
            ip.link("del", index=ifb_index)


@contextlib.contextmanager
def _kernel() -> Iterator[Any]:  # the methods of an IPRoute are made at run time
    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as error:
        if error.code == errno.ENODEV:
            raise NotFound(f"traffic control: the device is gone: {error}") from error
        raise ServiceUnavailable(f"traffic control: {error}") from error
