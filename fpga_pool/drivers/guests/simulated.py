"""Guests of a simulated hypervisor, for use with Nova's fake driver: files describe them.

A machine runs while DIRECTORY/INSTANCE.xml exists, a description in libvirt's format. A program that acts as its guest
listens on the sockets DIRECTORY/INSTANCE.NUMBER.  Slots, leases and loading work as with a real hypervisor.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from oslo_config import cfg

from fpga_pool.drivers.guests.domain import Domain, GuestDriver, parse
from fpga_pool.model.exceptions import FpgaPoolError

LOG = logging.getLogger(__name__)


class SimulatedGuests(GuestDriver):
    """The machines described in a directory.  There are no events: changes are found by polling."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._ports: dict[str, set[int]] = {}
        self._functions: dict[str, dict[int, str]] = {}

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        return cls(Path(conf.agent.simulated_guests_dir))

    def watch(self, changed: Callable[[str], object]) -> None:
        changed("")

    def running(self) -> list[Domain]:
        # Machines whose description cannot be read are skipped and logged.
        found = []
        for file in sorted(self._directory.glob("*.xml")):
            try:
                domain = self.find(file.stem)
            except FpgaPoolError as error:
                LOG.warning("ignoring a guest: %s: %s", file, error)
            else:
                found += [domain] if domain else []
        return found

    def find(self, instance: str) -> Domain | None:
        try:
            domain = parse((self._directory / f"{instance}.xml").read_text())
        except FileNotFoundError:
            with self._lock:
                self._ports.pop(instance, None)
                self._functions.pop(instance, None)
            return None
        with self._lock:
            numbers = sorted(self._ports.get(instance, ()))
            functions = dict(self._functions.get(instance, {}))
        ports = {number: str(self._directory / f"{instance}.{number}") for number in numbers}
        return replace(domain, ports=ports, functions=functions)

    def check(self, domain: Domain) -> None:
        """Do nothing."""

    def attach(self, domain: Domain, number: int) -> None:
        with self._lock:
            self._ports.setdefault(domain.instance, set()).add(number)

    def detach(self, domain: Domain, number: int) -> None:
        with self._lock:
            self._ports.get(domain.instance, set()).discard(number)

    def attach_function(self, domain: Domain, number: int, address: str) -> None:
        with self._lock:
            self._functions.setdefault(domain.instance, {})[number] = address

    def detach_function(self, domain: Domain, number: int, address: str) -> None:
        with self._lock:
            self._functions.get(domain.instance, {}).pop(number, None)

    def close(self) -> None:
        """Do nothing."""
