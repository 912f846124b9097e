"""Placement of guests on pCPUs, the file that keeps it over restarts of the agent, and the check of nova.conf.

A pCPU carries at most one vCPU of the foreground and one of the background.  Guests may have changed their tier since
they started, so the hypervisor alone does not know where each belongs.
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from oslo_config import cfg

from fpga_pool.conf.drivers import parse_pcpus
from fpga_pool.drivers.tiers.domain import TIERS
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.flavor import Tier
from fpga_pool.transfer.port import place_file


@dataclass(frozen=True, slots=True)
class Place:
    """Present or future place of a guest; vCPU i is on `pcpus[i]`."""

    tier: Tier
    pcpus: tuple[int, ...]


def find_pcpus(
    tier: Tier,
    vcpus: int,
    pcpus: Collection[int],
    others: Collection[Place],
    usage: Mapping[tuple[Tier, int], float],
    preferred: Collection[int] = (),
) -> tuple[int, ...]:
    """Return pCPUs on which `tier` is free, first those where the other tier uses least (two-tier paper, KEASY).

    Parameters
    ----------
    tier, vcpus
        Tier and number of vCPUs of the guest.
    pcpus
        The pCPUs of the host that carry tiers.
    others
        Places of the other guests.
    usage
        Used share of each pCPU, by tier and pCPU; 1 is assumed for a guest's pCPU without an entry.
    preferred
        pCPUs that are taken before all others, because the guest is already there.

    Raises
    ------
    Conflict
        If too few pCPUs are free.

    """
    taken = {pcpu for place in others if place.tier == tier for pcpu in place.pcpus}
    across = next(each for each in TIERS if each != tier)
    shared = {pcpu for place in others if place.tier == across for pcpu in place.pcpus}
    free = sorted(
        set(pcpus) - taken,
        key=lambda pcpu: (pcpu not in preferred, usage.get((across, pcpu), 1.0) if pcpu in shared else 0.0, pcpu),
    )
    if len(free) < vcpus:
        raise Conflict(
            f"{vcpus} pCPUs requested in the {tier}, but only {len(free)} of {len(set(pcpus))} are free there"
        )
    return tuple(free[:vcpus])


def rearranged(
    places: Mapping[str, Place],
    tiers: Mapping[str, Tier],
    pcpus: Collection[int],
    usage: Mapping[tuple[Tier, int], float],
) -> dict[str, Place]:
    """Return new places of the guests in `tiers`: on their pCPUs if these are free in the new tier, else on others.

    Guests that move to the foreground choose first.  Raises Conflict if there is no room.
    """
    settled = {instance: place for instance, place in places.items() if instance not in tiers}
    new: dict[str, Place] = {}
    for instance, tier in sorted(tiers.items(), key=lambda one: TIERS.index(one[1])):
        old = places[instance]
        taken = {pcpu for place in settled.values() if place.tier == tier for pcpu in place.pcpus}
        found = old.pcpus
        if taken & set(found) or not set(found) <= set(pcpus):
            found = find_pcpus(tier, len(old.pcpus), pcpus, settled.values(), usage, preferred=old.pcpus)
        settled[instance] = new[instance] = Place(tier, found)
    return new


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Stored place of one guest."""

    place: Place
    #: When the guest was last seen running, in seconds of the wall clock.
    seen_s: float


class Book:
    """File of the guests' places, replaced as a whole, so that readers get a complete version.  Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = self._read()

    def entries(self) -> dict[str, Entry]:
        """Return the stored places by instance, in order of arrival."""
        return dict(self._entries)

    def write(self, entries: Mapping[str, Entry]) -> None:
        """Replace the stored places by these; they are on disk when this returns."""
        plain = {
            instance: {"tier": entry.place.tier.value, "pcpus": entry.place.pcpus, "seen_s": entry.seen_s}
            for instance, entry in entries.items()
        }
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            json.dump(plain, file)
            file.flush()
            os.fsync(file.fileno())
        place_file(new, self._path)
        self._entries = dict(entries)

    def _read(self) -> dict[str, Entry]:
        try:
            plain = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return {
            instance: Entry(place=Place(Tier(entry["tier"]), tuple(entry["pcpus"])), seen_s=entry["seen_s"])
            for instance, entry in plain.items()
        }


# ---- Options that nova-compute needs if pCPUs carry tiers, checked before guests start

#: One vCPU of each tier.
VCPUS_PER_PCPU = 2


def check_nova_conf(path: Path, pcpus: Collection[int]) -> None:
    """Check that Nova, with this nova.conf, gives each of these pCPUs one vCPU of each tier.

    Raises InvalidInput with the option to set if it does not.
    """
    nova = cfg.ConfigOpts()
    nova.register_opts([cfg.StrOpt("cpu_shared_set"), cfg.StrOpt("cpu_dedicated_set")], "compute")
    nova.register_opts([cfg.FloatOpt("cpu_allocation_ratio")])
    try:
        nova(args=[], project="nova", default_config_files=[str(path)], default_config_dirs=[])
        shared, ratio = nova.compute.cpu_shared_set, nova.cpu_allocation_ratio
        dedicated = nova.compute.cpu_dedicated_set
    except (cfg.Error, ValueError) as error:
        raise InvalidInput(f"[tiers] nova_conf: {path}: {error}") from error
    wanted = ",".join(str(pcpu) for pcpu in sorted(pcpus))
    if parse_pcpus(shared or "") != frozenset(pcpus):
        raise InvalidInput(
            f"{path}: [compute] cpu_shared_set is {shared or 'not set'}; [tiers] pcpus is {wanted}: they must be "
            "equal, because guests of the shared set without a tier would run between the two tiers"
        )
    if parse_pcpus(dedicated or "") & frozenset(pcpus):
        raise InvalidInput(
            f"{path}: [compute] cpu_dedicated_set overlaps with [tiers] pcpus {wanted}; they must be disjoint"
        )
    if ratio != VCPUS_PER_PCPU:
        raise InvalidInput(
            f"{path}: cpu_allocation_ratio is {'not set' if ratio is None else ratio}; it must be"
            f" {VCPUS_PER_PCPU:.1f}: a pCPU carries a vCPU of each tier"
        )
