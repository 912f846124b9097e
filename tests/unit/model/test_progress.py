"""How far a transfer is, beside its plan."""

import pytest

from fpga_pool.model.objects import RateSegment
from fpga_pool.model.progress import late_s, moved_bytes, plan_time_s, planned_bytes, told_bytes

#: 10 bytes in 10 s from 5 s on, a pause, then 30 bytes in 10 s.
PLAN = (RateSegment(5.0, 15.0, 8.0), RateSegment(20.0, 30.0, 24.0))


def test_a_plan_says_how_much_is_there_and_when():
    assert planned_bytes(PLAN) == 40.0
    assert [moved_bytes(PLAN, 40, t_s) for t_s in (0.0, 10.0, 18.0, 25.0, 99.0)] == [0.0, 5.0, 10.0, 25.0, 40.0]
    assert [plan_time_s(PLAN, 40, moved) for moved in (0, 5, 25, 40)] == [5.0, 10.0, 25.0, 30.0]


def test_a_plan_of_what_is_left_begins_where_the_rest_begins():
    # Of 100 bytes, 60 were there when this plan was made.
    assert moved_bytes(PLAN, 100, 10.0) == 65.0
    assert plan_time_s(PLAN, 100, 65) == 10.0


@pytest.mark.parametrize(
    ("t_s", "moved", "late"),
    [(3.0, 0, 0.0), (7.0, 0, 2.0), (10.0, 5, 0.0), (12.0, 5, 2.0), (10.0, 8, -3.0), (35.0, 25, 10.0)],
)
def test_lateness_is_time_since_what_is_there_was_to_be_there(t_s, moved, late):
    assert late_s(PLAN, 40, moved, t_s) == late


def test_nothing_is_told_of_what_goes_as_planned():
    assert told_bytes(PLAN, 40, 5, 10.4) is None
    assert told_bytes(PLAN, 40, 5, 10.6) == 5
    assert told_bytes((), 40, 0, 99.0) is None
