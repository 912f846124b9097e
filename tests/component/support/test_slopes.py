"""Which series a soak test considers as growth."""

import numpy as np
import pytest

from support.slopes import slope

#: An hour, sampled every 5 s. The noise has a deviation of 2, which is much more than the growth between samples.
TIMES_S = np.arange(0, 3600, 5.0)


def noise(seed):
    return np.random.default_rng(seed).normal(0, 2, len(TIMES_S))


@pytest.mark.parametrize("seed", range(10))
def test_growth_is_found_with_its_error(seed):
    found = slope(TIMES_S, 100 + 12 * TIMES_S / 3600 + noise(seed))
    # There are 24 blocks of 30 samples. The deviation of a median is 1.25 * 2 / sqrt(30) = 0.46, and that of the slope
    # of a line through them 0.46 / (0.29 h * sqrt(24)) = 0.32.
    assert found.per_h == pytest.approx(12, abs=2.0)
    assert 0.1 < found.error_per_h < 2
    assert found.exceeds(4)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_flat_is_flat(seed):
    assert not slope(TIMES_S, 100 + noise(seed)).exceeds(1)


@pytest.mark.parametrize("place_s", [700, 1800, 2900])
@pytest.mark.parametrize("seed", range(5))
def test_one_step_is_no_growth(place_s, seed):
    found = slope(TIMES_S, 100 + 30 * (place_s <= TIMES_S) + noise(seed))
    assert sum(found.steps) == pytest.approx(30, abs=4)
    assert not found.exceeds(4)


def test_growth_beside_a_step_is_found():
    found = slope(TIMES_S, 100 + 30 * (TIMES_S >= 1500) + 10 * TIMES_S / 3600 + noise(0))
    assert found.exceeds(4)
    assert sum(found.steps) == pytest.approx(30, abs=4)


def test_growth_by_many_steps_is_growth():
    assert slope(TIMES_S, 100 + 2 * np.floor(TIMES_S / 360)).exceeds(10)  # 20 in an hour


def test_a_value_that_never_changes_has_no_slope():
    found = slope(TIMES_S, np.full(len(TIMES_S), 7))
    assert found.per_h == pytest.approx(0, abs=1e-9)
    assert not found.exceeds(0.01)


@pytest.mark.parametrize("seed", range(20))
def test_what_wanders_around_a_level_is_flat(seed):
    """For example, the number of rows of the last two minutes, most of which neighbouring samples have in common."""
    arrivals = np.random.default_rng(seed).poisson(10, len(TIMES_S) + 24)
    assert not slope(TIMES_S, np.convolve(arrivals, np.ones(25), "valid")[: len(TIMES_S)]).exceeds(15)
