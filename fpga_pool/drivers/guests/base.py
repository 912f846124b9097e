"""Interface of guest drivers, which are entry points of the group `fpga_pool.guest_drivers`."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from oslo_config import cfg

from fpga_pool.drivers.guests.domain import Domain
from fpga_pool.model.exceptions import InvalidInput

CONNECT_S = 5.0


class GuestDriver(ABC):
    """The virtual machines of one host.  All methods may be called from several threads at once.

    ServiceUnavailable where the hypervisor does not answer.  A slot reaches its guest as number 0, 1, ...: as a port
    where the host drives it, as a virtual function where guests do (`SlotDriver.virtual_function`).
    """

    @classmethod
    @abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the driver of this host as configured; InvalidInput names the option that is wrong."""

    @abstractmethod
    def watch(self, changed: Callable[[str], object]) -> None:
        """Begin to call `changed` with an instance that may have begun or ended to run; with "" for all of them."""

    @abstractmethod
    def running(self) -> list[Domain]:
        """Return all virtual machines that run."""

    @abstractmethod
    def find(self, instance: str) -> Domain | None:
        """Return an instance's virtual machine, if it runs."""

    @abstractmethod
    def check(self, domain: Domain) -> None:
        """Check that a machine that is about to start can be given ports; InvalidInput says what it lacks."""

    @abstractmethod
    def attach(self, domain: Domain, number: int) -> None:
        """Give a running guest a port."""

    @abstractmethod
    def detach(self, domain: Domain, number: int) -> None:
        """Take a port from a running guest."""

    def attach_function(self, domain: Domain, number: int, address: str) -> None:
        """Pass a PCI function of the host through to a running guest; InvalidInput if this driver cannot."""
        raise self._passes_none()

    def detach_function(self, domain: Domain, number: int, address: str) -> None:
        """Take a PCI function from a running guest; InvalidInput if this driver cannot."""
        raise self._passes_none()

    def _passes_none(self) -> InvalidInput:
        return InvalidInput(f"[agent] guest_driver: {type(self).__name__} does not support PCI passthrough to guests")

    def connect(self, domain: Domain, number: int) -> socket.socket:
        """Connect with the other side of a guest's port, a unix socket.  OSError if nothing listens there."""
        end = socket.socket(socket.AF_UNIX)
        try:
            end.settimeout(CONNECT_S)
            end.connect(domain.ports[number])
        except BaseException:
            end.close()
            raise
        return end

    @abstractmethod
    def close(self) -> None:
        """End; guests keep what they have."""
