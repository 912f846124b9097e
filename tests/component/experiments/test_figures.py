import csv
import html
import json
import re
from importlib import import_module

import numpy as np
import pytest

from fpga_pool.cli.sim.main import OK, WRONG_USAGE, main
from fpga_pool.experiments.figures import command
from fpga_pool.experiments.figures.command import PAPERS
from fpga_pool.experiments.figures.figure import Sample, Samples, Settings
from fpga_pool.experiments.figures.makespan import EXPERIMENTS

SMALL = ["--points", "2", "--scale", "0.02", "--seeds", "3,5", "--no-pictures"]


def make(tmp_path, *arguments):
    assert main(["figures", "makespan", *SMALL, "--out", str(tmp_path), *arguments]) == OK
    return json.loads((tmp_path / "makespan.json").read_text())


def rows_of(path):
    with path.open() as file:
        assert file.readline() == "# format_version=1\n"
        return list(csv.DictReader(file))


def test_writes_curves_and_what_the_paper_says(tmp_path, capsys):
    result = make(tmp_path, "--figure", "2", "--figure", "6")
    assert [figure["figure"] for figure in result["figures"]] == [2, 6]
    for figure in result["figures"]:
        assert figure["claims"], figure["title"]
        rows = rows_of(tmp_path / f"makespan-{figure['figure']}.csv")
        assert {row["seed"] for row in rows} == {"3", "5"}
        assert {"makespan", "sjf", "ljf"} < {row["series"] for row in rows}
    assert "differences and reasons" in capsys.readouterr().out
    assert "## Figure 6" in (tmp_path / "makespan.md").read_text()
    assert result["provenance"]["seeds"] == [3, 5]


