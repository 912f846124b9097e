"""Schedulers and agents that are killed and stalled at random moments, in pools on real parts."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from fpga_pool.client import RunSettings
from fpga_pool.store import Store
from support.deployment import Deployment

SEED = 11
BATCHES, BATCH_JOBS = 10, 50
JOBS = BATCHES * BATCH_JOBS

SHARD_TIMEOUT_S = 5.0
#: Longer than a scheduler may be silent (shard_timeout_s) and a host as well (host_timeout_s, the same).
STALL_S = SHARD_TIMEOUT_S + 2.5

CHAOS = {
    "scheduler": {"shards": 2, "shard_timeout_s": SHARD_TIMEOUT_S},
    "driver_simulated": {
        "cards": 2,
        "load_fails": 0.03,
        "job_hangs": 0.01,
        "card_disappears": 0.01,
        "card_returns_after_s": 0.5,
        "fault_seed": SEED,
    },
}

#: A client that is not put off by a pool that does not answer for a while.
PATIENT = RunSettings(patience_s=90.0, timeout_s=400.0)


@dataclass(frozen=True)
class Owned:
    """Who owns a shard from a moment on."""

    since_s: float
    shard: str
    owner: str
    epoch: int


class Owners:
    """Watches who owns the shards, as the database has it."""

    LOOK_S = 0.05

    def __init__(self, database_url: str) -> None:
        self._store = Store(database_url)
        self._history: list[Owned] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(10)
        self._store.close()

    def _watch(self) -> None:
        known: dict[str, tuple[str, int]] = {}
        while not self._end.wait(self.LOOK_S):
            with self._store.reading() as tx:
                found = {shard.name: (shard.owner, shard.epoch) for shard in tx.shards()}
            self._history += [Owned(time.monotonic(), name, *found[name]) for name in found.keys() - known.keys()]
            self._history += [
                Owned(time.monotonic(), name, *found[name]) for name in known if found[name] != known[name]
            ]
            known = found

    def shards_of(self, owner: str) -> list[str]:
        now = {entry.shard: entry.owner for entry in self._history}
        return sorted(shard for shard in now if now[shard] == owner)

    def next_of(self, shard: str, after_s: float) -> Owned | None:
        """Return who has taken a shard first after a moment."""
        later = (entry for entry in self._history if entry.shard == shard and entry.since_s > after_s and entry.owner)
        return next(later, None)


@contextlib.contextmanager
def watched(database_url: str) -> Iterator[Owners]:
    owners = Owners(database_url)
    try:
        yield owners
    finally:
        owners.close()


class Chaos:
    """What happens to the processes of a pool, each at a random moment after a new batch has begun."""

    def __init__(self, pool: Deployment, owners: Owners, seed: int, begin_batch: Callable[[], None]) -> None:
        self._pool = pool
        self._owners = owners
        self._begin_batch = begin_batch
        self.begun_s = time.monotonic()
        self._threads = [
            threading.Thread(target=self._run, args=(acts, random.Random(f"{seed} {number}")), daemon=True)
            for number, acts in enumerate(
                (
                    [(act, f"scheduler-{n}") for n in (1, 2) for act in (self.kill, self.stall)],
                    [(self.kill, "node-1"), (self.kill, "node-2"), (self.kill, "node-3"), (self.stall, "node-2")],
                )
            )
        ]
        self.done = 0
        #: When a shard lost its owner, and how.
        self._left: list[tuple[float, str, str]] = []

    def run(self) -> None:
        """Let it all happen: to the schedulers, and at the same time to the agents."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join(120)

    def _run(self, acts: list, rng: random.Random) -> None:
        rng.shuffle(acts)
        for act, name in acts:
            self._begin_batch()
            time.sleep(rng.uniform(0.2, 2.0))
            said = f"{act.__name__} {name}"
            print(f"{time.monotonic() - self.begun_s:5.1f} s: {said}")
            self._left += [(time.monotonic(), shard, said) for shard in self._owners.shards_of(name)]
            act(name, rng)
            self.done += 1

    def kill(self, name: str, rng: random.Random) -> None:
        self._pool.kill(name)
        time.sleep(rng.uniform(0.0, 1.5))
        self._pool.restart(name)

    def stall(self, name: str, rng: random.Random) -> None:
        self._pool.stop(name)
        time.sleep(STALL_S + rng.uniform(0.0, 1.0))
        self._pool.cont(name)

    def tell_take_overs(self) -> None:
        """Print for how long shards had no owner that was there."""
        for left_s, shard, said in self._left:
            taken = self._owners.next_of(shard, left_s)
            what = f"epoch {taken.epoch}, {taken.owner} after {taken.since_s - left_s:.1f} s" if taken else "as before"
            print(f"{said}: {shard}: {what}")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database", "split_batches"), [("mariadb", True), ("postgresql", False)], ids=["mariadb", "postgresql"]
)
def test_500_jobs_survive_kills_and_stalls_of_schedulers_and_agents(
    deployment, rabbitmq, request, database, split_batches, new_work, end_and_audit
):
    url = request.getfixturevalue(f"{database}_url")
    options = {**CHAOS, "scheduler": {**CHAOS["scheduler"], "split_batches": split_batches}}
    pool = deployment(rabbitmq.url, url, schedulers=2, agents=3, options=options)
    work = new_work(pool.hosts, JOBS, SEED)
    parts = iter(range(BATCHES))

    def begin_batch() -> None:
        part = next(parts)
        work.start(pool.client(), range(part, JOBS, BATCHES), PATIENT)

    with watched(url) as owners:
        begin_batch()
        begin_batch()
        chaos = Chaos(pool, owners, SEED, begin_batch)
        chaos.run()
        work.wait(300)
        print(f"{time.monotonic() - chaos.begun_s:5.1f} s: all batches have ended")
        chaos.tell_take_overs()
    assert chaos.done == 8
    assert work.wrong() == []
    assert len(end_and_audit(pool, url)) == JOBS
