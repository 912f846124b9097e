import csv
import json
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names
from fpga_pool.experiments.figures.benefit.runs import card_pool, random_trace, reference_catalogue

CHECKER = Path(__file__).parents[2] / "checkers" / "check_online.py"
CATALOGUE = Path(__file__).parents[3] / "fpga_pool" / "experiments" / "figures" / "benefit" / "catalogue_a.toml"


@pytest.fixture
def jobs(tmp_path) -> Path:
    """Return a file with 20 s of jobs for two cards, six per second and card, in no particular order."""
    pool = card_pool(reference_catalogue("a"), 0.05, cards=2)
    trace = random_trace(pool, 6.0, 20.0, 3, poisson=True)
    columns = zip(trace.jobs, trace.arrival_s.tolist(), trace.function.tolist(), trace.work_s.tolist(), strict=True)
    rows = [f"{job},{arrival_s},p,{pool.functions[f]},{work_s},1.0" for job, arrival_s, f, work_s in columns]
    path = tmp_path / "jobs.csv"
    heading = "# format_version=1\njob,arrival_s,project,function,ideal_fpga_s,patience_s\n"
    path.write_text(heading + "\n".join(reversed(rows)) + "\n")
    return path


def online(jobs, tmp_path, policy, *more) -> list[str]:
    return [
        "online", str(jobs), "--catalogue", str(CATALOGUE), "--policy", policy, "--cards", "2",
        "--out", str(tmp_path / "runs.csv"), "--intervals", str(tmp_path / "stretches.csv"), "--json", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("policy", policy_names("online"))
def test_checker_accepts_what_is_written_and_finds_the_same_benefit(jobs, tmp_path, capsys, policy):
    assert main(online(jobs, tmp_path, policy, "--horizon", "18")) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["policy"] == policy
    assert 0 < result["mean_benefit_vcpus"] <= result["bound_vcpus"]
    files = [jobs, tmp_path / "runs.csv", tmp_path / "stretches.csv", CATALOGUE]
    run = subprocess.run(
        [sys.executable, CHECKER, *files, "18"], capture_output=True, text=True, check=False, timeout=200
    )
    said = json.loads(run.stdout)
    assert (run.returncode, said["faults"]) == (0, [])
    assert result["jobs_on_fpga"] + result["jobs_on_cpu"] == said["jobs"]
    assert result["mean_benefit_vcpus"] == pytest.approx(said["mean_benefit_vcpus"], rel=1e-9)


def test_same_input_gives_the_same_bytes(jobs, tmp_path, capsys):
    written = []
    for _ in range(2):
        assert main(online(jobs, tmp_path, "benefit_plus", "--seed", "1")) == 0
        written.append([(tmp_path / name).read_bytes() for name in ("runs.csv", "stretches.csv")])
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("j1,0.0,p,aes", "line 4: expected 5 fields, found 4"),
        ("j1,-1,p,aes,1.0", "line 4: arrival_s: expected seconds, 0 or more, found '-1'"),
        ("j1,0,p,aes,nan", "line 4: ideal_fpga_s: expected seconds, 0 or more, found 'nan'"),
        ("j1,0,p,des,1.0", "line 4: function 'des' is not in the catalogue"),
        ("j0,0,p,aes,1.0", "line 4: duplicate job 'j0'"),
        ("# format_version=2", "line 4: format_version: 2 is newer than 1"),
    ],
)
def test_wrong_line_is_status_2_and_named(tmp_path, capsys, line, message):
    path = tmp_path / "jobs.csv"
    path.write_text(f"# a trace\njob,arrival_s,project,function,ideal_fpga_s\nj0,0,p,aes,1.0\n{line}\n")
    assert main(online(path, tmp_path, "benefit")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_unknown_policy_and_board_are_wrong_usage(jobs, tmp_path, capsys):
    assert main(online(jobs, tmp_path, "best")) == 2
    assert ", ".join(policy_names("online")) in capsys.readouterr().err
    assert main(online(jobs, tmp_path, "benefit", "--board", "b")) == 2
    assert "board 'b'" in capsys.readouterr().err


def test_trace_without_jobs_has_no_benefit(tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    path.write_text("job,arrival_s,project,function,ideal_fpga_s\n")
    assert main(online(path, tmp_path, "benefit_plus")) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["mean_benefit_vcpus"], result["bound_vcpus"], result["share_of_bound"]) == (0.0, 0.0, 1.0)


def test_more_effort_finds_the_tighter_bound(jobs, tmp_path, capsys):
    bounds = []
    for effort in ("0", "300"):
        assert main(online(jobs, tmp_path, "benefit", "--effort", effort)) == 0
        bounds.append(json.loads(capsys.readouterr().out)["bound_vcpus"])
    # Without an effort for variables, the bound has one variable per function and step instead of one per job.
    assert bounds[1] < bounds[0] < 1.2 * bounds[1]


def test_time_that_is_too_short_gives_the_looser_bound(jobs, tmp_path, capsys):
    bounds = []
    for limit in (["--effort", "0"], ["--time-limit", "1e-9"]):
        assert main(online(jobs, tmp_path, "benefit", *limit)) == 0
        bounds.append(json.loads(capsys.readouterr().out)["bound_vcpus"])
    assert bounds[0] == bounds[1]


def test_optimum_of_a_small_trace_is_between_policy_and_bound(tmp_path, capsys):
    path = tmp_path / "few.csv"
    rows = [
        f"j{i},{0.4 * i},p,{name},1.0" for i, name in enumerate(("aes", "stereo", "gmm", "sha256", "stereo", "mvm"))
    ]
    path.write_text("job,arrival_s,project,function,ideal_fpga_s\n" + "\n".join(rows) + "\n")
    options = ["--optimum", "0.5", "--horizon", "3", "--cards", "1"]
    assert main(online(path, tmp_path, "benefit_plus", *options)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["mean_benefit_vcpus"] <= result["optimum_vcpus"] <= result["bound_vcpus"] * (1 + 1e-6)
    assert result["share_of_optimum"] == result["mean_benefit_vcpus"] / result["optimum_vcpus"]
    assert main(online(path, tmp_path, "benefit_plus", *options, "--time-limit", "1e-9")) == 0
    assert json.loads(capsys.readouterr().out)["optimum"] == "not found within the time limit"


def test_exact_carries_out_the_optimum_where_times_are_multiples_of_the_step(tmp_path, capsys):
    # One card with four slots, whose loads of 0.5 s are sequential.
    names = ("aes", "stereo", "gmm", "sha256", "stereo", "mvm")
    rows = [f"j{i},{0.5 * i},p,{name},1.0,1.0" for i, name in enumerate(names)]
    path = tmp_path / "few.csv"
    path.write_text("job,arrival_s,project,function,ideal_fpga_s,patience_s\n" + "\n".join(rows) + "\n")
    catalogue = tmp_path / "catalogue.toml"
    catalogue.write_text(CATALOGUE.read_text().replace("configuration_bps = 3.2e9", "configuration_bps = 3.2e8"))
    options = ["--optimum", "0.5", "--horizon", "3", "--cards", "1", "--catalogue", str(catalogue)]
    assert main(online(path, tmp_path, "exact", *options)) == 0
    best = json.loads(capsys.readouterr().out)
    files = [path, tmp_path / "runs.csv", tmp_path / "stretches.csv", catalogue]
    run = subprocess.run(
        [sys.executable, CHECKER, *files, "3"], capture_output=True, text=True, check=False, timeout=200
    )
    assert (run.returncode, json.loads(run.stdout)["faults"]) == (0, [])
    assert best["mean_benefit_vcpus"] == pytest.approx(best["optimum_vcpus"])
    for policy in policy_names("online"):
        assert main(online(path, tmp_path, policy, *options)) == 0
        found_vcpus = json.loads(capsys.readouterr().out)["mean_benefit_vcpus"]
        assert found_vcpus <= best["mean_benefit_vcpus"] * (1 + 1e-9), policy


def test_exact_needs_the_step_to_which_times_are_rounded(jobs, tmp_path, capsys):
    assert main(online(jobs, tmp_path, "exact")) == 2
    assert "--policy exact: requires --optimum STEP" in capsys.readouterr().err


def test_limit_per_tenant_is_kept(jobs, tmp_path, capsys):
    # All jobs belong to one project, which may have two of eight slots.
    assert main(online(jobs, tmp_path, "benefit_plus", "--tenant-share", "0.25")) == 0
    with (tmp_path / "stretches.csv").open() as file:
        stretches = list(csv.DictReader(row for row in file if not row.startswith("#")))
    edges = sorted(
        edge
        for stretch in stretches
        if not stretch["job"].startswith("load:")
        for edge in ((float(stretch["begin_s"]), 1), (float(stretch["end_s"]), -1))
    )
    assert max(accumulate(step for _, step in edges)) == 2
    assert main(online(jobs, tmp_path, "benefit_plus", "--tenant-share", "0")) == 2
    assert "expected a number above 0" in capsys.readouterr().err


def test_by_the_rules_of_a_pool_jobs_come_back_from_few_cpus(jobs, tmp_path, capsys):
    results = []
    for more in ([], ["--rules", "pool", "--cpu-workers", "1"]):
        assert main(online(jobs, tmp_path, "benefit_plus", *more)) == 0
        results.append(json.loads(capsys.readouterr().out))
    paper, pool = results
    # There is one CPU worker for 12 jobs per second on two cards, so nearly all jobs have to wait for a slot.
    assert pool["jobs_on_cpu"] < paper["jobs_on_cpu"]
    assert pool["jobs_on_fpga"] + pool["jobs_on_cpu"] == paper["jobs_on_fpga"] + paper["jobs_on_cpu"]


def test_cpu_workers_are_of_the_rules_of_a_pool(jobs, tmp_path, capsys):
    assert main(online(jobs, tmp_path, "benefit", "--cpu-workers", "2")) == 2
    assert "--cpu-workers: needs --rules pool" in capsys.readouterr().err
