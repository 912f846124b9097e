"""The cost of one request to nova-scheduler, with the plug-in and without, in a separate process as in Nova.

    python tests/benchmarks/nova_requests.py HOSTS REQUESTS [TRANSPORT_URL]

Nova's own HostManager, filters and weight handler do all steps from the records of compute nodes to the sorted hosts.
Records do not come from a database, and Placement's responses come from memory.  They are decoded, Nova's for every
request and ours for several instances, but Nova's part is smaller than in a cloud.  Every accelerated request is
preceded by a change of ten slots, and queries the pool, including the message and its decoding.  Times are CPU times,
which other processes hardly increase, without garbage collection; they include the pool's side of a query, which runs
in this process.
"""

import copy
import gc
import json
import logging
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections import defaultdict
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from nova import context, objects
from nova.conf import CONF
from nova.scheduler import host_manager, weights
from oslo_utils import uuidutils

from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key
from fpga_pool.model.flavor import RESOURCE_CLASS, function_trait, provider_uuid
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.nova_plugin import all_filters, all_weighers
from fpga_pool.nova_plugin import pool as plugin_pool
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.filters import FpgaPoolSlotFilter
from fpga_pool.nova_plugin.learned import FpgaPoolLearnedWeigher
from fpga_pool.nova_plugin.weighers import FpgaPoolBenefitWeigher
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Role
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, TARGET, answers, server, transport

CARDS, SLOTS = ("0000:3b:00.0", "0000:af:00.0"), 4
#: Number of requests for the mean of operations that take microseconds.
PLAIN_REQUESTS = 1000
LEARNED_REQUESTS = 30
CELL = uuidutils.generate_uuid()


class PoolScheduler:
    """Maintains the pool like a scheduler that has read the changes from its database."""

    target = TARGET

    def __init__(self, hosts):
        self.generation, self.at, self.hosts = 1, 0, hosts
        rows = [(host, "default", "nova", True, 1) for host in hosts]
        slots = [self._slot(host, card, number, "EMPTY") for host in hosts for card in CARDS for number in range(SLOTS)]
        self.pool = PoolColumns.of({"default": 1}, rows, slots, (len(rows), len(slots)))

    def _slot(self, host, card, number, state, lease=("", "", False)):
        function = "sha256" if state in ("READY", "BUSY") else ""
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

    def hold(self):
        """Lease a slot of every third host to an instance."""
        self.generation += 1
        held = [self._slot(host, CARDS[1], 3, "BUSY", ("instance", "", False)) for host in self.hosts[::3]]
        self.pool = self.pool.merged(PoolColumns.of({"default": self.generation}, [], held, None))

    def change(self):
        self.generation += 1
        self.at = (self.at + 10) % len(self.hosts)
        state = "READY" if self.generation % 2 else "EMPTY"
        slots = [self._slot(host, CARDS[0], 0, state) for host in self.hosts[self.at : self.at + 10]]
        self.pool = self.pool.merged(PoolColumns.of({"default": self.generation}, [], slots, None))

    @answers
    def observations(self, context: dict) -> dict:
        return {}

    @answers
    def snapshot(self, context: dict, seen: dict | None) -> dict:
        return (self.pool if seen is None else self.pool.changed_after(seen)).to_plain()


def compute_node(number, host):
    return objects.ComputeNode(
        id=number, uuid=uuidutils.generate_uuid(), host=host, hypervisor_hostname=host, local_gb=1000,
        memory_mb=262144, vcpus=64, disk_available_least=None, free_ram_mb=262144 - number % 7 * 1024, vcpus_used=0,
        free_disk_gb=1000, local_gb_used=0, updated_at=datetime(2026, 1, 1, tzinfo=UTC), host_ip="192.0.2.1",
        hypervisor_type="QEMU", hypervisor_version=9000000, cpu_info="", stats={"num_instances": "3"},
        supported_hv_specs=[], pci_device_pools=None, numa_topology=None, cpu_allocation_ratio=4.0,
        ram_allocation_ratio=1.0, disk_allocation_ratio=1.0, metrics="[]",
    )  # fmt: skip


