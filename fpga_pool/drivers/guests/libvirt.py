"""Guests of libvirt: a virtio-serial channel for each slot.

libvirt listens on the host's side of a channel and we connect, so a guest keeps its channels when we are away.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.guests.base import GuestDriver
from fpga_pool.drivers.guests.domain import Domain, parse
from fpga_pool.guest.frames import PORT_PREFIX
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, NotFound, ServiceUnavailable

LOG = logging.getLogger(__name__)

#: A connection that does not answer is given up after interval x count.
KEEPALIVE_S, KEEPALIVE_COUNT = 5, 3
#: How often a lost connection is made anew, and how soon the event loop sees that it shall end.
RECONNECT_S = 1.0


class LibvirtGuests(GuestDriver):
    """The domains of one libvirtd."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None
        self._changed: Callable[[str], object] = lambda _: None
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        libvirt.registerErrorHandler(lambda *_: None, None)  # errors are raised; nothing goes to standard error
        libvirt.virEventRegisterDefaultImpl()

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        """See GuestDriver."""
        return cls(conf.agent.libvirt_uri)

    def watch(self, changed: Callable[[str], object]) -> None:
        """See GuestDriver."""
        self._changed = changed
        for name, work in (("libvirt-events", self._run_events), ("libvirt-connection", self._stay_connected)):
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
            self._threads[-1].start()

    def running(self) -> list[Domain]:
        """See GuestDriver.  Domains whose description cannot be read are left out, and told."""
        found = []
        for each in self._call(lambda connection: connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)):
            try:
                found.append(parse(self._call(lambda _: each.XMLDesc())))  # noqa: B023  # called at once
            except FpgaPoolError as error:
                LOG.warning("a guest is left alone: %s", error)
        return found

    def find(self, instance: str) -> Domain | None:
        """See GuestDriver."""
        try:
            domain = self._lookup(instance)
            return self._call(lambda _: parse(domain.XMLDesc()) if domain.isActive() else None)
        except NotFound:
            return None

    def check(self, domain: Domain) -> None:
        """See GuestDriver.  The controller that channels are plugged into cannot be plugged in itself."""
        if not domain.has_controller:
            raise InvalidInput(
                f"machine {domain.name} has no virtio-serial controller for the channels of its accelerators: set the"
                " property hw_qemu_guest_agent=yes of its image"
            )

    def attach(self, domain: Domain, number: int) -> None:
        """See GuestDriver."""
        found = self._lookup(domain.instance)
        self._call(lambda _: found.attachDeviceFlags(_channel(number), libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def detach(self, domain: Domain, number: int) -> None:
        """See GuestDriver."""
        found = self._lookup(domain.instance)
        self._call(lambda _: found.detachDeviceFlags(_channel(number), libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def close(self) -> None:
        """See GuestDriver."""
        self._ending.set()
        for thread in self._threads:
            thread.join(2 * RECONNECT_S)
        with self._lock:
            self._disconnect()

    # The connection ---------------------------------------------------------------------------------------------

    def _lookup(self, instance: str) -> Any:
        return self._call(lambda connection: connection.lookupByUUIDString(instance))

    def _call(self, work: Callable[[Any], Any]) -> Any:
        try:
            return work(self._connected())
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                raise NotFound(str(error)) from error
            raise ServiceUnavailable(f"libvirt: {error}") from error

    def _connected(self) -> Any:
        with self._lock:
            if self._connection is None or not self._connection.isAlive():
                self._disconnect()
                self._connect()
            return self._connection

    def _connect(self) -> None:
        connection = libvirt.open(self._uri)
        connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
        lifecycle = libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE
        connection.domainEventRegisterAny(None, lifecycle, self._on_event, None)
        self._connection = connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except libvirt.libvirtError as error:
                LOG.debug("libvirt: %s", error)
            self._connection = None

    def _on_event(self, _connection: Any, domain: Any, event: int, detail: int, _opaque: object) -> None:
        LOG.debug("libvirt: event %d (%d) of %s", event, detail, domain.name())
        self._changed(domain.UUIDString())

    def _run_events(self) -> None:
        """Serve libvirt's event loop; a timer lets it see that it shall end."""
        timer = libvirt.virEventAddTimeout(int(RECONNECT_S * 1000), lambda *_: None, None)
        try:
            while not self._ending.is_set():
                libvirt.virEventRunDefaultImpl()
        finally:
            libvirt.virEventRemoveTimeout(timer)

    def _stay_connected(self) -> None:
        """Connect anew whenever the connection is lost: what happened meanwhile was told to nobody."""
        lost = True
        while not self._ending.wait(0.0 if lost else RECONNECT_S):
            try:
                with self._lock:
                    alive = self._connection is not None and self._connection.isAlive() == 1
                if not alive or lost:
                    self._call(lambda _: None)
                    self._changed("")
                lost = False
            except ServiceUnavailable as error:
                LOG.warning("%s", error)
                lost = True
                self._ending.wait(RECONNECT_S)


def _channel(number: int) -> str:
    return f"<channel type='unix'><source mode='bind'/><target type='virtio' name='{PORT_PREFIX}{number}'/></channel>"
