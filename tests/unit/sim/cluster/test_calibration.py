import pytest

from fpga_pool.sim.cluster.node import Calibration


def test_factor_is_the_mean_of_the_ratios_with_the_estimate_as_one_of_them():
    calibration = Calibration(2, 3)
    calibration.observe(1, 2, 0, 10, 40)
    calibration.observe(1, 2, 0, 10, 10)
    # (1 + 4 + 1) / 3
    assert calibration.factors[1, 2, 0] == pytest.approx(2)
    assert calibration.factors.sum() == pytest.approx(11 + 2)


def test_factor_follows_a_change():
    calibration = Calibration(1, 1)
    for actual_s in [1] * 1000 + [3] * 100:
        calibration.observe(0, 0, 1, 1, actual_s)
    # 100 observations of weight 0.05: earlier ones still count 0.95 ** 100 = 0.6 %.
    assert calibration.factors[0, 0, 1] == pytest.approx(3, rel=0.01)
