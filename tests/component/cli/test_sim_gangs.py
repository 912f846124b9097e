import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names

CHECKER = Path(__file__).parents[2] / "checkers" / "check_gangs.py"


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Return a trace of 300 jobs on 32 processors."""
    path = tmp_path_factory.mktemp("workload") / "trace.swf.gz"
    assert main(["workload", "lublin", "--jobs", "300", "--processors", "32", "--seed", "5", "--out", str(path)]) == 0
    return path


def gangs(trace, tmp_path, policy, *more) -> list[str]:
    return [
        "gangs", str(trace), "--processors", "32", "--policy", policy, "--load", "0.9", "--seed", "1",
        "--out", str(tmp_path / "jobs.csv"), "--intervals", str(tmp_path / "spans.csv"), "--json", *more,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "more", [(), ("--usage-per-process", "--migration-cost", "0"), ("--usage-unknown", "--loss", "0", "0.1")]
)
@pytest.mark.parametrize("policy", policy_names("gang"))
def test_checker_accepts_what_is_written_and_finds_the_same_means(trace, tmp_path, capsys, policy, more):
    assert main(gangs(trace, tmp_path, policy, *more)) == 0
    result = json.loads(capsys.readouterr().out)
    files = [tmp_path / "jobs.csv", tmp_path / "spans.csv"]
    run = subprocess.run(
        [sys.executable, CHECKER, *files, "32"], capture_output=True, text=True, check=False, timeout=200
    )
    said = json.loads(run.stdout)
    assert (run.returncode, said["faults"]) == (0, [])
    assert (result["policy"], result["jobs"], said["jobs"]) == (policy, 300, 300)
    for name in ("mean_response_s", "mean_bounded_slowdown"):
        assert result[name] == pytest.approx(said[name], rel=1e-9)
    with files[0].open() as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    for name in ("migrations", "kills", "tier_swaps"):
        assert sum(int(row[name]) for row in rows) == result[name]
    assert result["load"] == pytest.approx(0.9)
    assert 0 < result["fg_utilisation"] < 1
    assert (result["bg_utilisation"] > 0) == (policy != "easy")


def test_same_input_gives_the_same_bytes_and_another_seed_others(trace, tmp_path, capsys):
    written = []
    for seed in ("3", "3", "4"):
        assert main(gangs(trace, tmp_path, "measy", "--seed", seed)) == 0
        written.append([(tmp_path / name).read_bytes() for name in ("jobs.csv", "spans.csv")])
    assert written[0] == written[1] != written[2]


@pytest.mark.parametrize(
    "more",
    [
        ("--usage", "0.9", "1"),
        ("--loss", "0.2", "0.2"),
        ("--used-single", "0.1", "0.1"),
        ("--used-several", "0.1", "0.2", "--used-several-normal", "0.15", "0.1"),
        ("--usage-threshold", "0.6"),
        ("--usage-unknown",),
        ("--usage-error", "0.5"),
        ("--parameter", "least_rate=0.4", "--parameter", "patience=0"),
    ],
)
def test_physics_and_parameters_change_what_comes_out(trace, tmp_path, capsys, more):
    found = []
    for options in ((), more):
        assert main([*gangs(trace, tmp_path, "measy_plus"), *options]) == 0
        found.append((tmp_path / "jobs.csv").read_bytes())
    assert found[0] != found[1]


def test_who_waits_is_told_when_to_expect_a_start_and_why(tmp_path, capsys):
    # There are 2 processors. Job 1 runs until 100 s. Job 2 needs both processors and is expected then. Job 3 needs one,
    # but runs beyond 100 s, so that it is expected after job 2. Job 4 starts at once.
    path = tmp_path / "few.swf"
    rows = ((1, 0, 1, 100), (2, 1, 2, 50), (3, 2, 1, 200), (4, 3, 1, 20))
    lines = (
        f"{job} {at} -1 {run_s} {width} -1 -1 {width} {run_s} -1 1 -1 -1 -1 -1 -1 -1 -1"
        for job, at, width, run_s in rows
    )
    path.write_text("; Version: 2.2\n" + "\n".join(lines) + "\n")
    waiting = tmp_path / "waiting.csv"
    arguments = ["gangs", str(path), "--processors", "2", "--policy", "easy", "--out", str(tmp_path / "jobs.csv")]
    assert main([*arguments, "--waiting", str(waiting), "--json"]) == 0
    assert waiting.read_text().splitlines() == [
        "# format_version=1",
        "job,submit_s,expected_s,why",
        "2,1.0,100.0,too few processors are idle",
        "3,2.0,150.0,it would delay a gang ahead of it in the queue",
    ]


def test_stretches_are_written_only_where_asked_for(trace, tmp_path):
    arguments = ["gangs", str(trace), "--processors", "32", "--out", str(tmp_path / "jobs.csv"), "--json"]
    assert main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--processors", "0"), "expected a whole number, 1 or more, got '0'"),
        (("--load", "-1"), "expected a number above 0, got '-1'"),
        (("--migration-cost", "x"), "expected seconds, 0 or more, got 'x'"),
        (("--policy", "slurm"), "policy 'slurm': no such gang policy"),
        (("--parameter", "slow"), "expected NAME=VALUE, got 'slow'"),
        (("--parameter", "slow=1"), "easy: slow: no such parameter; available: extra_ends"),
        (("--parameter", "extra_ends=some"), "easy: extra_ends: expected one of needed, all, got 'some'"),
        (("--policy", "measy", "--parameter", "usage_threshold=x"), "usage_threshold: expected a value of type float"),
        (("--loss", "0.2", "0.1"), "physics: loss: expected a range within 0 to 1"),
        (("--usage-error", "1"), "expected a share, 0 or more and below 1, got '1'"),
    ],
)
def test_wrong_usage_is_status_2(trace, tmp_path, capsys, more, message):
    assert main([*gangs(trace, tmp_path, "easy"), *more]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err


def test_a_broken_trace_is_status_2_and_leaves_no_files(tmp_path, capsys):
    path = tmp_path / "broken.swf"
    path.write_text("; Version: 2.2\n1 2 3\n")
    assert main(gangs(path, tmp_path, "easy")) == 2
    assert "line 2: expected 18 fields, found 3" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["broken.swf"]


def test_a_trace_without_jobs_has_no_load_but_runs(tmp_path, capsys):
    path = tmp_path / "empty.swf"
    path.write_text("; Version: 2.2\n")
    arguments = ["gangs", str(path), "--processors", "4", "--out", str(tmp_path / "jobs.csv"), "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 0
    assert main([*arguments, "--load", "0.5"]) == 2
    assert "all jobs of this trace are submitted at the same time" in capsys.readouterr().err


def test_jann_is_fitted_to_any_trace(trace, tmp_path, capsys):
    out = str(tmp_path / "like.swf")
    arguments = ["workload", str(trace), "--jobs", "200", "--processors", "32", "--out", out, "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == 200


@pytest.mark.parametrize(
    ("model", "message"), [("downey", "no such model; available: feitelson_calibrated"), ("no.swf", "No such file")]
)
def test_an_unknown_model_is_refused(tmp_path, capsys, model, message):
    arguments = ["workload", model, "--jobs", "2", "--processors", "2", "--out", str(tmp_path / "x.swf")]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_trace_of_too_many_long_jobs_says_so_and_the_share_helps(tmp_path, capsys):
    # With seed 6, a gang that runs many times makes more jobs long than may request long times in the model.
    out = str(tmp_path / "x.swf")
    arguments = ["workload", "feitelson_calibrated", "--jobs", "4000", "--processors", "320", "--seed", "6"]
    assert main([*arguments, "--out", out]) == 2
    assert "too many long jobs" in capsys.readouterr().err
    assert main([*arguments, "--longest-share", "60", "--out", out]) == 0
    assert main([*arguments, "--longest-share", "90", "--out", out]) == 2