class Placement:
    """Returns candidates of `count` slots each and a machine; nothing is claimed on any host.

    Both cards of a host can be claimed.  Queries for slots alone, which we make for several instances, are answered
    without machines.
    """

    def __init__(self, nodes, count, machine=()):
        slots = {"resources": {RESOURCE_CLASS: {"capacity": SLOTS, "used": 0}}, "traits": [function_trait("sha256")]}
        root = {"VCPU": {"capacity": 256, "used": 3}, "MEMORY_MB": {"capacity": 262144, "used": 2048}}
        providers, requests = {}, []
        for node in nodes:
            place = {"parent_provider_uuid": node.uuid, "root_provider_uuid": node.uuid}
            providers[node.uuid] = {"resources": root, "traits": [], **place, "parent_provider_uuid": None}
            for card in CARDS:
                uuid = provider_uuid(node.host, card, "small")
                providers[uuid] = {**slots, **place}
                allocations = {node.uuid: {"resources": dict(machine)}} if machine else {}
                allocations[uuid] = {"resources": {RESOURCE_CLASS: count}}
                requests.append({"allocations": allocations, "mappings": {"": list(allocations)}})
        self.content = json.dumps({"allocation_requests": requests, "provider_summaries": providers}).encode()

    def get(self, *_, **__):
        return self

    def json(self):
        return json.loads(self.content)


def spec(extra_specs, instances=1):
    flavor = objects.Flavor(memory_mb=2048, vcpus=2, root_gb=10, ephemeral_gb=0, swap=0, extra_specs=extra_specs)
    return objects.RequestSpec(
        context.get_admin_context(), flavor=flavor, num_instances=instances, instance_uuid=uuidutils.generate_uuid(),
        project_id="p", image=objects.ImageMeta(properties=objects.ImageMetaProps()), pci_requests=None,
        numa_topology=None, ignore_hosts=None, force_hosts=None, force_nodes=None, requested_destination=None,
        instance_group=None, limits=objects.SchedulerLimits(), scheduler_hints={}, availability_zone=None,
    )  # fmt: skip


def manager():
    nova_filters = "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter"
    group = "ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter"
    enabled = ["FpgaPoolSlotFilter", *f"{nova_filters},{group}".split(",")]
    weighers = ["nova.scheduler.weights.all_weighers", "fpga_pool.nova_plugin.all_weighers"]
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


class Clock:
    """Sums up the CPU time of a request: Nova's part, the copies of candidates within it, and our part."""

    def __init__(self):
        self.nova_ms = self.own_ms = self.copied_ms = 0.0

    def nova(self, work, *arguments):
        found, took_ms = self._timed(work, arguments)
        self.nova_ms += took_ms
        return found

    def own(self, work, *arguments):
        found, took_ms = self._timed(work, arguments)
        self.own_ms += took_ms
        return found

    def not_own(self, work, *arguments):
        """Subtract what was counted twice: creating and sorting a list of hosts, which Nova does once."""
        self.own_ms -= self._timed(work, arguments)[1]

    @staticmethod
    def _timed(work, arguments):
        began = time.process_time()
        found = work(*arguments)
        return found, 1000 * (time.process_time() - began)


def is_ours(each):
    return type(each).__module__.startswith("fpga_pool.")


def candidates_by_host(placement):
    """Decode Placement's response and group it by host, as SchedulerManager.select_destinations does."""
    found = defaultdict(list)
    for candidate in placement.json()["allocation_requests"]:
        for uuid in candidate["allocations"]:
            found[uuid].append(candidate)
    return found


