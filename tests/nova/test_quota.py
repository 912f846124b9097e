"""A project's quota of slots, by Nova's unified limits."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cloud import Cloud
from nova.tests.functional.api import client
from oslo_limit import fixture

from fpga_pool.model.flavor import RESOURCE_CLASS


class Quota(Cloud):
    def setUp(self):
        self.flags(driver="nova.quota.UnifiedLimitsDriver", group="quota")
        super().setUp()
        limits = {"servers": 10, "class:VCPU": 10, "class:MEMORY_MB": 10000, "class:DISK_GB": 100}
        self.useFixture(fixture.LimitFixture({**limits, f"class:{RESOURCE_CLASS}": 2}, {}))

    def test_slots_beyond_the_limit_of_the_project_are_refused_by_the_api(self):
        self.add_host("host1", 2, 2)
        two = self.boot(self.flavor(count=2))
        with pytest.raises(client.OpenStackApiException, match=RESOURCE_CLASS) as refused:
            self.boot(self.flavor())
        assert refused.value.response.status_code == 403
        self.delete(two)
        self.boot(self.flavor())
