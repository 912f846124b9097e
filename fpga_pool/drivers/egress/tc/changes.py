"""Changes of the kernel's queues: our queue on a device, the redirection of ingress, classes and filters of flows.

All need root. If the calls come from another process, plain tuples take the place of class and filter objects.
"""

import contextlib
import errno
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.messages import FlowFilter, HtbClass
from fpga_pool.drivers.egress.tc.netlink import IFB_ALIAS, INGRESS_PRIOS, Refusal, redirects, transact
from fpga_pool.drivers.egress.tc.places import PASSING_MINOR, QUANTUM_BYTES, ROOT_GROUP, UNLIMITED_BYTES_S, Group
from fpga_pool.drivers.privileged import tc_context
from fpga_pool.model.exceptions import NotFound, ServiceUnavailable

#: Maximum number of queued packets of a flow, as senders in guests get no backpressure from our queue.
_QUEUE_PACKETS = 100


@tc_context.entrypoint
def attach_root(index: int) -> None:
    """Add our queue with its hash tables to a device."""
    requests = [messages.htb_qdisc(index, messages.ROOT, ROOT_GROUP.qdisc)]
    requests += messages.hash_tables(index, ROOT_GROUP.qdisc)
    refusals = transact(requests)
    if refusals:
        raise ServiceUnavailable(f"traffic control: the kernel rejected the queue: {refusals[0]}")


@tc_context.entrypoint
def detach_root(index: int) -> None:
    """Remove our queue, identified by its handle; the kernel restores its default."""
    refusals = transact([messages.deleted_qdisc(index, messages.ROOT, ROOT_GROUP.qdisc)])
    if refusals and refusals[0].number != errno.ENODEV:
        raise ServiceUnavailable(f"traffic control: the kernel did not remove the queue: {refusals[0]}")


@tc_context.entrypoint
def redirect_ingress(device: str, index: int, ifb: str) -> None:
    """Redirect TCP packets that enter at the device to the ifb; other packets are not affected."""
    with _kernel() as ip:
        ip.link("add", ifname=ifb, kind="ifb", txqlen=_QUEUE_PACKETS)
        ifb_index = socket.if_nametoindex(ifb)
        (found,) = ip.get_links(index)
        ip.link("set", index=ifb_index, state="up", mtu=found.get_attr("IFLA_MTU"), ifalias=IFB_ALIAS + device)
        ip.tc("add", "ingress", index)
        rule = {
            "parent": messages.INGRESS_HANDLE,
            "target": 0x10001,
            "action": {"kind": "mirred", "direction": "egress", "action": "redirect", "ifindex": ifb_index},
        }
        # Byte 9 of IPv4 headers is the protocol, byte 6 of IPv6 headers the next header; 6 = TCP.
        for prio, ethertype, key in zip(INGRESS_PRIOS, (0x0800, 0x86DD), ("0x06/0xff+9", "0x06/0xff+6"), strict=True):
            ip.tc("add-filter", "u32", index, prio=prio, protocol=ethertype, keys=[key], **rule)


@tc_context.entrypoint
def remove_redirect(index: int | None, ifb: str) -> None:
    """Remove the redirection and its ifb, as far as they exist."""
    if index is not None and redirects(index, ifb):
        with contextlib.suppress(NotFound), _kernel() as ip:
            ip.tc("del", "ingress", index)
    with contextlib.suppress(NotFound), _kernel() as ip:
        for ifb_index in ip.link_lookup(ifname=ifb):
            ip.link("del", index=ifb_index)


@contextlib.contextmanager
def _kernel() -> Iterator[Any]:  # IPRoute creates its methods at run time
    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as error:
        if error.code == errno.ENODEV:
            raise NotFound(f"traffic control: the device no longer exists: {error}") from error
        raise ServiceUnavailable(f"traffic control: {error}") from error


#: Errors that mean that the object, or its parent, does not exist.
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


@tc_context.entrypoint
def add_groups(index: int, positions: Sequence[int]) -> None:
    """Add the queues of these groups below the root, and their hash tables."""
    requests = []
    for group in map(Group.at, positions):
        way = HtbClass(ROOT_GROUP.qdisc, group.parent, UNLIMITED_BYTES_S, UNLIMITED_BYTES_S, QUANTUM_BYTES)
        requests += [messages.new_class(index, way), messages.htb_qdisc(index, group.parent, group.qdisc)]
        requests += messages.hash_tables(index, group.qdisc)
    _raise_first(transact(requests))


@tc_context.entrypoint
def add_flows(index: int, classes: Sequence[HtbClass], filters: Sequence[FlowFilter]) -> None:
    """Add the classes and filters of flows; if any fails, remove all of them and raise ServiceUnavailable."""
    classes, filters = _classes(classes), _filters(filters)
    requests = [messages.new_class(index, htb) for htb in classes]
    requests += [messages.new_filter(index, flow) for flow in filters]
    refusals = transact(requests)
    if refusals:
        remove_flows(index, [htb.handle for htb in classes], filters)
        _raise_first(refusals)


@tc_context.entrypoint
def change_classes(index: int, classes: Sequence[HtbClass], forgiven: Sequence[int]) -> list[int]:
    """Change the rates of classes, and clear the debt of the `forgiven` ones; return the handles that are missing."""
    classes = _classes(classes)
    requests = [messages.changed_class(index, htb) for htb in classes]
    handles = [htb.handle for htb in classes]
    for htb in classes:
        if htb.handle in forgiven:
            requests += _forgiveness(index, htb)
            handles += [htb.handle] * 2
    refusals = transact(requests)
    _raise_first([refusal for refusal in refusals if refusal.number not in _GONE])
    return list(dict.fromkeys(handles[refusal.position] for refusal in refusals))


@tc_context.entrypoint
def remove_flows(index: int, handles: Sequence[int], filters: Sequence[FlowFilter]) -> None:
    """Remove classes and filters as far as they exist; filters first, as a class with filters cannot be removed."""
    requests = [messages.deleted_filter(index, flow) for flow in _filters(filters)]
    requests += [messages.deleted_class(index, handle) for handle in handles]
    _raise_first([refusal for refusal in transact(requests) if refusal.number not in _GONE])


def _classes(classes: Sequence[HtbClass]) -> list[HtbClass]:
    return [HtbClass(*one) for one in classes]


def _filters(filters: Sequence[FlowFilter]) -> list[FlowFilter]:
    return [FlowFilter(*one) for one in filters]


def _forgiveness(index: int, htb: HtbClass) -> list[bytes]:
    """Return messages that add a child to the class and remove it, so that HTB resets the class without its debt.

    Packets queued in the class are dropped; TCP resends them, which takes less time than any debt that matters.
    """
    child = htb._replace(parent=htb.handle, handle=htb.parent | PASSING_MINOR)
    return [messages.new_class(index, child), messages.deleted_class(index, child.handle)]


def _raise_first(refusals: list[Refusal]) -> None:
    if refusals:
        raise ServiceUnavailable(f"traffic control: the kernel refused {len(refusals)} changes, first {refusals[0]}")
