"""Classes and filters of many flows, in and out of the kernel."""

import errno
from collections.abc import Collection, Sequence

from fpga_pool.drivers.egress.tc import messages
from fpga_pool.drivers.egress.tc.messages import FlowFilter, HtbClass
from fpga_pool.drivers.egress.tc.netlink import Refusal, transact
from fpga_pool.drivers.egress.tc.places import PASSING_MINOR, ROOT_GROUP, Group
from fpga_pool.drivers.egress.tc.shaping import QUANTUM_BYTES, UNLIMITED_BYTES_S
from fpga_pool.model.exceptions import ServiceUnavailable

#: The object is not there, or what it would belong to is not.
_GONE = frozenset({errno.ENOENT, errno.ENODEV, errno.EINVAL})


def add_groups(index: int, positions: Sequence[int]) -> None:
    """Add the queues of these groups below the root, and their hash tables."""
    requests = []
    for group in map(Group.at, positions):
        way = HtbClass(ROOT_GROUP.qdisc, group.parent, UNLIMITED_BYTES_S, UNLIMITED_BYTES_S, QUANTUM_BYTES)
        requests += [messages.new_class(index, way), messages.htb_qdisc(index, group.parent, group.qdisc)]
        requests += messages.hash_tables(index, group.qdisc)
    _raise_first(transact(requests))


def add_flows(index: int, classes: Sequence[HtbClass], filters: Sequence[FlowFilter]) -> None:
    """Add all, or nothing and raise."""
    requests = [messages.new_class(index, htb) for htb in classes]
    requests += [messages.new_filter(index, flow) for flow in filters]
    refusals = transact(requests)
    if refusals:
        remove_flows(index, [htb.handle for htb in classes], filters)
        _raise_first(refusals)


def change_classes(index: int, classes: Sequence[HtbClass], forgiven: Collection[int]) -> list[int]:
    """Change the rates of classes, and forgive those named by their handles; return the handles that are not there."""
    requests = [messages.changed_class(index, htb) for htb in classes]
    handles = [htb.handle for htb in classes]
    for htb in classes:
        if htb.handle in forgiven:
            requests += _forgiveness(index, htb)
            handles += [htb.handle] * 2
    refusals = transact(requests)
    _raise_first([refusal for refusal in refusals if refusal.number not in _GONE])
    return list(dict.fromkeys(handles[refusal.position] for refusal in refusals))


def remove_flows(index: int, handles: Sequence[int], filters: Sequence[FlowFilter]) -> None:
    """Remove what is there; filters first, because a class that has one stays."""
    requests = [messages.deleted_filter(index, flow) for flow in filters]
    requests += [messages.deleted_class(index, handle) for handle in handles]
    _raise_first([refusal for refusal in transact(requests) if refusal.number not in _GONE])


def _forgiveness(index: int, htb: HtbClass) -> list[bytes]:
    """Give the class a child for a moment: when it is gone HTB begins again with the class, without its debt.

    What waits in the class is dropped; TCP sends it again, which takes less time than any debt that matters.
    """
    child = htb._replace(parent=htb.handle, handle=htb.parent | PASSING_MINOR)
    return [messages.new_class(index, child), messages.deleted_class(index, child.handle)]


def _raise_first(refusals: list[Refusal]) -> None:
    if refusals:
        raise ServiceUnavailable(f"traffic control: the kernel refused {len(refusals)} changes, first {refusals[0]}")
