"""Many jobs through a pool where slots, clients and the whole process fail."""

import hashlib
import random
import socket
import threading
import time
from collections import Counter
from typing import Self

import pytest

from fpga_pool.client import JobSpec
from fpga_pool.dataplane import client as dataplane_client
from fpga_pool.model.objects import BatchState, JobState
from fpga_pool.store import Store

JOBS, BATCHES, SEED = 500, 5, 7

FAULTS = {
    "standalone": {"hosts": 4, "egress_mbps": 400, "ingress_mbps": 800},
    "driver_simulated": {
        "cards": 2,
        "load_fails": 0.03,
        "job_hangs": 0.01,
        "card_disappears": 0.01,
        "card_returns_after_s": 0.5,
        "fault_seed": SEED,
    },
}


class Saboteur:
    """Cuts streams of this process's clients, at random, while it is at work."""

    def __init__(self, monkeypatch, seed: int) -> None:
        self._rng = random.Random(seed)
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self.cut = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        real = dataplane_client.Connection.__init__

        def noted(connection, sock, *arguments, **named):
            self._open.append(sock)
            real(connection, sock, *arguments, **named)

        monkeypatch.setattr(dataplane_client.Connection, "__init__", noted)

    def _work(self) -> None:
        while not self._stop.wait(0.1):
            alive = [sock for sock in self._open if sock.fileno() >= 0]
            self._open = alive
            if alive:
                victim = self._rng.choice(alive)
                try:
                    victim.shutdown(socket.SHUT_RDWR)
                    self.cut += 1
                except OSError:
                    pass  # it has ended by itself meanwhile

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_500_jobs_survive_faults_of_slots_clients_and_a_kill_of_the_whole_pool(make_pool, tmp_path, monkeypatch):
    pool = make_pool(FAULTS)
    rng = random.Random(SEED)
    payloads = [rng.randbytes(rng.randrange(0, 60_000)) for _ in range(JOBS)]
    results: dict[int, object] = {}

    def run(part: int) -> None:
        specs = [
            JobSpec(rng_function(number), payload, requester=f"node-{number % 4 + 1}", name=f"job-{number}")
            for number, payload in list(enumerate(payloads))[part::BATCHES]
        ]
        results[part] = pool.client().run_jobs(specs, output_dir=tmp_path / f"out-{part}")

    with Saboteur(monkeypatch, SEED) as saboteur:
        threads = [threading.Thread(target=run, args=(part,)) for part in range(BATCHES)]
        for thread in threads:
            thread.start()
        wait_for_progress(pool, share=0.3)
        pool.kill()
        time.sleep(0.5)
        pool.start()
        for thread in threads:
            thread.join(240)
    assert saboteur.cut > 0
    assert sorted(results) == list(range(BATCHES))
    wrong = [
        (job.name, job.state, job.reason)
        for part in range(BATCHES)
        for number, job in zip(range(part, JOBS, BATCHES), results[part].jobs, strict=True)
        if job.result is None or job.result.read_bytes() != expected(number, payloads[number])
    ]
    assert wrong == []
    assert {results[part].batch.state for part in results} == {BatchState.COMPLETED}
    check_database(pool)


def rng_function(number: int) -> str:
    return "sha256" if number % 3 else "wordcount"


def expected(number: int, payload: bytes) -> bytes:
    if rng_function(number) == "sha256":
        return hashlib.sha256(payload).hexdigest().encode() + b"\n"
    return b"%d\n" % len(payload.split())


def wait_for_progress(pool, share: float) -> None:
    """Wait until about this share of all jobs is complete, so that the kill comes in the middle."""
    client, deadline_s = pool.client(), time.monotonic() + 120
    while time.monotonic() < deadline_s:
        batches = client.batches()
        if sum(batch.jobs_completed for batch in batches) >= share * JOBS:
            return
        time.sleep(0.05)
    raise AssertionError("the batches do not get on")


def check_database(pool) -> None:
    """One completion of each job is recorded, every job has ended, and nobody holds a slot any more."""
    pool.stop()
    store = Store(f"sqlite:///{pool.state_dir / 'pool.sqlite'}")
    with store.reading() as tx:
        batches = tx.batches(limit=100)
        jobs = [job for batch in batches for job in tx.batch_jobs(batch.uuid)]
        assert len(jobs) == JOBS
        assert Counter(job.state for job in jobs).keys() <= {JobState.DONE, JobState.RESULT_HELD}
        assert [batch.jobs_completed for batch in batches] == [JOBS // BATCHES] * BATCHES
        runs = [tx.runs(function, newest=10 * JOBS) for function in ("sha256", "wordcount")]
        assert sum(len(sizes) for boards in runs for sizes, _ in boards.values()) == JOBS
        assert list(tx.leases()) == []
    store.close()
