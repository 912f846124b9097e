import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.client.api import PoolApi
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.sim.files import read_problem

SCENARIO = """
format_version = 1
[hosts.node]
count = 2
board = "demo"
egress_mbps = 1000
ingress_mbps = 500
[hosts.client]
egress_mbps = 100
"""
#: sha256 on a slot of the board demo takes 0.25 s + 1.5e-7 s/byte (catalogue.toml).
TRACE = (
    "# recorded by hand\nfunction,input_bytes,requester,release_s\nsha256,3000000,client,0\nsha256,1000000,client,0.5\n"
)
CHECKER = Path(__file__).parents[2] / "checkers" / "check_plan.py"
UUID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "pool.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def test_the_workload_of_the_paper_is_planned_and_the_same_for_the_same_seed(tmp_path, capsys):
    paths = [tmp_path / "one.npz", tmp_path / "two.npz"]
    sizes = ["--jobs", "40", "--responders", "3", "--requesters", "6", "--seed", "4"]
    for path in paths:
        assert main(["problem", "joint", *sizes, "--out", str(path), "--json"]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    said = json.loads(capsys.readouterr().out.splitlines()[0])
    # Five accelerators on each responder (section 5.2).
    assert (said["jobs"], said["accelerators"]) == (40, 15)
    plan = tmp_path / "plan.npz"
    assert main(["plan", str(paths[0]), "--policy", "ect", "--out", str(plan)]) == 0
    assert len(np.load(plan)["accelerator"]) == 40


def solved(tmp_path, capsys, work, *options):
    """Return the output of `problem` and `plan` for a workload, and the problem."""
    path = tmp_path / f"{work}.npz"
    assert main(["problem", work, *options, "--seed", "4", "--out", str(path), "--json"]) == 0
    assert main(["plan", str(path), "--effort", "2", "--out", str(tmp_path / "plan.npz"), "--json"]) == 0
    said, plan = map(json.loads, capsys.readouterr().out.splitlines())
    checked = subprocess.run([sys.executable, CHECKER, path, tmp_path / "plan.npz"], check=True, capture_output=True)
    assert json.loads(checked.stdout)["valid"] is True
    return said, plan, read_problem(path)


@pytest.mark.parametrize("model", ["rtm", "rtmw", "f11"])
def test_shares_of_tasks_of_the_lattice_paper_are_planned_and_their_bound_is_one_for_the_tasks(tmp_path, capsys, model):
    said, plan, problem = solved(tmp_path, capsys, model, "--jobs", "12", "--responders", "2")
    tasks, schedule = tmp_path / "tasks.json", tmp_path / "schedule.json"
    wanted = ["--workloads", "12", "--tasks", "1", "--enclosures", "2", "--seed", "4"]
    assert main(["task-workload", model, *wanted, "--out", str(tasks)]) == 0
    shares = [(task["fpgas"], task["seconds"]) for task in json.loads(tasks.read_text())["tasks"]]
    assert problem.seconds[:, 0].tolist() == [seconds for fpgas, seconds in shares for _ in range(fpgas)]
    assert (said["accelerators"], said["input_bytes"]) == (16, 0)
    capsys.readouterr()
    assert main(["tasks", str(tasks), "--effort", "2", "--out", str(schedule), "--json"]) == 0
    assert plan["lower_bound_s"] <= max(one["end_s"] for one in json.loads(schedule.read_text()))


@pytest.mark.parametrize("catalogue", ["a", "b", "c"])
def test_jobs_of_the_benefit_paper_are_planned_with_their_loads_on_the_slots_that_fit(tmp_path, capsys, catalogue):
    said, plan, problem = solved(tmp_path, capsys, f"benefit-{catalogue}", "--jobs", "30", "--responders", "2")
    # Each card has three small slots and a large one (section V). They are loaded one after the other.
    assert (said["jobs"], said["accelerators"]) == (30, 8)
    assert problem.port.tolist() == [0] * 4 + [1] * 4
    assert set(problem.load_s) == {0.05}
    assert set(problem.seconds[np.isfinite(problem.seconds)]) == {1.0}
    assert (np.diff(problem.release_s) > 0).all()
    # The last job arrives after 30 / 24 / 2 s. It is loaded and computed after that.
    assert plan["makespan_s"] >= 30 / 24 / 2 + 1


def test_requesters_of_a_workload_without_inputs_are_refused(tmp_path, capsys):
    assert main(["problem", "rtm", "--requesters", "3", "--out", str(tmp_path / "problem.npz")]) == 2
    assert "--requesters: not with rtm, whose jobs have no inputs to send" in capsys.readouterr().err


def test_a_trace_runs_on_the_hosts_of_a_scenario(tmp_path, scenario, trace):
    out = tmp_path / "problem.npz"
    assert main(["problem", str(trace), "--pool", str(scenario), "--out", str(out)]) == 0
    problem = read_problem(out)
    assert problem.seconds.shape == (2, 8)  # two cards of four slots
    assert problem.seconds[:, 0] == pytest.approx([0.25 + 0.45, 0.25 + 0.15])
    assert problem.input_bytes.tolist() == [3_000_000, 1_000_000]
    assert problem.release_s.tolist() == [0.0, 0.5]
    assert problem.egress_bps[problem.requester].tolist() == [1e8, 1e8]
    assert np.unique(problem.ingress_bps[problem.responder]).tolist() == [5e8]


def test_a_batch_and_a_trace_run_on_the_slots_of_a_running_pool(tmp_path, pool, serve):
    pool.open_data_port()
    url = serve(pool)
    trace = tmp_path / "jobs.csv"
    trace.write_text("function,input_bytes,requester\nsha256,5,node-1\n")
    with PoolApi(url) as api:
        job = JobRequest(uuid=UUID, name="x", function="sha256", requester="node-1", input_bytes=5)
        batch = api.create_batch([job]).uuid
    found = []
    for work in (batch, str(trace)):
        out = tmp_path / "problem.npz"
        assert main(["problem", work, "--pool", url, "--out", str(out)]) == 0
        found.append(read_problem(out))
    for problem in found:
        # Two slots of the board kintex7, on which sha256 takes 1 ms + 2.5e-9 s/byte.
        assert problem.seconds == pytest.approx(np.full((1, 2), 0.001 + 5 * 2.5e-9))
        assert problem.input_bytes.tolist() == [5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "jobs.csv: expected a head with function, input_bytes, requester"),
        ("function,input_bytes\nsha256,5\n", "jobs.csv: job 1: requester is missing"),
        ("function,input_bytes,requester\nsha256,-5,client\n", "job 1: input_bytes: expected a number, 0 or more"),
        ("function,input_bytes,requester,release_s\nsha256,5,client,nan\n", "job 1: release_s: expected a number"),
        ("function,input_bytes,requester\nsha256,5,nobody\n", "job 1: requester 'nobody' is not a host of the pool"),
        ("function,input_bytes,requester\nfly,5,client\n", "job 1: function 'fly' is not in the catalogue"),
    ],
)
def test_a_wrong_trace_is_refused_by_name_and_line(tmp_path, scenario, trace, capsys, text, message):
    trace.write_text(text)
    out = tmp_path / "problem.npz"
    assert main(["problem", str(trace), "--pool", str(scenario), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["xyz"], "WORK: expected compute, "),
        (["joitn", "--jobs", "3"], "WORK: expected compute, "),
        (["joint", "--pool", "nowhere.toml"], "--pool: only with a trace or a batch, not with joint"),
        (["rtm", "--catalogue", "nowhere.toml"], "--catalogue: only with a trace or a batch, not with rtm"),
        (
            ["jobs.csv", "--pool", "p.toml", "--jobs", "3"],
            "--jobs: only with the workload of a paper, not with jobs.csv",
        ),
    ],
)
def test_work_that_there_is_not_and_options_of_other_work_are_refused(tmp_path, capsys, words, message):
    out = tmp_path / "problem.npz"
    assert main(["problem", *words, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("pool", "status", "message"),
    [
        ([], 2, "--pool: required for a trace and for a batch"),
        (["--pool", "http://127.0.0.1:1"], 1, "no pool responds at http://127.0.0.1:1"),
        (["--pool", "missing.toml"], 2, "missing.toml"),
    ],
)
def test_a_pool_that_is_not_there_is_said(tmp_path, trace, capsys, pool, status, message):
    assert main(["problem", str(trace), *pool, "--out", str(tmp_path / "problem.npz")]) == status
    assert message in capsys.readouterr().err
