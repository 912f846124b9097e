"""Flavors whose slots have to be linked: from the choice of a host to the compute node that refuses what is not."""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cloud import BOARD, KIND, Cloud
from nova import exception
from nova.virt import fake

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.drivers.guests.domain import parse
from fpga_pool.model.extra_specs import Spread, consistent_extra_specs
from fpga_pool.model.flavor import RESOURCE_CLASS, AcceleratorRequest, Topology
from fpga_pool.model.messages.agents import Heartbeat, ObservedSlot
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, held_by, instance_leases, release_slots
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.services.agent.instances.service import HookServer
from fpga_pool.sim.store import MemoryStore
from support.cloud.fake_compute import AcceleratedFakeDriver

CATALOGUE = load_catalogue(installed_catalogue())


def wants(topology, count, **more):
    request = AcceleratorRequest(function="sha256", count=count, topology=topology, **more)
    return consistent_extra_specs(request, Spread.HOST)


def links(card, cards, cables):
    return SlotLinks(card=CardLinks(enclosure="box", topology=cables, cards=cards, position=card))


class Linked(Cloud):
    def add_box(self, host, cards, cables, state="EMPTY"):
        """Give a host cards with a slot each, in one enclosure."""
        self.add_record(host, cards, 1)
        self.cable(host, cards, cables, state)

    def cable(self, host, cards, cables, state="EMPTY"):
        function = "sha256" if state == "READY" else ""
        for card in range(cards):
            self.pool.put(host, f"card{card}", "r0", state, function, links=str(links(card, cards, cables)))

    def cards(self, chosen):
        return sorted(sorted(int(card[-1]) for _, card in cards) for _, cards in chosen.values())

    def test_every_line_is_one_and_as_many_are_found_as_there_are(self):
        self.add_box("host1", 8, Cables.RING)
        flavor = wants(Topology.LINE, 2)
        chosen = self.choose(4, flavor)
        # Eight cards in a ring hold four lines of two only if no card is left alone between two of them.
        for cards in self.cards(chosen):
            assert cards[1] - cards[0] in (1, 7)
        with pytest.raises(exception.NoValidHost):
            self.choose(1, flavor)

    def test_one_request_after_the_other_finds_the_slots_that_fit(self):
        self.add_box("host1", 6, Cables.LINE)
        flavor = wants(Topology.LINE, 3)
        first = self.choose(1, flavor)
        assert self.cards(first) in ([[0, 1, 2]], [[3, 4, 5]])
        assert len(self.choose(1, flavor)) == 1

    def test_a_ring_is_found_on_the_host_that_has_one(self):
        self.add_box("host1", 3, Cables.LINE)
        self.add_box("host2", 3, Cables.RING)
        self.add_box("host3", 3, Cables.LINE)
        ((host, _),) = self.choose(1, wants(Topology.RING, 3)).values()
        assert host == "host2"
        with pytest.raises(exception.NoValidHost):
            self.choose(1, wants(Topology.RING, 3))
        # Placement makes a candidate of each order of the groups: 3! of three cards (admin guide, limits).
        tree = self._get_provider_uuid_by_host("host1")
        groups = [f"resources_{n}=CUSTOM_FPGA_SLOT:1&in_tree_{n}={tree}" for n in range(3)]
        query = "&".join(["group_policy=none", *groups])
        answer = self.placement.get(f"/allocation_candidates?{query}", version="1.36")
        assert len(answer.body["allocation_requests"]) == 6, answer.body
        # Any three will do where nothing is asked of their links.
        assert len(self.choose(2, wants(Topology.ANY, 3))) == 2

    def test_the_host_with_the_smallest_set_that_is_large_enough_is_taken(self):
        for host, cards in (("host1", 6), ("host2", 2), ("host3", 4)):
            self.add_box(host, cards, Cables.LINE)
        hosts = [host for _ in range(3) for host, _ in self.choose(1, wants(Topology.LINE, 2)).values()]
        assert hosts[0] == "host2"
        # What the pool has not heard of yet it takes for free: the next ones go by what Placement has left.
        assert set(hosts[1:]) <= {"host1", "host3"}


class OnHosts(AcceleratedFakeDriver):
    """Computes of one process, each with an agent's socket of its own."""

    directory = Path()

    @property
    def hook_socket(self):
        return self.directory / f"{self._host}.sock"

    @property
    def guests(self):
        return self.directory


