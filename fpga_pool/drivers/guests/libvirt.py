"""Guests of libvirt: a virtio-serial channel for each slot, or the PCI function of one that guests drive themselves.

libvirt listens on the host's side of a channel and we connect, so a guest keeps its channels when we are away.
"""

import logging
from collections.abc import Callable
from typing import Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.guests.domain import Domain, GuestDriver, function_xml, parse
from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.guest.frames import PORT_PREFIX
from fpga_pool.model.exceptions import FpgaPoolError, InvalidInput, NotFound

LOG = logging.getLogger(__name__)


class LibvirtGuests(GuestDriver):
    """The domains of one libvirtd."""

    def __init__(self, uri: str) -> None:
        self._libvirt = LibvirtConnection(uri)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(conf.agent.libvirt_uri)

    def watch(self, changed: Callable[[str], object]) -> None:
        self._libvirt.watch(changed)

    def running(self) -> list[Domain]:
        # Domains whose description cannot be read are skipped and logged.
        found = []
        for each in self._libvirt.active():
            try:
                found.append(parse(self._libvirt.call(lambda _: each.XMLDesc())))  # noqa: B023  # called at once
            except NotFound:
                continue  # it has just ended
            except FpgaPoolError as error:
                LOG.warning("ignoring a guest: %s", error)
        return found

    def find(self, instance: str) -> Domain | None:
        try:
            domain = self._libvirt.lookup(instance)
            found: Domain | None = self._libvirt.call(lambda _: parse(domain.XMLDesc()) if domain.isActive() else None)
        except NotFound:
            return None
        return found

    def check(self, domain: Domain) -> None:
        # The controller that channels are plugged into cannot be plugged in itself.
        if not domain.has_controller:
            raise InvalidInput(
                f"machine {domain.name} has no virtio-serial controller for the channels of its accelerators: set the "
                "property hw_qemu_guest_agent=yes on its image"
            )

    def attach(self, domain: Domain, number: int) -> None:
        found = self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.attachDeviceFlags(_channel(number), libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def detach(self, domain: Domain, number: int) -> None:
        found = self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.detachDeviceFlags(_channel(number), libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def attach_function(self, domain: Domain, number: int, address: str) -> None:
        device, found = function_xml(number, address), self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def detach_function(self, domain: Domain, number: int, address: str) -> None:
        # The guest has to agree: it is asked, and asked again at the next look.
        device, found = function_xml(number, address), self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def close(self) -> None:
        self._libvirt.close()


def _channel(number: int) -> str:
    return f"<channel type='unix'><source mode='bind'/><target type='virtio' name='{PORT_PREFIX}{number}'/></channel>"
