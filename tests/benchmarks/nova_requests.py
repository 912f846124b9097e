"""What one request costs nova-scheduler, with the plug-in and without: a process of its own, as Nova's is.

    python tests/benchmarks/nova_requests.py HOSTS REQUESTS [TRANSPORT_URL]

Everything from the compute nodes' records to the sorted hosts is Nova's own HostManager, filters and weight handler;
records do not come from a database, and Placement is not asked, so that Nova's part is smaller than in a cloud.
Every accelerated request is preceded by a change of ten slots, and asks the pool for it: message and decoding count.
Times are those of the processor, which other processes of the machine do not lengthen much, without the collection of
garbage; the pool's side of a question runs in this process and is part of them.
"""

import copy
import gc
import json
import logging
import statistics
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from unittest import mock

from nova import context, objects
from nova.conf import CONF
from nova.scheduler import host_manager, weights
from oslo_utils import uuidutils

from fpga_pool.model.flavor import RESOURCE_CLASS, function_trait, provider_uuid
from fpga_pool.model.pool.columns import PoolColumns
from fpga_pool.nova_plugin import all_filters, all_weighers
from fpga_pool.nova_plugin import pool as plugin_pool
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, VERSION_1, answers, server, transport

CARDS, SLOTS = ("0000:3b:00.0", "0000:af:00.0"), 4
#: For the mean of what takes microseconds.
PLAIN_REQUESTS = 1000
CELL = uuidutils.generate_uuid()


class PoolScheduler:
    """Keeps the pool as a scheduler does, after it has read from its database what has changed."""

    target = VERSION_1

    def __init__(self, hosts):
        self.generation, self.at, self.hosts = 1, 0, hosts
        rows = [(host, "default", "nova", True, 1) for host in hosts]
        slots = [self._slot(host, card, number, "EMPTY") for host in hosts for card in CARDS for number in range(SLOTS)]
        self.pool = PoolColumns.of({"default": 1}, rows, slots, (len(rows), len(slots)))

    def _slot(self, host, card, number, state):
        function = "sha256" if state == "READY" else ""
        lease = ("", "", False)
        return (
            host,
            "default",
            f"{card}/r{number}",
            card,
            "demo",
            "small",
            f"box ring {len(CARDS)} {CARDS.index(card)} line {SLOTS} {number}",
            state,
            function,
            *lease,
            False,
            self.generation,
        )

    def change(self):
        self.generation += 1
        self.at = (self.at + 10) % len(self.hosts)
        state = "READY" if self.generation % 2 else "EMPTY"
        slots = [self._slot(host, CARDS[0], 0, state) for host in self.hosts[self.at : self.at + 10]]
        self.pool = self.pool.merged(PoolColumns.of({"default": self.generation}, [], slots, None))

    @answers
    def snapshot(self, context: dict, seen: dict | None, packed: bool) -> dict:
        return (self.pool if seen is None else self.pool.changed_after(seen)).to_plain(packed)


def compute_node(number, host):
    return objects.ComputeNode(
        id=number, uuid=uuidutils.generate_uuid(), host=host, hypervisor_hostname=host, local_gb=1000,
        memory_mb=262144, vcpus=64, disk_available_least=None, free_ram_mb=262144 - number % 7 * 1024, vcpus_used=0,
        free_disk_gb=1000, local_gb_used=0, updated_at=datetime(2026, 1, 1, tzinfo=UTC), host_ip="192.0.2.1",
        hypervisor_type="QEMU", hypervisor_version=9000000, cpu_info="", stats={"num_instances": "3"},
        supported_hv_specs=[], pci_device_pools=None, numa_topology=None, cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0, disk_allocation_ratio=1.0, metrics="[]",
    )  # fmt: skip


def candidates(node, count=1):
    """Both cards of a host can be claimed, as Placement says it."""
    return [
        {
            "allocations": {
                node.uuid: {"resources": {"VCPU": 2, "MEMORY_MB": 2048}},
                provider_uuid(node.host, card, "small"): {"resources": {RESOURCE_CLASS: count}},
            },
            "mappings": {"": [node.uuid, provider_uuid(node.host, card, "small")]},
        }
        for card in CARDS
    ]


def spec(extra_specs):
    flavor = objects.Flavor(memory_mb=2048, vcpus=2, root_gb=10, ephemeral_gb=0, swap=0, extra_specs=extra_specs)
    return objects.RequestSpec(
        context.get_admin_context(), flavor=flavor, num_instances=1, instance_uuid=uuidutils.generate_uuid(),
        project_id="p", image=objects.ImageMeta(properties=objects.ImageMetaProps()), pci_requests=None,
        numa_topology=None, ignore_hosts=None, force_hosts=None, force_nodes=None, requested_destination=None,
        instance_group=None, limits=objects.SchedulerLimits(), scheduler_hints={}, availability_zone=None,
    )  # fmt: skip


