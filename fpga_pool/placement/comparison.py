"""Slots that virtual machines hold here, compared with what Placement has allocated to them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.objects.pool import Lease
from fpga_pool.placement.client import PlacementClient

#: By provider, the leases of virtual machines on its slots.
Held = Mapping[str, Sequence[Lease]]
#: By provider, the number of its slots that each consumer was allocated.
Given = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What one side knows and the other does not."""

    #: Leases that nothing is allocated for on their provider, by slot.
    unallocated: Sequence[Lease]
    #: Slots that are allocated but not held, by (provider, consumer).
    unheld: Mapping[tuple[str, str], int]


def differences(held: Held, given: Given) -> Differences:
    """Compare providers that both sides know."""
    unallocated: list[Lease] = []
    unheld: dict[tuple[str, str], int] = {}
    for provider, allocations in given.items():
        left = Counter(allocations)
        for lease in held.get(provider, ()):
            if left[lease.holder] > 0:
                left[lease.holder] -= 1
            else:
                unallocated.append(lease)
        unheld |= {(provider, consumer): count for consumer, count in left.items() if count > 0}
    return Differences(unallocated=sorted(unallocated, key=lambda lease: lease.slot), unheld=unheld)


class Allocations:
    """What the pool's providers give, read no more often than it can have changed; for one thread."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        #: By provider: its generation when it was read, and what it gave.
        self._known: dict[str, tuple[int, Mapping[str, int]]] = {}

    def on(self, providers: Sequence[str], held: Held) -> Given:
        """Return the allocations from those of these providers that exist in Placement.

        What is given grows only with the generation of a provider, so that one which gave nothing, and of which nothing
        is held, need not be asked again before that has grown.
        """
        generations = {provider.uuid: provider.generation for provider in self._client.owned()}
        known, self._known = self._known, {}
        for uuid in providers:
            if uuid not in generations:
                continue
            generation, given = known.get(uuid, (-1, {}))
            if given or held.get(uuid) or generation != generations[uuid]:
                try:
                    given = self._client.allocations_on(uuid)
                except NotFound:  # removed since
                    continue
            self._known[uuid] = generations[uuid], given
        return {uuid: given for uuid, (_, given) in self._known.items()}


def leaked(client: PlacementClient, found: Differences, provider_of: Mapping[str, str]) -> list[Lease]:
    """Return the leases without an allocation whose holders cannot be migrating.

    While a virtual machine moves, Nova keeps what it has on the host that it leaves in the name of the migration: as
    long as some consumer of the same project has an allocation there that is not held, the lease may belong to it.
    `provider_of` says in which provider each of the slots is counted.
    """
    surplus = []
    for lease in found.unallocated:
        elsewhere = client.consumer(lease.holder).slots
        provider = provider_of[lease.slot]
        moving = elsewhere and any(
            client.consumer(consumer).project_id in (lease.project_id, "") or not lease.project_id
            for of, consumer in found.unheld
            if of == provider
        )
        if not moving:
            surplus.append(lease)
    return surplus
