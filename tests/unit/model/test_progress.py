"""The progress of a transfer compared with its plan."""

import pytest

from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.model.objects.progress import late_s, moved_bytes, plan_time_s, planned_bytes, reported_bytes

#: 10 kB from 5 to 15 s, a pause, then 30 kB from 20 to 30 s.
PLAN = (RateSegment(5.0, 15.0, 8e3), RateSegment(20.0, 30.0, 24e3))


def test_a_plan_says_how_much_is_there_and_when():
    assert planned_bytes(PLAN) == 40e3
    assert [moved_bytes(PLAN, 40_000, t_s) for t_s in (0.0, 10.0, 18.0, 25.0, 99.0)] == [0.0, 5e3, 10e3, 25e3, 40e3]
    assert [plan_time_s(PLAN, 40_000, moved) for moved in (0, 5e3, 25e3, 40e3)] == [5.0, 10.0, 25.0, 30.0]


def test_a_plan_of_what_is_left_begins_where_the_rest_begins():
    # When this plan was made, 60 of 100 kB had arrived.
    assert moved_bytes(PLAN, 100_000, 10.0) == 65e3
    assert plan_time_s(PLAN, 100_000, 65e3) == 10.0


@pytest.mark.parametrize(
    ("t_s", "moved", "late"),
    [
        (3.0, 0, 0.0), (7.0, 0, 2.0), (10.0, 5e3, 0.0), (12.0, 5e3, 2.0), (10.0, 8e3, -3.0), (35.0, 25e3, 10.0),
        (17.0, 10e3, 0.0), (22.0, 10e3, 2.0),
    ],
)  # fmt: skip
def test_lateness_is_time_since_what_is_there_was_to_be_there(t_s, moved, late):
    """In the last two cases the first part has arrived: in the pause after it, and when the second one should move."""
    assert late_s(PLAN, 40_000, moved, t_s) == late


def test_nothing_is_told_of_what_goes_as_planned():
    assert reported_bytes(PLAN, 40_000, 5000, 10.4) is None
    assert reported_bytes(PLAN, 40_000, 5000, 10.6) == 5000
    assert reported_bytes((), 40, 0, 99.0) is None


def test_part_of_a_byte_is_not_waited_for():
    """A segment of 24.9 bytes before a pause: only 24 can move in it, and the next byte moves after the pause."""
    plan = (RateSegment(0.0, 1e-5, 19_920_000), RateSegment(5.0, 6.0, 8000))
    assert plan_time_s(plan, 1024, 24) == 5.0
    assert reported_bytes(plan, 1024, 24, 3.0) is None
    assert reported_bytes(plan, 1024, 24, 6.6) == 24
