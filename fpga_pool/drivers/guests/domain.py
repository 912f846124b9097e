"""A virtual machine as libvirt describes it, and what Nova wrote there about its instance."""

import math
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self
from xml.etree import ElementTree

from oslo_config import cfg

from fpga_pool.guest.frames import PORT_PREFIX
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, requested

#: Name that a passed function has in its domain, before its number; libvirt keeps names that begin with "ua-".
FUNCTION_ALIAS = "ua-fpga_pool-"
#: What `nova.virt.libvirt.config` writes into the metadata of a domain.
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
_INSTANCE = f"./metadata/{_NOVA}instance"


@dataclass(frozen=True, slots=True)
class Tap:
    """A device of the host by which a guest sends, and the guest's addresses there."""

    device: str
    addresses: tuple[str, ...]
    #: What libvirt lets pass of what the guest sends (`<outbound average>`), bits per second; inf = no limit.
    limit_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class Domain:
    """One virtual machine."""

    #: Uuid of the instance, which is that of the domain.
    instance: str
    name: str
    project_id: str
    #: What its flavor asks of the pool; None = nothing.
    request: AcceleratorRequest | None
    #: Socket behind each port that it has, by number; "" where it is not known yet.
    ports: Mapping[int, str] = field(default_factory=dict)
    #: Address of each PCI function of the pool's that it has, by number.
    functions: Mapping[int, str] = field(default_factory=dict)
    #: It has what a port is plugged into.
    has_controller: bool = False
    taps: tuple[Tap, ...] = ()


def parse(xml: str) -> Domain:
    """Return the domain of an XML description; InvalidInput says what is wrong with it, or with its flavor."""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # written by libvirt on this host
    except (ElementTree.ParseError, ValueError) as error:  # the latter where text cannot be encoded
        raise InvalidInput(f"domain: invalid XML: {error}") from error
    instance = root.findtext("uuid", "").strip()
    if not instance:
        raise InvalidInput("domain: missing uuid")
    project = root.find(f"{_INSTANCE}/{_NOVA}owner/{_NOVA}project")
    return Domain(
        instance=instance,
        name=root.findtext("name", "").strip(),
        project_id="" if project is None else project.get("uuid", ""),
        request=requested(nova_extra_specs(root)),
        ports=_ports(root),
        functions=_functions(root),
        has_controller=root.find("./devices/controller[@type='virtio-serial']") is not None,
        taps=tuple(_taps(root)),
    )


def nova_extra_specs(root: ElementTree.Element) -> dict[str, str]:
    """Return the extra specs of its flavor that Nova wrote into the description of a domain."""
    specs = root.iterfind(f"{_INSTANCE}/{_NOVA}flavor/{_NOVA}extraSpecs/{_NOVA}extraSpec")
    return {spec.get("name", ""): (spec.text or "").strip() for spec in specs}


def _ports(root: ElementTree.Element) -> dict[int, str]:
    found = {}
    for channel in root.iterfind("./devices/channel"):
        target, source = channel.find("target"), channel.find("source")
        name = "" if target is None else target.get("name", "")
        number = name.removeprefix(PORT_PREFIX)
        if number != name and number.isdigit():
            found[int(number)] = "" if source is None else source.get("path", "")
    return found


def _functions(root: ElementTree.Element) -> dict[int, str]:
    found = {}
    for device in root.iterfind("./devices/hostdev[@type='pci']"):
        alias, address = device.find("alias"), device.find("source/address")
        name = "" if alias is None else alias.get("name", "")
        number = name.removeprefix(FUNCTION_ALIAS)
        if number != name and number.isdigit() and address is not None:
            parts = (int(address.get(part, "0"), 0) for part in ("domain", "bus", "slot", "function"))
            found[int(number)] = "{:04x}:{:02x}:{:02x}.{:x}".format(*parts)
    return found


def _taps(root: ElementTree.Element) -> Iterator[Tap]:
    """Yield the taps of Neutron's ports, which are named after them; Nova wrote their addresses into the metadata."""
    ports = {f"tap{port.get('uuid', '')[:11]}": port for port in root.iterfind(f"{_INSTANCE}/{_NOVA}ports/{_NOVA}port")}
    for interface in root.iterfind("./devices/interface"):
        target, outbound = interface.find("target"), interface.find("bandwidth/outbound")
        device = "" if target is None else target.get("dev", "")
        fixed = ports[device].iterfind(f"{_NOVA}ip[@type='fixed']") if device in ports else ()
        if addresses := tuple(ip.get("address", "") for ip in fixed):
            # libvirt's unit is that of tc: thousands of bytes per second.
            average = "" if outbound is None else outbound.get("average", "")
            yield Tap(device, addresses, int(average) * 8000.0 if average else math.inf)


def function_xml(number: int, address: str) -> str:
    """Return the device that passes a PCI function through; libvirt takes it from its driver and gives it back."""
    match = re.fullmatch(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", address)
    if match is None:
        raise InvalidInput(f"PCI address: expected dddd:bb:ss.f, found {address!r}")
    domain, bus, slot, function = match.groups()
    return (
        "<hostdev mode='subsystem' type='pci' managed='yes'><driver name='vfio'/><source>"
        f"<address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source>"
        f"<alias name='{FUNCTION_ALIAS}{number}'/></hostdev>"
    )


# ---- Interface of guest drivers, which are entry points of the group `fpga_pool.guest_drivers`

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
