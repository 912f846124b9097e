"""The egress driver for one device: an HTB class per flow, and hashed u32 filters that match the flow's packets."""

import abc
import contextlib
import re
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow, check_rate
from fpga_pool.drivers.egress.tc import changes, netlink
from fpga_pool.drivers.egress.tc.messages import HtbClass, packed
from fpga_pool.drivers.egress.tc.places import (
    QUANTUM_BYTES,
    Link,
    Place,
    Places,
    Shape,
    debt_matters,
    goodput_bps,
    shape,
)
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound

# ---- Attachment of the queue to a device: at its root for egress of the host, on an ifb for traffic that a guest sends

# Reading needs no privileges; changes are made through `changes`.


class Attachment(abc.ABC):
    """Attaches the queue to a device. The `Link` that methods return is the device that has the queue."""

    def __init__(self, device: str) -> None:
        self.device = device

    @abc.abstractmethod
    def attach(self) -> Link:
        """Attach a new queue in place of one of an earlier process. Raises Conflict if another program's is there."""

    @abc.abstractmethod
    def current(self) -> Link | None:
        """Return the device that has our queue now; None if there is none."""

    @abc.abstractmethod
    def detach(self) -> None:
        """Remove our queue, if it exists; queues of other programs stay."""

    def _named(self, check: Callable[..., bool], *args: object) -> bool:
        try:
            return check(*args)
        except Conflict as conflict:
            raise Conflict(f"device {self.device}: {conflict}") from None

    def _index(self) -> int | None:
        try:
            return netlink.link(self.device).index
        except NotFound:
            return None


class EgressAttachment(Attachment):
    """The queue is the root of the device."""

    def attach(self) -> Link:
        link = netlink.link(self.device)
        if self._named(netlink.is_ours, link.index):
            changes.detach_root(link.index)
        changes.attach_root(link.index)
        return link

    def current(self) -> Link | None:
        try:
            link = netlink.link(self.device)
            return link if netlink.is_ours(link.index) else None
        except (Conflict, NotFound):
            return None

    def detach(self) -> None:
        index = self._index()
        if index is not None and self.current():
            changes.detach_root(index)


class IngressAttachment(Attachment):
    """Packets that enter at the device are redirected through an ifb whose root is the queue, and then proceed.

    The name of the ifb is derived from the device's, so that it is found again after a restart.
    """

    def __init__(self, device: str, ifb: str = "") -> None:
        super().__init__(device)
        self._ifb = ifb or f"fpi{zlib.crc32(device.encode()):08x}"

    def attach(self) -> Link:
        link = netlink.link(self.device)
        self._named(netlink.redirects, link.index, self._ifb)
        changes.remove_redirect(link.index, self._ifb)
        try:
            changes.redirect_ingress(self.device, link.index, self._ifb)
            ifb = netlink.link(self._ifb)
            changes.attach_root(ifb.index)
        except BaseException:
            changes.remove_redirect(link.index, self._ifb)
            raise
        return ifb

    def check(self) -> None:
        """Raise Conflict if the ingress queue is another program's, NotFound if the device does not exist."""
        self._named(netlink.redirects, netlink.link(self.device).index, self._ifb)

    def current(self) -> Link | None:
        index = self._index()
        try:
            if index is None or not netlink.redirects(index, self._ifb):
                return None
            ifb = netlink.link(self._ifb)
            return ifb if netlink.is_ours(ifb.index) else None
        except (Conflict, NotFound):
            return None

    def detach(self) -> None:
        index, ours = self._index(), None
        with contextlib.suppress(Conflict):
            ours = index if index is not None and netlink.redirects(index, self._ifb) else None
        changes.remove_redirect(ours, self._ifb)


def detach_all_taps() -> None:
    """Remove all redirections of this host, which a killed agent leaves behind; their taps may no longer exist."""
    for _, name in socket.if_nameindex():
        if re.fullmatch("fpi[0-9a-f]{8}", name):
            with contextlib.suppress(NotFound):
                IngressAttachment(netlink.alias(name).removeprefix(netlink.IFB_ALIAS), name).detach()


