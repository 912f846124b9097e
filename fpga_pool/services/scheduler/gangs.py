"""Gangs of one shard: look, decide, commit; on events and every interval (paper 002)."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from fpga_pool.core.policy import GangPolicy
from fpga_pool.model.pool.gangs import commit_gang_moves, decided_moves, gang_view
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

Transactions = Callable[[], AbstractContextManager[Transaction]]


class GangPlanner:
    """Gives gangs their processors, and moves them to the foreground, as the policy says."""

    def __init__(
        self,
        reading: Transactions,
        transactions: Transactions,
        settings: PoolSettings,
        policy: GangPolicy,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self._reading = reading
        self._transactions = transactions
        self._settings = settings
        self._policy = policy
        self._clock = clock
        self._rng = rng

    def step(self) -> bool:
        """Do what the policy wants now; return whether there is something to tell agents."""
        with self._reading() as tx:
            view = gang_view(tx, self._settings, self._policy.patience, self._clock())
        if view is None:
            return False
        began_s = time.monotonic()
        now_s = view.now_s
        moves = decided_moves(view, lambda tiers: self._policy.decide(tiers, None, now_s, self._rng))
        decided_s = time.monotonic() - began_s
        if not moves:
            return False
        with self._transactions() as tx:
            moved = commit_gang_moves(tx, view, moves, self._settings)
        for gang, move in zip(moved, moves, strict=False):
            LOG.info("gang %s: %s on %d processors: %s", gang.uuid, move.how.value, gang.processes, gang.state)
        LOG.info(
            "of %d gangs %d moved, %d put off, by %s in %.1f ms",
            len(view.gangs),
            len(moved),
            len(moves) - len(moved),
            self._policy.name,
            1000 * decided_s,
        )
        return bool(moved)
