"""What a guest driver does; they are entry points of the group `fpga_pool.guest_drivers`."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self

from oslo_config import cfg

from fpga_pool.drivers.guests.domain import Domain

CONNECT_S = 5.0


class GuestDriver(ABC):
    """The virtual machines of one host.  All methods may be called from several threads at once.

    ServiceUnavailable where the hypervisor does not answer.  A slot reaches its guest as port number 0, 1, ...; a
    driver for cards that guests drive themselves attaches a virtual function here instead of a channel.
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

    def connect(self, domain: Domain, number: int) -> socket.socket:
        """Connect with the other side of a guest's port, a unix socket.  OSError if there is nobody."""
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