def manager(*, ours):
    nova_filters = "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter"
    group = "ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter"
    enabled = [*(["FpgaPoolSlotFilter"] if ours else []), *f"{nova_filters},{group}".split(",")]
    weighers = ["nova.scheduler.weights.all_weighers", *(["fpga_pool.nova_plugin.all_weighers"] if ours else [])]
    CONF.set_override("enabled_filters", enabled, "filter_scheduler")
    CONF.set_override("weight_classes", weighers, "filter_scheduler")
    with (
        mock.patch.object(host_manager.HostManager, "refresh_cells_caches"),
        mock.patch.object(host_manager.HostManager, "_init_aggregates"),
        mock.patch.object(host_manager.HostManager, "_init_instance_info"),
    ):
        made = host_manager.HostManager()
    made._get_aggregates_info = lambda host: []
    made._get_instance_info = lambda context, compute: {}
    return made


def schedule(chosen, nodes, services, allocations, request):
    """Do what SchedulerManager._schedule does for one instance, up to the claim; return the best host."""
    hosts = list(chosen._get_host_states(None, {CELL: nodes}, services))
    for host in hosts:
        host.allocation_candidates = copy.deepcopy(allocations[host.uuid])
    passing = chosen.get_filtered_hosts(hosts, request, 0)
    return chosen.get_weighed_hosts(passing, request)[0].obj


def own_part(hosts):
    """Return the microseconds and the peak of bytes that our own classes take of a request that is not theirs."""
    request = spec({})
    own_filters = [each() for each in all_filters()]
    own_weighers = [each() for each in all_weighers()]
    weighed = [weights.WeighedHost(host, 0.0) for host in hosts]

    def ask():
        for each in own_filters:
            assert each.filter_all(hosts, request) is hosts
        for each in own_weighers:
            assert not each.weigh_objects(weighed, request)

    ask()
    began = time.process_time()
    for _ in range(PLAIN_REQUESTS):
        ask()
    took_us = 1e6 * (time.process_time() - began) / PLAIN_REQUESTS
    tracemalloc.start()
    ask()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return took_us, peak_bytes


def main(hosts, requests, url="fake://"):
    logging.disable(logging.INFO)
    objects.register_all()
    register_opts(CONF)
    CONF([], project="nova", default_config_files=[])
    available = ["nova.scheduler.filters.all_filters", "fpga_pool.nova_plugin.all_filters"]
    CONF.set_override("available_filters", available, "filter_scheduler")
    for name, value in {"transport_url": url, "snapshot_age": 0.0, "timeout": 30.0}.items():
        CONF.set_override(name, value, "fpga_pool")
    names = [f"compute-{number:05d}.example.org" for number in range(hosts)]
    nodes = [compute_node(number, name) for number, name in enumerate(names)]
    now = datetime.now(UTC)
    known = {"disabled": False, "updated_at": now, "last_seen_up": now, "created_at": now, "forced_down": False}
    services = {name: {"host": name, "report_count": 1, **known} for name in names}
    allocations = {count: {node.uuid: candidates(node, count) for node in nodes} for count in (1, 3)}
    scheduler = PoolScheduler(names)
    listening = server(transport(CONF, url), SCHEDULER_TOPIC, "pool", [scheduler])
    listening.start()
    accelerated = {
        "fpga_pool:function": "sha256",
        f"resources:{RESOURCE_CLASS}": "1",
        f"trait:{function_trait('sha256')}": "required",
    }
    linked = {**accelerated, "fpga_pool:count": "3", f"resources:{RESOURCE_CLASS}": "3", "fpga_pool:topology": "line"}
    stock, ours = manager(ours=False), manager(ours=True)
    cases = {
        "plain": (stock, {}), "plain, plug-in": (ours, {}),
        "accelerated, without": (stock, accelerated), "accelerated": (ours, accelerated),
        "accelerated, run time": (ours, {**accelerated, "fpga_pool:runtime": "600"}),
        "three in a line, without": (stock, linked), "three in a line": (ours, linked),
    }  # fmt: skip
    took_ms = {name: [] for name in cases}
    with mock.patch("nova.servicegroup.API.service_is_up", return_value=True):
        began = time.process_time()
        schedule(ours, nodes, services, allocations[1], spec(accelerated))
        first_ms = 1000 * (time.process_time() - began)
        for _ in range(requests):
            for name, (chosen, extra_specs) in cases.items():
                request = spec(extra_specs)
                count = int(extra_specs.get("fpga_pool:count", "1"))
                scheduler.change()
                # A collection takes a second, and whoever allocates next pays for it.
                gc.collect()
                gc.disable()
                began = time.process_time()
                schedule(chosen, nodes, services, allocations[count], request)
                took_ms[name].append(1000 * (time.process_time() - began))
                gc.enable()
        asked_ms = []
        for _ in range(requests):
            scheduler.change()
            began = time.process_time()
            plugin_pool.pool(CONF).now().fitting("sha256", 3600.0)
            asked_ms.append(1000 * (time.process_time() - began))
        states = list(ours._get_host_states(None, {CELL: nodes}, services))
    own_us, own_bytes = own_part(states)
    listening.stop()
    print(
        json.dumps(
            {
                "hosts": hosts,
                "own_part_of_plain": {"us": own_us, "bytes": own_bytes},
                "first_ms": first_ms,
                "question_ms": statistics.median(asked_ms),
                **{name: statistics.median(times) for name, times in took_ms.items()},
                "spread_ms": {name: [min(times), max(times)] for name, times in took_ms.items()},
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
