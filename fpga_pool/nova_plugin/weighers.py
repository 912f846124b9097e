"""Which of the hosts that pass is best for the pool.  They read what FpgaPoolSlotFilter found out, and keep no books.

Nova skips weighers when one host is left, and calls them once for each instance of a request.
"""

from collections.abc import Sequence
from typing import Any

import nova.conf
from nova.scheduler import weights
from nova.scheduler.utils import get_weight_multiplier
from oslo_log import log as logging

from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.request import REQUESTS, Request

LOG = logging.getLogger(__name__)
CONF = nova.conf.CONF
register_opts(CONF)


class _PoolWeigher(weights.BaseHostWeigher):
    """Base of the weighers: neutral for every request that the filter has not taken up.

    Another weigher of the pool is a class of this kind, and an entry point.
    """

    #: Name of the multiplier, in nova.conf after "fpga_pool_" is taken off.
    multiplier: str

    def __init__(self) -> None:
        self._configured = 1.0

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the multiplier of the host's aggregates, else that of nova.conf."""
        if not host_state.aggregates:  # Nova asks once for every host
            return self._configured
        return float(get_weight_multiplier(host_state, self.multiplier, self._configured))

    def weigh_objects(self, weighed_obj_list: Sequence[Any], weight_properties: Any) -> list[float]:
        """Return a weight for each host; nothing at all, which costs nothing, where there is nothing to tell.

        Weights that are all the same tell nothing: Nova would make zeros of them, host by host.
        """
        request = REQUESTS.get(weight_properties)
        if request is None:
            return []
        # Read once for all hosts: it is the same for all requests.
        self._configured = getattr(CONF.fpga_pool, self.multiplier.removeprefix("fpga_pool_"))
        try:
            found = self.weigh(request, [weighed.obj for weighed in weighed_obj_list])
        except Exception:  # a weigher must not fail a request
            LOG.exception("%s has no opinion", type(self).__name__)
            return []
        return found if len(set(found)) > 1 else []

    def weigh(self, request: Request, hosts: Sequence[Any]) -> list[float]:
        """Return a weight for each host, the larger the better."""
        raise NotImplementedError

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        request = REQUESTS.get(weight_properties)
        return 0.0 if request is None else self.weigh(request, [obj])[0]


class FpgaPoolBenefitWeigher(_PoolWeigher):
    """Prefers hosts where the instance adds most to the benefit of the whole pool (paper 003, equation 1).

    That is the speedup of its accelerators, less what is evicted for them, less their share of the time to load them.
    """

    multiplier = "fpga_pool_benefit_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> list[float]:
        """See the base class."""
        return request.benefits(hosts)


class FpgaPoolMakespanWeigher(_PoolWeigher):
    """Prefers hosts of the plan that completes all instances of a request soonest; neutral without a run time."""

    multiplier = "fpga_pool_makespan_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> list[float]:
        """See the base class."""
        if request.plan is None:
            return []
        late = request.latenesses(hosts)
        if None in late:
            most = max((share for share in late if share is not None), default=0.0)
            return [-(most if share is None else share) for share in late]
        return [-(share or 0.0) for share in late]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        request = REQUESTS.get(weight_properties)
        return 0.0 if request is None else -(request.lateness(obj) or 0.0)


class FpgaPoolLatticeWeigher(_PoolWeigher):
    """Prefers hosts where an instance with several slots leaves most of the others connected; neutral for one slot.

    Instances of one request are equal tasks, so by the ranking of paper 004 (section V) they go in order; what is left
    to decide is where each does the least harm to wider ones.
    """

    multiplier = "fpga_pool_lattice_weight_multiplier"

    def weigh(self, request: Request, hosts: Sequence[Any]) -> list[float]:
        """See the base class."""
        if request.wanted.count == 1:
            return []
        lost = [request.lost_connections(host) for host in hosts]
        most = max((number for number in lost if number is not None), default=0)
        return [-float(most if number is None else number) for number in lost]

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        request = REQUESTS.get(weight_properties)
        return 0.0 if request is None else -float(request.lost_connections(obj) or 0)
