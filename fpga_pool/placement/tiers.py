"""The pCPUs of a host's tiers in Placement: a provider below the compute node, with a resource class for each tier.

Flavors request one class or the other, so that Placement never admits more vCPUs to a tier than there are pCPUs. If a
guest changes its tier, its allocation is changed, too.
"""

import logging
from collections.abc import Mapping
from typing import Any

from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import TIER_CLASSES, TIERS_TRAIT, Tier, tiers_provider_name, tiers_provider_uuid
from fpga_pool.placement.client import PlacementClient

LOG = logging.getLogger(__name__)

_TIERS = (Tier.FOREGROUND, Tier.BACKGROUND)
#: Number of attempts at a change if concurrent changes interfere.
_ATTEMPTS = 5


class TierAccounts:
    """The tiers of one compute node in Placement; threads may share it.

    Every method raises ServiceUnavailable if Placement does not answer.
    """

    def __init__(self, client: PlacementClient, node: str, pcpus: int) -> None:
        self._client = client
        self._node = node
        self._pcpus = pcpus
        self.uuid = tiers_provider_uuid(node)

    def sync(self, reserved: int = 0) -> None:
        """Create or update the provider, with one unit of each tier's class per pCPU.

        `reserved` units of the background are reserved, so that Placement does not allocate them.  Raises NotFound if
        Placement has no provider for the compute node.
        """
        root = self._client.named(self._node)
        if root is None:
            raise NotFound(
                f"Placement has no provider named {self._node}: nova-compute has not created it yet, or uses another "
                "name ([agent] node)"
            )
        classes = [TIER_CLASSES[tier] for tier in _TIERS]
        if self._client.provider(self.uuid) is None:
            for name in classes:
                self._client.ensure_class(name)
            self._client.ensure_trait(TIERS_TRAIT)
            self._client.create(self.uuid, tiers_provider_name(self._node), root.uuid)
            LOG.info("provider %s is created below %s", tiers_provider_name(self._node), self._node)
        generation, traits = self._client.traits(self.uuid)
        if TIERS_TRAIT not in traits:
            self._client.set_traits(self.uuid, generation, traits | {TIERS_TRAIT})
        generation, has = self._client.inventories(self.uuid)
        wanted = {name: _inventory(self._pcpus) for name in classes}
        wanted[TIER_CLASSES[Tier.BACKGROUND]]["reserved"] = reserved
        if has != wanted:
            self._client.set_inventories(self.uuid, generation, wanted)
            LOG.info(
                "provider %s has %d pCPUs in each tier; %d of the background are reserved",
                tiers_provider_name(self._node),
                self._pcpus,
                reserved,
            )

    def tiers(self) -> dict[str, Tier]:
        """Return the tier whose pCPUs each consumer was allocated, by the consumer's uuid."""
        found = {}
        for consumer, resources in self._client.resources_on(self.uuid).items():
            for tier in _TIERS:
                if resources.get(TIER_CLASSES[tier]):
                    found[consumer] = tier
        return found

    def exchange(self, tiers: Mapping[str, Tier]) -> None:
        """Change the allocations of all these consumers to the given tiers atomically; raises Conflict if impossible.

        Consumers without pCPUs of this host's tiers are not changed.
        """
        for attempt in range(_ATTEMPTS):
            claims = {consumer: self._changed(self._client.claim(consumer), tier) for consumer, tier in tiers.items()}
            changed = {consumer: claim for consumer, claim in claims.items() if claim is not None}
            try:
                if changed:
                    self._client.set_claims(changed)
            except Conflict as error:
                if attempt == _ATTEMPTS - 1:
                    raise
                LOG.debug("retrying: %s", error)
            else:
                return

    def _changed(self, claim: dict[str, Any], tier: Tier) -> dict[str, Any] | None:
        """Return a claim with its pCPUs in a tier; None if nothing changes."""
        given = claim["allocations"].get(self.uuid)
        if given is None:
            return None
        resources = dict(given["resources"])
        count = sum(resources.pop(TIER_CLASSES[each], 0) for each in _TIERS)
        resources[TIER_CLASSES[tier]] = count
        if not count or resources == given["resources"]:
            return None
        return claim | {"allocations": claim["allocations"] | {self.uuid: {"resources": resources}}}


def _inventory(total: int) -> dict[str, Any]:
    return {"total": total, "reserved": 0, "min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": 1.0}
