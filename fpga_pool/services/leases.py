"""Leases of virtual machines held against Placement, for the scheduler's watch and for the operator's audit alike."""

from collections import defaultdict
from dataclasses import dataclass

from fpga_pool.model.objects import CPU, Lease
from fpga_pool.model.pool.instances import provider_of
from fpga_pool.placement.client import PlacementClient
from fpga_pool.placement.comparison import Allocations, differences, leaked
from fpga_pool.store.store import Store

#: If more leases than this, and more than half of all, seem to have no allocation, it is Placement that has lost
#: something: nothing is taken from running virtual machines for that.
FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFindings:
    """What differs."""

    #: Leases whose virtual machines were allocated nothing for them.
    surplus: tuple[Lease, ...]
    #: There are so many of these that none is to be released without somebody's word.
    doubtful: bool
    #: What was allocated on living hosts and is not held, in words: instances that are stopped, or whose boot failed.
    remarks: tuple[str, ...]


def lease_findings(store: Store, placement: PlacementClient, known: Allocations, shard: str | None) -> LeaseFindings:
    """Compare the leases of a shard, or of the whole pool, with what Placement has allocated."""
    with store.reading(shard) as tx:
        slots = {slot.name: slot for slot in tx.slots() if slot.kind != CPU}
        alive = {host.name for host in tx.hosts() if host.alive}
        leases = [lease for lease in tx.leases() if lease.of_instance and lease.slot in slots]
    providers = {name: provider_of(slot) for name, slot in slots.items()}
    hosts = {providers[name]: slot.host for name, slot in slots.items()}
    held = defaultdict(list)
    for lease in leases:
        held[providers[lease.slot]].append(lease)
    found = differences(held, known.on(list(hosts), held))
    surplus = leaked(placement, found, providers)
    return LeaseFindings(
        surplus=tuple(surplus),
        doubtful=len(surplus) > max(FEW, len(leases) / 2),
        remarks=tuple(
            f"host {hosts[provider]}: {count} slots are allocated to {consumer}, which does not hold them (it is"
            " stopped or moves, or its boot goes on or has failed)"
            for (provider, consumer), count in sorted(found.unheld.items())
            if hosts[provider] in alive
        ),
    )


def told(lease: Lease) -> str:
    """Say what is wrong with a lease that has no allocation."""
    return f"slot {lease.slot}: instance {lease.holder} holds it, and Placement has allocated nothing to it for that"
