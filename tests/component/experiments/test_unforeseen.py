"""The most that policies can expect without foresight: checked by hand, and against policies on all possible traces."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.conf.policies import policy_as
from fpga_pool.core.benefit.bound import windows
from fpga_pool.core.benefit.exact import optimum
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.experiments.figures.benefit import foresight
from fpga_pool.experiments.figures.benefit.foresight import Unforeseen
from fpga_pool.experiments.figures.benefit.runs import card_pool, reference_catalogue
from fpga_pool.sim.benefit.live import simulate

JOBS = 4


def card(speedup, slots, load_s, preemptible=False):
    count = len(speedup)
    return OnlinePool(
        functions=tuple("abcdef"[:count]),
        speedup=speedup,
        preemptible=[preemptible] * count,
        progress_kept=[preemptible] * count,
        fits=np.ones((1, count), bool),
        io_bps=np.zeros((1, count)),
        load_s=[load_s],
        dma_bps=[1e9],
        slot_card=[0] * slots,
        slot_kind=[0] * slots,
    )


def test_one_slot_loads_what_may_come():
    # There are two jobs of two equal functions. A load can be complete when the first job arrives, but serves it with
    # probability 1/2: 10 vCPUs for one of two intervals, times 1/2. A load that begins at the arrival is too late.
    assert Unforeseen(card([10.0, 10.0], slots=1, load_s=1.0), 1.0).most_vcpus(2) == pytest.approx(10 * 0.5 / 2)


def test_what_is_useful_enough_is_kept():
    # In the third interval, after a job of b arrived second, the slot holds a, whose next job comes with probability
    # 1/2. Waiting for it gains 20/2. Loading b gains 1 * 1, but later, beyond the horizon.
    assert Unforeseen(card([20.0, 1.0], slots=1, load_s=1.0), 1.0).most_vcpus(3) == pytest.approx((10 + 10) / 3)


def test_nothing_is_gained_without_jobs_or_before_the_first_load():
    card_of_one = card([10.0], slots=1, load_s=3.0)
    assert [Unforeseen(card_of_one, 1.0).most_vcpus(jobs) for jobs in (0, 2, 3)] == [0.0, 0.0, 0.0]
    # The load ends with the third arrival, and its job, or one that waited for it, runs in the fourth interval.
    assert Unforeseen(card_of_one, 1.0).most_vcpus(4) == pytest.approx(10 / 4)


@pytest.mark.parametrize(("load_s", "preemptible"), [(1.0, False), (2.0, True)])
def test_lies_between_every_policy_and_the_clairvoyant_optimum(load_s, preemptible):
    pool = card([2.0, 9.0, 5.0], slots=2, load_s=load_s, preemptible=preemptible)
    traces = list(foresight.traces(JOBS, 3, seed=0, free=JOBS))
    most = Unforeseen(pool, 1.0).most_vcpus(JOBS)
    for name in ("throughput", "benefit", "benefit_replace", "benefit_plus"):
        rule = policy_as("online", name)
        assert np.mean([simulate(pool, jobs, rule).mean_benefit_vcpus for jobs in traces]) <= most * (1 + 1e-9)
    best = [
        optimum(
            pool,
            windows(pool, jobs.function, jobs.arrival_s, jobs.work_s, jobs.patience_s),
            JOBS,
            step_s=1.0,
            time_limit_s=60.0,
        ).reached_vcpus
        for jobs in traces
    ]
    assert most < np.mean(best)


def test_only_whole_intervals_that_are_equal_and_of_one_card():
    pool = card_pool(reference_catalogue("a"), 0.5)
    with pytest.raises(ValueError, match="as many whole intervals of 1 s"):
        Unforeseen(pool, 1.0)
    with pytest.raises(ValueError, match="as many whole intervals"):
        Unforeseen(replace(pool, load_s=[1.0, 2.0]), 1.0)
    with pytest.raises(ValueError, match="one card, found 2"):
        Unforeseen(card_pool(reference_catalogue("a"), 1.0, cards=2), 1.0)