def schedule(chosen, nodes, services, placement, request):
    """Do the work of SchedulerManager._schedule up to the last claim; Placement accepts every claim.

    Our filters and weighers run separately in Nova's loops, whose time counts as ours then.  So both parts belong to
    the same request, and other load on the machine affects both.
    """
    clock = Clock()
    allocations = clock.nova(candidates_by_host, placement)
    hosts = clock.nova(lambda: list(chosen._get_host_states(None, {CELL: nodes}, services)))
    clock.copied_ms = -clock.nova_ms
    clock.nova(give_candidates, hosts, allocations)
    clock.copied_ms += clock.nova_ms
    filters = [each for each in chosen.enabled_filters if not is_ours(each)]
    own_filters = [each for each in chosen.enabled_filters if is_ours(each)]
    weighers = [each for each in chosen.weighers if not is_ours(each)]
    own_weighers = [each for each in chosen.weighers if is_ours(each)]
    filtered, weighed = chosen.filter_handler.get_filtered_objects, chosen.weight_handler.get_weighed_objects
    for number in range(request.num_instances):
        hosts = clock.own(filtered, own_filters, hosts, request, number)
        hosts = clock.nova(filtered, filters, hosts, request, number)
        found = clock.nova(weighed, weighers, hosts, request)
        more = {each.obj: each.weight for each in clock.own(weighed, own_weighers, hosts, request)}
        clock.not_own(weighed, [], hosts, request)
        hosts = [each.obj for each in sorted(found, key=lambda each: -each.weight - more[each.obj])]
        clock.nova(hosts[0].consume_from_request, request)
    return clock


def give_candidates(hosts, allocations):
    for host in hosts:
        host.allocation_candidates = copy.deepcopy(allocations[host.uuid])


def own_part(hosts):
    """Return the microseconds and the memory peak in bytes of our classes for a request without accelerators."""
    requests = [spec({}), spec({})]  # alternately, so that results of the last request are not reused for the next
    own_filters = [each() for each in all_filters()]
    own_weighers = [each() for each in all_weighers()]
    weighed = [weights.WeighedHost(host, 0.0) for host in hosts]

    def ask(request):
        for each in own_filters:
            assert each.filter_all(hosts, request) is hosts
        for each in own_weighers:
            assert not each.weigh_objects(weighed, request)

    ask(requests[0])
    began = time.process_time()
    for number in range(PLAIN_REQUESTS):
        ask(requests[1 - number % 2])
    took_us = 1e6 * (time.process_time() - began) / PLAIN_REQUESTS
    tracemalloc.start()
    ask(requests[1])
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return took_us, peak_bytes


def learned_part(states, scheduler):
    """Return the minimum and the median time in ms of the learned weigher for one instance, on hosts that all pass.

    It runs as if enabled, after another weigher as in Nova.  Ten slots change before each request.
    """
    before, weigher, handler = FpgaPoolBenefitWeigher(), FpgaPoolLearnedWeigher(), FpgaPoolSlotFilter()
    weighed, took_ms = [weights.WeighedHost(host, 0.0) for host in states], []
    scheduler.hold()
    CONF.set_override("learned_mode", "active", "fpga_pool")
    CONF.set_override("learned_time_budget", 60.0, "fpga_pool")  # other programs may use the machine
    for _ in range(LEARNED_REQUESTS):
        scheduler.change()
        request = spec({"fpga_pool:function": "sha256", f"resources:{RESOURCE_CLASS}": "1"})
        gc.collect()
        gc.disable()
        assert len(handler.filter_all(states, request)) == len(states)
        before.weigh_objects(weighed, request)
        began = time.process_time()
        found = weigher.weigh_objects(weighed, request)
        took_ms.append(1000 * (time.process_time() - began))
        gc.enable()
        assert len(found) == len(states)
    CONF.set_override("learned_mode", "off", "fpga_pool")
    return min(took_ms), statistics.median(took_ms)


def told(clocks):
    """Return minimum, median and maximum of both parts in ms, and of our part and the copies in % of Nova's part."""
    parts = {name: [getattr(clock, name) for clock in clocks] for name in ("nova_ms", "own_ms")}
    parts["added_percent"] = [100 * clock.own_ms / clock.nova_ms for clock in clocks]
    parts["copied_percent"] = [100 * clock.copied_ms / clock.nova_ms for clock in clocks]
    return {name: (min(values), statistics.median(values), max(values)) for name, values in parts.items()}


