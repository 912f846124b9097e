"""Nova and Placement in this process by their own fixtures, with a pool whose scheduler answers over inprocess://."""

from nova import monkey_patch

monkey_patch.patch()  # before anything else, as nova.tests.functional does

from concurrent.futures import ThreadPoolExecutor  # noqa: E402
from importlib.metadata import files  # noqa: E402
from pathlib import Path  # noqa: E402

import fixtures  # noqa: E402
import oslo_messaging as messaging  # noqa: E402
from nova import context, exception, objects  # noqa: E402
from nova.tests.functional import integrated_helpers  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_utils import timeutils, uuidutils  # noqa: E402

from fpga_pool.drivers.slots.bitstream import load_or_create_signing_key  # noqa: E402
from fpga_pool.model.flavor import (  # noqa: E402
    OWNER_TRAIT,
    RESOURCE_CLASS,
    board_trait,
    function_trait,
    kind_trait,
    provider_name,
    provider_uuid,
)
from fpga_pool.model.rules.shared.columns import PoolColumns  # noqa: E402
from fpga_pool.nova_plugin import conf as plugin_conf  # noqa: E402
from fpga_pool.nova_plugin import pool as plugin_pool  # noqa: E402
from fpga_pool.rpc.identity import (  # noqa: E402
    SCHEDULER_METHODS,
    Gate,
    Role,
)
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, TARGET, answers, server, transport  # noqa: E402

BOARD, KIND = "demo", "small"


def nova_key(directory):
    """Make a key; return the file of it, and the gate of a scheduler that knows it as nova-scheduler's."""
    path = Path(directory) / "nova.pem"
    key = load_or_create_signing_key(path)
    known = {Role.NOVA: [key.public_key()]}
    return str(path), Gate(lambda role, _: known.get(role, ()), SCHEDULER_METHODS)


FUNCTIONS = ("aes", "sha256", "wordcount")
TRAITS = [OWNER_TRAIT, board_trait(BOARD), kind_trait(KIND), *(function_trait(name) for name in FUNCTIONS)]
#: Of large slots, which optical_flow needs.
LARGE_TRAITS = [*TRAITS[:2], kind_trait("large"), *TRAITS[3:], function_trait("optical_flow")]

#: Where the package has put it: not where Nova's fixtures look.
API_PASTE = next(str(file.locate()) for file in files("nova") or [] if file.match("etc/nova/api-paste.ini"))

plugin_conf.register_opts(cfg.CONF)


class PoolScheduler:
    """Answers what the pool is: rows that tests change as agents would."""

    target = TARGET

    def __init__(self):
        self.hosts, self.slots, self.generation, self.asked = {}, {}, 0, 0
        self.run_times, self.designs = [], []
        #: By host, planned bits and bits per second.
        self.ingress = {}

    def put(
        self, host, card, region, state="EMPTY", function="", lease=("", "", False), links="", kind=KIND, board=BOARD
    ):
        self.generation += 1
        self.hosts.setdefault(host, (host, "default", "nova", True, self.generation))
        self.slots[host, card, region] = (
            *(host, "default", f"{card}/{region}", card, board, kind, links, state, function, *lease, False),
            self.generation,
        )

    @answers
    def observations(self, context: dict) -> dict:
        return {"run_times": self.run_times, "designs": self.designs}

    @answers
    def snapshot(self, context: dict, seen: dict | None) -> dict:
        self.asked += 1
        size = len(self.hosts), len(self.slots)
        everything = PoolColumns.of(
            {"default": self.generation}, list(self.hosts.values()), list(self.slots.values()), size, self.ingress
        )
        return (everything if seen is None else everything.changed_after(seen)).to_plain()


