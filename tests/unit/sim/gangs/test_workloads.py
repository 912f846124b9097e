import math

import numpy as np
import pytest

from fpga_pool.sim.gangs.calibrated import (
    LONGEST_S,
    HyperErlang,
    feitelson_calibrated,
    fit,
    jann_calibrated,
    jann_form,
)
from fpga_pool.sim.gangs.models import (
    ALL,
    BATCH,
    INTERACTIVE,
    bucket_weights,
    head_sizes,
    head_times,
    lublin,
    tsafrir,
)
from fpga_pool.sim.gangs.swf import to_swf
from fpga_pool.sim.gangs.trace import trace_of

COUNT = 20_000


@pytest.fixture(scope="module")
def of_lublin():
    return lublin(COUNT, 128, np.random.default_rng(1))


def test_lublin_has_the_shares_of_serial_and_power_of_two_sizes(of_lublin):
    # Three standard deviations of a share of 20,000 are 0.01.  Besides the drawn sizes, some others are powers of two:
    # sizes with an exponent that is not rounded are one with the probability of the width of a bin.
    assert (of_lublin.width == 1).mean() == pytest.approx(ALL.serial, abs=0.01)
    even = (of_lublin.width & (of_lublin.width - 1)) == 0
    assert ALL.serial + ALL.power_of_two - 0.01 <= even.mean() <= 0.90
    assert 1 <= of_lublin.width.min() <= of_lublin.width.max() <= 128


def test_lublin_run_times_are_the_mixture_of_gammas(of_lublin):
    # For serial jobs the share of the first gamma is 0.78 - 0.0054 = 0.7746.  Its mean logarithm is 4.2 * 0.94 = 3.948,
    # cut at 12 (which removes 0.3 %); that of the second gamma is 9.36.
    logarithm = np.log(of_lublin.run_s[of_lublin.width == 1] + 0.5)
    assert logarithm.mean() == pytest.approx(0.7746 * 3.93 + 0.2254 * 9.36, abs=0.15)
    assert of_lublin.run_s.min() >= 1
    assert of_lublin.run_s.max() <= np.exp(12)


