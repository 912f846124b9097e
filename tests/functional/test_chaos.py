"""Schedulers and agents that are killed and stalled at random moments, in pools on real parts."""

import random
import threading
import time
from collections.abc import Callable, Iterable

import pytest

from fpga_pool.client.runner import RunSettings
from fpga_pool.experiments.deployment import Deployment
from fpga_pool.model.objects import ACTIVE_JOBS
from fpga_pool.store import Store

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
PATIENT = RunSettings(patience_s=90.0, timeout_s=150.0)


class Chaos:
    """What happens to the processes of a pool, each at a random moment after a new batch has begun."""

    def __init__(self, pool: Deployment, seed: int, begin_batch: Callable[[], None]) -> None:
        self._pool = pool
        self._begin_batch = begin_batch
        self._begun_s = time.monotonic()
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
            print(f"{time.monotonic() - self._begun_s:5.1f} s: {act.__name__} {name}")
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


@pytest.mark.slow
@pytest.mark.timeout(300)
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

    begin_batch()
    begin_batch()
    chaos = Chaos(pool, SEED, begin_batch)
    chaos.run()
    assert chaos.done == 8
    work.wait(120)
    assert work.wrong() == []
    assert len(end_and_audit(pool, url)) == JOBS
