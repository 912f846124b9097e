"""When live migrations of servers are requested from Nova, and when not. In tests/nova, Nova itself executes them."""

import contextlib
from types import SimpleNamespace

import pytest

from fpga_pool.core.gangs.plus import MeasyPlus
from fpga_pool.drivers.nova_api import LiveMigration, TenantServer
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.flavor import GuestTier, Tier, tiers_provider_uuid
from fpga_pool.services.scheduler.cloud.tier_migrations import MigrationLimits, TierMigrations, held_back

NOW_S, HOUR_S = 1e6, 3600.0
LIMITS = MigrationLimits(at_once=2, pause_s=HOUR_S, fixed_s=20.0, bps=1e9)


def guest(instance, tier=Tier.BACKGROUND, pcpu=0, usage=0.0, in_use=(1.0,), *, wanted=Tier.AUTO, may_migrate=True):
    return GuestTier(
        instance=instance, name=instance, wanted=wanted, tier=tier, pcpus=(pcpu,), usage=(usage,), pcpu_usage=in_use,
        may_migrate=may_migrate,
    )  # fmt: skip


def busy(pcpu):
    return guest(f"busy-{pcpu}", Tier.FOREGROUND, pcpu, 1.0, wanted=Tier.FOREGROUND, may_migrate=False)


class World:
    """Nova, Placement and the agents, reduced to the requests that are made here."""

    def __init__(self):
        self.guests, self.places, self.lately, self.refusal, self.asked = {}, {}, [], None, []
        self.server = TenantServer(
            host="full", is_idle=True, memory_bytes=1 << 30, launched_at=NOW_S - HOUR_S, runtime_s=None
        )
        self.now_s = NOW_S
        hosts = [SimpleNamespace(name=name, node="", alive=True) for name in ("full", "free", "silent")]
        reading = contextlib.nullcontext(SimpleNamespace(hosts=lambda: hosts))
        self.migrations_of_pool = TierMigrations(
            SimpleNamespace(reading=lambda: reading), self, self, self, MeasyPlus(), LIMITS, lambda: True,
            lambda: self.now_s,
        )  # fmt: skip

    def owned(self, trait):
        return [SimpleNamespace(uuid=tiers_provider_uuid(name)) for name in ("full", "free", "silent")]

    def free(self, *classes):
        return {tiers_provider_uuid(host): count for host, count in self.places.items()}

    def tiers(self, host):
        if host == "silent":
            raise ServiceUnavailable("away")
        return self.guests.get(host, [])

    def show(self, uuid):
        return self.server

    def migrations(self, since_s):
        assert since_s == self.now_s - LIMITS.pause_s
        return self.lately

    def migrate(self, uuid, host):
        self.asked.append((uuid, host))
        if self.refusal is not None:
            raise self.refusal

    def step(self):
        self.asked.clear()
        self.migrations_of_pool.step()
        return sorted(self.asked)


@pytest.fixture
def world():
    """Three servers are held back on one host. Another host has room, and a third does not answer."""
    made = World()
    made.guests = {"full": [each for n in range(3) for each in (busy(n), guest(f"vm-{n}", pcpu=n))]}
    made.places = {"free": 4}
    return made


def test_no_more_than_the_limit_migrate_at_a_time_those_of_others_included(world):
    assert world.step() == [("vm-0", "free"), ("vm-1", "free")]
    world.lately = [LiveMigration(server="of-another", is_over=False)]
    assert world.step() == [("vm-0", "free")]
    world.lately *= 2
    assert world.step() == []


def test_a_server_stays_for_the_pause_where_it_was_migrated_to_or_could_not_be(world):
    world.lately = [LiveMigration(server="vm-0", is_over=True)]
    assert world.step() == [("vm-1", "free"), ("vm-2", "free")]
    world.refusal = Conflict("no")
    assert world.step() == [("vm-1", "free"), ("vm-2", "free")]
    assert world.step() == []  # Nova keeps no record of a request that it refused at once
    world.now_s += HOUR_S
    world.lately = []
    assert len(world.step()) == 2


def test_servers_that_are_not_worth_it_or_not_idle_in_nova_stay(world):
    # The migration of 1 GiB takes 8.6 s at 1 Gbit/s, plus 20 s. A server that has run for less than that is expected to
    # end before the migration pays off.
    for changes in (
        {"launched_at": NOW_S - 28.0},
        {"runtime_s": HOUR_S + 28.0},
        {"is_idle": False},
        {"host": "elsewhere"},
    ):
        before = world.server
        world.server = TenantServer(**{name: getattr(before, name) for name in before.__slots__} | changes)
        assert world.step() == [], changes
        world.server = before
    world.server = TenantServer(
        host="full", is_idle=True, memory_bytes=1 << 30, launched_at=NOW_S - 29.0, runtime_s=None
    )
    assert len(world.step()) == 2


def test_only_guests_that_may_go_and_are_held_back_are_looked_at():
    def names(*guests, free=0):
        return [server.name for server in held_back([busy(0), *guests], free)]

    assert names(guest("vm")) == ["vm"]
    assert names(guest("vm", may_migrate=False)) == []
    assert names(guest("vm", wanted=Tier.BACKGROUND)) == []
    assert names(guest("vm", Tier.FOREGROUND)) == []
    assert names(guest("vm", in_use=(0.95,))) == []  # the guest gets the CPU time that it wants
    assert names(guest("vm", in_use=())) == []  # not measured yet
    assert names(guest("vm", pcpu=1)) == []  # no guest is in the foreground of its pCPU
    assert names(guest("vm"), free=1) == []  # its agent moves it to the foreground
