"""Concurrent boots on few hosts, by several nova-schedulers and a real Placement: how many find no host.

    OS_NOVA_DISABLE_EVENTLET_PATCHING=1 pytest -c tests/nova/pytest.ini -s tests/benchmarks/nova_boots.py

Two hosts have 32 free slots, three small ones and a large one on each of four cards.  A round consists of eight
concurrent boots, or as many as there are slots; its claims are released before the next round.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "nova"))

from cloud import LARGE_TRAITS, Cloud
from nova.scheduler.manager import SchedulerManager

HOSTS, CARDS, SMALL, LARGE = ("host1", "host2"), 4, 3, 1
SLOTS = len(HOSTS) * CARDS * (SMALL + LARGE)
ROUNDS = int(os.environ.get("ROUNDS", "10"))
SCHEDULERS = 4


class BootsAtOnce(Cloud):
    def setUp(self):
        super().setUp()
        for host in HOSTS:
            self.add_record(host, CARDS, SMALL)
            for number in range(CARDS):
                self.add_card(host, f"card{number}", LARGE, "large", LARGE_TRAITS)
        self.managers = [self.scheduler_service.manager, *(SchedulerManager() for _ in range(SCHEDULERS - 1))]

    def rounds(self, boots):
        """Return how many boots of each round found no host."""
        refused = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            found = [chosen for chosen in self.chosen_at_once(boots, self.managers) if chosen is not None]
            refused.append(boots - len(found))
            took_s = time.perf_counter() - began
            print(f"{boots} boots at once: {refused[-1]} without a host, {took_s:.1f} s", flush=True)
            assert all(list(cards.values()) == [1] for chosen in found for _, cards in chosen.values())
            self.release(uuid for chosen in found for uuid in chosen)
        return refused

    def test_eight_boots_at_once(self):
        assert self.rounds(8) == [0] * ROUNDS

    def test_as_many_boots_at_once_as_there_are_slots(self):
        assert self.rounds(SLOTS) == [0] * ROUNDS
