"""Which host and card nova-scheduler chooses and claims, with real allocations in Placement."""

import sys
from itertools import permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cloud import LARGE_TRAITS, Cloud, extra_specs
from nova import exception

ONE = extra_specs()


class Choices(Cloud):
    def cards(self, chosen):
        """Return how many slots of each card were chosen."""
        slots = {}
        for host, cards in chosen.values():
            for (of, card), count in cards.items():
                assert of == host
                slots[host, card] = slots.get((host, card), 0) + count
        return slots

    def test_any_number_of_instances_fits_any_pool_as_often_as_there_are_slots(self):
        # 1 to 4 hosts; what one request leaves is what the next one gets, until nothing is left.
        shapes = {"host1": (1, 2), "host2": (2, 1), "host3": (3, 2), "host4": (2, 3)}
        total = 0
        for host, (cards, slots) in shapes.items():
            self.add_record(host, cards, slots)
            total += cards * slots
            sizes = divided(total)
            for order in (sizes, sizes[::-1]):
                booted = {uuid: to for size in order for uuid, to in self.choose(size, ONE).items()}
                assert sum(self.cards(booted).values()) == total
                with pytest.raises(exception.NoValidHost):
                    self.choose(1, ONE)
                self.release(booted)

    def test_three_requests_fit_in_every_order(self):
        self.add_record("host1", 3, 2)
        self.add_record("host2", 1, 1)
        for order in permutations((1, 2, 4)):
            booted = {uuid: to for size in order for uuid, to in self.choose(size, ONE).items()}
            assert sum(self.cards(booted).values()) == 7
            self.release(booted)

    def test_instances_with_two_slots_get_both_on_one_card(self):
        self.add_record("host1", 3, 3)
        first = self.choose(1, ONE)
        # 2, 3 and 3 slots are left: three pairs, and no fourth.
        pairs = self.choose(3, extra_specs(count=2))
        assert [list(cards.values()) for _, cards in pairs.values()] == [[2], [2], [2]]
        self.release([*first, *pairs])
        with pytest.raises(exception.NoValidHost):
            self.choose(4, extra_specs(count=2))
        # What was claimed for those of them that fitted is given back.
        assert len(self.choose(9, ONE)) == 9

    def test_groups_of_a_flavor_get_cards_of_their_own_where_they_are_isolated(self):
        self.add_record("host1", 2, 1)
        self.add_record("host2", 2, 1)
        specs = {
            "fpga_pool:function": "sha256",
            "fpga_pool:count": "2",
            "resources_FPGA1:CUSTOM_FPGA_SLOT": "1",
            "resources_FPGA2:CUSTOM_FPGA_SLOT": "1",
            "group_policy": "isolate",
        }
        chosen = self.choose(2, specs)
        assert self.cards(chosen) == {(host, card): 1 for host in ("host1", "host2") for card in ("card0", "card1")}

    def test_two_functions_race_for_the_last_slot_and_one_gets_it(self):
        self.add_record("host1", 1, 1)
        self.choose(1, ONE)
        with pytest.raises(exception.NoValidHost):
            self.choose(1, extra_specs("aes"))

    def test_slots_that_jobs_of_the_pool_have_are_taken_last_and_the_cheapest_first(self):
        self.add_record("host1", 3, 1)
        pool_lease = ("pool", "default", True)
        self.pool.put("host1", "card0", "r0", "READY", "wordcount")
        self.pool.put("host1", "card1", "r0", "BUSY", "aes", pool_lease)
        self.pool.put("host1", "card2", "r0", "READY", "sha256")
        order = [card for _ in range(3) for card in self.cards(self.choose(1, ONE))]
        assert order == [("host1", "card2"), ("host1", "card0"), ("host1", "card1")]

    def test_a_job_that_cannot_be_preempted_keeps_its_slot(self):
        self.add_record("host1", 1, 1)
        self.pool.put("host1", "card0", "r0", "BUSY", "sha256", ("pool", "default", True))
        with pytest.raises(exception.NoValidHost):
            self.choose(1, extra_specs("aes"))

    def test_a_slot_out_of_service_is_not_chosen_before_placement_hears_of_it(self):
        self.add_record("host1", 1, 1)
        self.add_record("host2", 1, 1)
        self.pool.put("host1", "card0", "r0", "FAULTED")
        assert self.cards(self.choose(1, ONE)) == {("host2", "card0"): 1}
        with pytest.raises(exception.NoValidHost):
            self.choose(1, ONE)

    def test_slots_for_a_design_are_of_its_kind_and_for_projects_that_may_have_it(self):
        self.add_record("host1", 1, 1)
        self.add_card("host1", "card9", 2, kind="large", traits=LARGE_TRAITS)
        manifest = {"name": "mine", "board": "demo", "kind": "large", "io_bps": 1e9, "b_s_per_byte": 1e-9,
                    "simulates": "sha256"}  # fmt: skip
        design = {"function": "mine.12345678", "project_id": "q", "manifest": manifest}
        specs = extra_specs() | {"fpga_pool:function": design["function"], "trait:CUSTOM_FPGA_BOARD_DEMO": "required",
                                 "trait:CUSTOM_FPGA_KIND_LARGE": "required"}  # fmt: skip
        del specs["trait:CUSTOM_FPGA_FUNCTION_SHA256"]
        for known in ([], [design]):
            self.pool.designs = known
            unknown = "does not belong to an approved design that the project may use"
            with pytest.raises(exception.NoValidHost, match=unknown):
                self.choose(1, specs)
        # Approved after nova-scheduler has asked: what it does not know it asks for again.
        for number, project in enumerate(("p", "")):
            function = f"mine.0000000{number}"
            self.pool.designs = [design, design | {"function": function, "project_id": project}]
            chosen = self.choose(2, specs | {"fpga_pool:function": function})
            assert self.cards(chosen) == {("host1", "card9"): 2}
            self.release(chosen)

    def test_hosts_with_the_function_loaded_come_first_for_all_instances_of_a_request(self):
        for number in range(1, 21):
            self.add_record(f"host{number}", 1, 1)
        for number in (3, 7, 18):
            self.pool.put(f"host{number}", "card0", "r0", "READY", "sha256")
        chosen = self.choose(3, extra_specs(runtime="60"))
        assert {host for host, _ in chosen.values()} == {"host3", "host7", "host18"}
        assert self.pool.asked == 1

    def test_hosts_to_which_the_pool_sends_least_come_first(self):
        hosts = ["host1", "host2", "host3"]
        for host in hosts:
            self.add_record(host, 1, 1)
        for best in (*hosts, *hosts[::-1]):
            # 1e8 s: the input would come after all functions of the catalogue have run on this slow board.
            self.pool.ingress = {host: (1e18, 1e10) for host in hosts if host != best}
            chosen = self.choose(1, ONE)
            assert self.cards(chosen) == {(best, "card0"): 1}
            self.release(chosen)

    def test_without_the_pool_no_host_is_found_or_placement_chooses_as_the_operator_wants(self):
        self.add_record("host1", 1, 1)
        self.flags(timeout=0.2, group="fpga_pool")
        self.listening.stop()
        self.listening.wait()
        with pytest.raises(exception.NoValidHost):
            self.choose(1, ONE)
        self.flags(fail_open=True, group="fpga_pool")
        assert self.cards(self.choose(1, ONE)) == {("host1", "card0"): 1}

    def test_switched_off_it_leaves_the_choice_to_nova(self):
        self.add_record("host1", 1, 1)
        self.flags(enabled=False, group="fpga_pool")
        assert self.cards(self.choose(1, ONE)) == {("host1", "card0"): 1}
        assert self.pool.asked == 0

    def test_requests_at_the_same_time_share_a_question(self):
        self.add_record("host1", 1, 2)
        self.flags(snapshot_age=60.0, group="fpga_pool")
        self.choose(1, ONE)
        self.choose(1, ONE)
        assert self.pool.asked == 1


def divided(total):
    """Return sizes of requests from 1 on that add up to a total: 1, 2, 3 ... and what is left, at most 10."""
    sizes = []
    while total:
        sizes.append(min(len(sizes) + 1, total, 10))
        total -= sizes[-1]
    return sizes
