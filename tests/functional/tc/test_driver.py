"""State that the driver creates in the kernel, and state of others that it leaves alone."""

import math

import pytest

from fpga_pool.drivers.egress.base import Flow, LimitedFlow
from fpga_pool.drivers.egress.tc.driver import TcDriver
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound, ServiceUnavailable


@pytest.fixture(params=["egress", "ingress"])
def direction(request):
    return request.param


@pytest.fixture
def state(net):
    """Return the state of traffic control in the host's namespace, and its devices: `state()`."""
    return lambda: net.host.shell(
        "tc qdisc show | sed 's/direct_packets_stat [0-9]*//';"
        " for d in $(ip -o link | cut -d: -f2 | cut -d@ -f1); do echo $d; tc class show dev $d;"
        " tc filter show dev $d; tc filter show dev $d ingress; done"
    )


@pytest.fixture
def run(net):
    return net.host.run


def test_flows_as_the_kernel_has_them(net, run, direction, make_flow):
    driver = TcDriver(net.device, direction)
    limits = [LimitedFlow(make_flow(i), rate_bps) for i, rate_bps in enumerate([0, 1e6, 123456789.0, 100e9, math.inf])]
    run(driver.open_all, limits)
    assert list(run(driver.flows)) == limits
    run(driver.set_rates, {"idle-0": 5e6, "idle-4": 0})
    assert [limited.rate_bps for limited in run(driver.flows)] == [5e6, 1e6, 123456789.0, 100e9, 0]
    run(driver.close, "idle-1")
    assert [limited.flow.key for limited in run(driver.flows)] == ["idle-0", "idle-2", "idle-3", "idle-4"]


def test_flow_that_someone_changed_or_removed(net, run, make_flow):
    driver = TcDriver(net.device)
    run(driver.open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(3)])
    net.host.shell(
        "tc filter show dev nic0 | grep -q 'fh 100:88:1 ';"  # idle-0: port 10000, bucket 5000 % 256 = 0x88
        "tc filter del dev nic0 parent f940: handle 100:88:1 prio 1 protocol ip u32;"
        "tc class change dev nic0 classid f940:3 htb rate 2mbit quantum 65536"
    )
    # 2 Mbit/s on the wire carry 2e6 * 1448/1514 bit/s of payload; idle-0 has no filter and thereby no limit.
    assert {limited.flow.key: limited.rate_bps for limited in run(driver.flows)} == {
        "idle-1": 1e6,
        "idle-2": pytest.approx(2e6 * 1448 / 1514),
    }


def test_ten_thousand_flows_leave_nothing_when_they_are_closed(net, run, make_flow, state):
    driver = TcDriver(net.device)
    run(driver.open, make_flow(40_000), 1e6)
    before = run(driver.flows)
    run(driver.open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(10_000)])
    assert len(run(driver.flows)) == 10_001
    run(driver.close_all, [f"idle-{i}" for i in range(10_000)])
    assert run(driver.flows) == before
    # One flow remains: one class besides those for the queues of groups (0x8001 to 0x8009), and one filter.
    classes = net.host.shell(f"tc class show dev {net.device}")
    assert [line.split()[2] for line in classes.splitlines() if " leaf " not in line] == ["f940:1"]
    filters = net.host.shell("for q in f940 f941 f949; do tc filter show dev nic0 parent $q:; done")
    assert filters.count("flowid") == 1


def test_reset_brings_back_what_was_there(net, run, direction, make_flow, state):
    before = state()
    driver = TcDriver(net.device, direction)
    run(driver.open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(3000)])
    run(driver.reset)
    assert state() == before
    assert run(driver.flows) == ()
    run(driver.open, make_flow(1), 1e6)
    assert run(driver.flows) == (LimitedFlow(make_flow(1), 1e6),)


@pytest.mark.parametrize("begin", ["reset", "open"])
def test_restart_clears_what_the_process_before_left(net, run, direction, make_flow, state, begin):
    clean = state()
    run(TcDriver(net.device, direction).open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(10)])
    driver = TcDriver(net.device, direction)
    if begin == "reset":
        run(driver.reset)
        assert state() == clean
    run(driver.open, make_flow(3), 2e6)
    assert run(driver.flows) == (LimitedFlow(make_flow(3), 2e6),)
    assert state().count("flowid f940:") == 1


def test_restart_after_a_guest_is_gone(net, run, make_flow, state):
    run(TcDriver(net.device, "ingress").open, make_flow(1), 1e6)
    net.host.shell(f"ip link del {net.device}")
    run(TcDriver(net.device, "ingress").reset)
    assert net.host.shell("ip -o link").count("\n") == 1


FOREIGN_ROOT = "tc qdisc add dev nic0 root handle 7: tbf rate 1gbit burst 1mb latency 50ms"
FOREIGN_HTB = (
    "tc qdisc add dev nic0 root handle 8001: htb; tc class add dev nic0 parent 8001: classid 8001:1 htb rate 1gbit"
)
FOREIGN_INGRESS = "tc qdisc add dev nic0 ingress"
FOREIGN_CLSACT = "tc qdisc add dev nic0 clsact; tc filter add dev nic0 ingress protocol ip u32 match u32 0 0"


