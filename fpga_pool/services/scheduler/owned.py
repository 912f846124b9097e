"""One shard in the hands of its owner: its loops, from the first to the last."""

import logging
from collections.abc import Callable, Sequence

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.objects import Shard
from fpga_pool.model.pool.families import AnyFamily, Families
from fpga_pool.model.pool.reconcile import Repair, tick
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.services.clock import Clock
from fpga_pool.services.failure_detector import FailureDetector
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.outbox import Outbox
from fpga_pool.services.scheduler.planner import Planner
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: A tick that comes later than this after its time was held up by something else than its work.
LONGEST_TICK_S = 3.0


class OwnedShard:
    """Plans, commands and mends one shard.  `start` and `stop` are called once each."""

    def __init__(
        self,
        shard: Shard,
        store: Store,
        families: Families,
        new_planner: Callable[[AnyFamily, Callable[[], None]], Planner],
        outbox: Outbox,
        settings: PoolSettings,
        interval_s: float,
        online_interval_s: float,
        clock: Clock,
        others: Sequence[Loop] = (),
    ) -> None:
        self.shard = shard
        self._store = store
        self._families = families
        self._outbox = outbox
        self._settings = settings
        self._interval_s = interval_s
        self._clock = clock
        self._hosts = FailureDetector(clock)
        self._ticked_at = clock()
        self._deaf = False
        name = shard.name
        self._dispatching = Loop(f"dispatch-{name}", lambda: outbox.dispatch(self._dispatching.wake), interval_s)
        #: By the name of the family that is planned.
        self.planning = {
            family.name: Loop(
                f"plan-{family.name}-{name}",
                new_planner(family, self._dispatching.wake).step,
                online_interval_s if family is families.online else interval_s,
            )
            for family in families
        }
        ticking = Loop(f"tick-{name}", self._tick, interval_s)
        self._loops = [self._dispatching, *self.planning.values(), ticking, *others]

    def start(self) -> None:
        """Tell the agents who owns the shard now, and begin."""
        with self._store.reading() as tx:
            self._outbox.announce([host.name for host in tx.hosts() if host.alive])
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Let running steps end."""
        for loop in reversed(self._loops):
            loop.stop()
        self._outbox.stop()

    def wake(self) -> None:
        """Look at pending jobs and at the outbox now."""
        for loop in self.planning.values():
            loop.wake()
        self._dispatching.wake()

    def place_freed(self) -> None:
        """Look at families now whose work waits for a place."""
        for family in self._families:
            if family.waits:
                self.planning[family.name].wake()

    def deaf(self) -> None:
        """Forget how long hosts have been silent: nothing could be heard."""
        self._deaf = True

    def _tick(self) -> bool:
        shard = self.shard
        with self._store.reading(shard.name) as reading:
            silent_s = self._hosts.note(reading.beats())
        now_s = self._clock()
        if now_s - self._ticked_at > LONGEST_TICK_S + self._interval_s:
            # Suspended, or starved: that nothing was heard in this time says nothing about the hosts.
            LOG.warning("this scheduler did not run for %.1f s", now_s - self._ticked_at)
            self._deaf = True
        self._ticked_at = now_s
        if self._deaf:
            self._deaf = False
            self._hosts.restart()
            silent_s = {}
        try:
            with self._store.transaction(shard.name, shard.owner, shard.epoch) as tx:
                repairs = tick(tx, self._settings, now_s, silent_s)
        except StaleEpoch:
            return False  # the ownership learns of it by itself
        log_repairs(repairs)
        if repairs:
            self.wake()
        return False


def log_repairs(repairs: list[Repair]) -> None:
    """Tell what was reconciled, and why."""
    for repair in repairs:
        LOG.info("reconciled %s: %s", repair.subject, repair.reason)
