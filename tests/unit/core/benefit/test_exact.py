"""The optimum: computed by hand for tiny traces, and between the bound and every policy for others."""

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.benefit.bound import Clairvoyant, upper_bound, windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.figures.benefit.runs import CATALOGUES, card_pool, random_trace, reference_catalogue
from fpga_pool.sim.benefit.live import simulate
from fpga_pool.sim.benefit.trace import Trace

HORIZON_S, STEP_S = 5.0, 0.25


def best(pool, function, arrival_s, work_s, patience_s, *, horizon_s, step_s) -> float:
    jobs = windows(pool, function, arrival_s, work_s, patience_s)
    found = optimum(pool, jobs, horizon_s, step_s=step_s)
    assert found.gap < 1e-6
    return found.most_vcpus


def test_loads_and_whole_jobs_count(pool):
    # One slot with loads of 0.5 s, patient jobs of 1 s: at 0 one of function 0 (4 vCPUs) and one of function 1 (2), at
    # 1 another one of function 0.  In 4 s: load 0, run 0.5..1.5 and 1.5..2.5, load 1, run 3..4: 4 + 4 + 2 = 10.
    some = pool([4.0, 2.0])
    arrival_s = [0.0, 0.0, 1.0]
    assert best(some, [0, 1, 0], arrival_s, np.ones(3), np.full(3, 9.0), horizon_s=4.0, step_s=0.5) == pytest.approx(
        2.5
    )
    # By 3 s the last one counts nothing, and the best is 0 before 1: 8 in 3 s.
    assert best(some, [0, 1, 0], arrival_s, np.ones(3), np.full(3, 9.0), horizon_s=3.0, step_s=0.5) == pytest.approx(
        8 / 3
    )


def test_port_of_a_card_loads_one_slot_at_a_time(pool):
    # Two slots and two jobs: one runs 0.5..1.5, the other 1..2.  With a port for each, both end by 1.5.
    jobs = ([0, 1], [0.0, 0.0], [1.0, 1.0], [9.0, 9.0])
    assert best(pool([4.0, 4.0], slots=2), *jobs, horizon_s=1.5, step_s=0.5) == pytest.approx((4.0 + 2.0) / 1.5)
    assert best(pool([4.0, 4.0], cards=2), *jobs, horizon_s=1.5, step_s=0.5) == pytest.approx(8.0 / 1.5)


def test_job_that_cannot_wait_is_lost(pool):
    # The slot runs 0.5..2.5.  The second job waits until 1 + 0.5 at most, as long as a load could still be under way.
    some = pool([4.0])
    assert best(some, [0, 0], [0.0, 0.5], [2.0, 1.0], [0.5, 0.5], horizon_s=4.0, step_s=0.5) == pytest.approx(2.0)
    assert best(some, [0, 0], [0.0, 0.5], [2.0, 1.0], [0.5, 2.5], horizon_s=4.0, step_s=0.5) == pytest.approx(3.0)


def test_job_waits_beyond_its_patience_only_for_a_load(pool):
    # One slot, loads of 2 s, function 0 ready from 2 s on.  The second job arrives at 2.5 while the first runs until 4.
    # It gives up at 3, since nothing loads: 2 s of 4 vCPUs in 6 s.  With a patience of 1.5 s it runs as well, 4..5.
    for patience_s, vcpu_s in ((0.5, 8.0), (1.5, 12.0)):
        jobs = ([0, 0], [0.0, 2.5], [2.0, 1.0], [0.5, patience_s])
        assert best(pool([4.0], load_s=2.0), *jobs, horizon_s=6.0, step_s=0.5) == pytest.approx(vcpu_s / 6)


def test_steps_longer_than_jobs_and_loads_bound_what_is_possible(pool):
    # One slot, loads of 0.5 s, two jobs of 0.5 s: both end by 1.5, which is 4 vCPUs for 1 s of 2.  Rounded down to
    # steps of 2 s, loads and runs take no time, so the bound is no smaller.
    jobs = ([0, 0], [0.0, 0.0], [0.5, 0.5], [9.0, 9.0])
    assert best(pool([4.0]), *jobs, horizon_s=2.0, step_s=0.5) == pytest.approx(2.0)
    assert best(pool([4.0]), *jobs, horizon_s=2.0, step_s=2.0) >= 2.0


def test_nothing_is_loaded_before_it_is_asked_for(pool):
    # The job arrives at 1 s.  With foresight its function is loaded and it runs 1..2, otherwise 1.5..2.5.
    jobs = windows(pool([4.0]), [0], [1.0], [1.0], [1.0])
    for asked_first, vcpu_s in ((False, 4.0), (True, 2.0)):
        found = optimum(pool([4.0]), jobs, 2.0, step_s=0.5, asked_first=asked_first)
        assert found.most_vcpus == pytest.approx(vcpu_s / 2)


