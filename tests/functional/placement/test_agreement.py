"""Claims, leases and Placement agree, even if a process dies in between; with a real Placement and database."""

import uuid
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.cli.admin.main import ManageApp
from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.flavor import RESOURCE_CLASS, AcceleratorRequest, function_trait, provider_uuid
from fpga_pool.model.messages.agents import Heartbeat, ObservedSlot
from fpga_pool.model.objects.pool import DEFAULT_SHARD, SlotState
from fpga_pool.model.rules.shared.changes import drain_slot
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.rpc.identity import key_text
from fpga_pool.services.clock import SteadyClock
from fpga_pool.services.scheduler.cloud.instances import Instances
from fpga_pool.services.scheduler.cloud.placement import Inventory, LeaseWatch
from fpga_pool.services.scheduler.enrolment import approve
from fpga_pool.services.scheduler.heartbeats import HeartbeatIntake
from fpga_pool.services.scheduler.planner import DesignCatalogue
from fpga_pool.services.scheduler.writer import ShardWriter
from fpga_pool.store import Store

BOARD = "kintex7"
AES, FLOW = AcceleratorRequest(function="aes"), AcceleratorRequest(function="optical_flow")


class Pool:
    """The scheduler's part for one host with one card: three small slots and a large one."""

    def __init__(self, directory, cloud, client):
        self.host = f"h-{uuid.uuid4().hex[:8]}"
        self.node = f"{self.host}.cloud"
        self.root = cloud.node(self.node)
        self.small, self.large = (provider_uuid(self.host, "c", kind) for kind in ("small", "large"))
        self.connection = f"sqlite:///{directory}/pool.sqlite"
        self.store = Store(self.connection)
        self.store.migrate()
        self.clock = SteadyClock()
        self.store.ensure_shards([DEFAULT_SHARD], self.clock())
        self.catalogue = load_catalogue(installed_catalogue())
        self.settings = PoolSettings()
        self.client = client
        self._writer = ShardWriter(lambda: self.store.transaction(DEFAULT_SHARD))
        self._heartbeat_intake = HeartbeatIntake(self.store, self.writer, self.settings.shards, self.clock)
        self.watch = LeaseWatch(self.store, DEFAULT_SHARD, self.writer, client, self.clock)
        self.instances = Instances(
            self.store, self.writer, DesignCatalogue(self.catalogue, self.store), self.settings, self.clock, client
        )
        self._beats = 0
        approve(self.store, self.host, key_text(Ed25519PrivateKey.generate().public_key()), self.clock())
        self.heartbeat()

    def writer(self, shard):
        return self._writer

    def heartbeat(self):
        self._beats += 1
        slots = tuple(
            ObservedSlot(
                slot=f"{self.host}/c/{region}", card="c", region=f"{region}", board=BOARD, kind=kind,
                state=SlotState.EMPTY,
            )
            for region, kind in enumerate(self.catalogue.boards[BOARD].slots)
        )  # fmt: skip
        self._heartbeat_intake.heartbeat(
            Heartbeat(
                host=self.host, agent_id="agent", boot=1, beat=self._beats, at=self.clock(), egress_bps=1e9,
                ingress_bps=1e9, data_address="::1", data_port=9, slots=slots, jobs=(), node=self.node,
            )
        )  # fmt: skip

    def tell(self):
        """Report the inventory to Placement, as a scheduler that has just taken over does."""
        Inventory(self.store, DEFAULT_SHARD, self.client, self.catalogue, self.settings, self.clock).step()

    def claim(self, instance, wanted=AES):
        return [slot.name for slot in self.instances.claim(self.host, "agent", instance, "p", wanted)]

    def held(self):
        held = self.instances.leases(self.host)
        return {instance: [lease.slot for lease in leases] for instance, leases in held.items()}

    def close(self):
        self.store.close()


@pytest.fixture
def pool(tmp_path, cloud, client):
    pool = Pool(tmp_path, cloud, client)
    pool.tell()
    yield pool
    pool.close()


@pytest.fixture
def boot(cloud, pool):
    """Boot an instance as Nova does: first it is allocated, then its host claims."""

    def boot(provider, count=1, function="aes"):
        instance = str(uuid.uuid4())
        cloud.allocate(instance, {provider: count})
        return instance, pool.claim(instance, AcceleratorRequest(function=function, count=count))

    return boot


def test_slots_are_offered_by_card_and_kind(cloud, pool):
    assert cloud.inventory(pool.small) == {RESOURCE_CLASS: (3, 0)}
    assert cloud.inventory(pool.large) == {RESOURCE_CLASS: (1, 0)}
    assert {pool.small, pool.large} <= cloud.offered(function_trait("aes"))
    flow = cloud.offered(function_trait("optical_flow"))
    assert (pool.large in flow, pool.small in flow) == (True, False)


def test_a_boot_gets_slots_of_the_provider_that_it_was_allocated(boot, pool):
    instance, slots = boot(pool.large, function="optical_flow")
    assert slots == [f"{pool.host}/c/3"]
    assert pool.held() == {instance: slots}
    _, others = boot(pool.small, count=3)
    assert others == [f"{pool.host}/c/{region}" for region in range(3)]


def test_a_machine_that_was_allocated_other_slots_gets_those(cloud, boot, pool):
    instance, _ = boot(pool.small)
    cloud.allocate(instance, {pool.large: 1})
    assert pool.claim(instance) == [f"{pool.host}/c/3"]
    assert pool.held() == {instance: [f"{pool.host}/c/3"]}


