import numpy as np
import pytest

from fpga_pool.core.benefit.bound import function_bound, job_bound, upper_bound, windows


def test_one_slot_can_do_no_more_than_its_time(pool):
    # Ten patient jobs of 1 s at time 0.  A load takes 0.5 s, so 3.5 s of work until 4: 3.5 * 4 / 4 = 3.5 vCPUs.
    jobs = windows(pool([4.0]), np.zeros(10, int), np.zeros(10), np.ones(10), np.full(10, 100.0))
    assert upper_bound(pool([4.0]), jobs, 4.0) == pytest.approx(3.5, rel=1e-6)


def test_work_is_not_done_before_it_comes_nor_after_its_window(pool):
    # One job of 1 s at time 6 ends by 6 + 1 (patience) + 0.5 (load) + 1.  The benefit is 1 s * 4 over 10 s.
    jobs = windows(pool([4.0]), [0], [6.0], [1.0], [1.0])
    assert jobs.to_s.tolist() == [8.5]
    assert upper_bound(pool([4.0]), jobs, 10.0) == pytest.approx(0.4, rel=1e-6)
    assert upper_bound(pool([4.0]), jobs, 6.0) == pytest.approx(0.0, abs=1e-9)


def test_dma_limits_all_cards_together(pool):
    # Each job on the two slots needs the whole DMA: at most one runs at a time, half of what two slots could do.
    shared = pool([4.0], slots=2, io_bps=1e9, load_s=0.0)
    jobs = windows(shared, np.zeros(8, int), np.zeros(8), np.ones(8), np.full(8, 100.0))
    assert upper_bound(shared, jobs, 4.0) == pytest.approx(4.0, rel=1e-6)


def test_slowest_run_is_that_of_an_equal_share(pool):
    # Four slots share 1e9, 2.5e8 each, so a job that needs 1e9 may take four times as long.
    jobs = windows(pool([4.0], slots=4, io_bps=1e9), [0], [0.0], [1.0], [1.0])
    assert jobs.to_s.tolist() == [1.0 + 0.5 + 4.0]


def test_jobs_that_fit_nowhere_count_nothing(pool):
    jobs = windows(pool([4.0]), [-1], [0.0], [1.0], [1.0])
    assert upper_bound(pool([4.0]), jobs, 4.0) == 0.0


def test_bound_by_function_is_the_looser_one(pool):
    rng = np.random.default_rng(1)
    some = pool([3.0, 10.0, 1.0], slots=2, load_s=0.1)
    jobs = windows(some, rng.integers(0, 3, 80), np.sort(rng.uniform(0, 20, 80)), rng.uniform(0.2, 2, 80), np.ones(80))
    edges_s = np.linspace(0, 20, 101)
    assert job_bound(some, jobs, edges_s) <= function_bound(some, jobs, edges_s) * (1 + 1e-9)
