"""Filter and weighers by Nova's own handlers, on Nova's own HostState and RequestSpec."""

import sys
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cloud import extra_specs
from handlers import PluginCase
from nova import exception, objects
from nova.scheduler import weights

from fpga_pool import nova_plugin
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.flavor import RESOURCE_CLASS, provider_uuid
from fpga_pool.nova_plugin import pool as plugin_pool

WEIGHERS = ("Attempt", "Benefit", "Lattice", "Learned", "Makespan", "Scarcity", "Tier")


class Handlers(PluginCase):
    def test_nova_finds_what_is_installed(self):
        assert [type(found).__name__ for found in self.filters] == ["FpgaPoolSlotFilter", "FpgaPoolTierFilter"]
        names = {f"FpgaPool{what}Weigher" for what in WEIGHERS}
        assert {type(found).__name__ for found in self.weighers} == names
        assert {found.__name__ for found in nova_plugin.all_weighers()} == names

    def test_other_requests_and_rebuilds_pass_without_a_question(self):
        hosts = self.hosts(2)
        for spec in (self.spec({"hw:cpu_policy": "shared"}), self.spec(extra_specs(), _nova_check_type=["rebuild"])):
            assert self.passing(hosts, spec) == hosts
            assert set(self.weighed(hosts, spec).values()) == {0.0}
        assert self.pool.asked == 0

    def refusal(self, specs):
        """Return the reason that becomes part of the server's fault."""
        with pytest.raises(exception.NoValidHost) as refused:
            self.passing(self.hosts(1), self.spec(specs))
        return refused.value.kwargs["reason"]

    def test_a_flavor_that_can_never_work_is_refused_with_the_reason(self):
        self.pool.put("host1", "card0", "r0")
        right = extra_specs()
        assert self.passing(self.hosts(1), self.spec(right))
        other = {**right, "trait:CUSTOM_FPGA_FUNCTION_AES": "required"}
        for specs, reason in (
            ({**right, "fpga_pool:topology": "star"}, "'star' is invalid; expected any, line or ring"),
            ({f"resources:{RESOURCE_CLASS}": "1"}, "fpga_pool:function: missing, but required by resources:"),
            ({"fpga_pool:functon": "aes"}, "fpga_pool:function: missing"),
            ({**right, "fpga_pool:function": "shaa256"}, "'shaa256' is not in the catalogue"),
            ({**right, f"resources:{RESOURCE_CLASS}": "2"}, "2 in total, but fpga_pool:count is 1"),
            ({**right, "fpga_pool:count": "17", f"resources:{RESOURCE_CLASS}": "17"}, "no card has 17 slots"),
            (other, "belongs to another function"),
        ):
            assert reason in self.refusal(specs)

    def test_a_refusal_says_what_is_not_available_and_whether_the_pool_responds(self):
        self.pool.put("host1", "card0", "r0", "FAULTED")
        assert self.refusal(extra_specs()) == "no host has 1 slot available for sha256"
        plugin_pool.forget()
        self.flags(timeout=0.2, group="fpga_pool")
        self.listening.stop()
        self.listening.wait()
        assert self.refusal(extra_specs()) == "the pool of accelerators does not respond"

    def test_the_host_where_the_pool_gains_most_weighs_most_and_an_aggregate_can_turn_that_around(self):
        self.pool.put("host1", "card0", "r0", "BUSY", "aes", ("pool", "default", True))
        self.pool.put("host2", "card0", "r0", "READY", "sha256")
        self.pool.put("host3", "card0", "r0")
        found = self.weighed(self.hosts(3), self.spec(extra_specs()))
        assert found["host2"] == 1.0
        assert found["host1"] == 0.0
        assert 0.0 < found["host3"] < 1.0
        turned = self.hosts(3)
        for host in turned:
            host.aggregates = [objects.Aggregate(metadata={"fpga_pool_benefit_weight_multiplier": "-2.0"})]
        assert self.weighed(turned, self.spec(extra_specs()))["host2"] == -2.0

    def test_the_host_that_completes_an_instance_last_weighs_least_and_equals_weigh_the_same(self):
        """Instances run so briefly that loading a slot takes most of the time."""
        for number in (1, 2):
            self.pool.put(f"host{number}", "card0", "r0", "READY", "sha256")
        self.pool.put("host3", "card0", "r0")
        names = load_catalogue(installed_catalogue()).functions
        self.pool.run_times = [{"project_id": "", "function": name, "median_s": 1e-4} for name in names]
        self.flags(benefit_weight_multiplier=0.0, makespan_weight_multiplier=1.0, group="fpga_pool")
        observed, declared = self.spec(extra_specs()), self.spec(extra_specs(runtime="3600"))
        observed.project_id = declared.project_id = "p"
        with mock.patch("fpga_pool.nova_plugin.filters.slots_left", return_value=None):
            assert self.weighed(self.hosts(3), observed) == {"host1": 1.0, "host2": 1.0, "host3": 0.0}
            # What the flavor declares has precedence; with it loading makes no difference.
            assert self.weighed(self.hosts(3), declared) == {"host1": 0.0, "host2": 0.0, "host3": 0.0}

    def test_the_host_that_loses_the_fewest_connections_weighs_most(self):
        # Each host has slots on cards in a row: 2 of 2 are used up, 2 of 3 or of 4 are cut off.
        for number, cards in ((1, 4), (2, 2), (3, 3)):
            for card in range(cards):
                word = f"box line {cards} {card} full 1 0"
                self.pool.put(f"host{number}", f"card{card}", "r0", links=word)
        self.flags(benefit_weight_multiplier=0.0, group="fpga_pool")
        specs = extra_specs(count=2, topology="line")
        # 4**2 - 2**2, 2**2 and 3**2 - 1 pairs of slots are lost; Nova scales them from 0 to 1.
        found = self.weighed(self.hosts(3), self.spec(specs))
        assert found == pytest.approx({"host2": 1.0, "host3": 0.5, "host1": 0.0})
        assert self.weighed(self.hosts(3), self.spec(extra_specs()))["host1"] == 0.0
        turned = self.hosts(3)
        for host in turned:
            host.aggregates = [objects.Aggregate(metadata={"fpga_pool_lattice_weight_multiplier": "-2.0"})]
        assert self.weighed(turned, self.spec(specs))["host2"] == -2.0

    def test_each_weigher_returns_its_own_weights_and_nova_adds_them_up(self):
        for number, cards, loaded in ((1, 4, "sha256"), (2, 2, ""), (3, 3, "sha256")):
            for card in range(cards):
                word, state = f"box line {cards} {card} full 1 0", "READY" if loaded else "EMPTY"
                self.pool.put(f"host{number}", f"card{card}", "r0", state, loaded, links=word)
        self.flags(lattice_weight_multiplier=3.0, group="fpga_pool")
        hosts, spec = self.hosts(3), self.spec(extra_specs(count=2, topology="line"))
        hosts[2].aggregates = [objects.Aggregate(metadata={"fpga_pool_benefit_weight_multiplier": "-2.0"})]
        passing, handler = self.passing(hosts, spec), weights.HostWeightHandler()

        def weighed(weighers):
            found = handler.get_weighed_objects(weighers, passing, spec)
            return {weighed.obj.host: weighed.weight for weighed in found}

        benefit, lattice = (
            [weigher for weigher in self.weighers if type(weigher).__name__ == f"FpgaPool{name}Weigher"]
            for name in ("Benefit", "Lattice")
        )
        # The benefit has 1, 0 and 1, as nothing is to be loaded; connections have 0, 1 and 0.5, as in the test above.
        assert weighed(benefit) == pytest.approx({"host1": 1.0, "host2": 0.0, "host3": -2.0})
        assert weighed(lattice) == pytest.approx({"host1": 0.0, "host2": 3.0, "host3": 1.5})
        assert weighed(self.weighers) == pytest.approx({"host1": 1.0, "host2": 3.0, "host3": -2.0 + 1.5})

    def test_the_host_whose_slots_others_need_least_weighs_most(self):
        self.flags(benefit_weight_multiplier=0.0, group="fpga_pool")
        self.pool.put("host1", "card0", "large0", kind="large")
        self.pool.put("host2", "card0", "r0")
        assert self.weighed(self.hosts(2), self.spec(extra_specs())) == {"host1": 0.0, "host2": 1.0}

    def test_other_candidates_of_a_host_come_after_all_hosts(self):
        for card in ("card0", "card1"):
            self.pool.put("host1", card, "r0", "READY", "sha256")
        self.pool.put("host2", "card0", "r0")
        hosts, spec = self.hosts(2), self.spec(extra_specs())
        for host, cards in zip(hosts, (("card0", "card1"), ("card0",)), strict=True):
            host.allocation_candidates = [
                {"allocations": {provider_uuid(host.host, card, "small"): {"resources": {RESOURCE_CLASS: 1}}}}
                for card in cards
            ]
        found = weights.HostWeightHandler().get_weighed_objects(self.weighers, self.passing(hosts, spec), spec)
        assert [weighed.obj.host for weighed in found] == ["host1", "host2", "host1"]
        first, _, last = (weighed.obj.allocation_candidates for weighed in found)
        assert first[1:] == last
        found[2].obj.limits = {"memory_mb": 1}
        assert hosts[0].limits == {"memory_mb": 1}

    def test_a_weigher_without_the_filter_has_no_opinion(self):
        hosts, spec = self.hosts(2), self.spec(extra_specs())
        found = weights.HostWeightHandler().get_weighed_objects(self.weighers, hosts, spec)
        assert [weighed.weight for weighed in found] == [0.0, 0.0]
