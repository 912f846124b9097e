import json
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names

CHECKER = Path(__file__).parents[2] / "checkers" / "check_schedule.py"


@pytest.fixture(scope="module")
def problem(tmp_path_factory) -> Path:
    """Return a problem of about 90 tasks on 4 rings."""
    path = tmp_path_factory.mktemp("workload") / "problem.json"
    assert main(["task-workload", "rtmw", "--workloads", "8", "--seed", "5", "--out", str(path)]) == 0
    return path


def checked(problem, schedule):
    run = subprocess.run(
        [sys.executable, CHECKER, problem, schedule], capture_output=True, text=True, check=False, timeout=200
    )
    return json.loads(run.stdout)


@pytest.mark.parametrize("policy", [name for name in policy_names("task") if name != "exact"])
def test_checker_accepts_what_is_written_and_finds_the_same_time(problem, tmp_path, capsys, policy):
    out = tmp_path / "schedule.json"
    assert main(["tasks", str(problem), "--policy", policy, "--out", str(out), "--effort", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    said = checked(problem, out)
    assert said["faults"] == []
    assert result.keys() >= {"policy", "planning_s", "compile_s", "wct_s", "bound_paper_s", "bound_tight_s"}
    assert (result["policy"], result["wct_s"]) == (policy, said["wct_s"])
    assert result["bound_paper_s"] == pytest.approx(said["bound_s"])
    assert result["bound_paper_s"] <= result["bound_tight_s"] <= result["wct_s"]
    assert (result["workloads"], result["mean_irregularity"]) == (8, pytest.approx(0.3))


def test_exact_proves_a_small_schedule_and_says_how_it_proceeds(tmp_path, capsys):
    # Three tasks of 4, 3 and 3 s on two FPGAs: two of them run one after the other, which takes at least 6 s.
    tasks = [
        {"id": f"t{i}", "workload": "w", "seconds": s, "fpgas": 1, "links": "any"} for i, s in enumerate((4, 3, 3))
    ]
    problem, out = tmp_path / "problem.json", tmp_path / "schedule.json"
    enclosures = [{"fpgas": 2, "links": "ring"}]
    problem.write_text(json.dumps({"format_version": 1, "enclosures": enclosures, "tasks": tasks}))
    assert main(["tasks", str(problem), "--policy", "exact", "--out", str(out), "--progress", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert checked(problem, out)["faults"] == []
    assert (result["wct_s"], result["bound_tight_s"]) == (6.0, pytest.approx(6.0, rel=1e-5))
    assert "best 6  bound " in printed.err


def test_exact_refuses_a_large_problem_in_one_line(problem, tmp_path, capsys):
    assert main(["tasks", str(problem), "--policy", "exact", "--out", str(tmp_path / "s.json")]) == 2
    complaint = capsys.readouterr().err
    assert "policy exact: problem too large: " in complaint
    assert complaint.count("\n") == 1


def test_slice_and_order_are_parameters_of_lattice(problem, tmp_path, capsys):
    def wct_s(*more):
        out = str(tmp_path / "schedule.json")
        assert main(["tasks", str(problem), "--policy", "lattice", "--out", out, "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["wct_s"]

    assert wct_s() == wct_s("--slice", "0", "--order", "fpgas,links,seconds")
    assert wct_s("--slice", "20") > wct_s()
    assert wct_s("--order=fpgas") != wct_s()


def test_online_arrivals_and_outages_give_a_schedule_that_the_checker_accepts(tmp_path, capsys):
    problem, outages, out = tmp_path / "arriving.json", tmp_path / "outages.json", tmp_path / "schedule.json"
    arguments = ["--workloads", "8", "--interval", "4", "--enclosures", "2", "--out", str(problem)]
    assert main(["task-workload", "rtmw", *arguments]) == 0
    outages.write_text('[{"enclosure": 0, "fpga": 3, "from_s": 5.0, "until_s": 30}]')
    capsys.readouterr()
    online = ["--policy", "heft", "--online", "--patience", "20", "--outages", str(outages)]
    assert main(["tasks", str(problem), "--out", str(out), "--json", *online]) == 0
    result = json.loads(capsys.readouterr().out)
    said = checked(problem, out)
    assert (said["faults"], said["wct_s"]) == ([], result["wct_s"])
    assert result["bound_tight_s"] <= result["wct_s"]
    assert 0 < result["mean_wait_s"] < result["longest_wait_s"]
    outages.write_text('[{"enclosure": 2, "fpga": 3, "from_s": 5.0, "until_s": 30}]')
    assert main(["tasks", str(problem), "--out", str(out), "--json", *online]) == 2
    assert "outages.json: [0]: outage: enclosure 2 is out of range, expected 0..1" in capsys.readouterr().err
    outages.write_text('[{"enclosure": 0, "fpga": 3, "from_s": -1, "until_s": 30}]')
    assert main(["tasks", str(problem), "--out", str(out), "--json", *online]) == 2
    assert "outages.json: [0].from_s: expected finite seconds, 0 or more, found -1" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--online",)])
def test_no_tasks_take_no_time(tmp_path, capsys, more):
    problem, out = tmp_path / "problem.json", tmp_path / "schedule.json"
    problem.write_text('{"enclosures": [{"fpgas": 8, "links": "ring"}], "tasks": []}')
    assert main(["tasks", str(problem), "--out", str(out), "--json", *more]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["tasks"], result["wct_s"], result["bound_tight_s"]) == (0, 0.0, 0.0)
    assert checked(problem, out)["valid"]


def test_a_schedule_is_drawn_the_same_each_time(problem, tmp_path):
    pictures = []
    for name in ("one.svg", "two.svg"):
        arguments = ["--policy", "heft", "--out", str(tmp_path / "schedule.json"), "--picture", str(tmp_path / name)]
        assert main(["tasks", str(problem), *arguments]) == 0
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert b"ring 3" in pictures[0] or pictures[0].count(b"<path") > 90


_MADE = ["task-workload", "rtm", "--workloads"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "nowhere.json"], "tasks: nowhere.json: No such file or directory"),
        (["tasks", "PROBLEM", "--policy", "best"], "tasks: policy 'best': no such task policy; available: "),
        (["tasks", "PROBLEM", "--policy", "heft", "--slice", "1"], "--order: only for the policy lattice, got heft"),
        (
            ["tasks", "PROBLEM", "--policy", "lattice", "--order", "red"],
            "--order: order: expected some of",
        ),
        (["tasks", "PROBLEM", "--patience", "1"], "tasks: --patience and --outages: require --online"),
        (
            ["tasks", "PROBLEM", "--picture", "a.gif"],
            "--picture: expected a name that ends with .svg or .png, got a.gif",
        ),
        (["tasks", "PROBLEM", "--slice=-1"], "argument --slice: expected seconds, 0 or more, got '-1'"),
        (["task-workload", "gnu", "--workloads", "3"], "model 'gnu': no such model; available: rtm, rtmw, f11"),
        ([*_MADE, "0"], "argument --workloads: expected a whole number, 1 or more, got '0'"),
        ([*_MADE, "1", "--tasks", "4-2"], "expected tasks such as 1 or 2-20, got '4-2'"),
        ([*_MADE, "1", "--irregularity", "1"], "expected a number from 0 to 0.9, got '1'"),
    ],
)
def test_bad_input_exits_2_with_one_line(problem, tmp_path, capsys, arguments, message):
    arguments = [str(problem) if word == "PROBLEM" else word for word in arguments]
    assert main([*arguments, "--out", str(tmp_path / "out.json")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err
