"""Weighers that prefer the hosts that are best for the pool, by the results of FpgaPoolSlotFilter.

Nova skips weighers when one host is left, and calls them once for each instance of a request.  It normalizes the
weights of each weigher to 0..1 and applies its multiplier.
"""

from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import weights
from nova.scheduler.utils import get_weight_multiplier
from oslo_log import log as logging

from fpga_pool.model.rules.instance.fitting import NOT_HAD
from fpga_pool.nova_plugin.candidates import FurtherAttempt
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.registry import REQUESTS
from fpga_pool.nova_plugin.request import Request

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)


class PoolWeigher(weights.BaseHostWeigher):
    """Base of the weighers; neutral for every request that the filter has not examined.

    A new weigher of the pool is a subclass with a `multiplier` and `weigh`, and an entry point.
    """

    #: Name of the multiplier in the metadata of aggregates; in nova.conf without "fpga_pool_".
    multiplier: str
    #: Cached `configured`, as reading it for each of ten thousand hosts takes longer than weighing them.
    _configured = 1.0

    def configured(self) -> float:
        """Return the multiplier in nova.conf."""
        return float(getattr(CONF.fpga_pool, self.multiplier.removeprefix("fpga_pool_")))

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the multiplier of the host's aggregates, else that of nova.conf; called after `weigh_objects`."""
        if host_state.aggregates:  # most hosts have none
            return float(get_weight_multiplier(host_state, self.multiplier, self._configured))
        return self._configured

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> Sequence[float]:
        """Return a weight for each host; an empty list, which Nova skips, if all are equal."""
        request = REQUESTS.get(weight_properties)
        if request is None:
            return []
        try:
            self._configured = self.configured()
            found = self.weigh(request, [weighed.obj for weighed in weighed_obj_list])
        except Exception:  # a weigher must not fail a request
            LOG.exception("%s is neutral", type(self).__name__)
            return []
        return found if found and min(found) != max(found) else []

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        """Return a weight for each host, larger for better hosts; an empty list if the weigher is neutral."""
        raise NotImplementedError

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        request = REQUESTS.get(weight_properties)
        return next(iter(self.weigh(request, [obj])), 0.0) if request is not None else 0.0


class FpgaPoolAttemptWeigher(PoolWeigher):
    """Puts further attempts on hosts after the first attempts on all hosts, regardless of other weighers."""

    def configured(self) -> float:
        """Return a multiplier that exceeds all other weights together."""
        return _LAST

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the same multiplier for every host, regardless of its aggregates."""
        return _LAST

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return [-1.0 if isinstance(host, FurtherAttempt) else 0.0 for host in hosts] if request.attempts else []


#: Larger than any sum of weights that an operator would configure.
_LAST = 1e6


class FpgaPoolScarcityWeigher(PoolWeigher):
    """Prefers hosts where the instance takes slots that other functions need least."""

    multiplier = "fpga_pool_scarcity_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return [-scarcity for scarcity in request.scarcities(hosts)]


class FpgaPoolBenefitWeigher(PoolWeigher):
    """Prefers hosts where the instance increases the pool's total benefit most (benefit paper, equation 1).

    That is the speedup of its accelerators, reduced by the share of time spent on loads, less that of evicted jobs.
    """

    multiplier = "fpga_pool_benefit_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return request.benefits(hosts)


class FpgaPoolMakespanWeigher(PoolWeigher):
    """Prefers hosts where this instance and future ones complete soonest.

    Run times are those declared by flavors, else the medians of ended instances with the same function.
    """

    multiplier = "fpga_pool_makespan_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return _the_less_the_better(request.latenesses(hosts))


class FpgaPoolLatticeWeigher(PoolWeigher):
    """Prefers hosts where an instance with several slots leaves most of the others connected; neutral for one slot.

    Instances of one request are equal tasks, so the ranking of the lattice paper (section V) keeps their order; only
    the hosts remain to be chosen, so that each instance does the least harm to wider ones.
    """

    multiplier = "fpga_pool_lattice_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return [] if request.wanted.count == 1 else _the_less_the_better(request.losses(hosts))


def _the_less_the_better(values: Sequence[float]) -> Sequence[float]:
    """Return weights that are larger for smaller values; NOT_HAD counts as the largest other value."""
    if NOT_HAD in values:
        most = max((each for each in values if each != NOT_HAD), default=0.0)
        values = [min(each, most) for each in values]
    return [-each for each in values]
