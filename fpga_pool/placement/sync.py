"""Placement made to have what the pool has: only what differs is written, and only on the pool's own providers."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fpga_pool.model.exceptions import Conflict, FpgaPoolError, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import OWNER_TRAIT, RESOURCE_CLASS
from fpga_pool.placement.client import PlacementClient, Provider
from fpga_pool.placement.wanted import WantedProvider, is_of_hosts

LOG = logging.getLogger(__name__)

#: How often a change is tried that others have been in the way of.
ATTEMPTS = 5
#: Traits of the pool's providers that begin so are the pool's; others are left to whoever set them.
OUR_TRAITS = "CUSTOM_FPGA_"


class Sync:
    """Knows what it has found right, so that a round in which nothing has changed is one request; for one thread."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        #: Traits, and the class, that exist.
        self._ensured: set[str] = set()
        #: By uuid, what was found right, and the generation of the provider then.
        self._right: dict[str, tuple[WantedProvider, int]] = {}

    def run(
        self, wanted: Sequence[WantedProvider], hosts: Collection[str], proceed: Callable[[], bool] = lambda: True
    ) -> list[str]:
        """Make `wanted`, all that there is to be of `hosts`, true; return what could not be done, for people.

        It goes on after single failures.  Nothing was done if it raises ServiceUnavailable: Placement is away.
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
                # What was thought to exist may not.
                self._ensured.clear()
                self._right.pop(provider.uuid, None)
                complaints.append(f"provider {provider.name}: {error}")
        return complaints

    def _make(self, wanted: WantedProvider, found: Provider | None, root: Provider | None) -> None:
        if root is None:
            raise NotFound(
                f"Placement has no provider named {wanted.node}: nova-compute there has not made it yet, or calls it"
                " otherwise ([agent] node)"
            )
        # One that was made, and not marked as the pool's any more before its maker ended, is not listed.
        found = found or self._client.provider(wanted.uuid)
        if found is None:
            self._client.create(wanted.uuid, wanted.name, root.uuid)
            LOG.info("provider %s is made below %s", wanted.name, wanted.node)
        elif (found.parent, found.name) != (root.uuid, wanted.name):
            self._client.move(wanted.uuid, wanted.name, root.uuid)
            LOG.info("provider %s is put below %s", wanted.name, wanted.node)
        for trait in sorted(wanted.traits):
            self._ensure(trait, lambda trait=trait: self._client.ensure_trait(trait))  # type: ignore[misc]
        # Marked first: what is half made can be found again, and is offered to nobody.
        _again(lambda: self._set_traits(wanted))
        self._right[wanted.uuid] = wanted, _again(lambda: self._set_inventory(wanted))

    def _set_traits(self, wanted: WantedProvider) -> int:
        generation, has = self._client.traits(wanted.uuid)
        target = wanted.traits | {trait for trait in has if not trait.startswith(OUR_TRAITS)}
        if target == has:
            return generation
        return self._client.set_traits(wanted.uuid, generation, target)

    def _set_inventory(self, wanted: WantedProvider) -> int:
        generation, has = self._client.inventories(wanted.uuid)
        target = _inventory(wanted)
        if has.get(RESOURCE_CLASS) == target:
            return generation
        LOG.info("provider %s has %d slots, %d reserved", wanted.name, wanted.total, wanted.reserved)
        return self._client.set_inventories(wanted.uuid, generation, has | {RESOURCE_CLASS: target})

    def _remove(self, provider: Provider) -> list[str]:
        """Remove a provider of slots that there are not any more, unless somebody has been given some of them."""
        self._right.pop(provider.uuid, None)
        try:
            self._client.delete(provider.uuid)
        except NotFound:
            return []
        except Conflict as error:
            return [f"provider {provider.name}: its slots are gone, and it cannot be removed: {error}"]
        except ServiceUnavailable as error:
            return [f"provider {provider.name}: {error}"]
        LOG.info("provider %s is removed: the pool has no such slots", provider.name)
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
    """Take a step that reads before it writes, until nobody has written meanwhile."""
    for _ in range(ATTEMPTS - 1):
        try:
            return step()
        except Conflict as error:
            LOG.debug("once more: %s", error)
    return step()
