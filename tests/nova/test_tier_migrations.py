"""Servers of tier `auto` on real Nova and Placement: the pool has Nova live-migrate them to a free foreground."""

import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent))

import fixtures
from cloud import Cloud
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from fpga_pool.core.gangs.plus import MeasyPlus
from fpga_pool.core.gangs.servers import USAGE_THRESHOLD
from fpga_pool.drivers.nova_api import TenantServers
from fpga_pool.drivers.tiers.simulated import SimulatedTiers
from fpga_pool.model.extra_specs import tier_extra_specs
from fpga_pool.model.flavor import TIER_CLASSES, Tier, tiers_provider_uuid
from fpga_pool.placement.client import PlacementClient
from fpga_pool.placement.tiers import TierAccounts
from fpga_pool.services.agent.tiers.service import Tiers
from fpga_pool.services.scheduler.cloud.tier_migrations import MigrationLimits, TierMigrations
from support.waiting import wait_until

LIMITS = MigrationLimits(at_once=1, pause_s=600.0, fixed_s=20.0, bps=1e9)
DOMAIN = """<domain><name>server</name><uuid>{uuid}</uuid><vcpu>1</vcpu><metadata>
  <n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:flavor name="f">
  <n:extraSpecs>{specs}</n:extraSpecs></n:flavor></n:instance></metadata></domain>"""
POLL_S, PATIENCE_S = 0.2, 120.0


class Agents:
    """The tiers' services of the agents, asked without messages."""

    def __init__(self):
        self.of = {}

    def tiers(self, host):
        return self.of[host].guests()


class Migrations(Cloud):
    pool_filters = ("FpgaPoolTierFilter", "FpgaPoolSlotFilter")

    def setUp(self):
        super().setUp()
        self.flags(cpu_allocation_ratio=2.0, initial_cpu_allocation_ratio=2.0)
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        session, api = Session(auth=None), self.admin_api
        who = {"X-Auth-User": "admin", "X-User-Id": "admin", "X-Auth-Project-Id": api.project_id}
        self.nova = TenantServers(
            SimpleNamespace(
                compute=Adapter(
                    session, service_type="compute", endpoint_override=api.base_url,
                    additional_headers=who | {"X-Roles": ",".join(api.roles)},
                )
            )
        )  # fmt: skip
        self.accounts = PlacementClient(
            Adapter(
                session, service_type="placement", endpoint_override=self.placement.fixture.endpoint,
                additional_headers={"x-auth-token": "admin"},
            )
        )  # fmt: skip
        self.agents = Agents()
        hosts = [SimpleNamespace(name=host, node="", alive=True) for host in ("host1", "host2")]
        store = SimpleNamespace(reading=lambda: Reading(hosts))
        self.moving = TierMigrations(
            store, self.accounts, self.nova, self.agents, MeasyPlus(), LIMITS, lambda: True, time.time
        )

    def add_pcpu(self, host):
        """Have a compute whose one pCPU carries tiers, and its agent."""
        self._start_compute(host)
        (self.directory / host).mkdir()
        driver = SimulatedTiers(self.directory / host, host_pcpus=1)
        accounts = TierAccounts(self.accounts, host, 1)
        accounts.sync()
        book = self.directory / f"{host}.json"
        self.agents.of[host] = Tiers(driver, [0], book, accounts, POLL_S, usage_threshold=USAGE_THRESHOLD)
        self.agents.of[host].start()
        self.addCleanup(self.agents.of[host].stop)

    def start(self, **wish):
        """Boot a server, which its hypervisor then has; return it and its extra specs."""
        specs = tier_extra_specs(vcpus=1, **wish)
        (server,) = self.boot(self._create_flavor(memory_mb=64, vcpu=1, disk=1, ephemeral=0, extra_spec=specs))
        self.arrive(server, specs)
        return server, specs

    def arrive(self, server, specs):
        said = "".join(f'<n:extraSpec name="{name}">{value}</n:extraSpec>' for name, value in specs.items())
        text = DOMAIN.format(uuid=server["id"], specs=said)
        (self.directory / self.host_of(server) / f"{server['id']}.xml").write_text(text)

    def host_of(self, server):
        return self._show_server(server)["OS-EXT-SRV-ATTR:host"]

    def pcpus(self, server):
        """Return the host and the classes of the pCPUs that Placement has given a server."""
        given = self._get_allocations_by_server_uuid(server["id"])
        names = {tiers_provider_uuid(host): host for host in self.agents.of}
        return {(names[uuid], name) for uuid, one in given.items() if uuid in names for name in one["resources"]}

    def measured(self):
        return all(guest.usage for agent in self.agents.of.values() for guest in agent.guests())

    def until(self, condition, what):
        wait_until(condition, what, PATIENCE_S)

    def test_a_server_that_its_foreground_holds_back_is_migrated_to_the_foreground_of_another_host(self):
        self.add_pcpu("host1")
        busy, _ = self.start(tier=Tier.FOREGROUND)
        held, specs = self.start(tier=Tier.AUTO, runtime_s=36000, migrate=True)
        assert self.pcpus(held) == {("host1", TIER_CLASSES[Tier.BACKGROUND])}
        self.until(lambda: len(self.agents.tiers("host1")) == 2 and self.measured(), "both are measured")
        self.moving.step()  # there is nowhere to go
        assert self.nova.migrations(0.0) == []

        self.add_pcpu("host2")

        def asked():
            self.moving.step()  # again: the first measurements may be of the moments of the start
            return self.nova.migrations(0.0)

        self.until(asked, "Nova is asked")
        self.until(lambda: self.host_of(held) == "host2", "it is on the other host")
        (self.directory / "host1" / f"{held['id']}.xml").unlink()
        self.arrive(held, specs)
        foreground = {("host2", TIER_CLASSES[Tier.FOREGROUND])}
        self.until(lambda: self.pcpus(held) == foreground, "its agent brings it to the foreground")
        assert self.pcpus(busy) == {("host1", TIER_CLASSES[Tier.FOREGROUND])}
        self.until(lambda: [each.is_over for each in self.nova.migrations(0.0)] == [True], "the migration is over")


class Reading:
    """A transaction that knows hosts."""

    def __init__(self, hosts):
        self._hosts = hosts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def hosts(self):
        return self._hosts
