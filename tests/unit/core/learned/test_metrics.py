"""Models of metrics: closed forms on tables computed by hand, and errors on synthetic types."""

import numpy as np
import pytest

from fpga_pool.core.cluster.metrics import CellMeans, Factors, Gaussian, normal_with_gaps
from fpga_pool.experiments.figures.learned.prediction import METRICS, TYPES, error, types_of


def test_mean_of_a_cell_and_of_its_metric_where_the_cell_was_not_measured():
    model = CellMeans(3, 2)
    for type_, metric, value in [(0, 0, 0.2), (0, 0, 0.4), (1, 0, 0.5)]:
        model.observe(type_, metric, value)
    # (0.3 + 0.5) / 2 of the metric, and the mean of all cells for a metric without measurements.
    assert model.predict(0) == pytest.approx([0.3, 0.4])
    assert model.predict(2) == pytest.approx([0.4, 0.4])


def test_gaussian_without_history_weighs_a_measurement_against_the_prior():
    model = Gaussian(1, 2, noise=0.3)
    model.observe(0, 0, 0.9)
    # Prior 0.5 with deviation 0.3, and noise 0.3: half way.  The other metric is not affected.
    assert model.predict(0) == pytest.approx([0.7, 0.5])


def test_gaussian_learns_of_one_metric_from_another_that_goes_with_it():
    line = np.linspace(0, 1, 200)
    model = Gaussian(2, 2, np.column_stack([line, 1 - line]), noise=0.01)
    model.observe(0, 0, 0.9)
    assert model.predict(0) == pytest.approx([0.9, 0.1], abs=0.02)
    assert model.predict(1) == pytest.approx([0.5, 0.5], abs=0.01)


def test_mean_and_covariance_of_rows_with_gaps():
    rng = np.random.default_rng(0)
    covariance = np.array([[0.04, 0.03], [0.03, 0.04]])
    rows = rng.multivariate_normal([0.3, 0.6], covariance, 600)
    rows[:200, 1] = np.nan
    mean, found = normal_with_gaps(rows)
    assert mean == pytest.approx([0.3, 0.6], abs=0.03)
    assert found == pytest.approx(covariance, abs=0.008)


def test_factors_restore_a_table_of_rank_one_from_some_of_its_cells():
    left, right = np.linspace(0.2, 1, 8), np.linspace(0.3, 1, 6)
    model = Factors(8, 6, rank=1, weight=1e-4)
    for row in range(8):
        for column in range(6):
            if (row + column) % 4:
                model.observe(row, column, left[row] * right[column])
    assert np.array([model.predict(row) for row in range(8)]) == pytest.approx(np.outer(left, right), abs=0.05)


@pytest.mark.long
def test_network_fits_what_it_was_shown_and_a_seed_gives_the_same_again():
    from fpga_pool.core.cluster.dqn import Ncf  # importing torch takes long

    true, _ = types_of(0)
    found = []
    for _ in range(2):
        network = Ncf(TYPES, METRICS, rng=np.random.default_rng(3), pretrain_after=0)
        for type_, metric in np.ndindex(TYPES, METRICS):
            network.observe(type_, metric, float(true[type_, metric]))
        network.fit(300)
        found.append(np.array([network.predict(type_) for type_ in range(TYPES)]))
    assert (found[0] == found[1]).all()
    assert np.sqrt(np.mean((found[0] - true) ** 2)) < 0.5 * true.std()


@pytest.mark.parametrize("subtasks", [1, 2])
def test_gaussian_is_fifteen_percent_better_than_means_of_cells_below_three_subtasks_of_a_type(subtasks):
    seeds = range(10)
    means = np.mean([error("mean of the cell", subtasks, seed) for seed in seeds])
    assert np.mean([error("Gaussian", subtasks, seed) for seed in seeds]) < 0.85 * means


@pytest.mark.parametrize("model", [CellMeans(1, 1), Gaussian(1, 1), Factors(1, 1)])
def test_measurement_that_is_not_finite_is_refused_and_changes_nothing(model):
    model.observe(0, 0, 0.25)
    before = model.predict(0).copy()
    with pytest.raises(ValueError, match="expected a finite number"):
        model.observe(0, 0, float("nan"))
    assert (model.predict(0) == before).all()
