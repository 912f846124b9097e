"""The workloads of the figures of the benefit paper, and one run of all figures."""

import json

import numpy as np
import pytest

from fpga_pool.cli.sim.main import OK, WRONG_USAGE, main
from fpga_pool.experiments.figures.benefit import EXPERIMENTS, by_cell, foresight, variations
from fpga_pool.experiments.figures.benefit.runs import card_pool, random_speedups, random_trace, reference_catalogue
from fpga_pool.experiments.figures.figure import Sample, Samples, Settings


@pytest.fixture
def pool():
    return card_pool(reference_catalogue("a"), 0.05)


def test_no_axis_has_a_symbol_alone():
    labels = {panel.x_label for experiment in EXPERIMENTS for panel in experiment.panels}
    assert "alpha: ideal time of a job / interval" in labels
    assert "alpha" not in labels


def test_catalogues_are_correlated_as_asked(pool):
    # Correlation of the orders of six functions: 1 for the same order, -1 for the opposite one.
    for correlation in (-1.0, 1.0):
        drawn = variations.correlated(pool, correlation, 3)
        found = np.corrcoef(np.log(drawn.speedup), np.log(drawn.io_bps[0]))[0, 1]
        assert found == pytest.approx(correlation)


def test_random_catalogues_keep_the_card(pool):
    drawn = random_speedups(pool, 5)
    assert np.array_equal(drawn.fits, pool.fits)
    assert ((drawn.speedup >= 1.5) & (drawn.speedup <= 40)).all()
    assert np.array_equal(drawn.speedup, random_speedups(pool, 5).speedup)


def test_one_tenant_loses_its_benefit_at_half_time(pool):
    jobs = variations.losing(pool, random_trace(pool, 8.0, 40.0, 1), 1)
    lost = jobs.speedup < pool.speedup[jobs.function]
    assert 0 < lost.sum() < len(jobs.jobs) / 2
    assert {jobs.project[i] for i in np.flatnonzero(lost)} == {variations.CHANGING}
    assert (jobs.arrival_s[lost] > jobs.last_arrival_s / 2).all()


def test_ratio_of_means_and_its_error_are_those_of_pairs():
    # Ours: 11 and 13. The better of the others: 10 and 10 (the other one: 1). The ratio of the means is 12 / 10. The
    # differences 1 and 3 have a standard deviation of sqrt(2), and their mean an error of 1, which is a tenth of 10.
    values = {"benefit": (10.0, 10.0), "benefit_replace": (1.0, 1.0), "benefit_plus": (11.0, 13.0)}
    samples = Samples(Sample("p", 1.0, name, seed, of[seed]) for name, of in values.items() for seed in (0, 1))
    assert by_cell.ratio_of_means(samples, "p", 1.0) == pytest.approx((1.2, 0.1))


def test_traces_of_all_seeds_are_all_there_are():
    found = [tuple(jobs.function.tolist()) for seed in range(3) for jobs in foresight.traces(4, 3, seed, free=3)]
    assert len(found) == len(set(found)) == 3**4


def test_each_function_comes_as_often_at_each_place():
    function = np.array([jobs.function for jobs in foresight.traces(5, 3, 1, free=3)])
    for place in range(5):
        assert np.bincount(function[:, place]).tolist() == [9, 9, 9]


def test_most_without_foresight_is_less_than_the_optimum():
    settings = Settings(seeds=(0,), scale=0.5)
    samples = Samples(foresight.measure("b", 4, 0, settings))
    value = {name: samples.mean("b", name, 4) for name in samples.series("b")}
    assert value["benefit_plus"] < value[foresight.CLAIRVOYANT]
    assert value[foresight.UNFORESEEN] < value[foresight.CLAIRVOYANT]


def test_all_other_figures_are_made(tmp_path, capsys):
    options = ["--points", "2", "--scale", "0.05", "--seeds", "0", "--no-pictures", "--out", str(tmp_path)]
    numbers = [3, 4, 5, 6, 7, 8, 9, 10]
    assert main(["figures", "benefit", *options, *(f"--figure={number}" for number in numbers)]) == OK
    result = json.loads((tmp_path / "benefit.json").read_text())
    assert [figure["figure"] for figure in result["figures"]] == numbers
    assert all(figure["claims"] for figure in result["figures"])
    assert main(["figures", "benefit", *options, "--also", "makespan"]) == WRONG_USAGE
    assert "makespan" in capsys.readouterr().err
