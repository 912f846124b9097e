"""Servers of Nova: the agent finds their taps, limits their flows there, and keeps the configuration of others."""

import os
import signal
import subprocess
import sys

import pytest

from fpga_pool.drivers.egress.base import LimitedFlow
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.messages.agents import ObservedServer
from support.waiting import wait_until

from .conftest import NEIGHBOUR, TappedAgent

#: Bytes per second on the wire for this many Mbit/s of payload.
WIRE_RATE = {mbps: round(mbps * 1e6 / 8 * 1514 / 1448) for mbps in (20, 40)}


@pytest.fixture
def state(net):
    """Return all queues, filters and devices of the host: `state()`."""
    return lambda: net.host.shell(
        "tc qdisc show | sed 's/direct_packets_stat [0-9]*//'; for d in $(ip -o link | cut -d: -f2 | cut -d@ -f1);"
        " do echo $d; tc filter show dev $d; tc filter show dev $d ingress; done"
    )


@pytest.fixture
def run_in_host(net):
    return net.host.run


def held(agent, stream, bps=20e6):
    """Let the agent limit a stream of its server, and wait until it does."""
    agent.hold(stream, bps)
    wait_until(lambda: agent.rates() == [WIRE_RATE[bps // 1e6]], "the flow is held at the tap")


def test_a_server_is_reported_and_its_flow_held_at_its_tap(net, tapped):
    wait_until(tapped.taps.observed, "the server is found")
    assert tapped.taps.observed() == (ObservedServer(uuid=tapped.server, project_id="demo", egress_bps=1e9, held=True),)
    held(tapped, net.stream(from_neighbour=True))
    assert tapped.ifb() != ""


def test_a_limit_of_libvirt_is_the_egress_of_the_server(net, tmp_path):
    agent = TappedAgent(net, tmp_path)
    # 2500 kB/s are 20 Mbit/s.
    agent.describe("<bandwidth><outbound average='2500'/></bandwidth>")
    agent.start()
    wait_until(agent.taps.observed, "the server is found")
    (found,) = agent.taps.observed()
    agent.stop()
    assert found.egress_bps == 20e6


def test_the_end_of_a_server_removes_what_was_at_its_tap(net, tapped, state):
    before = state()
    held(tapped, net.stream(from_neighbour=True))
    tapped.end_server()
    wait_until(lambda: tapped.ifb() == "", "the tap is free")
    assert state() == before
    wait_until(lambda: tapped.taps.observed() == (), "no server is reported")


def test_a_server_that_ends_with_its_tap_leaves_no_device(net, tapped):
    held(tapped, net.stream(from_neighbour=True))
    net.host.shell(f"ip link del {tapped.tap}")
    tapped.end_server()
    wait_until(lambda: tapped.ifb() == "", "the device behind the tap is gone")


def test_the_ingress_queue_of_someone_else_is_left_alone_and_the_server_reported_as_not_held(
    net, tmp_path, state, caplog
):
    """libvirt and Open vSwitch create such a queue to limit a port."""
    agent = TappedAgent(net, tmp_path)
    net.host.shell(
        f"tc qdisc add dev {agent.tap} ingress;"
        f"tc filter add dev {agent.tap} parent ffff: prio 49 protocol ip u32 match u32 0 0 flowid 1:1"
    )
    before = state()
    agent.describe()
    agent.start()
    wait_until(agent.taps.observed, "the server is found")
    (found,) = agent.taps.observed()
    assert not found.held
    assert f"device {agent.tap}: its ingress queue is ingress ffff:, configured by another program" in caplog.text
    agent.hold(net.stream(from_neighbour=True), 20e6)
    agent.stop()
    assert state() == before


def test_a_limit_of_what_a_server_receives_stays_beside_ours(net, tapped):
    """libvirt and Neutron configure such a limit at the root of the tap."""
    net.host.shell(f"tc qdisc add dev {tapped.tap} root handle 1: htb default 1")
    held(tapped, net.stream(from_neighbour=True))
    assert "qdisc htb 1: root" in net.host.shell(f"tc qdisc show dev {tapped.tap}")
    tapped.stop()
    assert "qdisc htb 1: root" in net.host.shell(f"tc qdisc show dev {tapped.tap}")
    tapped.start()


def test_a_flow_of_another_server_or_from_another_address_is_held_nowhere(net, run_in_host, make_flow):
    egress = TcEgress({})
    with pytest.raises(NotFound, match="not known yet"):  # the agent retries later
        run_in_host(egress.open, make_flow(1, server="one"), 1e6)
    run_in_host(egress.follow, {("one", NEIGHBOUR): net.device})
    for flow in (make_flow(1, server="one"), make_flow(1, server="two", source_address=NEIGHBOUR)):
        with pytest.raises(InvalidInput, match="no tap of it on this host has address"):
            run_in_host(egress.open, flow, 1e6)
    assert run_in_host(egress.flows) == ()


def test_two_servers_with_one_address_are_told_apart(net, run_in_host, make_flow):
    """Networks of tenants may overlap."""
    net.host.shell("ip tuntap add second mode tap; ip link set second up")
    egress = TcEgress({})
    taps = {("one", NEIGHBOUR): net.device, ("two", NEIGHBOUR): "second"}
    assert run_in_host(egress.follow, taps) == {net.device, "second"}
    flows = [make_flow(1, server=server, source_address=NEIGHBOUR, key=server) for server in ("one", "two")]
    for flow in flows:
        run_in_host(egress.open, flow, 1e6)
    assert {limit.flow for limit in run_in_host(egress.flows)} == set(flows)
    assert len(net.host.shell("ip -o link show type ifb").splitlines()) == 2
    run_in_host(egress.follow, {("two", NEIGHBOUR): "second"})
    assert run_in_host(egress.flows) == (LimitedFlow(flows[1], 1e6),)
    run_in_host(egress.reset)


#: An agent of this host that is killed while it limits a flow.
KILLED = """
import os, signal
from fpga_pool.drivers import privileged
from fpga_pool.drivers.egress.base import Flow
from fpga_pool.drivers.egress.tc.router import TcEgress
assert privileged.use_own_capabilities()
egress = TcEgress({{}})
egress.follow({{("one", "10.0.0.7"): "{device}"}})
egress.open(Flow(key="f", source_address="10.0.0.7", source_port=5, destination_address="192.0.2.1", destination_port=6,
    server="one"), 1e6)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("tap_ends", [False, True])
def test_what_a_killed_agent_left_is_removed_by_the_next_one(net, run_in_host, state, tap_ends):
    net.host.shell("ip tuntap add tap0 mode tap; ip link set tap0 up")
    if tap_ends:
        net.host.shell("ip link del tap0")
    before = state()
    if tap_ends:
        net.host.shell("ip tuntap add tap0 mode tap; ip link set tap0 up")
    done = subprocess.run(
        ["ip", "netns", "exec", net.host.name, sys.executable, "-c", KILLED.format(device="tap0")],
        timeout=120, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    assert "fpi" in net.host.shell("ip -o link")
    if tap_ends:
        net.host.shell("ip link del tap0")
    run_in_host(TcEgress({}).reset)
    assert state() == before
