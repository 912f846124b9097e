"""What dry runs on a pool in memory are made with."""

import numpy as np

from fpga_pool.core.benefit.paper import Benefit, HoldParams
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.core.makespan import Ect
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.dry_runs import DryRunContext
from fpga_pool.model.rules.shared.families import PoolPolicies


def context_of(pool, catalogue, *, gangs=None, tasks=None, settings=None):
    """Return what a dry run is made with that takes place now, by some policies."""
    online = Benefit(HoldParams(hold_s=0.0))
    return DryRunContext(
        reading=lambda _: pool.tx(),
        catalogue=catalogue,
        settings=settings or pool.settings,
        policies=PoolPolicies(
            batches=lambda _: Ect(),
            default_batch="ect",
            online=OnlineRule(online, online.name.__eq__),
            gangs=gangs or Easy(),
            tasks=tasks or Fifo(),
        ),
        now_s=pool.now_s,
        rng=np.random.default_rng(0),
    )
