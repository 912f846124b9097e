import contextlib
import math
import select
import socket
import struct

import pytest

from fpga_pool.drivers.egress.base import Flow, LimitedFlow
from fpga_pool.drivers.egress.pacing import SO_MAX_PACING_RATE, PacingDriver, pacing_value
from fpga_pool.model.exceptions import InvalidInput, NotFound

UNLIMITED = 2 ** (8 * struct.calcsize("@L")) - 1


def kernel_rate(sock):
    """Return the pacing rate of a socket in bytes/s, as the kernel reports it."""
    return struct.unpack("@L", sock.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.calcsize("@L")))[0]


@pytest.fixture
def make_pair():
    """Make the two ends of a TCP connection over loopback."""
    with contextlib.ExitStack() as stack:

        def make():
            with socket.create_server(("127.0.0.1", 0)) as listener:
                near = stack.enter_context(socket.create_connection(listener.getsockname()))
                return near, stack.enter_context(listener.accept()[0])

        yield make


@pytest.fixture
def pair(make_pair):
    return make_pair()


def flow_of(sock, key="f"):
    source, destination = sock.getsockname(), sock.getpeername()
    return Flow(
        key=key,
        source_address=source[0],
        source_port=source[1],
        destination_address=destination[0],
        destination_port=destination[1],
    )


@pytest.fixture
def driver():
    return PacingDriver()


def test_rate_given_before_the_socket_takes_effect_when_it_is_attached(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    driver.attach("f", pair[0])
    assert kernel_rate(pair[0]) == 1_000_000


def test_rate_changes_while_the_socket_is_open(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    driver.attach("f", pair[0])
    driver.set_rate("f", 16e6)
    assert kernel_rate(pair[0]) == 2_000_000
    driver.set_rate("f", math.inf)
    assert kernel_rate(pair[0]) == UNLIMITED


def test_rates_beyond_32_bit(driver, pair):
    """100 Gbit/s are 12.5e9 bytes/s, more than 2**32."""
    driver.open(flow_of(pair[0]), 100e9)
    driver.attach("f", pair[0])
    assert kernel_rate(pair[0]) == 12_500_000_000


def test_little_waits_unsent_in_the_kernel(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    driver.attach("f", pair[0])
    assert pair[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 131_072


def test_paced_socket_takes_less_than_an_unpaced_one(driver, make_pair):
    """The receiver reads everything. The sender tries 50 times to write 64 KiB, if the kernel accepts data."""

    def taken_bytes(rate_bps):
        near, far = make_pair()
        driver.open(flow_of(near, f"{rate_bps}"), rate_bps)
        driver.attach(f"{rate_bps}", near)
        near.setblocking(False)
        far.setblocking(False)
        taken = 0
        for _ in range(50):
            if select.select([], [near], [], 0.005)[1]:
                taken += near.send(bytes(65_536))
            with contextlib.suppress(BlockingIOError):
                while far.recv(2**20):
                    pass
        return taken

    assert taken_bytes(64e3) < taken_bytes(math.inf) / 4


def test_rate_zero_leaves_the_kernel_at_the_rate_it_had(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    control = driver.attach("f", pair[0])
    control.set_rate(0)
    assert kernel_rate(pair[0]) == 1_000_000
    assert driver.flows()[0].rate_bps == 0


def test_close_lifts_the_limit(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    driver.attach("f", pair[0])
    driver.close("f")
    assert kernel_rate(pair[0]) == UNLIMITED
    assert driver.flows() == ()
    driver.close("f")


def test_socket_that_was_closed_first_disturbs_nothing(driver, pair):
    driver.open(flow_of(pair[0]), 8e6)
    driver.attach("f", pair[0])
    pair[0].close()
    driver.set_rate("f", 16e6)
    driver.close("f")


def test_flows_in_the_order_of_opening(driver, pair):
    first, second = flow_of(pair[0], "b"), flow_of(pair[1], "a")
    driver.open(first, 1e6)
    driver.open(second, 2e6)
    driver.open(first, 3e6)
    assert driver.flows() == (LimitedFlow(first, 3e6), LimitedFlow(second, 2e6))


def test_a_socket_of_an_unknown_flow_is_refused(driver, pair):
    with pytest.raises(NotFound, match="flow x"):
        driver.attach("x", pair[0])


@pytest.mark.parametrize("port", [0, 65_536])
def test_port_that_is_none(port):
    with pytest.raises(InvalidInput, match="destination_port"):
        Flow(key="f", source_address="a", source_port=1, destination_address="b", destination_port=port)


@pytest.mark.parametrize(
    ("rate_bps", "bytes_per_s"), [(8e6, 1_000_000), (1.0, 1), (math.inf, UNLIMITED), (1e30, UNLIMITED - 1)]
)
def test_value_for_the_kernel(rate_bps, bytes_per_s):
    """The value is never 0, and is the value for "no limit" only if the rate is infinite."""
    assert pacing_value(rate_bps) == bytes_per_s