@contextmanager
def answering(scheduler, url="inprocess://", **options):
    """Set Nova's options and those of [fpga_pool], and serve queries to the pool, during the context."""
    logging.disable(logging.INFO)
    objects.register_all()
    register_opts(CONF)
    CONF([], project="nova", default_config_files=[])
    available = ["nova.scheduler.filters.all_filters", "fpga_pool.nova_plugin.all_filters"]
    CONF.set_override("available_filters", available, "filter_scheduler")
    directory = Path(tempfile.mkdtemp())
    key = load_or_create_signing_key(directory / "nova.pem")
    gate = Gate(lambda role, _: [key.public_key()] if role is Role.NOVA else [], SCHEDULER_METHODS)
    options |= {"transport_url": url, "key": str(directory / "nova.pem"), "snapshot_age": 0.0, "timeout": 30.0}
    for name, value in options.items():
        CONF.set_override(name, value, "fpga_pool")
    listening = server(transport(CONF, url), SCHEDULER_TOPIC, "pool", [scheduler], gate)
    listening.start()
    with mock.patch("nova.servicegroup.API.service_is_up", return_value=True):
        yield
    listening.stop()


def recorded(hosts):
    """Return the records of compute nodes and of their services, as in Nova's database."""
    names = [f"compute-{number:05d}.example.org" for number in range(hosts)]
    now = datetime.now(UTC)
    known = {"disabled": False, "updated_at": now, "last_seen_up": now, "created_at": now, "forced_down": False}
    nodes = [compute_node(number, name) for number, name in enumerate(names)]
    return nodes, {name: {"host": name, "report_count": 1, **known} for name in names}


def main(hosts, requests, url="inprocess://"):
    nodes, services = recorded(hosts)
    scheduler = PoolScheduler([node.host for node in nodes])
    with answering(scheduler, url):
        measure(nodes, services, scheduler, requests)


def measure(nodes, services, scheduler, requests):
    placement = {count: Placement(nodes, count, {"VCPU": 2, "MEMORY_MB": 2048}.items()) for count in (1, 3)}
    accelerated = {
        "fpga_pool:function": "sha256",
        f"resources:{RESOURCE_CLASS}": "1",
        f"trait:{function_trait('sha256')}": "required",
    }
    linked = {**accelerated, "fpga_pool:count": "3", f"resources:{RESOURCE_CLASS}": "3", "fpga_pool:topology": "line"}
    run_time = {"fpga_pool:runtime": "600"}
    ours = manager()
    #: By name: extra specs, and number of instances.
    cases = {
        "without accelerators": ({}, 1),
        "accelerators": (accelerated, 1),
        "accelerators, run time": ({**accelerated, **run_time}, 1),
        "three in a line": (linked, 1),
        "four instances": (accelerated, 4),
        "four instances, run time": ({**accelerated, **run_time}, 4),
    }
    clocks = {name: [] for name in cases}
    with mock.patch("nova.scheduler.client.report.report_client_singleton", return_value=Placement(nodes, 1)):
        began = time.process_time()
        schedule(ours, nodes, services, placement[1], spec(accelerated))
        first_ms = 1000 * (time.process_time() - began)
        scheduler.change()
        schedule(ours, nodes, services, placement[1], spec(accelerated))  # numpy loads more modules at the first delta
        for _ in range(requests):
            for name, (extra_specs, instances) in cases.items():
                request, answer = spec(extra_specs, instances), placement[int(extra_specs.get("fpga_pool:count", "1"))]
                scheduler.change()
                # A collection takes a second, which would be added to the next operation that allocates.
                gc.collect()
                gc.disable()
                clocks[name].append(schedule(ours, nodes, services, answer, request))
                gc.enable()
        asked_ms = []
        for _ in range(requests):
            scheduler.change()
            began = time.process_time()
            plugin_pool.pool(CONF).now().fitting("sha256", 3600.0)
            asked_ms.append(1000 * (time.process_time() - began))
        states = list(ours._get_host_states(None, {CELL: nodes}, services))
        give_candidates(states, candidates_by_host(placement[1]))
        learned_ms = learned_part(states, scheduler)
    own_us, own_bytes = own_part(states)
    print(
        json.dumps(
            {
                "hosts": len(nodes),
                "own_part_of_plain": {"us": own_us, "bytes": own_bytes},
                "first_ms": first_ms,
                "question_ms": statistics.median(asked_ms),
                "learned_ms": learned_ms,
                "requests": {name: told(measured) for name, measured in clocks.items()},
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
