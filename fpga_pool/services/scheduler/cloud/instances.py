"""Slots of instances: claims and releases by agents, and departures of instances that have left their host.

A departure is acted on when Nova reports it and Placement agrees.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.objects.pool import Lease, Slot
from fpga_pool.model.rules.instance.instances import (
    Allocated,
    Claim,
    claim_slots,
    held_by,
    instance_leases,
    provider_of,
    release_slots,
)
from fpga_pool.model.rules.shared.reports import require_agent
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.placement.sync import differences
from fpga_pool.services.clock import Clock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.planner import DesignCatalogue
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store.store import Store
from fpga_pool.store.transaction import SqlTransaction

LOG = logging.getLogger(__name__)


class Allocations(Protocol):
    """Source of the allocations of an instance: slots by provider."""

    def allocated(self, instance: str) -> Allocated:
        """Return the number of slots by the uuid of their provider."""


class Instances:
    """Claims and releases the slots of instances; thread-safe."""

    def __init__(
        self,
        store: Store,
        writer: Callable[[str], ShardWriter],
        designs: DesignCatalogue,
        settings: PoolSettings,
        clock: Clock,
        placement: Allocations | None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._designs = designs
        self._settings = settings
        self._clock = clock
        self._placement = placement

    def claim(self, host: str, agent_id: str, instance: str, project_id: str, wanted: AcceleratorRequest) -> list[Slot]:
        with self._store.reading() as tx:
            found = tx.host(host)
            require_agent(found, agent_id)
            held = held_by(tx, host, instance)
            slots = [tx.slot(lease.slot) for lease in held]
        try:
            allocated = None if self._placement is None else self._placement.allocated(instance)
        except ServiceUnavailable:
            if not _satisfies(held, wanted):
                raise
            allocated = Counter(map(provider_of, slots))
        claim = Claim(host=host, instance=instance, project_id=project_id, wanted=wanted, allocated=allocated)

        def work(writing: Transaction) -> list[Slot]:
            tx = cast("SqlTransaction", writing)
            require_agent(tx.host(host), agent_id)
            self._designs.visible(tx, project_id, {wanted.function}).function(wanted.function)
            return claim_slots(tx, claim, self._designs.everything(tx), self._settings, self._clock())

        slots = self._writer(found.shard).run(work)
        names = ", ".join(slot.name for slot in slots)
        LOG.info("instance %s of project %s holds %s for %s", instance, project_id, names, wanted.function)
        return slots

    def release(self, host: str, agent_id: str, leases: Mapping[str, int]) -> None:
        with self._store.reading() as tx:
            shard = tx.host(host).shard

        def work(tx: Transaction) -> list[Lease]:
            require_agent(tx.host(host), agent_id)
            named = [lease for lease in instance_leases(tx, host) if leases.get(lease.uuid) == lease.generation]
            return release_slots(tx, named, self._clock())

        for lease in self._writer(shard).run(work):
            LOG.info("instance %s releases %s", lease.holder, lease.slot)

    def leases(self, host: str) -> dict[str, list[Lease]]:
        with self._store.reading() as tx:
            leases = instance_leases(tx, tx.host(host).name)
        held: dict[str, list[Lease]] = {}
        for lease in leases:
            held.setdefault(lease.holder, []).append(lease)
        return held


def _satisfies(held: list[Lease], wanted: AcceleratorRequest) -> bool:
    """Return whether a virtual machine already holds the slots that it wants, and so can restart without Placement."""
    return len(held) == wanted.count and all(lease.function == wanted.function for lease in held)


#: Interval at which Placement is queried again if it did not answer.
AGAIN_S = 5.0


class Departures:
    """Checks instances that have reportedly left their host, in its own thread.

    An agent releases the slots of its guests when it sees them end; this class is for agents that do not see it.  If a
    crash loses noted instances, the comparison of all leases with Placement finds them within two minutes.
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
        """Have an instance checked; any thread may call this."""
        with self._lock:
            self._noted.add(instance)
        self.loop.wake()

    def step(self) -> bool:
        """Release the slots of the recorded instances that Placement has not allocated to them."""
        with self._lock:
            noted, self._noted = self._noted, set()
        for instance, leases in self._held(noted).items() if noted else ():
            try:
                self._release(instance, leases)
            except ServiceUnavailable as error:
                LOG.debug("instance %s: to be checked later: %s", instance, error)
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
            if writer.run(lambda tx, lease=lease: release_slots(tx, [lease], self._clock())):  # type: ignore[misc]
                LOG.info("slot %s: released, as instance %s has left its host", lease.slot, instance)

    def _held(self, instances: set[str]) -> dict[str, list[tuple[Lease, Slot]]]:
        """Return the leases of some instances, each with its slot."""
        held = defaultdict(list)
        with self._store.reading() as tx:
            for lease in tx.leases(holders=instances):
                held[lease.holder].append((lease, tx.slot(lease.slot)))
        return held
