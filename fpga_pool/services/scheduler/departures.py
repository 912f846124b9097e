"""Slots of virtual machines that have left their host, given back as soon as Nova says so and Placement agrees."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.objects import Lease, Slot
from fpga_pool.model.pool.instances import provider_of, release_lease
from fpga_pool.placement.comparison import differences
from fpga_pool.services.clock import Clock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.instances import Allocations
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: How soon Placement is asked again when it did not answer.
AGAIN_S = 5.0


class Departures:
    """Looks at instances that are said to have left, in a thread of its own.

    An agent gives back what its guests held when it sees them end; this is for agents that do not see it.  What is
    noted here and lost in a crash, the comparison of all leases with Placement finds within two minutes.
    """

    def __init__(
        self, store: Store, writer: Callable[[str], ShardWriter], placement: Allocations, clock: Clock
    ) -> None:
        self._store = store
        self._writer = writer
        self._placement = placement
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self.loop = Loop("departures", self.step, AGAIN_S)

    def note(self, instance: str) -> None:
        """Have an instance looked at; any thread may call this."""
        with self._lock:
            self._noted.add(instance)
        self.loop.wake()

    def step(self) -> bool:
        """Give back what the noted instances hold beyond what Placement has allocated to them."""
        with self._lock:
            noted, self._noted = self._noted, set()
        for instance, leases in self._held(noted).items() if noted else ():
            try:
                self._release(instance, leases)
            except ServiceUnavailable as error:
                LOG.debug("instance %s: looked at later: %s", instance, error)
                with self._lock:
                    self._noted.add(instance)
        return False

    def _release(self, instance: str, leases: Sequence[tuple[Lease, Slot]]) -> None:
        held = defaultdict(list)
        for lease, slot in leases:
            held[provider_of(slot)].append(lease)
        allocated = self._placement.allocated(instance)
        shards = {slot.name: slot.shard for _, slot in leases}
        given = {provider: {instance: allocated.get(provider, 0)} for provider in held}
        for lease in differences(held, given).unallocated:
            writer = self._writer(shards[lease.slot])
            if writer.run(lambda tx, lease=lease: release_lease(tx, lease, self._clock())):  # type: ignore[misc]
                LOG.info("slot %s: released, instance %s has left its host", lease.slot, instance)

    def _held(self, instances: set[str]) -> dict[str, list[tuple[Lease, Slot]]]:
        """Return the leases of some instances, each with its slot."""
        held = defaultdict(list)
        with self._store.reading() as tx:
            for lease in tx.leases(holders=instances):
                held[lease.holder].append((lease, tx.slot(lease.slot)))
        return held
