"""Policies and contexts for dry runs on a pool in memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from fpga_pool.core.benefit.paper import Benefit, HoldParams
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.core.makespan import Ect
from fpga_pool.core.policy import GangPolicy, TaskPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.dry_runs import DryRunContext
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction


def policies(gangs: GangPolicy | None = None, tasks: TaskPolicy | None = None) -> PoolPolicies:
    """Return the given policies, and simple ones where none is given."""
    online = Benefit(HoldParams(hold_s=0.0))
    return PoolPolicies(
        batches=lambda _: Ect(),
        default_batch="ect",
        online=OnlineRule(online, online.name.__eq__),
        gangs=gangs or Easy(),
        tasks=tasks or Fifo(),
    )


def context_of(
    read: Callable[[], AbstractContextManager[Transaction]],
    now_s: float,
    catalogue: Catalogue,
    settings: PoolSettings,
    timer: Callable[[], float] = lambda: 0.0,
    **chosen: Any,
) -> DryRunContext:
    """Return the context of a dry run; `read` begins a transaction that reads the pool."""
    return DryRunContext(
        reading=lambda _: read(),
        catalogue=catalogue,
        settings=settings,
        policies=policies(**chosen),
        now_s=now_s,
        timer=timer,
        rng=np.random.default_rng(0),
    )
