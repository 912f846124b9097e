"""Many jobs in a pool whose slots, clients and process fail."""

import random
import socket
import threading
import time
from typing import Self

import pytest

from fpga_pool.transfer.client import Connection
from fpga_pool.transfer.lane_client import LaneConnection
from support.waiting import wait_until

JOBS, BATCHES, SEED = 500, 5, 7
#: Maximum number of streams that are cut.  Without it, none would end on a slow machine, where streams take long.
MOST_CUT = 200

FAULTS = {
    # A card that disappears costs each job in its queues an attempt; no job should lose all attempts by chance.
    "scheduler": {"max_attempts": 30},
    "standalone": {"hosts": 4, "egress_mbps": 400, "ingress_mbps": 800},
    "agent": {"hang_grace_s": 1.0},
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
    """Cuts random streams of this process's clients during the context."""

    def __init__(self, monkeypatch, seed: int) -> None:
        self._rng = random.Random(seed)
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self.cut = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        for kind in (Connection, LaneConnection):
            monkeypatch.setattr(kind, "__init__", self._noting(kind.__init__))

    def _noting(self, init):
        def noted(connection, sock, *arguments, **named):
            self._open.append(sock)
            init(connection, sock, *arguments, **named)

        return noted

    def _work(self) -> None:
        while self.cut < MOST_CUT and not self._stop.wait(0.1):
            alive = [sock for sock in self._open if sock.fileno() >= 0]
            self._open = alive
            if alive:
                victim = self._rng.choice(alive)
                try:
                    victim.shutdown(socket.SHUT_RDWR)
                    self.cut += 1
                except OSError:
                    pass  # it has already ended

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_500_jobs_survive_faults_of_slots_clients_and_a_kill_of_the_whole_pool(
    make_pool, new_work, end_and_audit_embedded, monkeypatch
):
    pool = make_pool(FAULTS)
    work = new_work([f"node-{number}" for number in range(1, 5)], JOBS, SEED)
    with Saboteur(monkeypatch, SEED) as saboteur:
        for part in range(BATCHES):
            work.start(pool.client(), range(part, JOBS, BATCHES))
        wait_for_progress(pool, share=0.3)
        pool.kill()
        time.sleep(0.5)
        pool.start()
        work.wait(600)
    assert saboteur.cut > 0
    assert work.wrong() == []
    assert len(end_and_audit_embedded(pool)) == JOBS


def wait_for_progress(pool, share: float) -> None:
    """Wait until about this share of all jobs is complete, so that the kill happens in the middle."""
    client = pool.client()
    wait_until(
        lambda: sum(batch.jobs_completed for batch in client.batches()) >= share * JOBS, "the batches get on", 240
    )
