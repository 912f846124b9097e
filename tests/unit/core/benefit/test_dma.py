import pytest

from fpga_pool.core.benefit.pool import fair_rates


def test_all_run_at_full_speed_while_the_dma_suffices():
    assert fair_rates([3.0, 7.0], 10.0) == [1.0, 1.0]


def test_small_demands_are_met_and_the_rest_is_shared_equally():
    # 12 shared by 2, 8, 16: the first gets its 2, the others get 5 each, 5/8 and 5/16 of full speed.
    assert fair_rates([8.0, 2.0, 16.0], 12.0) == pytest.approx([5 / 8, 1.0, 5 / 16])


def test_a_job_without_io_is_never_slowed():
    assert fair_rates([0.0, 4.0, 4.0], 4.0) == pytest.approx([1.0, 0.5, 0.5])
