"""A rate limit: so many at once, and so many per second."""

import pytest

from fpga_pool.model.allowance import Allowance


def test_what_is_too_much_is_counted_and_time_gives_back():
    allowance = Allowance(at_once=3, per_s=2)
    assert [allowance.take(10.0) for _ in range(5)] == [True, True, True, False, False]
    assert (allowance.missed(), allowance.missed()) == (2, 0)
    assert allowance.wait_s() == 0.5
    assert [allowance.take(11.0) for _ in range(3)] == [True, True, False]  # one second adds two
    assert [allowance.take(1e9) for _ in range(4)] == [True, True, True, False]  # never more than `at_once`


def test_a_clock_that_goes_back_gives_nothing():
    allowance = Allowance(at_once=1, per_s=1)
    assert allowance.take(10.0)
    assert not allowance.take(5.0)
    assert not allowance.take(5.5)
    assert allowance.take(6.0)


@pytest.mark.parametrize(("at_once", "per_s"), [(0.5, 1), (1, 0), (1, -1), (float("nan"), 1)])
def test_an_allowance_of_nothing_is_refused(at_once, per_s):
    with pytest.raises(ValueError, match="expected at least 1"):
        Allowance(at_once, per_s)
