"""Leases of one shard held against Placement every minute: none outlives its virtual machine."""

import logging
from collections.abc import Callable

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.pool.instances import release_lease
from fpga_pool.placement.client import PlacementClient
from fpga_pool.placement.comparison import Allocations
from fpga_pool.services.clock import Clock
from fpga_pool.services.leases import lease_findings, told
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: How often it looks; what it has seen twice in a row it mends.
AUDIT_S = 60.0


class LeaseWatch:
    """Releases leases whose virtual machines have none of it in Placement any more."""

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
        """Look, tell what is new, and mend what was there at the last look already."""
        try:
            found = lease_findings(self._store, self._placement, self._allocations, self._shard)
        except ServiceUnavailable as error:
            LOG.debug("shard %s: leases are compared with Placement later: %s", self._shard, error)
            return False
        for remark in set(found.remarks) - set(self._remarks):
            LOG.info("%s", remark)
        self._remarks = found.remarks
        again = [] if found.doubtful else [lease for lease in found.surplus if lease.uuid in self._seen]
        for lease in found.surplus:
            if lease.uuid not in self._seen:
                LOG.warning("%s", told(lease))
        if found.doubtful and not self._seen:
            LOG.error(
                "shard %s: %d leases have no allocation: none is released, Placement may have lost them; if they are"
                " right to go, `fpga-pool-manage audit --repair` releases them",
                self._shard,
                len(found.surplus),
            )
        self._seen = {lease.uuid for lease in found.surplus}
        for lease in again:
            if self._writer(self._shard).run(lambda tx, lease=lease: release_lease(tx, lease, self._clock())):  # type: ignore[misc]
                LOG.warning("slot %s: released, instance %s was allocated nothing for it", lease.slot, lease.holder)
        return False