def test_same_seeds_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        make(tmp_path / name, "--figure", "7", "--figure", "8")
    for number in (7, 8):
        one, two = (tmp_path / name / f"makespan-{number}.csv" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_draws_a_picture_of_each_figure(tmp_path):
    pytest.importorskip("matplotlib")
    arguments = ["--figure", "2", "--figure", "7", *SMALL[:-1], "--out", str(tmp_path), "--json"]
    assert main(["figures", "makespan", *arguments]) == OK
    for number in (2, 7):
        assert (tmp_path / f"makespan-{number}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"makespan-{number}.svg").read_bytes()


def test_prints_one_json_object(tmp_path, capsys):
    make(tmp_path, "--figure", "2", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert printed["figures"][0]["curves"][0]["x"] == ["wordcount", "dnn"]


def test_draws_further_policies(tmp_path):
    make(tmp_path, "--figure", "6", "--also", "ect")
    assert "ect" in {row["series"] for row in rows_of(tmp_path / "makespan-6.csv")}


def test_no_policy_is_below_the_bound_of_its_panel(tmp_path):
    result = make(tmp_path, "--figure", "3")
    curves = result["figures"][0]["curves"]
    bounds = {curve["panel"]: curve for curve in curves if curve["series"] == "bound"}
    for curve in curves:
        least = np.array(bounds[curve["panel"]]["least"])
        assert (np.array(curve["least"]) >= least * (1 - 1e-9)).all(), curve


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing"], "invalid choice: 'nothing'"),
        (["makespan", "--figure", "1"], "--figure: expected one of 2, 3, 4, 5, 6, 7, 8, 9, 10 for makespan, got 1"),
        (["makespan", "--seeds", "a"], "expected seeds such as 0-4 or 0,7,9, got 'a'"),
        (["makespan", "--seeds", "4-0"], "expected seeds such as 0-4 or 0,7,9, got '4-0'"),
        (["makespan", "--points", "1"], "--points: expected 2 or more, got 1"),
        (["makespan", "--scale", "2"], "--scale: expected more than 0 and at most 1, got 2"),
        (["makespan", "--scale", "nan"], "--scale: expected more than 0 and at most 1, got nan"),
        (["all", "--figure", "3"], "--figure, --also, --trace: cannot be combined with the figures of all papers"),
        (["makespan", "--also", "nobody"], "policy 'nobody': no such batch policy"),
    ],
)
def test_says_what_is_wrong_with_the_command_line(arguments, complaint, tmp_path, capsys):
    assert main(["figures", *arguments, "--out", str(tmp_path)]) == WRONG_USAGE
    assert complaint in capsys.readouterr().err


def test_every_paper_numbers_its_figures_once():
    numbers = [experiment.number for experiment in EXPERIMENTS]
    assert numbers == sorted(set(numbers))
    assert "makespan" in PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_a_heading_names_every_figure_of_its_paper(paper):
    named = set()
    for first, word, last in re.findall(r"(\d+)(?: (to|and) (\d+))?", PAPERS[paper]):
        named |= set(range(int(first), int(last) + 1)) if word == "to" else {int(first), int(last or first)}
    experiments = import_module(f"fpga_pool.experiments.figures.{paper}").EXPERIMENTS
    assert named == {experiment.number for experiment in experiments}


@pytest.mark.parametrize("paper", PAPERS)
def test_what_a_paper_states_is_of_a_panel_of_its_figure(paper):
    for experiment in import_module(f"fpga_pool.experiments.figures.{paper}").EXPERIMENTS:
        assert {stated.panel for stated in experiment.stated} <= {panel.key for panel in experiment.panels}


def test_thins_out_places_evenly_and_keeps_the_ends():
    settings = Settings(seeds=(0,), points=3)
    assert settings.thinned([1, 2, 3, 4, 5, 6, 7]) == [1, 4, 7]
    assert settings.thinned([1, 2]) == [1, 2]
    assert Settings(seeds=(0,)).thinned(range(9)) == list(range(9))


def test_improvement_is_equation_7_of_the_means():
    # Means of 3 and 4: 25 % shorter.
    rows = [("a", 0, 2.0), ("a", 1, 4.0), ("b", 0, 3.0), ("b", 1, 5.0)]
    samples = Samples(Sample("p", 1.0, series, seed, value) for series, seed, value in rows)
    assert samples.improvement_percent("p", "a", "b", 1.0) == pytest.approx(25.0)
    assert samples.ratio("p", "a", "b", 1.0) == pytest.approx((2 / 3 + 4 / 5) / 2)


#: A figure of each paper that is made quickly.
QUICK = {"makespan": 7, "benefit": 4, "gangs": 6, "lattice": 5, "learned": 4}


@pytest.mark.long
def test_one_command_makes_one_page_of_all_papers(tmp_path, monkeypatch, capsys):
    """Only one quick figure of each paper is made, to save hours. The page loads nothing from other servers."""
    chosen = command._chosen
    monkeypatch.setattr(command, "_chosen", lambda paper, _, trace: chosen(paper, [QUICK[paper]], trace))
    assert main(["figures", "all", "--points", "2", "--scale", "0.05", "--seeds", "0-1", "--out", str(tmp_path)]) == OK
    page = (tmp_path / "report.html").read_text()
    for paper, number in QUICK.items():
        assert f'<section id="{paper}">' in page
        made = json.loads((tmp_path / f"{paper}.json").read_text())["figures"]
        assert [figure["figure"] for figure in made] == [number]
        assert f"Figure {number}: {html.escape(made[0]['title'])}" in page
    assert page.count("data:image/svg+xml;base64,") == len(QUICK)
    assert page.count('class="play"') == 2
    assert " ± " in page
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*', page) == []
    assert str(tmp_path / "report.html") in capsys.readouterr().out


def test_the_interval_of_a_mean_is_students():
    """The values 1, 2 and 3 have a deviation of 1. With the quantile for two degrees of freedom: 4.3027 / sqrt(3)."""
    samples = Samples(Sample("p", 1.0, "a", seed, seed + 1.0) for seed in range(3))
    assert samples.half_width("p", "a", 1.0) == pytest.approx(4.3027 / 3**0.5, abs=1e-4)
    assert np.isnan(Samples([Sample("p", 1.0, "a", 0, 5.0)]).half_width("p", "a", 1.0))


def test_a_picture_has_intervals_and_what_the_text_of_the_paper_says(tmp_path):
    pytest.importorskip("matplotlib")
    options = ["--points", "2", "--scale", "0.05", "--seeds", "0,1", "--out", str(tmp_path)]
    assert main(["figures", "lattice", "--figure", "3", *options]) == OK
    drawn = (tmp_path / "lattice-3.svg").read_text()
    for name in ("lattice", "heft", "fifo"):
        assert f"<!-- {name}, the paper's text -->" in drawn
    # All panels share one legend, beside the axes and not over their curves.
    _, *after_axes = drawn.split('id="legend_1"')
    assert len(after_axes) == 1
    assert 'id="axes_' not in after_axes[0]
    assert 'id="legend_2"' not in drawn
    assert [after_axes[0].count(f"<!-- {name} -->") for name in ("lattice_plus", "95 % interval of a mean")] == [1, 1]
    curves = json.loads((tmp_path / "lattice.json").read_text())["figures"][0]["curves"]
    assert all(len(curve["half_width"]) == len(curve["x"]) for curve in curves)
    assert max(reach for curve in curves for reach in curve["half_width"]) > 0
