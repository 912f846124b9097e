import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.transfer.schedule import Pacer, RateSchedule

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
    """The rate is 0 before and between the segments; late bytes keep the last rate."""
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


@pytest.mark.parametrize(
    ("t_s", "carried_bytes"),
    [(0.5, 0.0), (1.5, 6.25), (2.5, 12.5), (3.5, 31.25), (5.0, 75.0), (6.0, 100.0), (9.0, 100.0)],
)
def test_bytes_that_a_schedule_has_carried(t_s, carried_bytes):
    assert PLAN.carried_bytes(t_s) == carried_bytes


@pytest.mark.parametrize(
    ("carried_bytes", "due_s", "rate_bps"), [(0.0, 1.0, 100), (6.25, 1.5, 100), (12.5, 3.0, 300), (100.0, 6.0, 200)]
)
def test_when_the_next_byte_leaves(carried_bytes, due_s, rate_bps):
    """After 12.5 bytes there is a gap: the next byte leaves at its end."""
    assert PLAN.next_byte(carried_bytes) == (due_s, rate_bps)


def test_schedule_without_limit_has_carried_all_once_it_begins():
    schedule = RateSchedule([RateSegment(2, math.inf, math.inf)])
    assert [schedule.carried_bytes(t_s) for t_s in (1.9, 2.0)] == [0.0, math.inf]
    assert schedule.next_byte(1e6) == (2.0, math.inf)


class Rates(list):
    """A limiter that only remembers its rates."""

    set_rate = list.append


class Sender:
    """A sender that follows the pacer on a simulated clock; time 0 of the pacer is at 100 s."""

    def __init__(self, schedule, input_bytes, **options):
        self.now_s = 100.0
        self.rates = Rates()
        self.pacer = Pacer(schedule, self.rates, input_bytes, anchor_s=100.0, clock=lambda: self.now_s, **options)
        self.left_bytes = input_bytes
        #: (seconds since time 0, bytes that have left)
        self.history = [(0.0, 0)]

    def run(self, until_s, step_s=0.001):
        """Ask the pacer every `step_s`; return the time when the last byte left."""
        input_bytes = self.left_bytes + self.history[-1][1]
        while self.left_bytes and self.now_s < 100.0 + until_s:
            count = self.pacer.quota(min(self.left_bytes, 65_536))
            self.pacer.sent(count)
            self.left_bytes -= count
            self.history.append((self.now_s - 100.0, input_bytes - self.left_bytes))
            self.now_s += 0.0 if count else step_s
        return self.history[-1][0]


#: 1 MB: 500 kB in 1 s, a pause, and 500 kB in half a second.
TWO_PARTS = RateSchedule([RateSegment(0.5, 1.5, 4e6), RateSegment(2.0, 2.5, 8e6)])


def test_sender_is_never_ahead_of_its_plan_and_ends_with_it():
    sender = Sender(TWO_PARTS, 1_000_000)
    assert sender.run(10.0) == pytest.approx(2.5, abs=0.002)
    assert all(sent <= TWO_PARTS.carried_bytes(t_s) + 1 for t_s, sent in sender.history)


def test_sliver_before_a_hold_leaves():
    """Plans that fill the gaps of a link have segments of a few bytes: here 24.9, before a pause of 1 s."""
    schedule = RateSchedule([RateSegment(0.0, 1e-5, 19_920_000), RateSegment(1.0, 2.0, 8e6)])
    sender = Sender(schedule, 1_000_024)
    assert sender.run(10.0) == pytest.approx(2.0, abs=0.002)
    assert sender.history[5][1] == 24


def test_sender_that_wakes_late_makes_up_for_it():
    """With steps of 40 ms, bytes that became due in between leave at once, and the end is at most one step late."""
    sender = Sender(TWO_PARTS, 1_000_000)
    assert sender.run(10.0, step_s=0.04) == pytest.approx(2.52, abs=0.021)
    assert all(sent <= TWO_PARTS.carried_bytes(t_s) + 1 for t_s, sent in sender.history)


def test_sender_that_is_seconds_late_stays_late_but_for_a_quarter_of_a_second():
    sender = Sender(RateSchedule([RateSegment(0.0, 1.0, 8e6)]), 1_000_000)
    sender.now_s += 5.0
    assert sender.run(10.0) == pytest.approx(5.75, abs=0.002)


