"""Guests in tiers with real components: the agent of a host finds them, changes their tiers live, and may be killed."""

import contextlib
import json
import random
import threading
import time
from types import SimpleNamespace

import pytest
from oslo_config import cfg

from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.transport import transport
from support.deployment import Deployment

from .hypervisor import as_installed

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
FOREGROUND = {"fpga_pool:tier": "foreground"}
BACKGROUND = {"fpga_pool:tier": "background"}
PCPU = 1

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def pool(rabbitmq, mariadb, tier_hypervisor, fair_guests, tmp_path):
    """A pool of one compute node with one pCPU for tiers."""
    nova_conf = tmp_path / "nova.conf"
    nova_conf.write_text(f"[DEFAULT]\ncpu_allocation_ratio = 2.0\n[compute]\ncpu_shared_set = {PCPU}\n")
    tiers = {
        "driver": "libvirt",
        "pcpus": str(PCPU),
        "nova_conf": nova_conf,
        "libvirt_pid_dir": tier_hypervisor.directory / "run" / "libvirt" / "qemu",
        "interval_s": 0.5,
    }
    options = {"agent": {"libvirt_uri": tier_hypervisor.uri, "heartbeat_s": 0.5}, "tiers": tiers}
    launchers = {"node-1": as_installed()}
    with Deployment(
        tmp_path / "pool", rabbitmq.url, mariadb.new_database(), agents=1, options=options, launchers=launchers
    ) as made:
        made.nova_conf = nova_conf
        yield made
        for name in made.names:  # pytest shows it if a test failed
            print(f"--- {name}\n{made.last_lines(name)}")


@pytest.fixture
def agent(rabbitmq, pool):
    """The calls of a scheduler to the agent."""
    messages = transport(cfg.CONF, rabbitmq.url)
    api = AgentAPI(messages, pool.identity(Role.SCHEDULER, "test"))
    yield SimpleNamespace(
        tiers=lambda: {guest.instance: guest.tier for guest in api.tiers("node-1")},
        guests=lambda: api.tiers("node-1"),
        set_tiers=lambda tiers: api.set_tiers("node-1", tiers),
    )
    messages.cleanup()


@pytest.fixture
def seen(tier_machines):
    """The tier and pCPUs of each guest, as the hypervisor reports them, without the agent."""
    with contextlib.closing(tier_machines.new_driver()) as driver:
        yield lambda: {guest.instance: (guest.tier, guest.pcpus) for guest in driver.guests()}


def test_guests_are_followed_swapped_and_restored_whatever_ends(pool, agent, seen, tier_machines, until):
    plain = tier_machines.start({})
    untouched = tier_machines.seen(plain)
    first, second = tier_machines.start(FOREGROUND), tier_machines.start(BACKGROUND)
    placed = {first: (FRONT, (PCPU,)), second: (BEHIND, (PCPU,))}
    until(lambda: seen() == placed, "both are in their tiers")
    until(lambda: all(guest.usage for guest in agent.guests()), "usage is measured")
    third = tier_machines.start(FOREGROUND)
    until(lambda: seen().get(third) == (None, ()), "the third guest runs")
    with pytest.raises(NotFound):
        agent.set_tiers({third: BEHIND})
    with pytest.raises(Conflict):
        agent.set_tiers({second: FRONT})
    tier_machines.stop(third)

    rows = json.loads(pool.manage("tier", "list", "node-1", "-f", "json"))
    assert {(row["instance"], row["tier"], row["pcpus"]) for row in rows} == {
        (first, "foreground", str(PCPU)),
        (second, "background", str(PCPU)),
    }

    swapped = {first: (BEHIND, (PCPU,)), second: (FRONT, (PCPU,))}
    pool.manage("tier", "set", "node-1", f"{first}=background", f"{second}=foreground")
    assert seen() == swapped
    tier_machines.reboot(second)
    until(lambda: seen() == swapped, "a hard reboot ends in the tier in which it began")

    pool.kill("node-1")
    tier_machines.reboot(first)
    with contextlib.closing(tier_machines.new_driver()) as driver:
        driver.release(second)  # as if it had been killed while placing this guest
    assert seen() == {first: (None, ()), second: (None, ())}
    pool.restart("node-1")
    until(lambda: seen() == swapped, "the next agent restores the tiers")
    assert tier_machines.seen(plain) == untouched


def test_an_agent_that_is_killed_in_the_middle_of_swaps_leaves_guests_that_run_in_one_tier_each(
    pool, agent, seen, tier_machines, until
):
    first, second = tier_machines.start(FOREGROUND), tier_machines.start(BACKGROUND)
    until(lambda: seen() == {first: (FRONT, (PCPU,)), second: (BEHIND, (PCPU,))}, "both are in their tiers")
    draw = random.Random(7)
    for _ in range(3):
        killed = threading.Event()

        def keep_swapping(killed=killed):
            with contextlib.suppress(Exception):  # the last call gets no answer, as the agent was killed
                while not killed.is_set():
                    tiers = agent.tiers()
                    agent.set_tiers({guest: BEHIND if tier == FRONT else FRONT for guest, tier in tiers.items()})

        swapping = threading.Thread(target=keep_swapping)
        swapping.start()
        time.sleep(draw.uniform(0.3, 1.0))
        pool.kill("node-1")
        killed.set()
        assert all(domain.isActive() for domain in tier_machines.domains.values())
        swapping.join()
        pool.restart("node-1")
        pool.wait_for_hosts(["node-1"])

        def agree():
            with contextlib.suppress(Exception):  # it does not listen yet
                told = {guest.instance: (guest.tier, guest.pcpus) for guest in agent.guests()}
                return told == seen() and sorted(tier for tier, _ in told.values()) == [BEHIND, FRONT]
            return False

        until(agree, "each guest is in the tier that the agent wrote down, and each tier has one")


def test_an_agent_does_not_start_where_nova_would_not_give_a_vcpu_of_each_tier(pool, until):
    pool.kill("node-1")
    pool.nova_conf.write_text("[compute]\ncpu_shared_set = 0-1\n")
    pool.restart("node-1")
    until(lambda: "node-1" not in pool.running(), "the agent ends")
    assert "[compute] cpu_shared_set is 0-1; [tiers] pcpus is 1" in pool.last_lines("node-1")
