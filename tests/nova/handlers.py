"""Filter and weighers by Nova's own handlers, on Nova's own HostState and RequestSpec."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import fixtures
from cloud import PoolScheduler, nova_key, stop
from nova import objects, test
from nova.scheduler import filters, host_manager, weights
from oslo_config import cfg
from oslo_utils import uuidutils

from fpga_pool.nova_plugin import pool as plugin_pool
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, server, transport


class PluginCase(test.NoDBTestCase):
    """Nova's filters and weighers of the pool, whose scheduler answers over inprocess://."""

    def setUp(self):
        super().setUp()
        key, gate = nova_key(self.useFixture(fixtures.TempDir()).path)
        self.flags(transport_url="inprocess://", key=key, snapshot_age=0.0, timeout=10.0, group="fpga_pool")
        # Completion times differ wherever the benefit does: it is weighed where a test is about it.
        self.flags(makespan_weight_multiplier=0.0, group="fpga_pool")
        plugin_pool.forget()
        self.pool = PoolScheduler()
        self.listening = server(transport(cfg.CONF, "inprocess://"), SCHEDULER_TOPIC, "pool", [self.pool], gate)
        self.listening.start()
        self.addCleanup(stop, self.listening)
        self.filters = [
            made() for made in filters.HostFilterHandler().get_matching_classes(["fpga_pool.nova_plugin.all_filters"])
        ]
        self.weighers = [
            made() for made in weights.HostWeightHandler().get_matching_classes(["fpga_pool.nova_plugin.all_weighers"])
        ]

    def _clear_attrs(self):
        # Nova deletes all attributes of the test, pytest then one that it has set itself.
        kept = self.__dict__.get(self._testMethodName)
        super()._clear_attrs()
        if kept is not None:
            self.__dict__[self._testMethodName] = kept

    def hosts(self, count):
        return [host_manager.HostState(f"host{number}", f"host{number}", "cell") for number in range(1, count + 1)]

    def spec(self, specs, **hints):
        return objects.RequestSpec(
            flavor=objects.Flavor(extra_specs=specs),
            num_instances=1,
            instance_uuid=uuidutils.generate_uuid(),
            scheduler_hints=hints,
        )

    def passing(self, hosts, spec):
        return filters.HostFilterHandler().get_filtered_objects(self.filters, hosts, spec)

    def weighed(self, hosts, spec):
        found = weights.HostWeightHandler().get_weighed_objects(self.weighers, self.passing(hosts, spec), spec)
        return {weighed.obj.host: weighed.weight for weighed in found}
