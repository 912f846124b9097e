"""Schedulers that go on with shards that another one has taken: stopped, or cut off, for longer than their lease."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from fpga_pool.store import Store
from support.deployment import Deployment
from support.relay import Relay

#: Of so many pieces between a scheduler and its database one is late, by up to so much of the lease.
LATE_SHARE, LATE_PART = 0.02, 0.5
#: Of so many it loses the connections that were parted.
CUT_SHARE = 0.2
#: So long it is away at most: until the database ends a transaction in which a stopped one holds its shard.
AWAY_S = 40.0
#: In which ways a scheduler goes on without its lease.
WAYS = ("stopped", "stopped with statements under way", "cut off", "stopped, then cut off")


@dataclass
class Splits:
    """Does it `count` times, each to a scheduler that owns a shard; all are well when `run` returns."""

    pool: Deployment
    schedulers: Sequence[str]
    #: Of each scheduler, the way to its database.
    relays: Mapping[str, Relay]
    store: Store
    seed: int
    lease_s: float
    #: How many times it was done, in which way; and how many times another one had the shard when it went on.
    done: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name, relay in self.relays.items():
            relay.delay(_delays(random.Random(f"{self.seed} {name}"), LATE_PART * self.lease_s))

    def run(self, count: int) -> None:
        """Do it so many times."""
        rng = random.Random(f"{self.seed} splits")
        for number in range(count):
            name, before = self._owner(rng)
            way = rng.choice(WAYS)
            lost, away_s = self._split(name, way, before, rng)
            self.done[way] += 1
            self.taken[way] += bool(lost)
            print(f"{number}: {name} {way} for {away_s:.1f} s: lost {lost} of {len(before)} shards", flush=True)
            time.sleep(rng.uniform(0.0, 2 * self.lease_s))
        for relay in self.relays.values():
            relay.delay(lambda: 0.0)

    def _split(self, name: str, way: str, before: Mapping[str, int], rng: random.Random) -> tuple[int, float]:
        """Have a scheduler be without its shards from any moment on, and go on when another one has them.

        Return how many another one has, and how long that took.  None has one where its lock was left in a transaction
        that the database did not end in time.
        """
        relay, begun_s = self.relays[name], time.monotonic()
        parted, stopped = way != "stopped", way != "cut off"
        first: list[Callable[[], None]] = [relay.part] * parted + [partial(self.pool.stop, name)] * stopped
        if way == "stopped, then cut off":
            first.reverse()
        for step in first:
            time.sleep(rng.uniform(0.0, 0.3))
            step()
        lost = 0
        while lost < len(before) and time.monotonic() < begun_s + AWAY_S:
            time.sleep(0.1)
            after = self._shards()
            lost = sum(after[shard][1] > epoch for shard, epoch in before.items())
        away_s = time.monotonic() - begun_s
        # What it had said arrives before it goes on, or while it does, or is lost with its connections.
        last: list[Callable[[], None]] = [relay.heal] * parted + [partial(self.pool.cont, name)] * stopped
        if parted and rng.random() < CUT_SHARE:
            relay.cut()
        for step in rng.sample(last, len(last)):
            step()
            time.sleep(rng.uniform(0.0, 0.3))
        return lost, away_s

    def _owner(self, rng: random.Random) -> tuple[str, dict[str, int]]:
        """Wait until a scheduler owns a shard; return it with the epochs of its shards."""
        until_s = time.monotonic() + 60.0
        while time.monotonic() < until_s:
            found = self._shards()
            if owners := sorted({owner for owner, _ in found.values()} & set(self.schedulers)):
                name = rng.choice(owners)
                return name, {shard: epoch for shard, (owner, epoch) in found.items() if owner == name}
            time.sleep(0.1)
        raise AssertionError("no shard has an owner")

    def _shards(self) -> dict[str, tuple[str, int]]:
        with self.store.reading() as tx:
            return {shard.name: (shard.owner, shard.epoch) for shard in tx.shards()}


def _delays(rng: random.Random, longest_s: float) -> Callable[[], float]:
    """Return what says how late the next piece is: threads ask it, so which is late differs from run to run."""
    lock = threading.Lock()

    def delay_s() -> float:
        with lock:
            return rng.uniform(0.0, longest_s) if rng.random() < LATE_SHARE else 0.0

    return delay_s
