"""Which host nova-scheduler chooses for instances in tiers, with real allocations in Placement."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cloud import Cloud
from nova import context, exception, objects

from fpga_pool.model.extra_specs import tier_extra_specs
from fpga_pool.model.flavor import TIER_CLASSES, Tier, tiers_provider_name, tiers_provider_uuid

FOREGROUND, BACKGROUND = tier_extra_specs(Tier.FOREGROUND, 1), tier_extra_specs(Tier.BACKGROUND, 1)


class Tiers(Cloud):
    pool_filters = ("FpgaPoolTierFilter", "FpgaPoolSlotFilter")

    def setUp(self):
        super().setUp()
        for name in TIER_CLASSES.values():
            self.placement.put(f"/resource_classes/{name}", None, version="1.7")

    def add_tiers(self, host, pcpus, ratio=2.0):
        """Have a compute whose pCPUs carry tiers, as its agent tells Placement."""
        self.add_record(host, 0, 0)
        node = objects.ComputeNode.get_first_node_by_host_for_old_compat(self._here(), host)
        node.cpu_allocation_ratio = ratio
        node.save()
        uuid = tiers_provider_uuid(host)
        body = {"name": tiers_provider_name(host), "uuid": uuid, "parent_provider_uuid": node.uuid}
        self._ok(self.placement.post("/resource_providers", body, version="1.14"))
        inventories = {name: {"total": pcpus} for name in TIER_CLASSES.values()}
        self._put(uuid, "inventories", {"resource_provider_generation": 0, "inventories": inventories})

    def _here(self):
        admin = context.get_admin_context()
        context.set_target_cell(admin, self.cell_mappings["cell1"])
        return admin

    def hosts(self, instances, specs):
        return sorted(host for host, _ in self.choose(instances, specs).values())

    def test_a_tier_has_as_many_vcpus_as_pcpus(self):
        self.add_tiers("host1", 2)
        self.add_tiers("host2", 1)
        assert self.hosts(3, FOREGROUND) == ["host1", "host1", "host2"]
        assert self.hosts(1, BACKGROUND) in (["host1"], ["host2"])
        with pytest.raises(exception.NoValidHost):
            self.choose(1, FOREGROUND)
        assert len(self.hosts(2, BACKGROUND)) == 2
        with pytest.raises(exception.NoValidHost):
            self.choose(1, BACKGROUND)

    def test_the_background_goes_where_the_foreground_is_emptiest_and_the_other_way_round(self):
        self.add_tiers("host1", 3)
        first = self.hosts(2, FOREGROUND)
        assert first == ["host1", "host1"]
        self.add_tiers("host2", 3)
        assert self.hosts(1, BACKGROUND) == ["host2"]
        # host1 has a background free everywhere.
        assert self.hosts(1, FOREGROUND) == ["host1"]
        assert self.hosts(1, tier_extra_specs(Tier.AUTO, 1)) == ["host2"]

    def test_only_hosts_whose_vcpus_are_twice_their_pcpus_are_chosen(self):
        self.add_tiers("host1", 4, ratio=4.0)
        self.add_tiers("host2", 1)
        assert self.hosts(1, FOREGROUND) == ["host2"]
        with pytest.raises(exception.NoValidHost):
            self.choose(1, FOREGROUND)

    def test_flavors_that_cannot_share_or_do_not_agree_find_no_host(self):
        self.add_tiers("host1", 4)
        for wrong in (
            FOREGROUND | {"hw:cpu_policy": "dedicated"},
            {"fpga_pool:tier": "foreground"},
            tier_extra_specs(Tier.FOREGROUND, 2),  # the flavor has one vCPU
        ):
            with pytest.raises(exception.NoValidHost):
                self.choose(1, wrong)
        assert self.hosts(1, FOREGROUND) == ["host1"]

    def test_other_requests_are_neither_filtered_nor_weighed(self):
        self.add_tiers("host1", 1, ratio=4.0)
        assert self.hosts(1, {}) == ["host1"]
