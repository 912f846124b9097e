"""Interface of tier drivers, and tiers in the description of a libvirt domain.

Drivers (entry-point group `fpga_pool.tier_drivers`) pin guests to pCPUs and prioritise one of two guests on a pCPU
(two-tier paper).  A domain's metadata contain the requested tier, and the settings from before it was placed.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from oslo_config import cfg

from fpga_pool.drivers.guests.domain import nova_extra_specs
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import NAMESPACE, Tier, is_dedicated, may_migrate, requested_tier

#: The tiers that a guest can be in; `Tier.AUTO` can only be requested.
TIERS = (Tier.FOREGROUND, Tier.BACKGROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredGuest:
    """The observed state of a running guest that requests a tier or was put into one."""

    #: Uuid of the instance, which is also that of its domain.
    instance: str
    name: str
    #: Tier requested by its flavor or by the pool's own metadata; None = it was put into a tier without a request.
    wanted: Tier | None
    vcpus: int
    #: Its vCPUs have dedicated pCPUs, set by Nova or an operator: it cannot be put into a tier.
    dedicated: bool = False
    #: The tier it is in; None = it was never put into one, or not completely.
    tier: Tier | None = None
    #: The pCPU of each of its vCPUs; empty = it was never pinned, or not completely.
    pcpus: tuple[int, ...] = ()
    #: This driver has changed settings of it and not restored them, whether or not it is completely in a tier.
    touched: bool = False
    #: Its flavor allows the pool to have it live-migrated.
    may_migrate: bool = False


class TierDriver(abc.ABC):
    """The guests of one host that belong to the pool; other guests are ignored, and calls about them raise NotFound.

    The driver is stateless: it reports what it observes, and the original placement of a guest is stored with the
    guest, so that the next process finds it. All methods are thread-safe and idempotent, and raise ServiceUnavailable
    if the hypervisor does not respond.
    """

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the driver of this host as configured. Raises InvalidInput, which names the invalid option."""

    @abc.abstractmethod
    def watch(self, changed: Callable[[str], object]) -> None:
        """Start calling `changed` with each instance that may have started or ended; "" if any of them may have."""

    @abc.abstractmethod
    def guests(self) -> list[TieredGuest]:
        """Return the running guests of the pool, including those that an earlier process left in a tier."""

    @abc.abstractmethod
    def place(self, instance: str, tier: Tier, pcpus: Sequence[int]) -> None:
        """Pin vCPU i of a guest to `pcpus[i]` and set the guest's tier.

        Raises InvalidInput if the guest has another number of vCPUs or dedicated pCPUs, or this host lacks a pCPU.
        """

    @abc.abstractmethod
    def set_tiers(self, tiers: Mapping[str, Tier]) -> None:
        """Change the tiers of placed guests while they run, by instance. A swap of two guests is one call.

        Guests that move to the foreground are changed first. If the call fails half way, the caller repeats or reverts
        it. Raises Conflict if a guest was not placed.
        """

    @abc.abstractmethod
    def cpu_times_s(self, instance: str) -> tuple[float, ...]:
        """Return the CPU time that each vCPU of a guest has used since it started, in seconds."""

    @abc.abstractmethod
    def busy_times_s(self, pcpus: Sequence[int]) -> tuple[float, ...]:
        """Return the total time that each pCPU has been in use by guests or processes of the host, in seconds."""

    @abc.abstractmethod
    def release(self, instance: str) -> None:
        """Restore a guest's pins and priority from before it was placed; ignored if it was not placed."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop the driver. Guests stay in their tiers."""


def check_placing(guest: TieredGuest, tier: Tier, pcpus: Sequence[int]) -> None:
    """Raise InvalidInput if a guest cannot be placed in this tier on these pCPUs."""
    if tier not in TIERS:
        raise InvalidInput(f"tier: {tier!r} is invalid; expected one of {', '.join(TIERS)}")
    if guest.dedicated:
        raise InvalidInput(
            f"guest {guest.name}: its vCPUs have dedicated pCPUs;"
            " remove hw:cpu_policy (dedicated or mixed) from its flavor"
        )
    if len(pcpus) != guest.vcpus or len(set(pcpus)) != len(pcpus):
        raise InvalidInput(f"guest {guest.name}: expected {guest.vcpus} different pCPUs, got {list(pcpus)}")


# ---- Descriptions of domains

#: Namespace of the metadata element that requests a tier for a guest that was not created by Nova.
WISH_URI = "urn:fpga-pool:guest:1"
#: Namespace of the tier driver's element, which exists from before a guest is changed until after it is restored.
PLACED_URI = "urn:fpga-pool:placed:1"
#: Namespace of the element of a guest that is a gang process. Such a guest is managed by the runner only.
PROCESS_URI = "urn:fpga-pool:process:1"


def wish(tier: str) -> str:
    """Return the element that requests a tier, for `<metadata>` of a domain or for `virDomainSetMetadata`."""
    return f'<fpga_pool:guest xmlns:fpga_pool="{WISH_URI}" tier="{tier}"/>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The settings of a guest before it was put into a tier."""

    shares: int
    #: CPUs of the emulator and of each vCPU, as "0,1,2".
    emulator: str
    vcpus: tuple[str, ...]

    def to_xml(self) -> str:
        """Return the settings as an element of a domain's metadata."""
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
    #: Its flavor allows the pool to have it live-migrated.
    may_migrate: bool = False


def parse(xml: str) -> TieredDomain:
    """Parse the description of a domain. Raises InvalidInput if it, or the requested tier, is invalid."""
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
        may_migrate=may_migrate(specs),
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