def test_flow_is_limited_above_its_planned_rate_and_held_between_two_parts():
    sender = Sender(TWO_PARTS, 1_000_000)
    sender.run(10.0)
    assert sender.rates == [0, 8e6, 0, 16e6]


def test_resumed_input_goes_on_where_the_plan_is():
    """Half of the input was already there: nothing leaves before the plan has reached this point."""
    sender = Sender(RateSchedule([RateSegment(0.0, 1.0, 8e6)]), 1_000_000)
    sender.pacer.sent(500_000)
    sender.left_bytes = 500_000
    sender.run(10.0)
    first_s = next(t_s for t_s, sent in sender.history if sent > 0)
    assert first_s == pytest.approx(0.51, abs=0.002)
    assert sender.history[-1][0] == pytest.approx(1.0, abs=0.002)


def test_schedule_of_what_is_left_takes_effect_at_once():
    """After 0.5 s at 8 Mbit/s the other half of the input is to leave at 2 Mbit/s, which takes 2 s more."""
    sender = Sender(RateSchedule([RateSegment(0.0, 1.0, 8e6)]), 1_000_000)
    sender.run(0.5)
    sender.pacer.replace(RateSchedule([RateSegment(0.5, 2.5, 2e6)]))
    assert sender.run(10.0) == pytest.approx(2.5, abs=0.002)


def test_frame_ends_where_a_hold_begins_and_takes_a_tenth_of_a_second():
    sender = Sender(TWO_PARTS, 1_000_000)
    assert sender.pacer.frame_bytes(524_288) == 50_000
    sender.pacer.sent(480_000)
    assert sender.pacer.frame_bytes(524_288) == 20_000
    sender.pacer.sent(20_000)
    assert sender.pacer.frame_bytes(524_288) == 100_000


def test_unplanned_input_waits_for_time_0_alone():
    sender = Sender(RateSchedule([RateSegment(0.0, math.inf, math.inf)]), 1_000_000)
    sender.now_s = 99.0
    assert sender.pacer.quota(65_536) == 0
    sender.now_s = 100.0
    assert sender.pacer.quota(65_536) == 65_536


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.sampled_from([1e5, 1e6, 1e7, 1e8, 1e9])), min_size=1, max_size=6))
def test_rates_that_rise_and_fall_without_a_gap_never_stop_the_sender(pieces):
    """However far the rate falls, the sender is never ahead, waits between its steps, and ends with the plan."""
    times_s = list(accumulate((length_s for length_s, _ in pieces), initial=0.0))
    spans = zip(pairwise(times_s), pieces, strict=True)
    schedule = RateSchedule([RateSegment(begin_s, end_s, bps) for (begin_s, end_s), (_, bps) in spans])
    sender = Sender(schedule, int(schedule.total_bytes))
    while sender.left_bytes and sender.now_s < 110.0:
        count = sender.pacer.quota(min(sender.left_bytes, 524_288))
        sender.pacer.sent(count)
        sender.left_bytes -= count
        assert int(schedule.total_bytes) - sender.left_bytes <= schedule.carried_bytes(sender.now_s - 100.0) + 1
        assert count or sender.pacer.hold_s() > 0
        sender.now_s += 0.0 if count else max(min(sender.pacer.hold_s(), 0.05), 1e-4)
    assert sender.now_s - 100.0 <= times_s[-1] + 0.06


def test_what_is_more_than_was_planned_follows_at_the_last_rate():
    """2 MB, where 1 MB was predicted to leave in 1 s, take twice as long."""
    sender = Sender(RateSchedule([RateSegment(0.0, 1.0, 8e6)]), 2_000_000, from_first_byte=True)
    assert sender.run(10.0) == pytest.approx(2.0, abs=0.002)
    assert all(sent <= 1e6 * t_s + 1 for t_s, sent in sender.history)


def test_what_nobody_has_planned_leaves_at_once():
    sender = Sender(RateSchedule(()), 1_000_000, from_first_byte=True)
    assert sender.run(10.0) == 0.0
    assert sender.left_bytes == 0
