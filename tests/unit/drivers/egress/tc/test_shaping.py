import math

import pytest

from fpga_pool.drivers.egress.tc.places import (
    HELD_BYTES_S,
    UNLIMITED_BYTES_S,
    Link,
    Shape,
    debt_matters,
    goodput_bps,
    shape,
    wire_ratio,
)

ETHERNET = Link(index=1, mtu_bytes=1500, header_bytes=14)


@pytest.mark.parametrize(
    ("link", "ip_version", "wire_bytes", "payload_bytes"),
    [
        # Payload: MTU - 20 (IPv4) or 40 (IPv6) - 20 (TCP) - 12 (timestamps).  On Ethernet it takes MTU + 14 bytes.
        (ETHERNET, 4, 1514, 1448),
        (ETHERNET, 6, 1514, 1428),
        (Link(1, 9000, 14), 4, 9014, 8948),
        (Link(1, 1450, 14), 4, 1464, 1398),
        (Link(1, 1500, 0), 4, 1500, 1448),
    ],
)
def test_wire_bytes_per_byte_of_payload(link, ip_version, wire_bytes, payload_bytes):
    assert wire_ratio(link, ip_version) == pytest.approx(wire_bytes / payload_bytes)


def test_rate_on_the_wire():
    # 100 Mbit/s of payload are 12.5e6 * 1514/1448 = 13069751.4 bytes/s on the wire, or 522790 bytes in 40 ms.
    assert shape(100e6, ETHERNET, 4) == Shape(13_069_751, 522_790)


def test_burst_holds_two_gso_packets_at_least():
    assert shape(1e6, ETHERNET, 4).burst_bytes == 131_072


def test_held_flow_trickles_packet_by_packet():
    assert shape(0, ETHERNET, 4) == Shape(12_500, 1514)


def test_smallest_rate_is_not_zero():
    assert shape(0.001, ETHERNET, 4).bytes_s == 1


@pytest.mark.parametrize("rate_bps", [math.inf, 1e18])
def test_no_rate_is_more_than_unlimited(rate_bps):
    assert shape(rate_bps, ETHERNET, 4).bytes_s == UNLIMITED_BYTES_S


@pytest.mark.parametrize("rate_bps", [0, 1e5, 123456789.0, 100e9, math.inf])
def test_goodput_is_the_inverse(rate_bps):
    """The inverse is exact to one byte per second."""
    assert goodput_bps(shape(rate_bps, ETHERNET, 6).bytes_s, ETHERNET, 6) == pytest.approx(rate_bps, abs=8)


@pytest.mark.parametrize(
    ("old_bytes_s", "new_bytes_s", "matters"),
    [
        # The debt of a GSO packet of 65536 bytes is paid in 5.2 s, 0.1 s (655360 bytes/s) and 0.05 s.
        (HELD_BYTES_S, 10**8, True),
        (655_359, 10**8, True),
        (655_360, 10**8, False),
        (1_310_720, 10**8, False),
        # If the flow keeps its rate or becomes slower, its debt does not matter.
        (HELD_BYTES_S, HELD_BYTES_S, False),
        (HELD_BYTES_S, 1000, False),
    ],
)
def test_debt_of_a_slow_flow_matters_when_it_shall_go_faster(old_bytes_s, new_bytes_s, matters):
    assert debt_matters(Shape(old_bytes_s, 1), Shape(new_bytes_s, 1)) is matters
