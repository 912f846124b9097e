"""Ownership of shards by schedulers, and the loops of each owned shard.

A shard has one owner, and gets a new one within seconds if that fails.  Owners renew their shards by increasing
counters in the database, which proves that they are alive.  A scheduler that sees a counter unchanged for longer than
the timeout, by its own clock, takes the shard with a new epoch. From then on neither the database nor the agents accept
decisions of earlier epochs.
"""

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from fpga_pool.model.cycle import Transactions
from fpga_pool.model.exceptions import Conflict, FpgaPoolError, ServiceUnavailable, StaleEpoch
from fpga_pool.model.objects.pool import Scheduler, Shard
from fpga_pool.model.rules.shared.families import AnyFamily, Families
from fpga_pool.model.rules.shared.reconcile import Repair, tick
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.services.clock import Clock, FailureDetector, SteadyClock
from fpga_pool.services.loop import Loop
from fpga_pool.services.scheduler.outbox import Outbox
from fpga_pool.services.scheduler.planner import Planner
from fpga_pool.store.store import Store

LOG = logging.getLogger(__name__)

#: A tick that is late by more than this was delayed by something other than its work.
LONGEST_TICK_S = 3.0
#: Interval of the loops that have nothing to do while a shard has no open work.  Every tick looks for work, in case
#: nobody has woken them.
REST_S = 10.0
#: Checks that go on are this many times rarer: those of a shard without open work, and renewals by a lone scheduler.
RARER = 2