class Agents:
    """What answers the hooks: the pool's own rules on a pool in memory, with the allocations in Placement."""

    def __init__(self, cloud, directory):
        self.cloud, self.directory, self.beats = cloud, directory, 0
        self.store, self.settings = MemoryStore(), PoolSettings()
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        self.refused = []

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    def heard(self, host, cards, cables):
        self.beats += 1
        slots = tuple(
            ObservedSlot(
                slot=f"{host}/card{card}/r0", card=f"card{card}", region="r0", board=BOARD, kind=KIND,
                state=SlotState.EMPTY, links=str(links(card, cards, cables)),
            )
            for card in range(cards)
        )  # fmt: skip
        with self.tx() as tx:
            beat = Heartbeat(
                host=host, agent_id=host, boot=1, beat=self.beats, at=0.0, egress_bps=1e9, ingress_bps=1e9,
                data_address="::1", data_port=9, slots=slots, jobs=(),
            )  # fmt: skip
            apply_heartbeat(tx, beat, 0.0)

    def listen(self, host):
        server = HookServer(self.directory / f"{host}.sock", lambda operation, xml: self.asked(host, operation, xml))
        self.cloud.addCleanup(server.close)

    def asked(self, host, operation, xml):
        domain = parse(xml)
        with self.tx() as tx:
            if operation == "release":
                release_slots(tx, held_by(tx, host, domain.instance), 0.0)
                return
            given = self.cloud._get_allocations_by_server_uuid(domain.instance)
            allocated = {
                uuid: each["resources"][RESOURCE_CLASS]
                for uuid, each in given.items()
                if RESOURCE_CLASS in each["resources"]
            }
            claim = Claim(
                host=host, instance=domain.instance, project_id="p", wanted=domain.request, allocated=allocated
            )
            try:
                claim_slots(tx, claim, CATALOGUE, self.settings, 0.0)
            except Exception as error:
                self.refused.append((host, str(error)))
                raise

    def held(self, host):
        with self.tx() as tx:
            return sorted(lease.slot for lease in instance_leases(tx, host))


class Refused(Cloud):
    """Boots to the end, with cables that are not as the scheduler believes."""

    compute_driver = "fake.OnHosts"

    def setUp(self):
        fake.OnHosts = OnHosts  # drivers are found in Nova's own package only
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        OnHosts.directory = Path(kept.name)
        super().setUp()
        self.agents = Agents(self, OnHosts.directory)

    def add_box(self, host, cards, *, told, real, state="EMPTY"):
        self.agents.listen(host)
        self.agents.heard(host, cards, real)
        self.add_host(host, cards, 1)
        function = "sha256" if state == "READY" else ""
        for card in range(cards):
            self.pool.put(host, f"card{card}", "r0", state, function, links=str(links(card, cards, told)))

    def flavor_of(self, specs):
        return self._create_flavor(memory_mb=64, vcpu=1, disk=1, extra_spec=specs)

    def test_a_claim_that_is_not_linked_is_refused_and_the_alternate_gets_the_instance(self):
        # host1 has the function loaded, so it is tried first; a cable of its ring was just taken out.
        self.add_box("host1", 3, told=Cables.RING, real=Cables.LINE, state="READY")
        self.add_box("host2", 3, told=Cables.RING, real=Cables.RING)
        (instance,) = self.boot(self.flavor_of(wants(Topology.RING, 3)))
        assert instance["OS-EXT-SRV-ATTR:host"] == "host2"
        ((host, why),) = self.agents.refused
        assert host == "host1"
        assert "a ring of 3 slots for sha256 is requested" in why
        assert why.endswith("at most 2 have these links")
        # Nothing is left behind on host1, in Placement as in the pool.
        assert {of for of, _ in self.cards_of(instance)} == {"host2"}
        assert self.agents.held("host1") == []
        assert len(self.agents.held("host2")) == 3
        self.delete([instance])
        assert self.agents.held("host2") == []

    def test_without_a_host_that_has_one_the_instance_is_in_error_and_holds_nothing(self):
        self.add_box("host1", 3, told=Cables.RING, real=Cables.LINE)
        (instance,) = self.boot(self.flavor_of(wants(Topology.RING, 3)), expected="ERROR")
        assert len(self.agents.refused) == 1
        assert self.cards_of(instance) == {}
        assert self.agents.held("host1") == []

    def test_what_the_filter_passes_is_not_refused(self):
        self.add_box("host1", 4, told=Cables.RING, real=Cables.RING)
        pairs = self.boot(self.flavor_of(wants(Topology.LINE, 2)), 2)
        assert self.agents.refused == []
        assert len(self.agents.held("host1")) == 4
        for instance in pairs:
            cards = sorted(int(card[-1]) for _, card in self.cards_of(instance))
            assert cards[1] - cards[0] in (1, 3)

    def test_where_placement_chose_alone_the_compute_node_refuses_what_is_not_linked(self):
        self.add_box("host1", 3, told=Cables.LINE, real=Cables.LINE)
        self.flags(timeout=0.2, fail_open=True, group="fpga_pool")
        self.listening.stop()
        self.listening.wait()
        (instance,) = self.boot(self.flavor_of(wants(Topology.RING, 3)), expected="ERROR")
        assert self.cards_of(instance) == {}
        assert len(self.agents.refused) == 1
