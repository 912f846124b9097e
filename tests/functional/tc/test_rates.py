"""Measured goodput compared with the requested rates."""

import json
import socket
import time

import pytest

from fpga_pool.drivers.egress.base import LimitedFlow
from fpga_pool.drivers.egress.tc.driver import TcDriver
from fpga_pool.drivers.egress.tc.places import GROUP_FLOWS
from support.streams import RAMP_S, check_rates

RATES_BPS = (50e6, 100e6, 150e6, 250e6, 450e6)


@pytest.fixture(params=["cubic", "bbr"])
def congestion(request):
    """A congestion control algorithm that the kernel supports."""
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, request.param.encode())
        except OSError as error:
            pytest.skip(f"the kernel has no {request.param}: {error}")
    return request.param


@pytest.fixture(params=["egress", "ingress"])
def direction(request):
    return request.param


def dropped(net):
    """Return how many packets the queues of the host have dropped."""
    return sum(qdisc["drops"] for qdisc in json.loads(net.host.shell("tc -s -j qdisc show")))


def test_goodput_is_the_rate(net, measure, congestion, direction):
    driver = TcDriver(net.device, direction)
    streams = [net.stream(congestion, from_neighbour=direction == "ingress") for _ in RATES_BPS]
    limits = [
        LimitedFlow(stream.flow(f"{rate_bps}"), rate_bps) for stream, rate_bps in zip(streams, RATES_BPS, strict=True)
    ]
    net.host.run(driver.open_all, limits)
    for stream in streams:
        stream.start()
    time.sleep(RAMP_S)
    check_rates(streams, RATES_BPS)


def test_goodput_is_the_rate_over_ipv6(net, measure):
    driver = TcDriver(net.device)
    stream = net.stream(version=6)
    net.host.run(driver.open, stream.flow("six"), 200e6)
    stream.start()
    time.sleep(RAMP_S)
    check_rates([stream], [200e6])


def test_goodput_is_the_rate_beside_thousands_of_flows(net, measure, make_flow):
    """Flows beyond the first 1024 are in separate queues below the device's."""
    driver = TcDriver(net.device)
    net.host.run(driver.open_all, [LimitedFlow(make_flow(i), 1e6) for i in range(2 * GROUP_FLOWS)])
    streams = [net.stream() for _ in RATES_BPS]
    for stream, rate_bps in zip(streams, RATES_BPS, strict=True):
        net.host.run(driver.open, stream.flow(f"{rate_bps}"), rate_bps)
        stream.start()
    time.sleep(RAMP_S)
    check_rates(streams, RATES_BPS)


def test_goodput_is_the_rate_with_jumbo_frames(net, measure):
    for space in (net.host, net.neighbour):
        space.shell(f"ip link set {net.device} mtu 9000")
    driver = TcDriver(net.device)
    stream = net.stream()
    net.host.run(driver.open, stream.flow("jumbo"), 200e6)
    stream.start()
    time.sleep(RAMP_S)
    check_rates([stream], [200e6])


def test_rate_changes_while_bytes_flow(net, measure, direction):
    """No packet is dropped.  Retransmissions are not checked, as TCP may time out on a busy machine."""
    driver = TcDriver(net.device, direction)
    stream = net.stream(from_neighbour=direction == "ingress")
    net.host.run(driver.open, stream.flow("f"), 100e6)
    stream.start()
    for rate_bps in (100e6, 400e6, 50e6, 900e6, 100e6):
        net.host.run(driver.set_rate, "f", rate_bps)
        time.sleep(0.5)
        check_rates([stream], [rate_bps], window_s=0.5, tolerance=0.1)
    assert dropped(net) == 0


def test_rate_zero_holds_the_flow_and_a_rate_lets_it_go_at_once(net, measure, direction):
    """A flow of rate 0 gets 100 kbit/s on the wire: 12500 bytes in a second, and the last GSO packet of 64 KiB."""
    driver = TcDriver(net.device, direction)
    stream = net.stream(from_neighbour=direction == "ingress")
    net.host.run(driver.open, stream.flow("f"), 0)
    stream.start()
    for _ in range(2):
        time.sleep(0.3)
        before = stream.received_bytes
        time.sleep(1.0)
        assert stream.received_bytes - before <= 12_500 + 65_536
        net.host.run(driver.set_rate, "f", 100e6)
        (goodput_bps,), late_s = measure([stream], 1.0)
        # TCP may need a few round trips, or a retransmission timeout, until it uses the path fully again.
        assert goodput_bps > 50e6, f"the host was late by up to {late_s:.3f} s"
        net.host.run(driver.set_rate, "f", 0)


def test_what_is_not_a_flow_passes_unshaped(net, measure, direction):
    driver = TcDriver(net.device, direction)
    held, free = (net.stream(from_neighbour=direction == "ingress") for _ in range(2))
    net.host.run(driver.open, held.flow("f"), 1e6)
    free.start()
    time.sleep(0.5)
    (goodput_bps,), _ = measure([free], 0.5)
    assert goodput_bps > 1e9


def test_unlimited_flow_is_not_limited(net, measure):
    driver = TcDriver(net.device)
    stream = net.stream()
    net.host.run(driver.open, stream.flow("f"), float("inf"))
    stream.start()
    time.sleep(0.5)
    (goodput_bps,), _ = measure([stream], 0.5)
    assert goodput_bps > 1e9


def test_closed_flow_is_free(net, measure):
    driver = TcDriver(net.device)
    stream = net.stream()
    net.host.run(driver.open, stream.flow("f"), 1e6)
    stream.start()
    time.sleep(0.3)
    net.host.run(driver.close, "f")
    time.sleep(0.7)
    (goodput_bps,), _ = measure([stream], 0.5)
    assert goodput_bps > 1e9
