"""A virtual machine as libvirt describes it, and what Nova wrote there about its instance."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.etree import ElementTree

from fpga_pool.guest.frames import PORT_PREFIX
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, requested

#: What `nova.virt.libvirt.config` writes into the metadata of a domain.
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
_INSTANCE = f"./metadata/{_NOVA}instance"


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
    #: It has what a port is plugged into.
    has_controller: bool = False


def parse(xml: str) -> Domain:
    """Return the domain of an XML description; InvalidInput says what is wrong with it, or with its flavor."""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # written by libvirt on this host
    except ElementTree.ParseError as error:
        raise InvalidInput(f"domain: not XML: {error}") from error
    instance = root.findtext("uuid", "").strip()
    if not instance:
        raise InvalidInput("domain: it has no uuid")
    project = root.find(f"{_INSTANCE}/{_NOVA}owner/{_NOVA}project")
    return Domain(
        instance=instance,
        name=root.findtext("name", "").strip(),
        project_id="" if project is None else project.get("uuid", ""),
        request=requested(nova_extra_specs(root)),
        ports=_ports(root),
        has_controller=root.find("./devices/controller[@type='virtio-serial']") is not None,
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
