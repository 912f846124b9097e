"""Reconciliation of Placement with the pool: one provider for each card and kind of slot, below that of the host.

Only differences are written, and only to the pool's own providers.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import (
    NAMESPACE,
    OWNER_TRAIT,
    RESOURCE_CLASS,
    board_trait,
    function_trait,
    kind_trait,
    provider_name,
    provider_uuid,
)
from fpga_pool.model.objects.pool import CPU, Host, Lease, Slot
from fpga_pool.placement.client import Inventories, PlacementClient, Provider

#: By provider, the leases of virtual machines on its slots.
Held = Mapping[str, Sequence[Lease]]
#: By provider, the number of its slots that each consumer was allocated.
Given = Mapping[str, Mapping[str, int]]


# ---- Comparison of the slots held by virtual machines with their allocations in Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """The differences between leases in the pool and allocations in Placement."""

    #: Leases without an allocation on their provider, by slot.
    unallocated: Sequence[Lease]
    #: Number of slots that are allocated but not held, by (provider, consumer).
    unheld: Mapping[tuple[str, str], int]


def differences(held: Held, given: Given) -> Differences:
    """Compare leases and allocations of the providers in `given`."""
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
    """The allocations of the pool's providers, read only if they can have changed; for one thread."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        #: By provider: its generation when it was last read, and its allocations.
        self._known: dict[str, tuple[int, Mapping[str, int]]] = {}

    def on(self, providers: Sequence[str], held: Held) -> Given:
        """Return the allocations from those of these providers that exist in Placement.

        A new allocation increases the generation of its provider.  So a provider that has neither allocations nor held
        slots is read again only if its generation has changed.
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
                except NotFound:  # removed meanwhile
                    continue
            self._known[uuid] = generations[uuid], given
        return {uuid: given for uuid, (_, given) in self._known.items()}


def leaked(client: PlacementClient, found: Differences, provider_of: Mapping[str, str]) -> list[Lease]:
    """Return the leases without an allocation whose holders cannot be migrating.

    While a virtual machine migrates, Nova assigns its allocation on the source host to the migration. So the lease may
    belong to it as long as some consumer of the same project has an allocation there that is not held.
    `provider_of` is the provider of each slot.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedProvider:
    """The slots of one kind on one card."""

    uuid: str
    name: str
    #: Name of its root provider: the compute node.
    node: str
    total: int
    #: Number of slots that no virtual machine can get now.
    reserved: int
    traits: frozenset[str]


def wanted_providers(
    hosts: Sequence[Host],
    slots: Sequence[Slot],
    catalogue: Catalogue,
    out_of_service: Collection[str],
    not_given_up: Collection[str],
    floor_slots: int,
) -> list[WantedProvider]:
    """Return the providers of these hosts, by name.

    Parameters
    ----------
    hosts, slots, catalogue
        The pool, or a part of it.
    out_of_service
        Names of slots that cannot be used.
    not_given_up
        Names of other slots that the pool cannot release soon.
    floor_slots
        Number of slots of each provider that stay reserved for the pool, including those that it cannot release.

    """
    nodes = {host.name: host.node or host.name for host in hosts}
    groups: defaultdict[tuple[str, str, str], list[Slot]] = defaultdict(list)
    for slot in slots:
        if slot.kind != CPU and slot.host in nodes:
            groups[slot.host, slot.card, slot.kind].append(slot)
    boards_and_kinds = {(group[0].board, kind) for (_, _, kind), group in groups.items()}
    traits = {(board, kind): _traits(board, kind, catalogue) for board, kind in boards_and_kinds}
    providers = []
    for (host, card, kind), group in groups.items():
        out = sum(slot.name in out_of_service for slot in group)
        busy = sum(slot.name in not_given_up for slot in group)
        providers.append(
            WantedProvider(
                uuid=provider_uuid(host, card, kind),
                name=provider_name(host, card, kind),
                node=nodes[host],
                total=len(group),
                reserved=min(len(group), out + max(busy, floor_slots)),
                traits=traits[group[0].board, kind],
            )
        )
    return sorted(providers, key=lambda provider: provider.name)


def is_of_hosts(name: str, hosts: Collection[str]) -> bool:
    """Return whether a provider's name is that of a card of one of these hosts, even if the card does not exist."""
    host, separator, _ = name.partition(f":{NAMESPACE}:")
    return bool(separator) and host in hosts


def _traits(board: str, kind: str, catalogue: Catalogue) -> frozenset[str]:
    functions = (function_trait(name) for name in catalogue.functions if catalogue.fits(name, board, kind))
    return frozenset((OWNER_TRAIT, board_trait(board), kind_trait(kind), *functions))


# ---- Reconciliation

LOG = logging.getLogger(__name__)

#: Number of attempts at a change if concurrent changes interfere.
ATTEMPTS = 5
#: Prefix of the traits that the pool manages on its providers; others are not changed.
OUR_TRAITS = "CUSTOM_FPGA_"


