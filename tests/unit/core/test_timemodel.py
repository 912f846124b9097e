import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import nnls

from fpga_pool.core.fitting import fit, refit
from fpga_pool.core.timemodel import TimeModel

MIB = 2**20


@pytest.mark.parametrize(("a_s", "b"), [(-1.0, 0.0), (0.0, -1e-9), (float("nan"), 0.0), (0.0, float("inf"))])
def test_refuses_coefficients_that_cannot_be_times(a_s, b):
    with pytest.raises(ValueError, match="must be finite and >= 0"):
        TimeModel(a_s, b)


def test_seconds_are_affine_in_the_input_size():
    # 0.25 + 1e-7 * 5e6 = 0.75
    assert TimeModel(0.25, 1e-7).seconds(5_000_000) == pytest.approx(0.75)


@given(
    a_s=st.floats(0, 10),
    b=st.floats(1e-10, 1e-6),
    sizes=st.lists(st.integers(1000, 10**9), min_size=2, max_size=20, unique=True),
)
def test_fit_predicts_exact_data_exactly(a_s, b, sizes):
    truth = TimeModel(a_s, b)
    result = fit(sizes, [truth.seconds(size) for size in sizes])
    assert result.samples == len(sizes)
    assert result.worst_relative_error < 1e-6


def test_fit_recovers_the_model_from_noisy_runs_over_four_orders_of_magnitude():
    rng = np.random.default_rng(1)
    sizes = np.logspace(4, 8, 200)
    seconds = (0.01 + 1e-8 * sizes) * rng.uniform(0.95, 1.05, 200)
    result = fit(sizes, seconds)
    assert result.model.a_s == pytest.approx(0.01, rel=0.02)
    assert result.model.b_s_per_byte == pytest.approx(1e-8, rel=0.02)
    # uniform +-5 %: mean deviation 2.5 %
    assert result.mean_relative_error == pytest.approx(0.025, abs=0.005)
    assert result.worst_relative_error < 0.06


def test_fit_never_gives_a_negative_coefficient():
    # The straight line through the first two is 2.1 - 0.1 per MiB, through the others 0.1 per MiB - 0.05.
    falling = fit([1 * MIB, 11 * MIB], [2.0, 1.0]).model
    assert falling.b_s_per_byte == 0
    assert 1.0 <= falling.a_s <= 2.0
    steep = fit([1 * MIB, 2 * MIB], [0.05, 0.15]).model
    assert steep.a_s == 0
    assert steep.b_s_per_byte > 0


@given(runs=st.lists(st.tuples(st.integers(0, 10**9), st.floats(1e-3, 1e3)), min_size=2, max_size=20))
def test_fit_finds_what_a_solver_of_any_number_of_unknowns_finds(runs):
    sizes, seconds = np.array(runs).T
    assume(np.ptp(sizes) > 0)
    columns = np.stack([np.ones_like(sizes), sizes / sizes.max()], axis=1) / seconds[:, None]
    found, residual = nnls(columns, np.ones_like(seconds))
    model = fit(sizes, seconds).model
    ours = columns @ [model.a_s, model.b_s_per_byte * sizes.max()] - 1
    assert np.linalg.norm(ours) == pytest.approx(residual, rel=1e-9, abs=1e-9)
    # Nearly equal sizes do not determine the coefficients, but the predictions.
    assert ours == pytest.approx(columns @ found - 1, rel=1e-6, abs=1e-6)


def test_fit_takes_time_as_proportional_where_all_runs_have_one_size():
    model = fit([MIB, MIB], [1.0, 1.0]).model
    assert model.a_s == 0
    assert model.seconds(2 * MIB) == pytest.approx(2.0)


def test_fit_takes_time_as_constant_where_all_inputs_are_empty():
    assert fit([0], [0.5]).model == TimeModel(0.5, 0.0)


def test_fit_bears_runs_too_short_to_be_measured():
    assert fit([0, MIB], [0.0, 1.0]).model.seconds(MIB) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("sizes", "seconds", "message"),
    [
        ([], [], "no runs"),
        ([1], [1, 2], "two \\(N,\\) arrays"),
        ([1], [-1], "seconds: must be"),
        ([-1], [1], "input_bytes: must be"),
        ([1], [float("nan")], "seconds: must be"),
    ],
)
def test_fit_refuses_what_cannot_have_been_observed(sizes, seconds, message):
    with pytest.raises(ValueError, match=message):
        fit(sizes, seconds)


PRIOR = TimeModel(0.1, 1e-7)


def test_refit_without_runs_is_the_prior():
    result = refit(PRIOR, [], [], prior_weight=10)
    assert result.model == PRIOR
    assert result.samples == 0


def test_refit_that_forgets_the_prior_is_a_fit():
    sizes, seconds = [MIB, 3 * MIB, 9 * MIB], [0.3, 0.5, 1.3]
    assert refit(PRIOR, sizes, seconds, prior_weight=0) == fit(sizes, seconds)


def test_refit_keeps_the_prior_where_the_runs_agree_with_it():
    sizes = [MIB, 8 * MIB]
    model = refit(PRIOR, sizes, [PRIOR.seconds(size) for size in sizes], prior_weight=10).model
    assert model.a_s == pytest.approx(PRIOR.a_s)
    assert model.b_s_per_byte == pytest.approx(PRIOR.b_s_per_byte)


@pytest.mark.parametrize("factor", [0.01, 0.3, 3.0, 100.0])
def test_one_stray_run_moves_the_model_little(factor):
    # Residuals are relative to the larger time.  One run against a prior worth ten moves a prediction by at most about
    # 1/11 of the prior if it is fast, and by a bounded share if it is slow.
    size = 8 * MIB
    model = refit(PRIOR, [size], [factor * PRIOR.seconds(size)], prior_weight=10).model
    assert model.seconds(size) == pytest.approx(PRIOR.seconds(size), rel=0.2)


def test_many_runs_outweigh_the_prior():
    truth = TimeModel(0.3, 2e-7)
    sizes = np.linspace(MIB, 64 * MIB, 500)
    model = refit(PRIOR, sizes, truth.a_s + truth.b_s_per_byte * sizes, prior_weight=5).model
    assert model.seconds(32 * MIB) == pytest.approx(truth.seconds(32 * MIB), rel=0.03)


def test_runs_of_tiny_inputs_leave_the_prediction_for_large_ones_alone():
    model = refit(PRIOR, [0, 0, 0], [0.12, 0.12, 0.12], prior_weight=3).model
    assert 0.1 < model.a_s < 0.12
    assert model.seconds(100 * MIB) == pytest.approx(PRIOR.seconds(100 * MIB), rel=0.2)


def test_refit_refuses_a_negative_weight():
    with pytest.raises(ValueError, match="prior_weight"):
        refit(PRIOR, [1], [1], prior_weight=-1)
