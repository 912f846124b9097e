"""Guests of libvirt: each slot is a virtio-serial channel, or a PCI function if the guest drives the slot directly.

libvirt listens on the host's side of a channel and the agent connects, so a guest keeps its channels without an agent.
"""

from collections.abc import Callable
from typing import Self

import libvirt
from oslo_config import cfg

from fpga_pool.drivers.guests.domain import Domain, GuestDriver, function_xml, parse
from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.guest.frames import PORT_PREFIX
from fpga_pool.model.exceptions import InvalidInput, NotFound


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
        return self._libvirt.read_active(lambda domain: parse(self._libvirt.call(lambda _: domain.XMLDesc())))

    def find(self, instance: str) -> Domain | None:
        try:
            domain = self._libvirt.lookup(instance)
            found: Domain | None = self._libvirt.call(lambda _: parse(domain.XMLDesc()) if domain.isActive() else None)
        except NotFound:
            return None
        return found

    def check(self, domain: Domain) -> None:
        # Channels can be hot-plugged, but their controller cannot.
        if not domain.has_controller:
            raise InvalidInput(
                f"machine {domain.name} has no virtio-serial controller for the channels of its accelerators: set the "
                "property hw_qemu_guest_agent=yes on its image"
            )

    def attach(self, domain: Domain, number: int) -> None:
        self._attach(domain, _channel(number))

    def detach(self, domain: Domain, number: int) -> None:
        self._detach(domain, _channel(number))

    def attach_function(self, domain: Domain, number: int, address: str) -> None:
        self._attach(domain, function_xml(number, address))

    def detach_function(self, domain: Domain, number: int, address: str) -> None:
        # The guest has to release the device. Until it does, the caller repeats the request.
        self._detach(domain, function_xml(number, address))

    def _attach(self, domain: Domain, device: str) -> None:
        found = self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def _detach(self, domain: Domain, device: str) -> None:
        found = self._libvirt.lookup(domain.instance)
        self._libvirt.call(lambda _: found.detachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE))

    def close(self) -> None:
        self._libvirt.close()


def _channel(number: int) -> str:
    return f"<channel type='unix'><source mode='bind'/><target type='virtio' name='{PORT_PREFIX}{number}'/></channel>"
