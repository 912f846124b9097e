import math

import pytest

from fpga_pool.dataplane.schedule import Pacer, RateSchedule
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects import RateSegment

#: Nothing before 1 s, 100 until 2 s, a gap until 3 s, 300 until 4 s, then 200 until 6 s.
PLAN = RateSchedule([RateSegment(1, 2, 100), RateSegment(3, 4, 300), RateSegment(4, 6, 200)])


@pytest.mark.parametrize(
    ("t_s", "rate_bps", "next_s"),
    [
        (-1.0, 0, 1), (0.0, 0, 1), (1.0, 100, 2), (1.5, 100, 2), (2.0, 0, 3), (3.0, 300, 4), (4.0, 200, 6),
        (5.9, 200, 6), (6.0, 200, math.inf), (99.0, 200, math.inf),
    ],
)  # fmt: skip
def test_rate_and_its_next_change(t_s, rate_bps, next_s):
    """Held before and between the segments; late bytes keep the last rate."""
    assert PLAN.rate_at(t_s) == rate_bps
    assert PLAN.next_change_s(t_s) == next_s


def test_empty_schedule_does_not_limit():
    assert RateSchedule().rate_at(5.0) == math.inf
    assert RateSchedule().next_change_s(5.0) == math.inf


def test_late_bytes_keep_the_last_positive_rate():
    schedule = RateSchedule([RateSegment(0, 1, 100), RateSegment(1, 2, 0)])
    assert schedule.rate_at(1.5) == 0
    assert schedule.rate_at(2.0) == 100


def test_hold_without_end():
    schedule = RateSchedule([RateSegment(0, math.inf, 0)])
    assert schedule.rate_at(1e12) == 0
    assert schedule.next_change_s(0.0) == math.inf


@pytest.mark.parametrize(
    "values",
    [(1, 1, 5), (2, 1, 5), (math.nan, 1, 5), (0, math.nan, 5), (-math.inf, 1, 5), (0, 1, -1), (0, 1, math.nan)],
)
def test_segment_that_makes_no_sense(values):
    with pytest.raises(InvalidInput):
        RateSchedule([RateSegment(*values)])


def test_segments_that_overlap():
    with pytest.raises(InvalidInput, match="segment 1: begins at 1 s"):
        RateSchedule([RateSegment(0, 2, 5), RateSegment(1, 3, 5)])


class Recorder:
    """A limiter whose time passes only while someone waits at its gate."""

    def __init__(self):
        self.now_s = 100.0
        self.rates = []
        self.waits = []

    def set_rate(self, bps):
        self.rates.append(bps)

    def wait_open(self, timeout_s):
        if self.rates[-1] > 0:
            return True
        self.waits.append(timeout_s)
        self.now_s += timeout_s
        return False


@pytest.fixture
def flow():
    return Recorder()


@pytest.fixture
def pacer(flow):
    return Pacer(PLAN, flow, anchor_s=100.0, clock=lambda: flow.now_s)


def test_each_rate_is_given_once(flow, pacer):
    for t_s in (0.0, 0.5, 1.0, 1.2, 2.5, 3.0, 3.5, 4.0, 7.0, 8.0):
        flow.now_s = 100.0 + t_s
        pacer.apply()
    assert flow.rates == [0, 100, 0, 300, 200]


def test_apply_returns_the_time_to_the_next_change(flow, pacer):
    flow.now_s = 101.25
    assert pacer.apply() == 0.75


def test_waits_no_longer_than_to_the_next_segment(flow, pacer):
    flow.now_s = 100.75
    assert not pacer.wait(10.0)
    assert flow.waits == [0.25]
    assert pacer.wait(10.0)
    assert flow.rates == [0, 100]


def test_waits_no_longer_than_asked(flow, pacer):
    assert not pacer.wait(0.125)
    assert flow.waits == [0.125]


def test_replacement_takes_effect_at_once_and_keeps_the_anchor(flow, pacer):
    pacer.apply()
    flow.now_s = 102.0
    pacer.replace(RateSchedule([RateSegment(0, 1, 7), RateSegment(1, 5, 9)]))
    assert flow.rates == [0, 9]
    assert pacer.apply() == 3.0
