"""Schedulers that go on with shards that another one has taken: stopped, or cut off, for longer than their lease."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fpga_pool.store import Store
from support.deployment import Deployment
from support.relay import Relay

#: Of so many pieces between a scheduler and its database one is late, by up to so much of the lease.
LATE_SHARE, LATE_PART = 0.02, 0.5
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
        rng = random.Random(f"{self.seed} splits")
        for number in range(count):
            name, before = self._owner(rng)
            way = rng.choice(WAYS)
            self._split(name, way, rng)
            after = self._shards()
            self.done[way] += 1
            lost = sum(after[shard][1] > epoch for shard, epoch in before.items())
            self.taken[way] += bool(lost)
            print(f"{number}: {name} {way}: lost {lost} of {len(before)} shards", flush=True)
            time.sleep(rng.uniform(0.0, 2 * self.lease_s))
        for relay in self.relays.values():
            relay.delay(lambda: 0.0)

    def _split(self, name: str, way: str, rng: random.Random) -> None:
        """Leave a scheduler without its lease for longer than that, from any moment on, and let it go on."""
        relay, away_s = self.relays[name], self.lease_s * rng.uniform(1.2, 2.5)
        steps: list[tuple[float, Callable[[], None]]] = []
        if way != "stopped":
            steps.append((rng.uniform(0.0, 0.3) if way != "stopped, then cut off" else away_s / 2, relay.part))
            # Late statements arrive before it goes on, or while it does, or connections are lost with them.
            steps.append((away_s + rng.uniform(-0.3, 0.3), relay.heal))
        if way != "cut off":
            steps.append((rng.uniform(0.0, 0.3), lambda: self.pool.stop(name)))
            steps.append((away_s + 0.1, lambda: self.pool.cont(name)))
        begun_s = time.monotonic()
        for at_s, step in sorted(steps, key=lambda one: one[0]):
            time.sleep(max(begun_s + at_s - time.monotonic(), 0.0))
            step()
        if rng.random() < 0.2:
            relay.cut()

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
