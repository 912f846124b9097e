"""Audits of the database against the invariants of `model.rules.shared.audit`, and of leases against Placement.

The scheduler's `LeaseWatch` and the operator's `fpga-pool-manage audit` use the same comparison of leases.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from fpga_pool.model.catalogue import Catalogue, extended
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.objects.bitstreams import DesignState
from fpga_pool.model.objects.pool import CPU, Batch, Lease, Shard
from fpga_pool.model.rules.instance.instances import provider_of
from fpga_pool.model.rules.shared.audit import (
    PoolContents,
    audit_batch,
    audit_contents,
    audit_instances,
    audit_rest,
    unfinished,
)
from fpga_pool.model.transaction import Transaction
from fpga_pool.placement.client import PlacementClient
from fpga_pool.placement.sync import Allocations, differences, leaked
from fpga_pool.store.store import Store

#: If more leases than this, and more than half of all leases, have no allocation, Placement has probably lost data.
#: Running virtual machines keep their slots then.
FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFindings:
    """Differences between leases and allocations."""

    #: Leases for which the virtual machines have no allocation.
    surplus: tuple[Lease, ...]
    #: Whether there are so many that none is released without confirmation by an operator.
    doubtful: bool
    #: Messages about allocations on live hosts without leases, e.g. of instances that are stopped or failed to boot.
    remarks: tuple[str, ...]


def lease_findings(store: Store, placement: PlacementClient, known: Allocations, shard: str | None) -> LeaseFindings:
    """Compare the leases of a shard, or of the whole pool, with the allocations in Placement."""
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
            f"host {hosts[provider]}: {count} slots are allocated to {consumer}, which does not hold them (it is "
            "stopped or migrating, or its boot is in progress or has failed)"
            for (provider, consumer), count in sorted(found.unheld.items())
            if hosts[provider] in alive
        ),
    )


def describe_lease(lease: Lease) -> str:
    """Return the finding for a lease without an allocation."""
    return f"slot {lease.slot}: instance {lease.holder} holds it without an allocation in Placement"


class Reading(Transaction, Protocol):
    """A transaction that sees the whole database."""

    def shards(self) -> Sequence[Shard]:
        """Return all shards."""

    def commands(self) -> Sequence[Command]:
        """Return the commands in the outbox, in the order of the commits."""

    def batches(self) -> Sequence[Batch]:
        """Return all batches."""

    def completions(self, batch_uuid: str) -> Mapping[str, int]:
        """Return the jobs of a batch whose completion is recorded, each with the attempt that counts."""


class AuditedStore(Protocol):
    """A store of a whole pool: the database, or the memory of a simulated pool."""

    def reading(self) -> AbstractContextManager[Reading]:
        """Begin a read-only transaction that sees the whole database."""


def audit(store: AuditedStore, *, idle: bool = False) -> list[str]:
    """Return all violations of the rules; in an `idle` pool also work that is still in progress.

    The pool may run meanwhile, because related objects are read in one transaction.
    """
    with store.reading() as tx:
        contents = PoolContents(
            shards=tx.shards(),
            hosts=tx.hosts(),
            slots=tx.slots(),
            leases=tx.leases(),
            active_jobs=tx.active_jobs(),
            commands=tx.commands(),
            processors=tx.processors(),
            gangs=tx.open_gangs(),
            processes=tx.processes(),
            tasks=tx.open_tasks(),
        )
        batches = [batch.uuid for batch in tx.batches()]
    findings = list(audit_contents(contents))
    waiting = {}
    for uuid in batches:
        with store.reading() as tx:
            jobs = tx.batch_jobs(uuid)
            findings += audit_batch(tx.batch(uuid), jobs, tx.completions(uuid))
        if count := unfinished(jobs):
            waiting[uuid] = count
    if idle:
        findings += audit_rest(contents, waiting)
    return findings


def lost_accelerators(store: Store, catalogue: Catalogue) -> list[str]:
    """Return messages about slots that instances hold but cannot use; these violate no invariant of the pool."""
    with store.reading() as tx:
        known = extended(catalogue, tx.designs([DesignState.APPROVED]))
        return list(audit_instances(tx.leases(), tx.slots(), known))
