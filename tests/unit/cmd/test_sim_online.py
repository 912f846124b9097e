import json
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.cmd.sim import main
from fpga_pool.conf.policies import policy_names
from fpga_pool.experiments.benefit.cases import card_pool, random_trace, reference_catalogue

CHECKER = Path(__file__).parents[2] / "checkers" / "check_online.py"
CATALOGUE = Path(__file__).parents[3] / "fpga_pool" / "experiments" / "benefit" / "catalogue_a.toml"


@pytest.fixture
def jobs(tmp_path) -> Path:
    """20 s of jobs on two cards, six a second on each; written in no order."""
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
        [sys.executable, CHECKER, *files, "18"], capture_output=True, text=True, check=False, timeout=60
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
        ("j0,0,p,aes,1.0", "line 4: job 'j0' is there twice"),
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
