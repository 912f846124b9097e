"""Interface of tier drivers, which put guests on pCPUs and prioritise one of two on a pCPU (two-tier paper).

Entry-point group: `fpga_pool.tier_drivers`.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from oslo_config import cfg

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.flavor import Tier

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
