"""The run times of ended instances and the refitted time models that are used to place instances."""

from dataclasses import replace

import pytest

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.core.cluster.slowdown import Run, learned_from
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.rules.instance.observations import (
    Observations,
    ObservedModel,
    RunTime,
    observed,
    observed_run_times,
)


def test_a_run_time_is_the_median_of_the_project_once_three_instances_have_ended():
    ended = [("p", "aes", 10.0), ("p", "aes", 30.0), ("p", "aes", 500.0), ("q", "aes", 700.0), ("q", "sha256", 1.0)]
    found = Observations(run_times=observed_run_times(ended))
    assert found.run_time_s("p", "aes") == 30.0
    # q has only one run of its own, so the median of all four counts: half-way between 30 and 500.
    assert found.run_time_s("q", "aes") == 265.0
    assert found.run_time_s("q", "sha256") is None


def test_an_instance_without_a_project_counts_once():
    times = observed_run_times([("", "aes", 1.0), ("", "aes", 2.0), ("", "aes", 6.0)])
    assert times == (RunTime(project_id="", function="aes", median_s=2.0),)


def test_a_refitted_model_changes_the_speedup_on_its_board_only():
    catalogue = load_catalogue(installed_catalogue())
    before = catalogue.functions["sha256"]
    slow = 2 * before.fpga_time["demo"].b_s_per_byte
    models = (
        ObservedModel(function="sha256", board="demo", a_s=0.0, b_s_per_byte=slow),
        ObservedModel(function="sha256", board="unknown", a_s=0.0, b_s_per_byte=1.0),
        ObservedModel(function="unknown", board="demo", a_s=0.0, b_s_per_byte=1.0),
    )
    after = Observations(time_models=models).applied_to(catalogue)
    assert after.functions["sha256"].speedup_on("demo") == before.speedup_on("demo") / 2
    assert after.functions["sha256"].speedup_on("kintex7") == before.speedup_on("kintex7")
    assert after.functions["aes"] == catalogue.functions["aes"]
    assert set(after.functions) == set(catalogue.functions)


def test_what_neighbours_cost_is_told_of_functions_that_were_observed_and_bounded_on_its_way():
    beside = [
        Run(unit="x", type=name, estimated_s=1, actual_s=took, end_s=5) for name, took in (("aes", 2), ("fft", 2))
    ]
    alone = [Run(unit=name, type=name, estimated_s=1, actual_s=1, end_s=5) for name in ("aes", "fft")]
    runs = [replace(run, end_s=run.end_s + 10 * number) for number in range(50) for run in (*beside, *alone)]
    found = observed([], {}, learned_from(runs))
    assert {(entry.function, entry.beside) for entry in found.neighbour_costs} >= {("aes", "fft"), ("fft", "aes")}
    costs = {(entry.function, entry.beside): entry.cost for entry in found.neighbour_costs}
    assert costs["aes", "fft"] == pytest.approx(1.0, abs=0.2)
    assert read(Observations, to_plain(found)) == found
    with pytest.raises(InvalidInput, match="neighbour_costs"):
        read(Observations, {"neighbour_costs": [{"function": "aes", "beside": "fft", "cost": 3.1}]})


def test_nothing_changes_where_nothing_was_learned():
    catalogue = load_catalogue(installed_catalogue())
    found = observed([], {}, None)
    assert found == Observations()
    assert found.applied_to(catalogue) is catalogue
