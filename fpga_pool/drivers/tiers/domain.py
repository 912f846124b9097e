"""Interface of tier drivers, and tiers in the description of a libvirt domain.

Drivers (entry-point group `fpga_pool.tier_drivers`) put guests on pCPUs and prioritise one of two on a pCPU (two-tier
paper).  A domain has its owner's wish, and the settings from before a tier was applied.
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

#: The tiers that a guest can be in; `Tier.AUTO` is a wish only.
TIERS = (Tier.FOREGROUND, Tier.BACKGROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredGuest:
    """A guest that runs and whose owner asked for a tier, or that was put into one, as observed now."""

    #: Uuid of the instance, which is that of its machine.
    instance: str
    name: str
    #: What its flavor, or the pool's own metadata, asks for; None = it was put into a tier without asking.
    wanted: Tier | None
    vcpus: int
    #: Nova or an operator has given its vCPUs dedicated pCPUs: it cannot be put into a tier.
    dedicated: bool = False
    #: The tier it is in; None = it was never put into one, or not wholly.
    tier: Tier | None = None
    #: The pCPU of each of its vCPUs; empty = it was never put on any, or not wholly.
    pcpus: tuple[int, ...] = ()
    #: Something of it was changed by this driver and not given back, be it wholly in a tier or not.
    touched: bool = False
    #: Its flavor lets the pool have it live-migrated.
    may_migrate: bool = False


class TierDriver(abc.ABC):
    """The guests of one host that belong to the pool; every other guest is ignored, and NotFound to each method.

    The driver is stateless: it reports what it observes, and what it must remember (the original placement of a guest)
    is stored with the guest, so that the next process finds it. All methods may be called from several threads at once,
    and each may be repeated: it does what remains to be done. ServiceUnavailable where the hypervisor does not answer.
    """

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Self:
        """Return the driver of this host as configured; InvalidInput names the option that is wrong."""

    @abc.abstractmethod
    def watch(self, changed: Callable[[str], object]) -> None:
        """Begin to call `changed` with an instance that may have begun or ended to run; with "" for all of them."""

    @abc.abstractmethod
    def guests(self) -> list[TieredGuest]:
        """Return the guests that run and are the pool's, what a dead process left in a tier included."""

    @abc.abstractmethod
    def place(self, instance: str, tier: Tier, pcpus: Sequence[int]) -> None:
        """Pin vCPU i of a guest to `pcpus[i]` and give the guest its tier.

        InvalidInput where the guest has another number of vCPUs, has dedicated pCPUs, or this host lacks a pCPU.
        """

    @abc.abstractmethod
    def set_tiers(self, tiers: Mapping[str, Tier]) -> None:
        """Change the tiers of placed guests while they run, by instance; two that swap are one call.

        Those that go to the foreground are first; if it fails half way, the caller repeats or takes it back.
        Conflict where a guest was not placed.
        """

    @abc.abstractmethod
    def cpu_times_s(self, instance: str) -> tuple[float, ...]:
        """Return the CPU time that each vCPU of a guest has used since it started, seconds."""

    @abc.abstractmethod
    def busy_times_s(self, pcpus: Sequence[int]) -> tuple[float, ...]:
        """Return the seconds in which each pCPU has been in use so far, by guests or by processes of the host."""

    @abc.abstractmethod
    def release(self, instance: str) -> None:
        """Restore a guest's pins and priority from before it was placed; ignored if it was not placed."""

    @abc.abstractmethod
    def close(self) -> None:
        """End; guests stay in their tiers."""


def check_placing(guest: TieredGuest, tier: Tier, pcpus: Sequence[int]) -> None:
    """Refuse a place that a guest cannot have."""
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
    #: Its flavor lets the pool have it live-migrated.
    may_migrate: bool = False


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
