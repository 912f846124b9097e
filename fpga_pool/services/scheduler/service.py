"""The pool scheduler as a service: its threads, and what ends them."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.core.policy import BatchPolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict, StaleEpoch
from fpga_pool.model.objects import Shard
from fpga_pool.model.pool.reconcile import Repair, tick
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.services.clock import Clock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.calibration import Calibrator
from fpga_pool.services.scheduler.outbox import Outbox
from fpga_pool.services.scheduler.planner import Planner
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: A tick that comes later than this after its time was held up by something else than its work.
LONGEST_TICK_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Knobs of the service; those of the rules are in `pool`."""

    shard: str = "default"
    #: Who owns the shard: this process, by a name that is its own.
    owner: str = "scheduler"
    default_policy: str = "ect"
    #: Seed of the policies' random generator.
    seed: int = 0
    #: How often pending work, the outbox and silent hosts are looked at when nothing wakes the loops.
    interval_s: float = 1.0
    #: How often time models are refitted.
    refit_interval_s: float = 5.0
    #: An owner that did not renew its shard for longer has lost it.
    shard_timeout_s: float = 10.0
    #: How long a token may be used to open a stream.
    token_lifetime_s: float = 300.0
    pool: PoolSettings = field(default_factory=PoolSettings)


class SchedulerService:
    """Owns one shard: plans, commands, mends.  `start` and `stop` are called once each."""

    def __init__(
        self,
        settings: SchedulerSettings,
        store: Store,
        catalogue: Catalogue,
        policies: Callable[[str], BatchPolicy],
        agents: AgentAPI,
        token_key: Ed25519PrivateKey,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.store = store
        self.catalogue = catalogue
        self.token_key = token_key
        self.clock = clock
        self.calibrator = Calibrator(store, catalogue, clock)
        self._policies = policies
        self._agents = agents
        self._shard: Shard | None = None
        #: Since when the pool listens without a break, and when it last found itself alive.
        self._listening_since = 0.0
        self._ticked_at = 0.0
        self._loops: list[Loop] = []

    def start(self) -> None:
        """Take the shard and begin; Conflict if another owner is alive."""
        settings = self.settings
        self._listening_since = self._ticked_at = now_s = self.clock()
        expired_before = now_s - settings.shard_timeout_s
        self._shard = self.store.acquire_shard(settings.shard, settings.owner, now_s, expired_before)
        LOG.info("shard %s is owned by %s, epoch %d", settings.shard, settings.owner, self._shard.epoch)
        planner = Planner(
            lambda: self.store.reading(settings.shard),
            self.transaction,
            self.catalogue,
            settings.pool,
            self._policies,
            settings.default_policy,
            self.clock,
            np.random.default_rng(settings.seed),
        )
        self._outbox = Outbox(self.store, self._shard, self._agents, self.clock)
        self._dispatching = Loop("dispatch", lambda: self._outbox.dispatch(self._dispatching.wake), settings.interval_s)
        self._planning = Loop("plan", lambda: self._plan(planner), settings.interval_s)
        ticking = Loop("tick", self._tick, settings.interval_s)
        refitting = Loop("refit", self.calibrator.refit, settings.refit_interval_s)
        self._loops = [self._dispatching, self._planning, ticking, refitting]
        for loop in self._loops:
            loop.start()

    def pause(self) -> None:
        """Plan and command no more, but keep listening, so that agents can tell what they have done and end."""
        for loop in reversed(self._loops):
            loop.stop()
        self._loops = []
        if self._shard is not None:
            self._outbox.stop()

    def stop(self) -> None:
        """Let running steps end; what is committed stays for the next owner."""
        self.pause()
        if self._shard is not None:
            try:
                self.store.release_shard(self._shard)
            except (StaleEpoch, Conflict) as error:
                LOG.warning("shard %s was lost before it was released: %s", self._shard.name, error)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction on the shard, fenced by the epoch under which it is owned."""
        if self._shard is None:
            raise StaleEpoch(f"shard {self.settings.shard} is not owned yet")
        return self.store.transaction(self._shard.name, self._shard.owner, self._shard.epoch)

    def work_arrived(self) -> None:
        """Look at pending jobs and at the outbox now."""
        self._planning.wake()
        self._dispatching.wake()

    def _plan(self, planner: Planner) -> bool:
        placed = planner.plan_next()
        if placed:
            self._dispatching.wake()
        return placed

    def _tick(self) -> bool:
        assert self._shard is not None  # noqa: S101
        now_s = self.clock()
        if now_s - self._ticked_at > LONGEST_TICK_S + self.settings.interval_s:
            # Suspended, or starved: that nothing was heard in this time says nothing about the hosts.
            LOG.warning("this scheduler did not run for %.1f s", now_s - self._ticked_at)
            self._listening_since = now_s
        self._ticked_at = now_s
        self.store.renew_shard(self._shard, now_s)
        with self.transaction() as tx:
            repairs = tick(tx, self.settings.pool, now_s, listening_since_s=self._listening_since)
        log_repairs(repairs)
        if repairs:
            self.work_arrived()
        return False


def log_repairs(repairs: list[Repair]) -> None:
    """Tell what was mended, and why."""
    for repair in repairs:
        LOG.info("mended %s: %s", repair.subject, repair.reason)
