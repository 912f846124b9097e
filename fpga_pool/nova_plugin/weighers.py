"""Which of the hosts that pass is best for the pool.  They read what FpgaPoolSlotFilter found out, and keep no books.

Nova skips weighers when one host is left, and calls them once for each instance of a request.  What it then does with
the weights of a weigher, host by host, takes longer than to find them; so it gets the sum of all of the pool's at once.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import nova.conf
import numpy as np
from nova.scheduler import weights
from nova.scheduler.utils import get_weight_multiplier
from oslo_log import log as logging

from fpga_pool.core.types import Floats
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.request import REQUESTS, Request

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)


class _PoolWeigher(weights.BaseHostWeigher):
    """Base of the weighers: neutral for every request that the filter has not examined.

    The first one called for a list of hosts returns the sum of all that nova.conf enables, each normalised to 0..1 and
    multiplied as Nova would do it; the others return nothing. One that nova.conf does not enable returns its own.

    Another weigher of the pool is a class of this kind, and an entry point.
    """

    # Nova is to leave the weights as they are.
    minval, maxval = 0.0, 1.0

    #: Name of the multiplier, in nova.conf after "fpga_pool_" is taken off.
    multiplier: str

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return the sum for each host; an empty list, which costs nothing, if all are neutral."""
        request = REQUESTS.get(weight_properties)
        if request is None or request.is_reported(weighed_obj_list, type(self)):
            return []
        weighers = _reported_with(self)
        request.note_reported(weighed_obj_list, map(type, weighers))
        hosts = [weighed.obj for weighed in weighed_obj_list]
        total: Floats = np.zeros(len(hosts))
        for weigher in weighers:
            total += weigher.weights(request, hosts)
        return list(total.tolist()) if total.any() else []

    def weights(self, request: Request, hosts: Sequence[Any]) -> Floats | float:
        """Return (N,) from 0 to 1 what this weigher finds, times its multiplier; 0 where it finds no difference."""
        try:
            found = np.array(self.weigh(request, hosts), float)
        except Exception:  # a weigher must not fail a request
            LOG.exception("%s is neutral", type(self).__name__)
            return 0.0
        if not found.size or found.min() == found.max():
            return 0.0
        stretched = (found - found.min()) / (found.max() - found.min())
        multiplied: Floats = stretched * self._multipliers(request, hosts)
        if LOG.isEnabledFor(logging.DEBUG):
            weights = {host.host: tuple(values) for host, *values in zip(hosts, found, multiplied, strict=True)}
            LOG.debug("%s: raw weights and contributions to the host weights: %s", type(self).__name__, weights)
        return multiplied

    def _multipliers(self, request: Request, hosts: Sequence[Any]) -> Floats | float:
        """Return that of nova.conf, or (N,) those of the hosts' aggregates."""
        configured = float(getattr(CONF.fpga_pool, self.multiplier.removeprefix("fpga_pool_")))
        if not request.in_aggregates:
            return configured
        return np.array([get_weight_multiplier(host, self.multiplier, configured) for host in hosts], float)

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        """Return a weight for each host, the larger the better; an empty list if it is neutral."""
        raise NotImplementedError

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        request = REQUESTS.get(weight_properties)
        return next(iter(self.weigh(request, [obj])), 0.0) if request is not None else 0.0


def _reported_with(asked: _PoolWeigher) -> Sequence[_PoolWeigher]:
    """Return the weighers whose sum this one returns."""
    enabled = _enabled(tuple(CONF.filter_scheduler.weight_classes))
    return enabled if any(type(weigher) is type(asked) for weigher in enabled) else [asked]


@lru_cache(maxsize=8)
def _enabled(weight_classes: Sequence[str]) -> Sequence[_PoolWeigher]:
    """Return the weighers of the pool among the classes that nova.conf names, found as Nova finds them."""
    classes = weights.HostWeightHandler().get_matching_classes(list(weight_classes))
    return [each() for each in classes if issubclass(each, _PoolWeigher)]


class FpgaPoolBenefitWeigher(_PoolWeigher):
    """Prefers hosts where the instance increases the pool's total benefit most (benefit paper, equation 1).

    That is the speedup of its accelerators, less what is evicted for them, less their share of the time to load them.
    """

    multiplier = "fpga_pool_benefit_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        return request.benefits(hosts)


class FpgaPoolMakespanWeigher(_PoolWeigher):
    """Prefers hosts of the plan that completes all instances of a request soonest; neutral without a run time."""

    multiplier = "fpga_pool_makespan_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        if request.plan is None:
            return []
        late = request.latenesses(hosts)
        most = max((share for share in late if share is not None), default=0.0)
        return [-(most if share is None else share) for share in late]


class FpgaPoolLatticeWeigher(_PoolWeigher):
    """Prefers hosts where an instance with several slots leaves most of the others connected; neutral for one slot.

    Instances of one request are equal tasks, so by the ranking of the lattice paper (section V) they go in order; what
    is left to decide is where each does the least harm to wider ones.
    """

    multiplier = "fpga_pool_lattice_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> Sequence[float]:
        if request.wanted.count == 1:
            return []
        lost = request.losses(hosts)
        most = max((number for number in lost if number is not None), default=0)
        return [-float(most if number is None else number) for number in lost]
