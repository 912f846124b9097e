import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names
from fpga_pool.core.types import BatchProblem
from fpga_pool.sim import files

CHECKER = Path(__file__).parents[2] / "checkers" / "check_plan.py"


@pytest.fixture
def problem(tmp_path) -> Path:
    """Return a problem of 30 jobs on 10 accelerators, with every optional array."""
    rng = np.random.default_rng(4)
    files.write_problem(
        tmp_path / "problem.npz",
        BatchProblem(
            seconds=rng.exponential(1.0, (30, 10)), input_bytes=rng.integers(0, 10**8, 30),
            requester=rng.integers(0, 4, 30), egress_bps=rng.uniform(5e8, 2e9, 4),
            responder=np.repeat(np.arange(5), 2), ingress_bps=rng.uniform(5e8, 2e9, 5), ready_s=rng.uniform(0, 1, 10),
            release_s=rng.uniform(0, 1, 30), group=rng.integers(0, 2, 30), local_host=[0, -1, 2, -1],
            function=rng.integers(0, 3, 30), loaded=rng.integers(-1, 3, 10), load_s=rng.uniform(0, 0.2, 10),
        ),
    )  # fmt: skip
    return tmp_path / "problem.npz"


#: `exact` is only for smaller problems.
POLICIES = [name for name in policy_names("batch") if name != "exact"]


@pytest.mark.parametrize("policy", POLICIES)
def test_writes_a_plan_that_the_checker_accepts(problem, tmp_path, capsys, policy):
    plan = tmp_path / "plan.npz"
    assert main(["plan", str(problem), "--policy", policy, "--out", str(plan), "--seed", "1", "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    result = json.loads(printed.out)
    assert set(result) == {"policy", "planning_s", "compile_s", "makespan_s", "lower_bound_s"}
    assert result["policy"] == policy
    assert 0 < result["lower_bound_s"] <= result["makespan_s"]
    run = subprocess.run(
        [sys.executable, CHECKER, problem, plan], capture_output=True, text=True, check=False, timeout=200
    )
    assert (run.returncode, json.loads(run.stdout)["faults"]) == (0, [])


def test_a_plan_that_nobody_wants_is_described(problem, tmp_path, capsys):
    before = set(tmp_path.iterdir())
    assert main(["plan", str(problem), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["policy"], result["makespan_s"] >= result["lower_bound_s"]) == ("makespan", True)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("policy", POLICIES)
def test_same_input_seed_and_effort_give_the_same_bytes(problem, tmp_path, policy):
    plans = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for plan in plans:
        assert main(["plan", str(problem), "--policy", policy, "--out", str(plan), "--seed", "1", "--effort", "5"]) == 0
    assert plans[0].read_bytes() == plans[1].read_bytes()


@pytest.fixture
def small(tmp_path):
    """Return a problem of 6 jobs on 3 accelerators whose optimum is above the simple bounds."""
    rng = np.random.default_rng(3)
    arrays = {"seconds": rng.integers(1, 9, (6, 3)).astype(float), "input_bytes": 125_000 * rng.integers(1, 9, 6)}
    problem = BatchProblem(
        **arrays, requester=np.zeros(6, int), egress_bps=[2e6], responder=[0, 0, 1], ingress_bps=[1e6, 2e6]
    )
    files.write_problem(tmp_path / "small.npz", problem)
    return tmp_path / "small.npz"


def test_exact_writes_a_proven_plan_that_the_checker_accepts_and_says_how_it_proceeds(small, tmp_path, capsys):
    plan = tmp_path / "plan.npz"
    arguments = ["plan", str(small), "--policy", "exact", "--out", str(plan), "--gap", "1e-5", "--progress", "--json"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result["lower_bound_s"] == pytest.approx(result["makespan_s"], rel=2e-5)
    assert {"best", "bound", "gap"} <= set(printed.err.split())
    run = subprocess.run(
        [sys.executable, CHECKER, small, plan], capture_output=True, text=True, check=False, timeout=200
    )
    assert (run.returncode, json.loads(run.stdout)["faults"]) == (0, [])


def test_exact_writes_the_same_bytes_with_the_same_effort(small, tmp_path):
    plans = [tmp_path / "one.npz", tmp_path / "two.npz"]
    for plan in plans:
        assert main(["plan", str(small), "--policy", "exact", "--out", str(plan), "--effort", "5"]) == 0
    assert plans[0].read_bytes() == plans[1].read_bytes()


def test_exact_says_what_it_does_not_plan(problem, tmp_path, capsys):
    assert main(["plan", str(problem), "--policy", "exact", "--out", str(tmp_path / "plan.npz")]) == 2
    assert "policy exact: group: more than one fairness group" in complaint(capsys)


def test_progress_and_gap_are_for_policies_that_prove_something(small, tmp_path, capsys):
    assert main(["plan", str(small), "--policy", "sjf", "--out", str(tmp_path / "plan.npz"), "--gap", "0.1"]) == 2
    assert "--gap and --progress: only for policies that prove the optimum, not for sjf" in complaint(capsys)


def test_prints_for_people_without_json(problem, tmp_path, capsys):
    assert main(["plan", str(problem), "--policy", "ect", "--out", str(tmp_path / "p.npz"), "--time-limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("policy         ect\n")


def complaint(capsys) -> str:
    """Return the single line on standard error. Standard output must be empty."""
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_unknown_policy_is_wrong_usage_and_names_the_known_ones(problem, tmp_path, capsys):
    assert main(["plan", str(problem), "--policy", "best", "--out", str(tmp_path / "plan.npz")]) == 2
    line = complaint(capsys)
    assert "policy 'best'" in line
    assert ", ".join(policy_names("batch")) in line


def test_unreadable_problem_is_status_2_and_names_file_and_array(tmp_path, capsys):
    np.savez(tmp_path / "bad.npz", seconds=np.ones((1, 1)))
    assert main(["plan", str(tmp_path / "bad.npz"), "--policy", "ect", "--out", str(tmp_path / "plan.npz")]) == 2
    assert "bad.npz: input_bytes: missing" in complaint(capsys)
    assert not (tmp_path / "plan.npz").exists()


def test_plan_that_cannot_be_written_is_status_1_and_names_the_place(problem, tmp_path, capsys):
    assert main(["plan", str(problem), "--policy", "ect", "--out", str(tmp_path / "nowhere" / "plan.npz")]) == 1
    assert "nowhere" in complaint(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["plan"], "PROBLEM"),
        (["plan", "p", "--policy", "ect", "--out", "q", "--seed", "-1"], "--seed: expected a whole number, 0 or more"),
        (
            ["plan", "p", "--policy", "ect", "--out", "q", "--effort", "-1"],
            "--effort: expected a whole number, 0 or more",
        ),
        (["plan", "p", "--policy", "ect", "--out", "q", "--time-limit", "nan"], "--time-limit: expected a positive"),
        (["plan", "p", "--policy", "ect", "--out", "q", "--effort", "1", "--time-limit", "1"], "not allowed with"),
    ],
)
def test_wrong_usage_is_status_2_and_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in complaint(capsys)


def test_help_says_that_these_policies_end_at_once(capsys):
    assert main(["plan", "--help"]) == 0
    assert "ignored by ect, ljf and sjf" in " ".join(capsys.readouterr().out.split())