# ---- The driver

_ATTACHMENTS: dict[str, type[Attachment]] = {"egress": EgressAttachment, "ingress": IngressAttachment}


@dataclass(frozen=True, slots=True)
class _ShapedFlow:
    flow: Flow
    rate_bps: float
    place: Place

    @property
    def ip_version(self) -> int:
        return 4 if len(self.place.filters[0].source) == 4 else 6

    def shape(self, link: Link) -> Shape:
        return shape(self.rate_bps, link, self.ip_version)

    def htb(self, link: Link) -> HtbClass:
        """Return the class that the kernel should have."""
        return HtbClass(self.place.group.qdisc, self.place.classid, *self.shape(link), QUANTUM_BYTES)


class TcDriver(EgressDriver):
    """Limits the goodput of flows to their rates, on one device; other traffic is not affected.

    Direction "egress" is for traffic that leaves this host through the device, "ingress" for traffic of a guest, which
    enters the host at the guest's tap.  The first flow attaches the queue, and `reset` removes it.  If another program
    has configured a queue, Conflict is raised and nothing is changed.
    """

    def __init__(self, device: str, direction: Literal["egress", "ingress"] = "egress") -> None:
        if direction not in _ATTACHMENTS:
            raise InvalidInput(f"direction: expected egress or ingress, got {direction!r}")
        self._attachment = _ATTACHMENTS[direction](device)
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._forget_all()

    def open(self, flow: Flow, rate_bps: float) -> None:
        self.open_all([LimitedFlow(flow, rate_bps)])

    def open_all(self, limits: Iterable[LimitedFlow]) -> None:
        # After an error none of the new flows is limited.
        limits = list(limits)
        for limit in limits:
            check_rate(limit.rate_bps)
            packed(limit.flow)
        with self._lock:
            link = self._attached()
            fresh = self._fresh(limits)
            repeats = {limit.flow.key: limit.rate_bps for limit in limits if limit.flow.key not in fresh}
            self._install(list(fresh.values()), link)
            self._change(repeats)

    def set_rate(self, key: str, rate_bps: float) -> None:
        # Queued packets stay in the queue, unless the class is reset to clear its debt (see `debt_matters`).
        self.set_rates({key: rate_bps})

    def set_rates(self, rates_bps: Mapping[str, float]) -> None:
        for rate_bps in rates_bps.values():
            check_rate(rate_bps)
        with self._lock:
            self._change(rates_bps)

    def close(self, key: str) -> None:
        self.close_all([key])

    def close_all(self, keys: Iterable[str]) -> None:
        with self._lock:
            self._remove([key for key in dict.fromkeys(keys) if key in self._flows])

    def flows(self) -> tuple[LimitedFlow, ...]:
        """Return the flows whose class and filters exist in the kernel, with the kernel's rates."""
        with self._lock:
            link = self._attachment.current()
            if link is None or self._link is None or link.index != self._link.index:
                return ()
            rates = netlink.class_rates(link.index)
            queues = {each.parent for shaped in self._flows.values() for each in shaped.place.filters}
            filters = {(queue, found.handle) for queue in queues for found in netlink.filters(link.index, queue)}
            return tuple(
                LimitedFlow(shaped.flow, _rate_bps(shaped, link, rates[shaped.place.classid]))
                for shaped in self._flows.values()
                if shaped.place.classid in rates
                and all((each.parent, each.handle) in filters for each in shaped.place.filters)
            )

    def reset(self) -> None:
        # The kernel restores its default queue.
        with self._lock:
            self._attachment.detach()
            self._link = None
            self._forget_all()

    # The lock is held in all of the following methods ---------------------------------------------------------

    def _attached(self) -> Link:
        """Attach the queue unless it is attached; if it has vanished, forget its flows first."""
        link = self._attachment.current() if self._link else None
        if link is None or self._link is None or link.index != self._link.index:
            self._forget_all()
            link = self._attachment.attach()
        self._link = link
        return link

    def _forget_all(self) -> None:
        self._flows: dict[str, _ShapedFlow] = {}
        self._keys: dict[tuple[str, int, str, int], str] = {}
        self._places = Places()
        self._groups = {0}

    def _fresh(self, limits: list[LimitedFlow]) -> dict[str, LimitedFlow]:
        """Return the new flows by key; of repeated ones, with the last rate. Raises Conflict for contradictions."""
        fresh: dict[str, LimitedFlow] = {}
        streams: dict[tuple[str, int, str, int], str] = {}
        for limit in limits:
            flow = limit.flow
            known = self._flows[flow.key].flow if flow.key in self._flows else None
            known = fresh[flow.key].flow if flow.key in fresh else known
            if known is not None and known != flow:
                raise Conflict(f"flow {flow.key}: already open with other addresses")
            other = self._keys.get(_stream(flow)) or streams.setdefault(_stream(flow), flow.key)
            if other != flow.key:
                raise Conflict(f"flow {flow.key}: the same stream is already open as {other}")
            if flow.key not in self._flows:
                fresh[flow.key] = limit
        return fresh

    def _install(self, limits: list[LimitedFlow], link: Link) -> None:
        if not limits:
            return
        shaped: list[_ShapedFlow] = []
        try:
            for limit in limits:
                shaped.append(_ShapedFlow(limit.flow, limit.rate_bps, self._places.take(limit.flow)))
            groups = sorted({each.place.position for each in shaped} - self._groups)
            if groups:
                changes.add_groups(link.index, groups)
                self._groups.update(groups)
            filters = [flow_filter for each in shaped for flow_filter in each.place.filters]
            changes.add_flows(link.index, [each.htb(link) for each in shaped], filters)
        except BaseException:
            for each in shaped:
                self._places.give_back(each.place)
            raise
        for each in shaped:
            self._flows[each.flow.key] = each
            self._keys[_stream(each.flow)] = each.flow.key

    def _change(self, rates_bps: Mapping[str, float]) -> None:
        unknown = next((key for key in rates_bps if key not in self._flows), None)
        if unknown is not None:
            raise NotFound(f"flow {unknown}: not open")
        if not rates_bps or self._link is None:
            return
        changed = [replace(self._flows[key], rate_bps=rate_bps) for key, rate_bps in rates_bps.items()]
        forgiven = [
            new.place.classid
            for new in changed
            if debt_matters(self._flows[new.flow.key].shape(self._link), new.shape(self._link))
        ]
        missing = changes.change_classes(self._link.index, [new.htb(self._link) for new in changed], forgiven)
        self._flows.update((new.flow.key, new) for new in changed)
        if missing:
            lost = [key for key in rates_bps if self._flows[key].place.classid in missing]
            self._remove(lost)
            raise NotFound(f"flow {lost[0]}: its class on device {self._attachment.device} was lost; open it again")

    def _remove(self, keys: list[str]) -> None:
        if not keys or self._link is None:
            return
        places = [self._flows[key].place for key in keys]
        filters = [flow_filter for place in places for flow_filter in place.filters]
        changes.remove_flows(self._link.index, [place.classid for place in places], filters)
        for key, place in zip(keys, places, strict=True):
            del self._keys[_stream(self._flows.pop(key).flow)]
            self._places.give_back(place)


def _stream(flow: Flow) -> tuple[str, int, str, int]:
    return flow.source_address, flow.source_port, flow.destination_address, flow.destination_port


def _rate_bps(shaped: _ShapedFlow, link: Link, bytes_s: int) -> float:
    """Return the requested rate if the kernel's rate equals it, else the kernel's rate as goodput."""
    if bytes_s == shaped.shape(link).bytes_s:
        return shaped.rate_bps
    return goodput_bps(bytes_s, link, shaped.ip_version)