@pytest.mark.parametrize("seed", range(3))
def test_schedule_that_is_found_gains_what_the_optimum_says(seed, pool):
    # All times are multiples of the step, the DMA suffices, and all jobs are patient: nothing is rounded.
    rng = np.random.default_rng(seed)
    count = 10
    some = pool([4.0, 7.0, 2.0], slots=2, cards=2)
    jobs = Trace(
        jobs=tuple(f"j{i}" for i in range(count)), function=rng.integers(0, 3, count),
        arrival_s=np.sort(rng.integers(0, 10, count) / 2), work_s=np.ones(count), patience_s=np.full(count, 9.0),
    )  # fmt: skip
    window = windows(some, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    best = optimum(some, window, HORIZON_S, step_s=0.5)
    interval_s = 0.5 * (1 - 1e-10)
    found = simulate(some, jobs, Clairvoyant(best.actions, 0.5), horizon_s=HORIZON_S, interval_s=interval_s)
    assert found.mean_benefit_vcpus == pytest.approx(best.most_vcpus, rel=1e-5)


@pytest.mark.long
def test_relaxation_is_between_the_optimum_and_the_bound():
    pool = card_pool(reference_catalogue("a"), 0.5)
    jobs = random_trace(pool, 3.0, 5.0, 0)
    window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    relaxed, found = (
        optimum(pool, window, jobs.last_arrival_s, step_s=0.25, gap=0.01, time_limit_s=limit_s)
        for limit_s in (0.0, None)
    )
    assert relaxed.reached_vcpus == 0
    assert found.reached_vcpus <= found.most_vcpus <= relaxed.most_vcpus * (1 + 1e-9)
    assert relaxed.most_vcpus <= upper_bound(pool, window, jobs.last_arrival_s) * (1 + 1e-9)


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_step_must_be_a_time(pool, step_s):
    with pytest.raises(ValueError, match="step_s"):
        optimum(pool([4.0]), windows(pool([4.0]), [0], [0.0], [1.0], [1.0]), 2.0, step_s=step_s)


def random_pool(rng: np.random.Generator, load_s: float) -> OnlinePool:
    """Return a card of two slots and three functions, sometimes with too little DMA."""
    return OnlinePool(
        functions=("a", "b", "c"), speedup=rng.uniform(2, 20, 3), preemptible=[True, False, False],
        progress_kept=[True, False, False], fits=[[True, True, False], [True, True, True]],
        io_bps=np.tile(rng.uniform(1e8, 9e8, 3), (2, 1)), load_s=[load_s, load_s], dma_bps=[1e9],
        slot_card=[0, 0], slot_kind=[0, 1],
    )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_optimum_is_between_the_bound_and_every_policy(seed):
    rng = np.random.default_rng(seed)
    pool = random_pool(rng, (0.25, 0.5)[seed % 2])
    count = 12
    jobs = Trace(
        jobs=tuple(f"j{i}" for i in range(count)), function=rng.integers(0, 3, count),
        arrival_s=np.sort(rng.uniform(0, HORIZON_S, count)), work_s=rng.choice([0.5, 1.0, 1.3], count),
        patience_s=rng.choice([0.5, 1.0], count),
    )  # fmt: skip
    window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    best_vcpus = optimum(pool, window, HORIZON_S, step_s=STEP_S).most_vcpus
    assert best_vcpus <= upper_bound(pool, window, HORIZON_S) * (1 + 1e-6)
    for name in policy_names("online"):
        found = simulate(pool, jobs, load_policy("online", name), horizon_s=HORIZON_S)
        assert found.mean_benefit_vcpus <= best_vcpus * (1 + 1e-6), name


@pytest.mark.parametrize("catalogue", CATALOGUES)
def test_no_policy_exceeds_the_optimum_of_a_reference_catalogue(catalogue):
    # One job per second and loads of 0.5 s: nearly all jobs can run, so policies reach the optimum.
    pool = card_pool(reference_catalogue(catalogue), 0.5)
    jobs = random_trace(pool, 1.0, 12.0, 0)
    window = windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s)
    best_vcpus = optimum(pool, window, jobs.last_arrival_s, step_s=0.5).most_vcpus
    for name in policy_names("online"):
        found = simulate(pool, jobs, load_policy("online", name))
        assert found.mean_benefit_vcpus <= best_vcpus * (1 + 1e-6), name
