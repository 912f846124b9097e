"""Schedulers that act on shards that another one has taken over, after being stopped or cut off beyond their lease."""

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

#: Share of the pieces between a scheduler and its database that are delayed, and the longest delay in leases.
LATE_SHARE, LATE_PART = 0.02, 0.5
#: Probability that a scheduler that was cut off loses the connections.
CUT_SHARE = 0.2
#: Longest absence: by then the database ends a transaction in which a stopped scheduler locks its shard.
AWAY_S = 40.0
#: The ways in which a scheduler loses its lease without noticing.
WAYS = ("stopped", "stopped with statements under way", "cut off", "stopped, then cut off")


@dataclass
class Splits:
    """Injects `count` splits, each into a scheduler that owns a shard; all work again when `run` returns."""

    pool: Deployment
    schedulers: Sequence[str]
    #: The relay between each scheduler and its database.
    relays: Mapping[str, Relay]
    store: Store
    seed: int
    lease_s: float
    #: Number of splits by way, and number of splits after which another scheduler owned a shard.
    done: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name, relay in self.relays.items():
            relay.delay(_delays(random.Random(f"{self.seed} {name}"), LATE_PART * self.lease_s))

    def run(self, count: int) -> None:
        """Inject this number of splits."""
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
        """Stop a scheduler or cut it off at any moment, and let it continue once another one owns its shards.

        Return how many shards another one owns, and how long that took.  A shard is not taken over if its lock was left
        in a transaction that the database did not end in time.
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
        # Its earlier statements arrive before it continues, or while it does, or are lost with its connections.
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
    """Return a function that draws the delay of the next piece; which piece is late depends on the order of threads."""
    lock = threading.Lock()

    def delay_s() -> float:
        with lock:
            return rng.uniform(0.0, longest_s) if rng.random() < LATE_SHARE else 0.0

    return delay_s