class Sync:
    """Reconciles providers; caches verified ones, so that a round without changes is one request.  For one thread."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        #: Traits, and the resource class, that are known to exist.
        self._ensured: set[str] = set()
        #: By uuid: the provider as last verified, and its generation then.
        self._right: dict[str, tuple[WantedProvider, int]] = {}

    def run(
        self, wanted: Sequence[WantedProvider], hosts: Collection[str], proceed: Callable[[], bool] = lambda: True
    ) -> list[str]:
        """Make the providers of `hosts` in Placement equal to `wanted`; return the failures, as readable text.

        It continues after failures of single providers.  If it raises ServiceUnavailable, as Placement does not answer,
        no provider was changed.
        """
        self._ensure(RESOURCE_CLASS, self._client.ensure_class)
        self._ensure(OWNER_TRAIT, lambda: self._client.ensure_trait(OWNER_TRAIT))
        try:
            owned = {provider.uuid: provider for provider in self._client.owned()}
        except FpgaPoolError:
            self._ensured.clear()
            raise
        complaints = self._make_all(wanted, owned, proceed)
        names = {provider.uuid for provider in wanted}
        for provider in owned.values():
            if provider.uuid not in names and is_of_hosts(provider.name, hosts) and proceed():
                complaints += self._remove(provider)
        return complaints

    def _make_all(
        self, wanted: Sequence[WantedProvider], owned: Mapping[str, Provider], proceed: Callable[[], bool]
    ) -> list[str]:
        complaints = []
        roots: dict[str, Provider | None] = {}
        for provider in wanted:
            found = owned.get(provider.uuid)
            if found is not None and self._right.get(provider.uuid) == (provider, found.generation):
                continue
            if not proceed():
                break
            try:
                if provider.node not in roots:
                    roots[provider.node] = self._client.named(provider.node)
                self._make(provider, found, roots[provider.node])
            except FpgaPoolError as error:
                # Traits or the class may have been removed.
                self._ensured.clear()
                self._right.pop(provider.uuid, None)
                complaints.append(f"provider {provider.name}: {error}")
        return complaints

    def _make(self, wanted: WantedProvider, found: Provider | None, root: Provider | None) -> None:
        if root is None:
            raise NotFound(
                f"Placement has no provider named {wanted.node}: nova-compute has not created it yet, or uses another "
                "name ([agent] node)"
            )
        for trait in sorted(wanted.traits):
            self._ensure(trait, lambda trait=trait: self._client.ensure_trait(trait))  # type: ignore[misc]
        if found is None:
            try:
                generation = self._make_new(wanted, root)
            except Conflict:
                # It exists without the trait that marks it as the pool's, or there are concurrent writes to it.
                found = self._client.provider(wanted.uuid)
                if found is None:  # another provider has its name
                    raise
            else:
                self._right[wanted.uuid] = wanted, generation
                return
        if (found.parent, found.name) != (root.uuid, wanted.name):
            self._client.move(wanted.uuid, wanted.name, root.uuid)
            LOG.info("provider %s is moved below %s", wanted.name, wanted.node)
        _again(lambda: self._set_traits(wanted))
        self._right[wanted.uuid] = wanted, _again(lambda: self._set_inventory(wanted))

    def _make_new(self, wanted: WantedProvider, root: Provider) -> int:
        """Create a provider, without reading its state; return its generation."""
        generation = self._client.create(wanted.uuid, wanted.name, root.uuid)
        LOG.info("provider %s is created below %s", wanted.name, wanted.node)
        # The traits are set first, so that a half-created provider can be found again, and has no inventory to offer.
        generation = self._client.set_traits(wanted.uuid, generation, wanted.traits)
        return self._set_inventory(wanted, (generation, {}))

    def _set_traits(self, wanted: WantedProvider) -> int:
        generation, has = self._client.traits(wanted.uuid)
        target = wanted.traits | {trait for trait in has if not trait.startswith(OUR_TRAITS)}
        if target == has:
            return generation
        return self._client.set_traits(wanted.uuid, generation, target)

    def _set_inventory(self, wanted: WantedProvider, known: tuple[int, Inventories] | None = None) -> int:
        generation, has = known or self._client.inventories(wanted.uuid)
        target = _inventory(wanted)
        if has.get(RESOURCE_CLASS) == target:
            return generation
        LOG.info("provider %s has %d slots, %d reserved", wanted.name, wanted.total, wanted.reserved)
        return self._client.set_inventories(wanted.uuid, generation, has | {RESOURCE_CLASS: target})

    def _remove(self, provider: Provider) -> list[str]:
        """Remove a provider whose slots no longer exist, unless some of them are allocated."""
        self._right.pop(provider.uuid, None)
        try:
            self._client.delete(provider.uuid)
        except NotFound:
            return []
        except Conflict as error:
            return [f"provider {provider.name}: its slots no longer exist, but it cannot be removed: {error}"]
        except ServiceUnavailable as error:
            return [f"provider {provider.name}: {error}"]
        LOG.info("provider %s is removed, as the pool has no such slots", provider.name)
        return []

    def _ensure(self, name: str, make: Callable[[], None]) -> None:
        if name not in self._ensured:
            make()
            self._ensured.add(name)


def _inventory(wanted: WantedProvider) -> dict[str, Any]:
    return {
        "total": wanted.total,
        "reserved": wanted.reserved,
        "min_unit": 1,
        "max_unit": wanted.total,
        "step_size": 1,
        "allocation_ratio": 1.0,
    }


def _again(step: Callable[[], int]) -> int:
    """Repeat a read-modify-write step until no concurrent write interferes."""
    for _ in range(ATTEMPTS - 1):
        try:
            return step()
        except Conflict as error:
            LOG.debug("retrying: %s", error)
    return step()