class OwnedShard:
    """Plans, commands and reconciles one shard.  `start` and `stop` are called once each."""

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
        transactions: Transactions,
        others: Sequence[Loop] = (),
    ) -> None:
        self.shard = shard
        self._transactions = transactions
        self._store = store
        self._families = families
        self._outbox = outbox
        self._settings = settings
        self._interval_s = interval_s
        self._clock = clock
        self._hosts = FailureDetector(clock)
        self._ticked_at = clock()
        self._deaf = False
        #: Whether the last tick has found no open work.
        self.rests = False
        name = shard.name
        self._dispatching = Loop(
            f"dispatch-{name}",
            lambda: outbox.dispatch(self._dispatching.wake),
            lambda: REST_S if self.rests else interval_s,
        )
        #: Planning loops by the name of their family.
        self.planning = {
            family.name: Loop(
                f"plan-{family.name}-{name}",
                new_planner(family, self._dispatching.wake).step,
                partial(self._planning_interval_s, family, online_interval_s),
            )
            for family in families
        }
        ticking = Loop(f"tick-{name}", self._tick, lambda: RARER * interval_s if self.rests else interval_s)
        self._loops = [self._dispatching, *self.planning.values(), ticking, *others]

    def _planning_interval_s(self, family: AnyFamily, online_interval_s: float) -> float:
        online = self._families.online
        if self.rests and not (family is online and online.looks_ahead):
            return REST_S
        return online_interval_s if family is online else self._interval_s

    def start(self) -> None:
        """Notify the agents of the shard's new owner, and start the loops."""
        with self._store.reading() as tx:
            self._outbox.announce([host.name for host in tx.hosts() if host.alive])
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Let running steps end."""
        for loop in reversed(self._loops):
            loop.stop()
        self._outbox.stop()

    def wake(self, families: Collection[str] = ()) -> None:
        """Plan pending work of these families now; without names, plan all families and dispatch commands."""
        for name in families or self.planning:
            self.planning[name].wake()
        if not families:
            self._dispatching.wake()

    def place_freed(self) -> None:
        """Plan now the families whose work waits for a free place."""
        for family in self._families:
            if family.waits:
                self.planning[family.name].wake()

    def deaf(self) -> None:
        """Forget how long hosts have been silent, because no heartbeat could be received."""
        self._deaf = True

    def heartbeat_age_s(self) -> float:
        """Return the longest time since a heartbeat of a live host."""
        return max(self._hosts.ages().values(), default=0.0)

    def _tick(self) -> bool:
        shard = self.shard
        with self._store.reading(shard.name) as reading:
            beats, excluded = reading.living_hosts()
            silent_s = self._hosts.note(beats)
            rested, self.rests = self.rests, not reading.has_open_work()
        if rested and not self.rests:
            self.wake()  # for work whose sender did not reach this scheduler
        now_s = self._clock()
        if now_s - self._ticked_at > LONGEST_TICK_S + self._interval_s:
            # This process was suspended or starved, so missing heartbeats say nothing about the hosts.
            LOG.warning("this scheduler did not run for %.1f s", now_s - self._ticked_at)
            self._deaf = True
        self._ticked_at = now_s
        if self._deaf:
            self._deaf = False
            self._hosts.restart()
            silent_s = {}
        if self.rests and not excluded and max(silent_s.values(), default=0.0) <= self._settings.host_timeout_s:
            return False
        try:
            with self._transactions() as tx:
                repairs = tick(tx, self._settings, now_s, silent_s, excluded)
        except StaleEpoch:
            return False  # `Ownership` detects the loss, too
        log_repairs(repairs)
        if repairs:
            self.wake()
        return False


def log_repairs(repairs: list[Repair]) -> None:
    """Log repairs and their reasons."""
    for repair in repairs:
        LOG.info("reconciled %s: %s", repair.subject, repair.reason)


class Ownership:
    """Acquires, renews and releases shards, so that all live schedulers own about the same number."""

    def __init__(
        self,
        name: str,
        timeout_s: float,
        store: Store,
        clock: SteadyClock,
        take_up: Callable[[Shard], OwnedShard],
    ) -> None:
        self._name = name
        self._timeout_s = timeout_s
        self._store = store
        self._clock = clock
        self._take_up = take_up
        self._shards = FailureDetector(clock)
        self._schedulers = FailureDetector(clock)
        self._living = frozenset({self._name})
        self._owned: dict[str, OwnedShard] = {}
        #: Names of owned shards that are already stopped.
        self._paused: set[str] = set()
        self._lock = threading.Lock()

    def shards(self) -> tuple[str, ...]:
        """Return the sorted names of the shards that are owned here."""
        with self._lock:
            return tuple(sorted(self._owned))

    def rests(self) -> bool:
        """Return whether no shard that is owned here has open work."""
        with self._lock:
            return all(owned.rests for owned in self._owned.values())

    def lease_ages(self) -> dict[str, float]:
        """Return the observed seconds since the owner of each shard last renewed it."""
        return self._shards.ages()

    def heartbeat_ages(self) -> dict[str, float]:
        """Return the longest time since a heartbeat of a live host, for each shard that is owned here."""
        with self._lock:
            return {name: owned.heartbeat_age_s() for name, owned in self._owned.items()}

    def step(self) -> bool:
        """Record a sign of life of this scheduler, and ensure that every shard has an owner."""
        try:
            self._store.beat(self._name, self._clock())
            with self._store.reading() as tx:
                shards, schedulers = tx.shards(), tx.schedulers()
        except ServiceUnavailable:
            # No scheduler can record a sign of life while the database is not available.
            self._shards.restart()
            self._schedulers.restart()
            raise
        self._follow(shards)
        self._renew()
        still_s = self._shards.note({shard.name: (shard.epoch, shard.generation) for shard in shards})
        quiet_s = self._schedulers.note({known.name: known.generation for known in schedulers})
        living = {name for name, seconds in quiet_s.items() if seconds <= self._timeout_s} | {self._name}
        self._living = frozenset(living)
        share = -(-len(shards) // len(living))
        self._give_up_more_than(share, shards, living)
        self._take_up_to(share, shards, still_s)
        return False

    def living(self) -> frozenset[str]:
        """Return the schedulers that have shown a sign of life within the timeout, this one included."""
        return self._living

    def follow_pool_time(self) -> None:
        """Continue from the latest time reported by any scheduler, whatever this machine's clock shows."""
        with self._store.reading() as tx:
            self._follow(tx.shards())

    def _follow(self, shards: Sequence[Shard]) -> None:
        self._clock.advance_to(max((shard.renewed_at for shard in shards), default=0.0))

    def wake(self, families: Collection[str] = ()) -> bool:
        """Call `OwnedShard.wake` of every shard owned here; return whether these are all shards."""
        with self._lock:
            owned = list(self._owned.values())
            complete = bool(owned) and len(owned) == len(self._shards.names)
        for shard in owned:
            shard.wake(families)
        return complete

    def place_freed(self) -> None:
        """Call `OwnedShard.place_freed` of every shard owned here."""
        with self._lock:
            owned = list(self._owned.values())
        for shard in owned:
            shard.place_freed()

    def deaf(self) -> None:
        """Call `OwnedShard.deaf` of every shard owned here: no heartbeat can be received now."""
        with self._lock:
            for owned in self._owned.values():
                owned.deaf()

    def pause(self) -> None:
        """Stop planning and sending commands; the shards stay owned until `leave`."""
        for name, owned in list(self._owned.items()):
            if name not in self._paused:
                self._paused.add(name)
                owned.stop()

    def leave(self) -> None:
        """Release all shards, so that others take over immediately."""
        for name in self.shards():
            self._release(name)
        self._attempt(lambda: self._store.forget(Scheduler, self._name))

    # ------------------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        for name, owned in list(self._owned.items()):
            try:
                self._store.renew_shard(owned.shard, self._clock())
            except StaleEpoch as error:
                LOG.warning("shard %s is lost: %s", name, error)
                self._drop(name)

    def _give_up_more_than(self, share: int, shards: Sequence[Shard], living: set[str]) -> None:
        """Release surplus shards to schedulers that have fewer, by count."""
        owners = [shard.owner for shard in shards]
        if any(owners.count(name) < len(shards) // len(living) for name in living):
            for name in self.shards()[share:]:
                LOG.info("shard %s is released to another scheduler", name)
                self._release(name)

    def _take_up_to(self, share: int, shards: Sequence[Shard], still_s: Mapping[str, float]) -> None:
        for shard in shards:
            free = shard.owner in ("", self._name)
            if shard.name in self._owned or len(self._owned) >= share:
                continue
            if free or still_s[shard.name] > self._timeout_s:
                self._take(shard, expired=None if free else shard)

    def _take(self, shard: Shard, expired: Shard | None) -> None:
        try:
            acquired = self._store.acquire_shard(shard.name, self._name, self._clock(), expired)
        except Conflict as error:  # another scheduler was faster
            LOG.debug("shard %s could not be taken: %s", shard.name, error)
            return
        former = f", after {expired.owner} gave no sign of life for {self._timeout_s:g} s" if expired else ""
        LOG.info("shard %s is owned by %s, epoch %d%s", shard.name, self._name, acquired.epoch, former)
        owned = self._take_up(acquired)
        with self._lock:
            self._owned[shard.name] = owned

    def _drop(self, name: str) -> OwnedShard:
        with self._lock:
            owned = self._owned.pop(name)
        if name not in self._paused:
            owned.stop()
        return owned

    def _release(self, name: str) -> None:
        owned = self._drop(name)
        self._attempt(lambda: self._store.release_shard(owned.shard))

    def _attempt(self, last_step: Callable[[], None]) -> None:
        """Run a last step whose failure does not affect other schedulers for long."""
        try:
            last_step()
        except FpgaPoolError as error:
            LOG.warning(
                "scheduler %s could not release its shards; the others will take them soon: %s", self._name, error
            )
