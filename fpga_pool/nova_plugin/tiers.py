"""FpgaPoolTierFilter and FpgaPoolTierWeigher: hosts for instances that share pCPUs in tiers.

Placement counts the pCPUs of each tier, so hosts that reach the filter have enough of them.  The filter checks what
Placement cannot know; the weigher prefers hosts whose other tier is emptiest.  Other requests are not slowed down.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import nova.conf
from nova.scheduler import filters, weights
from nova.scheduler.utils import get_weight_multiplier, request_is_rebuild
from oslo_log import log as logging

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.extra_specs import wrong_tier
from fpga_pool.model.flavor import NAMESPACE, TIER_CLASSES, Tier, requested_tier, tiers_provider_uuid
from fpga_pool.nova_plugin.candidates import flavor_specs
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.placement import providers_with

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)

_TIER = f"{NAMESPACE}:tier"
#: vCPUs for each pCPU of a host with tiers.
_RATIO = 2.0


def tier_specs(spec_obj: Any) -> Mapping[str, str] | None:
    """Return the extra specs of a request for a tier; None for any other request."""
    extra_specs = flavor_specs(spec_obj)
    return extra_specs if _TIER in extra_specs else None


class FpgaPoolTierFilter(filters.BaseHostFilter):
    """Passes hosts whose pCPUs can carry a vCPU of each tier.

    No host passes for a flavor whose tier does not match the pCPUs that it requests from Placement, or for dedicated
    pCPUs.
    """

    RUN_ON_REBUILD = False

    def filter_all(self, filter_obj_list: Iterable[Any], spec_obj: Any) -> Iterable[Any]:
        """Return the hosts that pass; returns at once for a request without a tier."""
        extra_specs = tier_specs(spec_obj)
        if extra_specs is None or not CONF.fpga_pool.enabled or request_is_rebuild(spec_obj):
            return filter_obj_list
        wrong = _wrong(extra_specs, spec_obj)
        if wrong:
            LOG.warning("no host for instance %s: %s", spec_obj.instance_uuid, wrong)
            return []
        hosts = list(filter_obj_list)
        passing = [host for host in hosts if host.cpu_allocation_ratio == _RATIO]
        for host in hosts:
            if host.cpu_allocation_ratio != _RATIO:
                LOG.info(
                    "%s: its cpu_allocation_ratio is %s, expected 2 for tiers", host.host, host.cpu_allocation_ratio
                )
        return passing


def _wrong(extra_specs: Mapping[str, str], spec_obj: Any) -> str:
    """Return the error in a request for a tier; empty if there is none."""
    try:
        found = next(wrong_tier(extra_specs, spec_obj.flavor.vcpus), "")
    except InvalidInput as error:
        return str(error)
    policy = spec_obj.image.properties.get("hw_cpu_policy", "") if spec_obj.image else ""
    if not found and policy in ("dedicated", "mixed"):
        found = f"{_TIER}: the image requests dedicated pCPUs (hw_cpu_policy={policy}), which tiers do not support"
    return found


class FpgaPoolTierWeigher(weights.BaseHostWeigher):
    """Prefers hosts with few vCPUs in the tier opposite to that of the instance."""

    minval, maxval = 0.0, 1.0

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the multiplier in the metadata of the host's aggregates, else that of nova.conf."""
        name = "fpga_pool_tier_weight_multiplier"
        return float(get_weight_multiplier(host_state, name, CONF.fpga_pool.tier_weight_multiplier))

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return a weight for each host; an empty list, which costs nothing, for a request without a tier."""
        extra_specs = tier_specs(weight_properties)
        if extra_specs is None or not CONF.fpga_pool.enabled:
            return []
        try:
            tier = requested_tier(extra_specs)
            shares = _free_across(tier or Tier.BACKGROUND, weight_properties)
        except Exception:  # a weigher must not fail a request
            LOG.exception("FpgaPoolTierWeigher is neutral")
            return []
        return [shares.get(tiers_provider_uuid(weighed.obj.nodename), 0.0) for weighed in weighed_obj_list]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        return 0.0


def _free_across(tier: Tier, spec_obj: Any) -> Mapping[str, float]:
    """Return the share of free pCPUs in the opposite tier, by provider; none if it is unknown."""
    across = TIER_CLASSES[Tier.BACKGROUND if tier == Tier.FOREGROUND else Tier.FOREGROUND]
    request_id = getattr(spec_obj._context, "global_id", None)  # noqa: SLF001  # weighers get no other
    providers = providers_with(TIER_CLASSES[tier], request_id) or {}
    known = ((uuid, provider.resources.get(across)) for uuid, provider in providers.items())
    return {uuid: 1.0 - pcpus.used / pcpus.capacity for uuid, pcpus in known if pcpus and pcpus.capacity}
