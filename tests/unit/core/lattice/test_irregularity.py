import numpy as np
import pytest

from fpga_pool.core.lattice.paper import irregularity, variation_of


def test_of_two_workloads():
    # 1 and 3 differ from their mean 2 by a half: (1/4 + 3/4) * 1/4.  Equal times are regular, and so is one alone.
    found = irregularity(np.array([1.0, 5.0, 3.0, 5.0, 9.0]), np.array([0, 1, 0, 1, 2]))
    assert found == pytest.approx([0.25, 0.0, 0.0])


def test_no_workloads_have_none():
    assert irregularity(np.zeros(0), np.zeros(0, np.int64)).tolist() == []


def test_no_time_is_regular():
    assert irregularity(np.zeros(2), np.array([0, 0])).tolist() == [0.0]


@pytest.mark.parametrize("wanted", [0.1, 0.6])
def test_gamma_times_of_that_variation_have_it(wanted):
    variation = variation_of(wanted)
    assert variation + 2 * variation**2 == pytest.approx(wanted)
    seconds = np.random.default_rng(0).gamma(1 / variation, variation, 400_000)
    assert irregularity(seconds, np.zeros(400_000, np.int64)) == pytest.approx(wanted, rel=0.05)


def test_negative_irregularity_is_refused():
    with pytest.raises(ValueError, match="irregularity: expected 0 or more, got -1"):
        variation_of(-1)
