"""Tiers in the description of a libvirt domain: the owner's wish, and the settings from before a tier was applied."""

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from fpga_pool.drivers.guests.domain import nova_extra_specs
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import NAMESPACE, Tier, is_dedicated, requested_tier

#: The pool's own word on a guest that Nova did not make: an element of the domain's metadata.
WISH_URI = "urn:fpga-pool:guest:1"
#: The tier driver's own element, there from before the first change of a guest until after the last is given back.
PLACED_URI = "urn:fpga-pool:placed:1"
#: The element of a guest that is a process of a gang: it belongs to the runner, and to no other driver.
PROCESS_URI = "urn:fpga-pool:process:1"


def wish(tier: str) -> str:
    """Return the element that asks for a tier, for `<metadata>` of a domain or for `virDomainSetMetadata`."""
    return f'<fpga_pool:guest xmlns:fpga_pool="{WISH_URI}" tier="{tier}"/>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Settings of a guest from before it was put into a tier."""

    shares: int
    #: CPUs of the emulator and of each vCPU, as "0,1,2".
    emulator: str
    vcpus: tuple[str, ...]

    def to_xml(self) -> str:
        """Return it as an element of a domain's metadata."""
        vcpus = "".join(f"<vcpu cpus={quoteattr(cpus)}/>" for cpus in self.vcpus)
        return (
            f'<placed xmlns="{PLACED_URI}" shares="{self.shares}" emulator={quoteattr(self.emulator)}>{vcpus}</placed>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredDomain:
    """The tier-related part of the description of a domain."""

    instance: str
    name: str
    vcpus: int
    wanted: Tier | None
    dedicated: bool
    #: None = it was not put into a tier.
    before: Before | None
    #: It is a process of a gang.
    is_process: bool = False


def parse(xml: str) -> TieredDomain:
    """Return the guest described by a domain; InvalidInput if the description or its requested tier is invalid."""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  # written by libvirt on this host
        vcpu = root.find("vcpu")
        vcpus = 0 if vcpu is None else int(vcpu.get("current", vcpu.text or "0"))
        before = _before(root)
    except (ElementTree.ParseError, ValueError) as error:
        raise InvalidInput(f"domain: invalid XML: {error}") from error
    specs = nova_extra_specs(root)
    return TieredDomain(
        instance=root.findtext("uuid", "").strip(),
        name=root.findtext("name", "").strip(),
        vcpus=vcpus,
        wanted=_wanted(root, specs),
        dedicated=is_dedicated(specs) or (before is None and _pinned(root, vcpus)),
        before=before,
        is_process=root.find(f"./metadata/{{{PROCESS_URI}}}process") is not None,
    )


def _wanted(root: ElementTree.Element, specs: Mapping[str, str]) -> Tier | None:
    """Return the requested tier: the pool's metadata take precedence over Nova's flavor."""
    own = root.find(f"./metadata/{{{WISH_URI}}}guest")
    if own is not None:
        return requested_tier({f"{NAMESPACE}:tier": own.get("tier", "")})
    return requested_tier(specs)


def _pinned(root: ElementTree.Element, vcpus: int) -> bool:
    """Return whether each vCPU was pinned to one CPU of the host by another program."""
    pins = [pin.get("cpuset", "") for pin in root.iterfind("./cputune/vcpupin")]
    return vcpus > 0 and len(pins) >= vcpus and all(pin.isdecimal() for pin in pins)


def _before(root: ElementTree.Element) -> Before | None:
    found = root.find(f"./metadata/{{{PLACED_URI}}}placed")
    if found is None:
        return None
    return Before(
        shares=int(found.get("shares", "")),
        emulator=found.get("emulator", ""),
        vcpus=tuple(vcpu.get("cpus", "") for vcpu in found.iterfind(f"{{{PLACED_URI}}}vcpu")),
    )
