"""Reconciliation of a shard with Placement: its inventory is published, leases of departed instances are released."""

import logging
import time
from collections.abc import Callable

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.rules.instance.instances import not_to_be_had, release_slots
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.placement.client import PlacementClient
from fpga_pool.placement.sync import Allocations, Sync, WantedProvider, wanted_providers
from fpga_pool.services.audit import describe_lease, lease_findings
from fpga_pool.services.clock import Clock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: Intervals of checks of the shard for changes, of full comparisons with Placement, and of retries after failures.
POLL_S, COMPARE_S, RETRY_S = 5.0, 60.0, 10.0
#: A large shard is checked less often, so that the checks take at most this share of the time.
UPDATE_SHARE = 0.05


class Inventory:
    """Publishes changes to Placement within seconds, and compares everything every minute."""

    def __init__(
        self,
        store: Store,
        shard: str,
        placement: PlacementClient,
        catalogue: Catalogue,
        settings: PoolSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._shard = shard
        self._sync = Sync(placement)
        self._catalogue = catalogue
        self._settings = settings
        self._clock = clock
        #: Last complete state written to Placement; None = incomplete.
        self._published: list[WantedProvider] | None = None
        self._next_update_s = self._compare_at_s = float("-inf")
        self._complaints: list[str] = []
        self._away = False

    def step(self, proceed: Callable[[], bool] = lambda: True) -> bool:
        """Reconcile Placement with the slots of the pool."""
        began_s = time.monotonic()
        if began_s < self._next_update_s:
            return False
        hosts, wanted = self._wanted()
        self._next_update_s = began_s + (time.monotonic() - began_s) / UPDATE_SHARE
        if wanted == self._published and began_s < self._compare_at_s:
            return False
        self._published = None
        try:
            complaints = self._sync.run(wanted, hosts, proceed)
        except ServiceUnavailable as error:
            if not self._away:
                LOG.warning("shard %s: Placement will be updated later: %s", self._shard, error)
            self._away = True
            return False
        if self._away:
            LOG.info("shard %s: Placement responds again", self._shard)
        self._away = False
        self._compare_at_s = began_s + (RETRY_S if complaints else COMPARE_S)
        self._published = wanted
        self._complain(complaints)
        return False

    def _wanted(self) -> tuple[set[str], list[WantedProvider]]:
        with self._store.reading(self._shard) as tx:
            hosts = [host for host in tx.hosts() if host.shard == self._shard]
            out, busy = not_to_be_had(tx, self._catalogue, self._settings, self._clock())
            wanted = wanted_providers(hosts, tx.slots(), self._catalogue, out, busy, self._settings.floor_slots)
        return {host.name for host in hosts}, wanted

    def _complain(self, complaints: list[str]) -> None:
        """Log new failures; the operations are retried after RETRY_S."""
        for complaint in complaints:
            if complaint not in self._complaints:
                LOG.warning("%s", complaint)
        self._complaints = complaints


#: Interval of checks; findings that persist for two checks are repaired.
AUDIT_S = 60.0


class LeaseWatch:
    """Releases leases of instances that no longer have an allocation of the slot in Placement."""

    def __init__(
        self,
        store: Store,
        shard: str,
        writer: Callable[[str], ShardWriter],
        placement: PlacementClient,
        clock: Clock,
    ) -> None:
        self._store = store
        self._shard = shard
        self._writer = writer
        self._placement = placement
        self._clock = clock
        self._allocations = Allocations(placement)
        self._seen: set[str] = set()
        self._remarks: tuple[str, ...] = ()

    def step(self) -> bool:
        """Check, log new findings, and repair those that were already present at the last check."""
        try:
            found = lease_findings(self._store, self._placement, self._allocations, self._shard)
        except ServiceUnavailable as error:
            LOG.debug("shard %s: leases will be compared with Placement later: %s", self._shard, error)
            return False
        for remark in set(found.remarks) - set(self._remarks):
            LOG.info("%s", remark)
        self._remarks = found.remarks
        again = [] if found.doubtful else [lease for lease in found.surplus if lease.uuid in self._seen]
        for lease in found.surplus:
            if lease.uuid not in self._seen:
                LOG.warning("%s", describe_lease(lease))
        if found.doubtful and not self._seen:
            LOG.error(
                "shard %s: %d leases have no allocation: none is released, as Placement may have lost them; release "
                "them with `fpga-pool-manage audit --repair` if that is right",
                self._shard,
                len(found.surplus),
            )
        self._seen = {lease.uuid for lease in found.surplus}
        for lease in again:
            if self._writer(self._shard).run(lambda tx, lease=lease: release_slots(tx, [lease], self._clock())):  # type: ignore[misc]
                LOG.warning("slot %s: released, as instance %s has no allocation for it", lease.slot, lease.holder)
        return False


def loops(
    store: Store,
    shard: str,
    placement: PlacementClient | None,
    writer: Callable[[str], ShardWriter],
    catalogue: Catalogue,
    settings: PoolSettings,
    clock: Clock,
) -> list[Loop]:
    """Return the loops that reconcile a shard with Placement; empty if there is no Placement."""
    if placement is None:
        return []
    inventory = Inventory(store, shard, placement, catalogue, settings, clock)
    watch = LeaseWatch(store, shard, writer, placement, clock)
    updating = Loop(f"placement-{shard}", lambda: inventory.step(lambda: not updating.stopping), POLL_S)
    return [updating, Loop(f"leases-{shard}", watch.step, AUDIT_S)]
