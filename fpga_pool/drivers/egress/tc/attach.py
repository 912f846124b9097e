"""Our queue at a device, and the way there for what enters the host."""

import contextlib
import errno
import socket
from collections.abc import Iterator

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from fpga_pool.drivers.egress.tc import messages, observe
from fpga_pool.drivers.egress.tc.netlink import transact
from fpga_pool.drivers.egress.tc.places import ROOT_GROUP
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable

INGRESS, INGRESS_HANDLE = 0xFFFFFFF1, 0xFFFF0000
#: By this priority an agent knows the filters of an earlier one at the ingress of a device; the next one is for IPv6.
_PRIO = 0xF940
#: What a flow may have waiting for its turn, in packets: bounded, because senders in guests do not feel our queue.
_QUEUE_PACKETS = 100


def is_ours(index: int) -> bool:
    """Say whether the device's root is our queue; Conflict where it is someone else's."""
    found = observe.qdisc_at(index, messages.ROOT)
    if found is None:
        return False
    if found != ("htb", ROOT_GROUP.qdisc):
        raise Conflict(_foreign("root", *found))
    return True


def redirects(index: int, ifb: str) -> bool:
    """Say whether our filters redirect what enters at the device; Conflict where someone else's are there."""
    found = observe.qdisc_at(index, INGRESS)
    if found is None:
        return False
    prios = {each.prio for each in observe.filters(index, INGRESS_HANDLE)}
    # An earlier agent that was killed between the queue and its filters left at least the ifb.
    ours = prios <= {_PRIO, _PRIO + 1} if prios else any(name == ifb for _, name in socket.if_nameindex())
    if found[0] != "ingress" or not ours:
        raise Conflict(_foreign("ingress", *found))
    return True


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
        action = {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb_index}
        for prio, ethertype, key in ((_PRIO, 0x0800, "0x06/0xff+9"), (_PRIO + 1, 0x86DD, "0x06/0xff+6")):
            ip.tc(
                "add-filter", "u32", index, parent=INGRESS_HANDLE, prio=prio, protocol=ethertype, target=0x10001,
                keys=[key], action=action,
            )  # fmt: skip


def remove_redirect(index: int | None, ifb: str) -> None:
    """Remove the redirection and the device that it led to, whichever of them is there."""
    with _kernel() as ip:
        if index is not None and redirects(index, ifb):
            ip.tc("del", "ingress", index)
        for ifb_index in ip.link_lookup(ifname=ifb):
            ip.link("del", index=ifb_index)


@contextlib.contextmanager
def _kernel() -> Iterator[IPRoute]:
    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as error:
        # The device may go at any time.
        if error.code != errno.ENODEV:
            raise ServiceUnavailable(f"traffic control: {error}") from error


def _foreign(where: str, kind: str, handle: int) -> str:
    return (
        f"its {where} queue is {kind} {handle >> 16:x}:, configured by someone else; "
        "remove it, or take the device from this driver's configuration"
    )
