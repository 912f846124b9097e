"""libvirt's description of a virtual machine with Nova's metadata in it, and the interface of guest drivers."""

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

#: Alias of a PCI function in its domain, followed by its number. libvirt keeps aliases that begin with "ua-".
FUNCTION_ALIAS = "ua-fpga_pool-"
#: Namespace of the metadata that `nova.virt.libvirt.config` writes into a domain.
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
_INSTANCE = f"./metadata/{_NOVA}instance"


@dataclass(frozen=True, slots=True)
class Tap:
    """A network device of the host through which a guest sends, and the guest's addresses there."""

    device: str
    addresses: tuple[str, ...]
    #: libvirt's limit of the guest's outbound rate (`<outbound average>`) in bits per second; inf = no limit.
    limit_bps: float = math.inf


@dataclass(frozen=True, slots=True)
class Domain:
    """One virtual machine."""

    #: Uuid of the instance, which is also that of the domain.
    instance: str
    name: str
    project_id: str
    #: Accelerators that its flavor requests; None = none.
    request: AcceleratorRequest | None
    #: Socket behind each of its ports, by number; "" = not known yet.
    ports: Mapping[int, str] = field(default_factory=dict)
    #: Address of each of the pool's PCI functions that it has, by number.
    functions: Mapping[int, str] = field(default_factory=dict)
    #: It has a virtio-serial controller, which ports need.
    has_controller: bool = False
    taps: tuple[Tap, ...] = ()


def parse(xml: str) -> Domain:
    """Parse the XML description of a domain. Raises InvalidInput if it, or the flavor in it, is invalid."""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # written by libvirt on this host
    except (ElementTree.ParseError, ValueError) as error:  # ValueError if the text cannot be encoded
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
    """Return the extra specs of the flavor, which Nova wrote into the description of a domain."""
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
    """Yield the taps of Neutron's ports, found by their names, with the addresses from Nova's metadata."""
    ports = {f"tap{port.get('uuid', '')[:11]}": port for port in root.iterfind(f"{_INSTANCE}/{_NOVA}ports/{_NOVA}port")}
    for interface in root.iterfind("./devices/interface"):
        target, outbound = interface.find("target"), interface.find("bandwidth/outbound")
        device = "" if target is None else target.get("dev", "")
        fixed = ports[device].iterfind(f"{_NOVA}ip[@type='fixed']") if device in ports else ()
        if addresses := tuple(ip.get("address", "") for ip in fixed):
            # libvirt's unit is 1000 bytes per second, as in tc.
            average = "" if outbound is None else outbound.get("average", "")
            yield Tap(device, addresses, int(average) * 8000.0 if average else math.inf)


def function_xml(number: int, address: str) -> str:
    """Return the device XML for passthrough of a PCI function; libvirt rebinds its host driver (managed='yes')."""
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

    Methods raise ServiceUnavailable if the hypervisor does not respond.  The slots of a guest are numbered 0, 1, ...:
    a slot is a port if the host drives it, or a virtual function if the guest does (`SlotDriver.virtual_function`).
    """

    @classmethod
    @abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the driver of this host as configured. Raises InvalidInput, which names the invalid option."""

    @abstractmethod
    def watch(self, changed: Callable[[str], object]) -> None:
        """Start calling `changed` with each instance that may have started or ended; "" if any of them may have."""

    @abstractmethod
    def running(self) -> list[Domain]:
        """Return all running virtual machines."""

    @abstractmethod
    def find(self, instance: str) -> Domain | None:
        """Return an instance's virtual machine; None if it does not run."""

    @abstractmethod
    def check(self, domain: Domain) -> None:
        """Check that ports can be attached to a machine that is about to start. Raises InvalidInput if not."""

    @abstractmethod
    def attach(self, domain: Domain, number: int) -> None:
        """Attach a port to a running guest."""

    @abstractmethod
    def detach(self, domain: Domain, number: int) -> None:
        """Detach a port from a running guest."""

    def attach_function(self, domain: Domain, number: int, address: str) -> None:
        """Attach a PCI function of the host to a running guest. Raises InvalidInput if this driver cannot."""
        raise self._passes_none()

    def detach_function(self, domain: Domain, number: int, address: str) -> None:
        """Detach a PCI function from a running guest. Raises InvalidInput if this driver cannot."""
        raise self._passes_none()

    def _passes_none(self) -> InvalidInput:
        return InvalidInput(f"[agent] guest_driver: {type(self).__name__} does not support PCI passthrough to guests")

    def connect(self, domain: Domain, number: int) -> socket.socket:
        """Connect to the host side of a guest's port, a unix socket.  Raises OSError if nothing listens there."""
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
        """Stop the driver. Guests keep their ports and functions."""