class Cloud(integrated_helpers.ProviderUsageBaseTestCase):
    """Fake computes whose cards are nested providers, and a scheduler with the filter and the weighers of the pool."""

    compute_driver = "fake.MediumFakeDriver"
    pool_filters = ("FpgaPoolSlotFilter",)

    def _clear_attrs(self):
        # Nova deletes all attributes of the test, pytest then one that it has set itself.
        kept = self.__dict__.get(self._testMethodName)
        super()._clear_attrs()
        if kept is not None:
            self.__dict__[self._testMethodName] = kept

    def setUp(self):
        self.flags(
            available_filters=["nova.scheduler.filters.all_filters", "fpga_pool.nova_plugin.all_filters"],
            enabled_filters=[*self.pool_filters, *cfg.CONF.filter_scheduler.enabled_filters],
            weight_classes=["nova.scheduler.weights.all_weighers", "fpga_pool.nova_plugin.all_weighers"],
            group="filter_scheduler",
        )
        key, gate = nova_key(self.useFixture(fixtures.TempDir()).path)
        self.flags(transport_url="inprocess://", key=key, snapshot_age=0.0, timeout=10.0, group="fpga_pool")
        self.flags(api_paste_config=API_PASTE, group="wsgi")
        self.flags(service_down_time=3600)  # nobody renews what a record says
        super().setUp()
        plugin_pool.forget()
        self.pool = PoolScheduler()
        self.listening = server(transport(cfg.CONF, "inprocess://"), SCHEDULER_TOPIC, "pool", [self.pool], gate)
        self.listening.start()
        self.addCleanup(stop, self.listening)
        self.placement.put(f"/resource_classes/{RESOURCE_CLASS}", None, version="1.7")
        for trait in {*TRAITS, *LARGE_TRAITS}:
            self._ok(self.placement.put(f"/traits/{trait}", None, version="1.6"))

    def _wait_for_server_parameter(self, server, expected_params, max_retries=10, **how):
        # A machine that is busy with other things needs more than Nova's five seconds.
        return super()._wait_for_server_parameter(server, expected_params, 20 * max_retries, **how)

    def add_host(self, host, cards, slots_per_card):
        """Start a compute; give it cards, in Placement as in the pool."""
        service = self._start_compute(host)
        self.add_cards(host, cards, slots_per_card)
        return service

    def add_record(self, host, cards, slots_per_card):
        """Have a compute in Nova's database and in Placement, for requests that end with the choice of a host."""
        admin = context.get_admin_context()
        cell = self.cell_mappings["cell1"]
        objects.HostMapping(admin, host=host, cell_mapping=cell).create()
        with context.target_cell(admin, cell) as here:
            service = objects.Service(here, host=host, binary="nova-compute", topic="compute", report_count=1)
            service.create()
            service.last_seen_up = timeutils.utcnow()
            service.save()
            node = objects.ComputeNode(
                here, host=host, hypervisor_hostname=host, service_id=service.id, uuid=uuidutils.generate_uuid(),
                vcpus=64, memory_mb=65536, local_gb=1000, vcpus_used=0, memory_mb_used=0, local_gb_used=0,
                hypervisor_type="fake", hypervisor_version=1000, free_ram_mb=65536, free_disk_gb=1000,
                current_workload=0, running_vms=0, cpu_info="", supported_hv_specs=[], stats={},
                cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0, disk_allocation_ratio=1.0,
            )  # fmt: skip
            node.create()
        self._ok(self.placement.post("/resource_providers", {"name": host, "uuid": node.uuid}, version="1.14"))
        totals = {"VCPU": {"total": 64}, "MEMORY_MB": {"total": 65536}, "DISK_GB": {"total": 1000}}
        self._put(node.uuid, "inventories", {"resource_provider_generation": 0, "inventories": totals})
        self._put(node.uuid, "traits", {"resource_provider_generation": 1, "traits": ["OWNER_NOVA"]})
        self.add_cards(host, cards, slots_per_card)

    def add_cards(self, host, cards, slots_per_card):
        for number in range(cards):
            self.add_card(host, f"card{number}", slots_per_card)

    def _put(self, provider, what, body):
        self._ok(self.placement.put(f"/resource_providers/{provider}/{what}", body, version="1.14"))

    def _ok(self, answer):
        assert answer.status in (200, 201, 204), answer.body

    def add_card(self, host, card, slots, kind=KIND, traits=TRAITS):
        for region in range(slots):
            self.pool.put(host, card, f"r{region}" if kind == KIND else f"{kind}{region}", kind=kind)
        uuid = provider_uuid(host, card, kind)
        body = {
            "name": provider_name(host, card, kind),
            "uuid": uuid,
            "parent_provider_uuid": self._get_provider_uuid_by_host(host),
        }
        self._ok(self.placement.post("/resource_providers", body, version="1.14"))
        inventory = {RESOURCE_CLASS: {"total": slots}}
        self._put(uuid, "inventories", {"resource_provider_generation": 0, "inventories": inventory})
        self._put(uuid, "traits", {"resource_provider_generation": 1, "traits": traits})

    def flavor(self, function="sha256", count=1, **specs):
        return self._create_flavor(memory_mb=64, vcpu=1, disk=1, extra_spec=extra_specs(function, count, **specs))

    def choose(self, instances, specs):
        """Have nova-scheduler choose for instances, and claim; return the hosts and cards of each."""
        return self.chosen_for(self.nova_flavor(specs), instances)

    def nova_flavor(self, specs):
        name = self._create_flavor(memory_mb=64, vcpu=1, disk=1, ephemeral=0, extra_spec=specs)
        return objects.Flavor.get_by_flavor_id(context.get_admin_context(), name)

    def chosen_for(self, flavor, instances=1, manager=None):
        """Do the same for a flavor, by any nova-scheduler; threads may call it."""
        uuids = [uuidutils.generate_uuid() for _ in range(instances)]
        spec = objects.RequestSpec(
            flavor=flavor, num_instances=instances, instance_uuid=uuids[0], project_id="p", user_id="u", is_bfv=False,
            image=objects.ImageMeta(properties=objects.ImageMetaProps()), numa_topology=None, ignore_hosts=None,
            pci_requests=objects.InstancePCIRequests(requests=[]), force_hosts=None, force_nodes=None,
            requested_destination=None, instance_group=None, limits=objects.SchedulerLimits(), scheduler_hints={},
            availability_zone=None, requested_networks=objects.NetworkRequestList(objects=[]), retry=None,
            requested_resources=[], request_level_params=objects.RequestLevelParams(),
            security_groups=objects.SecurityGroupList(objects=[]),
        )  # fmt: skip
        manager = self.scheduler_service.manager if manager is None else manager
        admin = context.RequestContext("u", "p", is_admin=True)
        try:
            chosen = manager.select_destinations(
                admin, spec_obj=spec, instance_uuids=uuids, return_objects=True, return_alternates=True
            )
        except messaging.ExpectedException as expected:
            raise expected.exc_info[1] from None
        assert len(chosen) == instances
        return {
            uuid: (first.service_host, self.cards_of({"id": uuid}))
            for uuid, (first, *_) in zip(uuids, chosen, strict=True)
        }

    def chosen_at_once(self, boots, managers):
        """Have nova-schedulers choose for single instances, all at the same time; return what each got, or None."""
        flavor = self.nova_flavor(extra_specs())

        def choose(number):
            try:
                return self.chosen_for(flavor, manager=managers[number % len(managers)])
            except exception.NoValidHost:
                return None

        with ThreadPoolExecutor(boots) as threads:
            return list(threads.map(choose, range(boots)))

    def release(self, uuids):
        for uuid in uuids:
            self._ok(self.placement.delete(f"/allocations/{uuid}"))

    def boot(self, flavor, instances=1, expected="ACTIVE"):
        """Create instances in one request; return them when all are in the expected state."""
        body = self._build_server(flavor_id=flavor, networks="none")
        body |= {"min_count": instances, "max_count": instances, "return_reservation_id": True}
        answer = self.api.api_post("/servers", {"server": body}).body
        mine = f"reservation_id={answer['reservation_id']}"
        servers = self.api.api_get(f"/servers/detail?{mine}").body["servers"]
        assert len(servers) == instances
        return [self._wait_for_state_change(instance, expected) for instance in servers]

    def cards_of(self, instance):
        """Return the cards that an instance has slots of, with their numbers."""
        names = {provider_uuid(host, card, row[5]): (host, card) for (host, card, _), row in self.pool.slots.items()}
        allocations = self._get_allocations_by_server_uuid(instance["id"])
        return {names[uuid]: given["resources"][RESOURCE_CLASS] for uuid, given in allocations.items() if uuid in names}

    def delete(self, servers):
        for instance in servers:
            self._delete_server(instance)


def extra_specs(function="sha256", count=1, **specs):
    """Return what `fpga-pool-manage flavor create` writes."""
    return {
        "fpga_pool:function": function,
        "fpga_pool:count": str(count),
        f"resources:{RESOURCE_CLASS}": str(count),
        f"trait:{function_trait(function)}": "required",
        **{f"fpga_pool:{name}": value for name, value in specs.items()},
    }


def stop(listening):
    listening.stop()
    listening.wait()
