"""Nova and Placement in this process by their own fixtures, with a pool whose scheduler answers over fake://."""

from nova import monkey_patch

monkey_patch.patch()  # before anything else, as nova.tests.functional does

import time  # noqa: E402
from importlib.metadata import files  # noqa: E402

from nova.tests.functional import integrated_helpers  # noqa: E402
from oslo_config import cfg  # noqa: E402

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue  # noqa: E402
from fpga_pool.model.flavor import (  # noqa: E402
    OWNER_TRAIT,
    RESOURCE_CLASS,
    board_trait,
    function_trait,
    kind_trait,
    provider_name,
    provider_uuid,
)
from fpga_pool.model.pool.columns import PoolColumns  # noqa: E402
from fpga_pool.nova_plugin import conf as plugin_conf  # noqa: E402
from fpga_pool.nova_plugin import pool as plugin_pool  # noqa: E402
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, VERSION_1, answers, server, transport  # noqa: E402

CATALOGUE = load_catalogue(installed_catalogue())
BOARD, KIND = "demo", "small"

#: Where the package has put it: not where Nova's fixtures look.
API_PASTE = next(str(file.locate()) for file in files("nova") or [] if file.match("etc/nova/api-paste.ini"))

plugin_conf.register_opts(cfg.CONF)


class PoolScheduler:
    """Answers what the pool is: rows that tests change as agents would."""

    target = VERSION_1

    def __init__(self):
        self.hosts, self.slots, self.generation, self.asked = {}, {}, 0, 0

    def put(self, host, card, region, state="EMPTY", function="", lease=("", "", False)):
        self.generation += 1
        self.hosts.setdefault(host, (host, "default", "nova", True, self.generation))
        self.slots[host, card, region] = (
            *(host, "default", f"{card}/{region}", card, BOARD, KIND, state, function, *lease, False),
            self.generation,
        )

    @answers
    def snapshot(self, context: dict, seen: dict | None) -> dict:
        self.asked += 1
        size = len(self.hosts), len(self.slots)
        everything = PoolColumns.of(
            {"default": self.generation}, list(self.hosts.values()), list(self.slots.values()), size
        )
        return (everything if seen is None else everything.changed_after(seen)).to_plain()


class Cloud(integrated_helpers.ProviderUsageBaseTestCase):
    """Fake computes whose cards are nested providers, and a scheduler with the filter and the weighers of the pool."""

    compute_driver = "fake.MediumFakeDriver"

    def _clear_attrs(self):
        # Nova deletes all attributes of the test, pytest then one that it has set itself.
        kept = self.__dict__.get(self._testMethodName)
        super()._clear_attrs()
        if kept is not None:
            self.__dict__[self._testMethodName] = kept

    def setUp(self):
        self.flags(
            available_filters=["nova.scheduler.filters.all_filters", "fpga_pool.nova_plugin.all_filters"],
            enabled_filters=["FpgaPoolSlotFilter", *cfg.CONF.filter_scheduler.enabled_filters],
            weight_classes=["nova.scheduler.weights.all_weighers", "fpga_pool.nova_plugin.all_weighers"],
            group="filter_scheduler",
        )
        self.flags(transport_url="fake://", snapshot_age=0.0, timeout=10.0, group="fpga_pool")
        self.flags(api_paste_config=API_PASTE, group="wsgi")
        super().setUp()
        plugin_pool.forget()
        self.pool = PoolScheduler()
        listening = server(transport(cfg.CONF, "fake://"), SCHEDULER_TOPIC, "pool", [self.pool])
        listening.start()
        self.addCleanup(lambda: (listening.stop(), listening.wait()))
        self.placement.put(f"/resource_classes/{RESOURCE_CLASS}", None, version="1.7")

    def add_host(self, host, cards, slots_per_card):
        """Start a compute; give it cards, in Placement as in the pool."""
        service = self._start_compute(host)
        for number in range(cards):
            self.add_card(host, f"card{number}", slots_per_card)
        return service

    def add_card(self, host, card, slots):
        for region in range(slots):
            self.pool.put(host, card, f"r{region}")
        uuid = provider_uuid(host, card, KIND)
        fitting = [name for name in CATALOGUE.functions if CATALOGUE.fits(name, BOARD, KIND)]
        traits = [OWNER_TRAIT, board_trait(BOARD), kind_trait(KIND), *(function_trait(name) for name in fitting)]
        for trait in traits:
            self.placement.put(f"/traits/{trait}", None, version="1.6")
        body = {
            "name": provider_name(host, card, KIND),
            "uuid": uuid,
            "parent_provider_uuid": self._get_provider_uuid_by_host(host),
        }
        assert self.placement.post("/resource_providers", body, version="1.14").status in (200, 201)
        inventory = {"resource_provider_generation": 0, "inventories": {RESOURCE_CLASS: {"total": slots}}}
        assert self.placement.put(f"/resource_providers/{uuid}/inventories", inventory, version="1.14").status == 200
        body = {"resource_provider_generation": 1, "traits": traits}
        assert self.placement.put(f"/resource_providers/{uuid}/traits", body, version="1.14").status == 200

    def flavor(self, function="sha256", count=1, **specs):
        extra = {
            "fpga_pool:function": function,
            "fpga_pool:count": str(count),
            f"resources:{RESOURCE_CLASS}": str(count),
            f"trait:{function_trait(function)}": "required",
            **{f"fpga_pool:{name}": value for name, value in specs.items()},
        }
        return self._create_flavor(memory_mb=64, vcpu=1, disk=1, extra_spec=extra)

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
        names = {provider_uuid(host, card, KIND): (host, card) for host, card, _ in self.pool.slots}
        allocations = self._get_allocations_by_server_uuid(instance["id"])
        return {names[uuid]: given["resources"][RESOURCE_CLASS] for uuid, given in allocations.items() if uuid in names}

    def delete(self, servers):
        for instance in servers:
            self._delete_server(instance)


def soon(condition, timeout_s=30.0):
    """Wait until something is so."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)
