"""Measured rates of a server that sends as fast as it can, compared with the plan of its flow."""

import time

from fpga_pool.drivers.egress.tc.places import Link, shape
from support.streams import RAMP_S, check_rates
from support.waiting import SOON_S, wait_until

#: A new plan takes effect within this time, in seconds.
LIVE_S = 0.1


def wire_bytes_s(bps):
    return shape(bps, Link(0, 1500, 14), 4).bytes_s


def test_a_server_that_does_not_cooperate_has_the_planned_rate(net, tapped, measure):
    streams = [net.stream(from_neighbour=True) for _ in range(2)]
    rates_bps = [80e6, 160e6]
    for number, (stream, rate_bps) in enumerate(zip(streams, rates_bps, strict=True)):
        tapped.hold(stream, rate_bps, job=f"job-{number}")
        stream.start()
    wait_until(lambda: tapped.rates() == [wire_bytes_s(bps) for bps in rates_bps], "both flows are held")
    time.sleep(RAMP_S)
    check_rates(streams, rates_bps)


def test_another_plan_is_in_force_within_a_tenth_of_a_second(net, tapped, measure):
    stream = net.stream(from_neighbour=True)
    tapped.hold(stream, 100e6)
    wait_until(lambda: tapped.rates() == [wire_bytes_s(100e6)], "the flow is held")
    stream.start()
    time.sleep(RAMP_S)
    took = []
    for rate_bps in (300e6, 60e6, 200e6, 100e6) * 2:
        began_s = time.monotonic()
        tapped.hold(stream, rate_bps)
        while tapped.rates() != [wire_bytes_s(rate_bps)]:
            assert time.monotonic() < began_s + SOON_S
        took.append(time.monotonic() - began_s)
        time.sleep(LIVE_S)
        check_rates([stream], [rate_bps], window_s=0.5, tolerance=0.1)
    # The median, as a busy machine may delay single changes.
    assert sorted(took)[len(took) // 2] <= LIVE_S, took
