"""The router with drivers that do not need root."""

import pytest

from fpga_pool.drivers.egress.base import Flow, LimitedFlow
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound


def flow(key, source):
    return Flow(
        key=key, source_address=source, source_port=5000, destination_address="192.0.2.1", destination_port=7000
    )


@pytest.fixture
def nic():
    return PacingDriver()


@pytest.fixture
def tap():
    return PacingDriver()


@pytest.fixture
def egress(nic, tap):
    return TcEgress({"10.0.0.0/24": nic, "10.0.0.7/32": tap, "fd00::/64": nic})


def test_most_specific_network_counts(egress, nic, tap):
    host, guest, six = flow("host", "10.0.0.1"), flow("guest", "10.0.0.7"), flow("six", "fd00::7")
    egress.open_all([LimitedFlow(host, 1e6), LimitedFlow(guest, 2e6), LimitedFlow(six, 3e6)])
    assert nic.flows() == (LimitedFlow(host, 1e6), LimitedFlow(six, 3e6))
    assert tap.flows() == (LimitedFlow(guest, 2e6),)
    assert {limited.flow.key for limited in egress.flows()} == {"host", "guest", "six"}


def test_flow_is_changed_and_closed_where_it_is(egress, nic, tap):
    egress.open(flow("guest", "10.0.0.7"), 1e6)
    egress.set_rate("guest", 2e6)
    assert tap.flows()[0].rate_bps == 2e6
    egress.close("guest")
    egress.close("guest")
    assert tap.flows() == ()
    with pytest.raises(NotFound, match="flow guest"):
        egress.set_rate("guest", 2e6)


def test_key_that_is_open_on_another_device(egress, nic):
    egress.open(flow("f", "10.0.0.7"), 1e6)
    with pytest.raises(Conflict, match="flow f"):
        egress.open(flow("f", "10.0.0.1"), 1e6)
    assert nic.flows() == ()


def test_source_of_no_device(egress):
    with pytest.raises(InvalidInput, match=r"no device is configured for source 10\.0\.1\.1"):
        egress.open(flow("f", "10.0.1.1"), 1e6)


def test_reset_forgets_all(egress, nic, tap):
    egress.open_all([LimitedFlow(flow("host", "10.0.0.1"), 1e6), LimitedFlow(flow("guest", "10.0.0.7"), 2e6)])
    egress.reset()
    assert nic.flows() == tap.flows() == ()


def test_network_that_is_none(nic):
    with pytest.raises(InvalidInput, match="network of a device"):
        TcEgress({"10.0.0.1/24": nic})
