"""Place of the queue of a device: at its root for what leaves the host, behind an ifb for what enters it from a guest.

Reading needs no privilege; what changes something goes through `changes`.
"""

import abc
import contextlib
import re
import socket
import zlib
from collections.abc import Callable

from fpga_pool.drivers.egress.tc import changes, netlink
from fpga_pool.drivers.egress.tc.places import Link
from fpga_pool.model.exceptions import Conflict, NotFound


class Attachment(abc.ABC):
    """Puts the queue in place, once per device; a `Link` is the device that bears the queue."""

    def __init__(self, device: str) -> None:
        self.device = device

    @abc.abstractmethod
    def attach(self) -> Link:
        """Put a fresh queue there instead of what an earlier process left; Conflict where it is someone else's."""

    @abc.abstractmethod
    def current(self) -> Link | None:
        """Return the device that bears our queue now, None where there is none."""

    @abc.abstractmethod
    def detach(self) -> None:
        """Remove what is ours, if anything is; what is someone else's stays."""

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
    """What enters at the device goes through an ifb, whose root is the queue, and on as if it entered there.

    The ifb is named after the device, so that it is found again after a restart.
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
        """Raise Conflict where the queue there is someone else's, NotFound where there is no such device."""
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
    """Remove every redirection of this host, as an agent that was killed leaves them; its taps may have ended since."""
    for _, name in socket.if_nameindex():
        if re.fullmatch("fpi[0-9a-f]{8}", name):
            with contextlib.suppress(NotFound):
                IngressAttachment(netlink.alias(name).removeprefix(netlink.IFB_ALIAS), name).detach()
