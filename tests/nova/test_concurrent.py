"""Boots at the same time, and the slots that they leave to others, with real allocations in Placement."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cloud import LARGE_TRAITS, Cloud, extra_specs
from nova.scheduler.manager import SchedulerManager


class Concurrent(Cloud):
    def test_as_many_boots_at_once_as_there_are_slots_get_one_each_from_several_schedulers(self):
        for host in ("host1", "host2"):
            self.add_record(host, 4, 1)
        managers = [self.scheduler_service.manager, SchedulerManager(), SchedulerManager()]
        for _ in range(2):
            found = self.chosen_at_once(8, managers)
            assert None not in found
            cards = Counter(card for chosen in found for _, cards in chosen.values() for card in cards)
            assert set(cards.values()) == {1}
            assert len(cards) == 8
            self.release(uuid for chosen in found for uuid in chosen)

    def test_functions_that_fit_anywhere_leave_the_large_slots_to_those_that_need_them(self):
        self.add_record("host1", 0, 0)
        for number in range(4):
            self.add_card("host1", f"card{number}", 3)
            self.add_card("host1", f"card{number}", 1, "large", LARGE_TRAITS)
        small, large = self.nova_flavor(extra_specs()), self.nova_flavor(extra_specs("optical_flow"))
        for flavor in [small] * 12 + [large] * 4:
            assert len(self.chosen_for(flavor)) == 1
