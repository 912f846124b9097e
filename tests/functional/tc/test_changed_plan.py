"""The plan of a stream changes while bytes flow: agent, driver and kernel follow."""

import time

import pytest

from fpga_pool.drivers.egress.tc import netlink
from fpga_pool.drivers.egress.tc.driver import TcDriver
from fpga_pool.model.messages.agents import ShapeFlow
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shaper import FlowShaper

SOON_S = 90.0


@pytest.fixture
def shaper(net, tmp_path):
    """A shaper of flows, whose thread runs in the host's namespace."""
    journal = Journal(tmp_path / "journal.sqlite")
    shaper = FlowShaper(TcDriver(net.device), journal, time.time)
    net.host.run(shaper.start)
    yield shaper
    net.host.run(shaper.stop)
    journal.close()


def plan(stream, bps):
    """Return a plan of one rate, dispatched now."""
    source, destination = stream.near.getsockname(), stream.near.getpeername()
    return ShapeFlow(
        job="job",
        attempt=1,
        source_address=source[0],
        source_port=source[1],
        destination_address=destination[0],
        destination_port=destination[1],
        dispatched_at=time.time(),
        transfer=(RateSegment(0.0, 600.0, bps),),
    )


def class_rates(net):
    """Return the rate of each class, in bytes per second on the wire; empty before there is a queue."""
    return net.host.run(lambda: netlink.class_rates(netlink.link(net.device).index))


def wait_for(net, least, most):
    """Wait until the only class has a rate between these bounds, in bit/s; return the class."""
    until_s = time.monotonic() + SOON_S
    while not (len(rates := class_rates(net)) == 1 and least < 8 * next(iter(rates.values())) < most):
        assert time.monotonic() < until_s, rates
        time.sleep(0.02)
    return next(iter(rates))


def test_a_stream_that_flows_gets_the_rate_of_a_new_plan_and_is_never_let_go(net, shaper, measure):
    stream = net.stream()
    shaper.take(plan(stream, 40e6))
    # On the wire, a little more than the payload.
    first = wait_for(net, 40e6, 44e6)
    stream.start()
    time.sleep(0.5)
    (before_bps,), _ = measure([stream], 1.0)
    shaper.take(plan(stream, 200e6))
    assert wait_for(net, 200e6, 220e6) == first
    (after_bps,), _ = measure([stream], 1.0)
    assert before_bps < 44e6
    # A busy machine sends less than it may, but far more than permitted before.
    assert 2 * before_bps < after_bps < 220e6
