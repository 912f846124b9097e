"""Instances with accelerator flavors, through Nova's API."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cloud import Cloud


class Boots(Cloud):
    def test_an_instance_gets_the_host_and_card_where_its_function_is_loaded(self):
        self.add_host("host1", 1, 2)
        self.add_host("host2", 2, 2)
        self.pool.put("host2", "card1", "r1", "READY", "sha256")
        (instance,) = self.boot(self.flavor())
        assert self.cards_of(instance) == {("host2", "card1"): 1}

    def test_a_request_for_nothing_of_the_pool_does_not_ask_it(self):
        self.add_host("host1", 1, 1)
        self.boot(self._create_flavor(memory_mb=64, vcpu=1, disk=1))
        assert self.pool.asked == 0

    def test_one_question_is_asked_for_all_instances_of_a_request(self):
        self.add_host("host1", 3, 2)
        self.boot(self.flavor(), 5)
        assert self.pool.asked == 1

    def test_the_reason_of_a_refusal_is_in_the_fault_of_the_server(self):
        self.add_host("host1", 1, 1)
        self.pool.put("host1", "card0", "r0", "FAULTED")
        (refused,) = self.boot(self.flavor(), expected="ERROR")
        assert refused["fault"]["message"].endswith("no host has 1 slot available for sha256")

    def test_a_full_pool_is_told_as_no_valid_host_and_one_slot_less_is_enough(self):
        self.add_host("host1", 1, 1)
        flavor = self.flavor()
        first = self.boot(flavor)
        (refused,) = self.boot(flavor, expected="ERROR")
        assert "No valid host" in refused["fault"]["message"]
        self.delete(first)
        self.boot(flavor)