def test_nothing_is_given_that_was_not_allocated(pool):
    with pytest.raises(Conflict, match="Placement has allocated 0 slots"):
        pool.claim(str(uuid.uuid4()))


def test_slots_out_of_service_are_reserved_and_held_ones_are_not_counted_twice(cloud, boot, pool):
    _, (held,) = boot(pool.small)
    for slot in (held, f"{pool.host}/c/{2}"):
        pool.writer(DEFAULT_SHARD).run(lambda tx, slot=slot: drain_slot(tx, slot, "repair", pool.clock()))
    pool.tell()
    # Three slots: one is drained, one is drained and allocated; the third is available.
    assert cloud.inventory(pool.small) == {RESOURCE_CLASS: (3, 1)}
    assert pool.small in cloud.offered(function_trait("aes"))
    boot(pool.small)
    assert pool.small not in cloud.offered(function_trait("aes"))


def test_a_floor_stays_the_pools(cloud, pool):
    pool.settings = replace(pool.settings, floor_slots=1)
    pool.tell()
    assert cloud.inventory(pool.small) == {RESOURCE_CLASS: (3, 1)}
    assert cloud.inventory(pool.large) == {RESOURCE_CLASS: (1, 1)}


def test_a_lease_whose_machine_is_gone_is_released_when_that_was_seen_twice(cloud, boot, pool):
    gone, _ = boot(pool.small)
    stays, slots = boot(pool.small)
    cloud.allocate(gone, {})
    pool.watch.step()
    assert set(pool.held()) == {gone, stays}
    pool.watch.step()
    assert pool.held() == {stays: slots}


def test_an_allocation_that_is_back_at_the_second_look_keeps_its_lease(cloud, boot, pool):
    instance, slots = boot(pool.small)
    cloud.allocate(instance, {})
    pool.watch.step()
    cloud.allocate(instance, {pool.small: 1})
    pool.watch.step()
    cloud.allocate(instance, {})
    pool.watch.step()
    assert pool.held() == {instance: slots}


def test_a_machine_that_moves_keeps_its_slots_until_its_migration_ends(cloud, boot, pool):
    instance, slots = boot(pool.small)
    other = str(uuid.uuid4())
    cloud.ask("POST", "/resource_providers", {"name": f"{other}-card", "uuid": other})
    known = cloud.ask("GET", f"/resource_providers/{other}/inventories")
    body = known | {"inventories": {RESOURCE_CLASS: {"total": 1}}}
    cloud.ask("PUT", f"/resource_providers/{other}/inventories", body)
    migration = str(uuid.uuid4())
    cloud.allocate(instance, {other: 1})
    cloud.allocate(migration, {pool.small: 1})
    for _ in range(2):
        pool.watch.step()
    assert pool.held() == {instance: slots}
    cloud.allocate(migration, {})
    for _ in range(2):
        pool.watch.step()
    assert pool.held() == {}


def test_a_placement_that_has_lost_its_allocations_takes_nothing_from_anybody(cloud, boot, pool):
    instances = [boot(pool.small)[0] for _ in range(3)] + [boot(pool.large)[0]]
    for instance in instances:
        cloud.allocate(instance, {})
    for _ in range(2):
        pool.watch.step()
    assert set(pool.held()) == set(instances)


def test_an_outage_of_placement_loses_nothing(cloud, boot, pool):
    instance, slots = boot(pool.small)
    waiting = str(uuid.uuid4())
    cloud.allocate(waiting, {pool.large: 1})
    with cloud.away():
        for _ in range(2):
            pool.watch.step()
        pool.tell()
        assert pool.claim(instance) == slots  # as when it is started again
        with pytest.raises(ServiceUnavailable, match="Placement does not answer"):
            pool.claim(waiting, FLOW)
    assert pool.held() == {instance: slots}
    assert pool.claim(waiting, FLOW) == [f"{pool.host}/c/3"]


@pytest.fixture
def audit(tmp_path, placement_section, pool, capsys, monkeypatch):
    """Run the operator's audit; return its exit status and output lines."""
    monkeypatch.setattr("fpga_pool.cli.admin.database.CERTAIN_AFTER_S", 0.0)
    path = tmp_path / "fpga_pool.conf"
    lines = "".join(f"{name} = {value}\n" for name, value in placement_section.items())
    path.write_text(f"[database]\nconnection = {pool.connection}\n[placement]\n{lines}")

    def audit(*options):
        status = ManageApp().run([f"--config-file={path}", "audit", *options])
        return status, capsys.readouterr().out.splitlines()

    return audit


def test_the_audit_shows_what_differs_and_mends_it(cloud, boot, pool, audit):
    assert audit() == (0, ["no problems found"])
    gone, (slot,) = boot(pool.small)
    cloud.allocate(gone, {})
    stopped = str(uuid.uuid4())
    cloud.allocate(stopped, {pool.large: 1})
    status, lines = audit()
    assert status == 1
    assert lines[0].startswith(f"note: host {pool.host}: 1 slots are allocated to {stopped}, which does not hold them")
    told = f"slot {slot}: instance {gone} holds it without an allocation in Placement"
    assert lines[1:] == [told]
    status, lines = audit("--repair")
    assert (status, lines[0], lines[-1]) == (0, f"released: {told}", "no problems found")
    assert pool.held() == {}
