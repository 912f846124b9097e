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

    def test_a_full_pool_is_told_as_no_valid_host_and_one_slot_less_is_enough(self):
        self.add_host("host1", 1, 1)
        flavor = self.flavor()
        first = self.boot(flavor)
        (refused,) = self.boot(flavor, expected="ERROR")
        assert "No valid host" in refused["fault"]["message"]
        self.delete(first)
        self.boot(flavor)

    def test_every_number_of_instances_fits_in_every_shape_of_pool_as_often_as_there_are_slots(self):
        # By hosts: cards and slots of each card.  In every shape the requests come in two orders; each must be
        # placed whole, though the first fit of one instance leaves the next ones other cards.
        shapes = {"host1": (1, 2), "host2": (2, 2), "host3": (3, 1), "host4": (3, 3)}
        flavor = self.flavor()
        total = 0
        for host, (cards, slots) in shapes.items():
            self.add_host(host, cards, slots)
            total += cards * slots
            for sizes in _divided(total), reversed(_divided(total)):
                booted = [instance for size in sizes for instance in self.boot(flavor, size)]
                assert len(booted) == total
                self.delete(booted)

    def test_one_host_with_several_cards_is_filled_by_one_request(self):
        self.add_host("host1", 3, 2)
        booted = self.boot(self.flavor(), 6)
        assert sum(sum(self.cards_of(instance).values()) for instance in booted) == 6

    def test_an_instance_with_two_slots_gets_both_on_one_card_though_single_ones_are_free_on_others(self):
        self.add_host("host1", 2, 3)
        one, two = self.flavor(), self.flavor(count=2)
        self.boot(one)
        # 5 slots are left: 2 on one card, where the first instance is, and 3 on the other.
        for instance in self.boot(two, 2):
            assert list(self.cards_of(instance).values()) == [2]


def _divided(total):
    """Return sizes of requests from 1 on that add up to a total: 1, 2, 3 ... and what is left, at most 10."""
    sizes = []
    while total:
        sizes.append(min(len(sizes) + 1, total, 10))
        total -= sizes[-1]
    return sizes