@pytest.mark.parametrize(
    ("direction", "command"),
    [
        ("egress", FOREIGN_ROOT),
        ("egress", FOREIGN_HTB),
        ("ingress", FOREIGN_INGRESS),
        ("ingress", FOREIGN_CLSACT),
    ],
)
def test_queue_of_someone_else_is_refused_and_left_alone(net, run, make_flow, state, direction, command):
    net.host.shell(command)
    before = state()
    driver = TcDriver(net.device, direction)
    with pytest.raises(Conflict, match=r"device nic0: its (root|ingress) queue is .* configured by another program"):
        run(driver.open, make_flow(1), 1e6)
    run(driver.close, "idle-1")
    run(driver.reset)
    assert run(driver.flows) == ()
    assert state() == before


@pytest.mark.parametrize(("direction", "command"), [("ingress", FOREIGN_ROOT), ("egress", FOREIGN_CLSACT)])
def test_queue_of_someone_else_in_the_other_direction_does_not_disturb(net, run, make_flow, state, direction, command):
    net.host.shell(command)
    before = state()
    driver = TcDriver(net.device, direction)
    run(driver.open, make_flow(1), 1e6)
    assert len(run(driver.flows)) == 1
    run(driver.reset)
    assert state() == before


def test_device_that_is_made_again(net, run, direction, make_flow):
    """A guest that is restarted has a new tap with the same name: its flows are opened again."""
    driver = TcDriver(net.device, direction)
    run(driver.open, make_flow(1), 1e6)
    net.host.shell(f"ip link del {net.device}; ip link add {net.device} type veth; ip link set {net.device} up")
    assert run(driver.flows) == ()
    run(driver.open, make_flow(2), 2e6)
    assert run(driver.flows) == (LimitedFlow(make_flow(2), 2e6),)


def test_queue_that_someone_removed(net, run, make_flow):
    driver = TcDriver(net.device)
    run(driver.open, make_flow(1), 1e6)
    net.host.shell(f"tc qdisc del dev {net.device} root")
    assert run(driver.flows) == ()
    with pytest.raises(NotFound, match="was lost; open it again"):
        run(driver.set_rate, "idle-1", 2e6)
    run(driver.open, make_flow(1), 2e6)
    assert run(driver.flows) == (LimitedFlow(make_flow(1), 2e6),)


def test_change_that_the_kernel_refuses_leaves_nothing_of_it(net, run, make_flow, state):
    driver = TcDriver(net.device)
    run(driver.open, make_flow(1), 1e6)
    net.host.shell("tc class add dev nic0 parent f940: classid f940:4 htb rate 1mbit quantum 65536")
    before = state()
    with pytest.raises(ServiceUnavailable, match="File exists"):
        run(driver.open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(2, 6)])
    assert before.count("flowid f940:") == state().count("flowid f940:") == 1
    assert run(driver.flows) == (LimitedFlow(make_flow(1), 1e6),)


def test_device_that_is_not_there(net, run, make_flow):
    driver = TcDriver("tap9", "ingress")
    with pytest.raises(NotFound, match="no network device tap9"):
        run(driver.open, make_flow(1), 1e6)
    run(driver.reset)
    assert run(driver.flows) == ()


def test_flows_go_to_the_device_of_their_source(net, run, make_flow):
    nic, tap = TcDriver(net.device), TcDriver(net.device, "ingress")
    egress = TcEgress({"10.77.0.0/24": nic, "10.77.0.2/32": tap})
    guest = Flow(
        key="guest",
        source_address="10.77.0.2",
        source_port=9,
        destination_address="192.0.2.1",
        destination_port=7000,
    )
    run(egress.open_all, [LimitedFlow(make_flow(1), 1e6), LimitedFlow(guest, 2e6)])
    assert run(nic.flows) == (LimitedFlow(make_flow(1), 1e6),)
    assert run(tap.flows) == (LimitedFlow(guest, 2e6),)
    run(egress.set_rates, {"guest": 3e6, "idle-1": 0})
    assert {limited.flow.key: limited.rate_bps for limited in run(egress.flows)} == {"guest": 3e6, "idle-1": 0}
    run(egress.close, "guest")
    assert run(tap.flows) == ()
    run(egress.reset)
    assert run(egress.flows) == ()


def test_address_that_is_none(net, run, make_flow):
    driver = TcDriver(net.device)
    flow = Flow(key="f", source_address="nowhere", source_port=1, destination_address="10.0.0.1", destination_port=2)
    with pytest.raises(InvalidInput, match="nowhere"):
        run(driver.open_all, [LimitedFlow(make_flow(1), 1e6), LimitedFlow(flow, 1e6)])
    assert run(driver.flows) == ()