def test_lublin_arrivals_follow_the_day(of_lublin):
    weights = bucket_weights(ALL)
    assert weights.mean() == pytest.approx(1)
    bucket = (of_lublin.submit_s // 1800 % 48).astype(int)
    share = np.bincount(bucket, minlength=48) / COUNT
    assert np.corrcoef(share, weights)[0, 1] > 0.95
    assert (np.diff(of_lublin.submit_s) >= 0).all()


def test_lublin_of_two_kinds_has_jobs_of_both():
    # The serial shares are 0.2927 and 0.1541; that of both kinds together lies in between.
    jobs = lublin(5000, 128, np.random.default_rng(2), two_kinds=True)
    assert INTERACTIVE.serial < (jobs.width == 1).mean() < BATCH.serial


def test_models_are_the_same_for_one_seed_and_others_for_another():
    for model in (lublin, feitelson_calibrated, jann_calibrated):
        one, same, other = (model(100, 320, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert (one.run_s == same.run_s).all()
        assert (one.submit_s == same.submit_s).all()
        assert (one.width != other.width).any()


def test_head_times_are_the_longest_and_round_ones():
    # Beside 18 h there are 14 shorter round times.  Five more are multiples of 5 h: 15 h; of 2 h: 16 h, 14 h; of 1 h:
    # 17 h, 13 h.  The other multiples of 10 h, 5 h and 2 h are already present.
    hours = [15, 16, 14, 17, 13]
    round_s = [300, 600, 900, 1200, 1800, *(3600 * h for h in (1, 2, 3, 4, 5, 6, 8, 10, 12))]
    assert head_times(18 * 3600).tolist() == [64_800, *sorted([*round_s, *(3600 * h for h in hours)])]


def test_an_hour_is_long_enough_for_20_head_times():
    # 20 and 40 minutes, 10 to 50, and 5 to 55 are 11 beside the hour itself; 59 to 56 and 54 to 51 make it 20.
    assert head_times(3600).tolist()[-5:] == [60 * m for m in (55, 56, 57, 58, 59)]
    assert len(set(head_times(3600).tolist())) == 20


def test_head_sizes_are_89_percent():
    for sizes in (head_sizes(), head_sizes(23.8)):
        assert len(sizes) == 20
        assert sizes.sum() == pytest.approx(89)
        assert (np.diff(sizes) <= 0).all()
    assert 23.8 in head_sizes(23.8)


@pytest.mark.parametrize("count", [1, 30, 1000, COUNT])
def test_estimates_are_never_below_run_times_and_few(count):
    rng = np.random.default_rng(3)
    run_s = np.minimum(np.rint(rng.exponential(1000, count)) + 1, 40_000)
    estimate_s = tsafrir(run_s, 64_800, rng)
    assert (estimate_s >= run_s).all()
    # 20,000 jobs have 90 + 250 / 6 = 132 values by the paper's table; colliding ones are dropped.
    assert len(np.unique(estimate_s)) <= {1: 1, 30: 20, 1000: 35, COUNT: 132}[count]
    if count == COUNT:
        assert (estimate_s == 64_800).mean() == pytest.approx(head_sizes()[0] / 100, abs=0.002)


def test_estimates_are_refused_for_jobs_that_are_too_long():
    with pytest.raises(ValueError, match="a job runs for 7200 s, the maximum is 3600 s"):
        tsafrir(np.array([7200.0]), 3600, np.random.default_rng(1))
    # Three quarters of the jobs need the longest time; in the model about a fifth may request it.
    with pytest.raises(ValueError, match="too many long jobs"):
        tsafrir(np.repeat([3600.0, 1.0], (750, 250)), 3600, np.random.default_rng(1))


@pytest.mark.parametrize(
    ("model", "width", "run_s", "serial"),
    # The paper's means; Feitelson's repeated runs make samples noisy.
    [(feitelson_calibrated, 23.4, 2606.6, 0.18), (jann_calibrated, 10.5, 11_267.0, 0.408)],
)
def test_calibrated_models_have_the_papers_means(model, width, run_s, serial):
    jobs = model(100_000, 320, np.random.default_rng(4))
    assert jobs.width.mean() == pytest.approx(width, rel=0.07)
    assert jobs.run_s.mean() == pytest.approx(run_s, rel=0.05)
    assert (jobs.width == 1).mean() == pytest.approx(serial, abs=0.02)
    assert jobs.run_s.max() <= LONGEST_S


def test_calibrated_models_work_on_few_processors():
    for model in (feitelson_calibrated, jann_calibrated, lublin):
        for processors in (1, 3, 16):
            width = model(50, processors, np.random.default_rng(5)).width
            assert len(width) == 50
            assert width.max() <= processors


def moment(law, k):
    """Return E[X^k] = (n+k-1)!/(n-1)! (p s1^k + (1-p) s2^k)."""
    stages = math.prod(range(law.order, law.order + k))
    return stages * (law.first_share * law.first_s**k + (1 - law.first_share) * law.second_s**k)


@pytest.mark.parametrize("true", [HyperErlang(1, 0.7, 10.0, 100.0), HyperErlang(3, 0.4, 2.0, 9.0)])
def test_three_moments_are_matched(true):
    times_s = true.draw(5000, np.random.default_rng(6))
    found = fit(times_s)
    for k in (1, 2, 3):
        assert moment(found, k) == pytest.approx(float((times_s**k).mean()), rel=1e-6)


def test_times_that_are_all_alike_have_the_mean():
    assert moment(fit(np.full(5, 8.0)), 1) == pytest.approx(8)


def test_the_form_of_jann_is_fitted_to_a_trace():
    rng = np.random.default_rng(7)
    jobs = jann_calibrated(5000, 64, rng)
    trace, _ = trace_of(to_swf(jobs, jobs.run_s, "", 64), 64)
    again = jann_form(trace, 5000, rng)
    assert again.width.mean() == pytest.approx(jobs.width.mean(), rel=0.1)
    assert again.run_s.mean() == pytest.approx(jobs.run_s.mean(), rel=0.1)
    assert again.submit_s[-1] == pytest.approx(trace.submit_s[-1] - trace.submit_s[0], rel=0.2)
