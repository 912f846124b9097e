"""The contract of all egress drivers (`EgressDriver`). tests/functional/tc runs it on drivers that need a device."""

import math
from importlib.metadata import entry_points

import pytest

from fpga_pool.drivers.egress.base import EgressDriver, Flow, LimitedFlow
from fpga_pool.drivers.egress.pacing import PacingDriver
from fpga_pool.drivers.egress.tc.router import TcEgress
from fpga_pool.model.exceptions import Conflict, InvalidInput, NotFound


@pytest.fixture(params=[PacingDriver, lambda: TcEgress({"10.0.0.0/8": PacingDriver()})], ids=["pacing", "router"])
def driver(request):
    return request.param()


@pytest.fixture
def make_flow():
    """Return a function that makes flows without traffic, which differ by a number."""

    def make(number):
        return Flow(
            key=f"idle-{number}", source_address="10.77.0.1", source_port=10_000 + number,
            destination_address="192.0.2.1", destination_port=7000,
        )  # fmt: skip

    return make


def limits(driver):
    return {limited.flow.key: limited.rate_bps for limited in driver.flows()}


def test_drivers_are_registered_by_their_class():
    found = {point.name: point.load() for point in entry_points(group="fpga_pool.egress_drivers")}
    # Run this suite on each driver that is added.
    assert found.keys() == {"pacing", "tc"}
    assert all(issubclass(driver, EgressDriver) for driver in found.values())


@pytest.mark.parametrize("rate_bps", [0, 1e6, 100e9, math.inf])
def test_an_open_flow_is_seen_with_its_rate_until_it_is_closed(driver, make_flow, rate_bps):
    driver.open(make_flow(0), rate_bps)
    assert driver.flows() == (LimitedFlow(make_flow(0), rate_bps),)
    driver.close("idle-0")
    driver.close("idle-0")
    assert driver.flows() == ()


def test_to_open_a_flow_again_sets_its_rate(driver, make_flow):
    driver.open(make_flow(0), 1e6)
    driver.open(make_flow(0), 2e6)
    assert limits(driver) == {"idle-0": 2e6}


def test_a_key_is_for_one_flow(driver, make_flow):
    driver.open(make_flow(0), 1e6)
    other = make_flow(1)
    with pytest.raises(Conflict, match="idle-0"):
        driver.open(
            Flow(
                key="idle-0", source_address=other.source_address, source_port=other.source_port,
                destination_address=other.destination_address, destination_port=other.destination_port,
            ),
            1e6,
        )  # fmt: skip
    assert limits(driver) == {"idle-0": 1e6}


def test_a_rate_is_changed_and_no_other(driver, make_flow):
    driver.open_all([LimitedFlow(make_flow(number), 1e6) for number in range(3)])
    driver.set_rate("idle-1", 5e6)
    driver.set_rates({"idle-2": 0})
    assert limits(driver) == {"idle-0": 1e6, "idle-1": 5e6, "idle-2": 0}
    driver.close_all(["idle-0", "idle-2"])
    assert limits(driver) == {"idle-1": 5e6}


def test_a_flow_that_is_not_open_has_no_rate_to_change(driver):
    with pytest.raises(NotFound, match="idle-9"):
        driver.set_rate("idle-9", 1e6)
    with pytest.raises(NotFound, match="idle-9"):
        driver.set_rates({"idle-9": 1e6})


@pytest.mark.parametrize("rate_bps", [-1, math.nan])
def test_a_rate_that_is_none_is_refused_and_opens_nothing(driver, make_flow, rate_bps):
    with pytest.raises(InvalidInput, match="rate_bps"):
        driver.open(make_flow(0), rate_bps)
    assert driver.flows() == ()


def test_reset_forgets_every_flow(driver, make_flow):
    driver.open_all([LimitedFlow(make_flow(number), 1e6) for number in range(3)])
    driver.reset()
    assert driver.flows() == ()
