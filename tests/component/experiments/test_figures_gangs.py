"""The figures of the two-tier paper: the comparisons, and how a trace is used in a figure."""

import csv
import json

import numpy as np
import pytest

from fpga_pool.cli.sim.main import OK, WRONG_USAGE, main
from fpga_pool.experiments.figures.figure import Sample, Samples, Settings
from fpga_pool.experiments.figures.gangs import runs
from fpga_pool.sim.gangs.swf import Swf, read_swf, write_swf


@pytest.fixture
def samples():
    """Return samples of two seeds at two loads. EASY: 100; MEASY: 80 and 60, 90 and 70; ours: 10 less, once 30 less."""
    rows = []
    for seed, easier in ((4, 0.0), (7, 10.0)):
        for x, measy in ((0.5, 80.0), (0.9, 60.0)):
            rows.append(Sample("response", x, "easy", seed, 100.0))
            rows.append(Sample("response", x, "measy", seed, measy + easier))
            rows.append(
                Sample("response", x, "measy_plus", seed, measy + easier - (30 if (seed, x) == (7, 0.9) else 10))
            )
    return Samples(rows)


def test_improvements_are_paired_by_seed_and_the_mean_of_the_loads(samples):
    # MEASY improves by (20 + 40) / 2 and (10 + 30) / 2 percent. Ours improves by 10 more each, and by 30 more at one
    # load of the second seed.
    assert runs.improvements(samples, "response", "measy").tolist() == pytest.approx([30, 20])
    assert runs.improvements(samples, "response", "measy_plus").tolist() == pytest.approx([40, 40])
    assert runs.most(samples, "response", "measy_plus") == pytest.approx((50 + 60) / 2)
    claim = runs.ours_over_measy(samples, ("response",))
    # Differences of 10 and 20 have a deviation of 7.0711, divided by sqrt(2): 5. t(1, 0.975) is 12.7062.
    assert claim.ours["response"] == pytest.approx(15)
    assert claim.ours["response, half width"] == pytest.approx(12.7062 * 5, rel=1e-4)


def test_one_seed_has_no_interval():
    rows = [
        Sample("response", 0.5, name, 1, value) for name, value in (("easy", 9.0), ("measy", 6.0), ("measy_plus", 3.0))
    ]
    claim = runs.ours_over_measy(Samples(rows), ("response",))
    assert claim.ours == {"response": pytest.approx(100 / 3)}
    assert np.isnan(runs.half_width(np.ones(1)))


def trace(tmp_path, header=(("Version", "2.2"), ("MaxProcs", "16"))):
    """Write a trace of 400 jobs of Lublin's model on 16 processors; return its path."""
    path = tmp_path / "made.swf.gz"
    assert main(["workload", "lublin", "--jobs", "400", "--processors", "16", "--seed", "2", "--out", str(path)]) == OK
    write_swf(path, Swf(read_swf(path).table, header))
    return path


SMALL = ["--figure", "16", "--scale", "0.02", "--points", "2", "--seeds", "1,2", "--no-pictures"]


def test_a_trace_is_a_figure_of_its_own(tmp_path, capsys):
    path = trace(tmp_path)
    assert main(["figures", "gangs", *SMALL, "--trace", str(path), "--out", str(tmp_path)]) == OK
    with (tmp_path / "gangs-16.csv").open() as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    assert {row["series"] for row in rows} == {"easy", "keasy", "reasy", "measy", "measy_plus"}
    assert {row["x"] for row in rows} == {"0.5", "0.9"}
    written = json.loads((tmp_path / "gangs.json").read_text())
    assert written["provenance"]["trace"] == "made.swf.gz"
    assert "ours-over-measy" in {claim["key"] for claim in written["figures"][0]["claims"]}
    assert "measy_plus" in capsys.readouterr().out


def test_a_policy_with_other_parameters_is_compared_with_ours(tmp_path, capsys):
    path = trace(tmp_path)
    more = "--also", "measy_plus:trial_s=60", "--also", "measy_plus:patience=4.0"
    assert main(["figures", "gangs", *SMALL, "--trace", str(path), *more, "--out", str(tmp_path)]) == OK
    written = json.loads((tmp_path / "gangs.json").read_text())
    claims = {claim["key"]: claim for claim in written["figures"][0]["claims"]}
    assert "measy_plus:trial_s=60-over-ours" in claims
    # A patience of 4 is the default of ours.
    same = claims["measy_plus:patience=4.0-over-ours"]["ours"]
    assert (same["response"], same["slowdown"]) == (0.0, 0.0)


def test_seeds_take_other_parts_of_a_trace(tmp_path):
    path = trace(tmp_path)
    setting = runs.Setting(workload=runs.TRACE)
    found = [
        next(iter(runs.results(setting, 0.7, ["easy"], seed, Settings(seeds=(1,), scale=0.02, trace=path))))[1]
        for seed in (1, 2, 1)
    ]
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--figure 16: requires a trace; specify one with --trace"),
        (("--trace", "none.swf"), "none.swf: No such file"),
        (("--also", "slurm"), "no such gang policy"),
        (("--also", "measy_plus:"), "expected NAME or NAME:PARAMETER=VALUE"),
        (("--also", "measy_plus:trial_s=60,haste=1"), "measy_plus: haste: no such parameter"),
    ],
)
def test_wrong_usage_is_status_2(tmp_path, capsys, more, message):
    assert main(["figures", "gangs", *SMALL, *more, "--out", str(tmp_path)]) == WRONG_USAGE
    assert message in capsys.readouterr().err


def test_a_trace_that_does_not_say_its_processors_is_refused(tmp_path, capsys):
    path = trace(tmp_path, (("Version", "2.2"),))
    assert main(["figures", "gangs", *SMALL, "--trace", str(path), "--out", str(tmp_path)]) == WRONG_USAGE
    assert "MaxProcs: expected the number of processors in the header, found ''" in capsys.readouterr().err


def test_without_a_trace_all_other_figures_are_made(tmp_path):
    arguments = ["--scale", "0.02", "--points", "2", "--seeds", "1", "--no-pictures", "--out", str(tmp_path), "--json"]
    assert main(["figures", "gangs", *arguments]) == OK
    made = [figure["figure"] for figure in json.loads((tmp_path / "gangs.json").read_text())["figures"]]
    assert made == [6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
