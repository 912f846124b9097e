import json
import sys
import textwrap
from pathlib import Path

import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names
from fpga_pool.core.cluster.policies import NODE_POLICIES

WORLDS = Path(__file__).parents[3] / "doc" / "source" / "user" / "worlds"
CHANGES = str(WORLDS / "changes.toml")


def test_prints_the_same_for_the_same_seed_but_for_the_time_it_took(capsys):
    printed = []
    for seed in ("1", "1", "2"):
        assert main(["cluster", CHANGES, "--policy", "random", "--seed", seed, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        del result["simulation_s"]
        printed.append(result)
    assert printed[0] == printed[1] != printed[2]
    # 200 tasks of the stream and 4 of the trace.
    assert printed[0]["completed"] == printed[0]["tasks"] == 204
    assert printed[0]["mean_response_s"] > printed[0]["bound_mean_response_s"]


def test_options_reach_the_nodes(capsys):
    means = set()
    for more in ([], ["--exclusive"], ["--node-policy", "pats"], ["--load", "3"], ["--calibrate"]):
        assert main(["cluster", CHANGES, "--policy", "ect", "--json", *more]) == 0
        means.add(json.loads(capsys.readouterr().out)["mean_response_s"])
    assert len(means) == 5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--policy", "best"],
            f"policy 'best': no such cluster policy; available: {', '.join(policy_names('cluster'))}",
        ),
        (["--policy", "ect", "--node-policy", "x"], f"ect: node: expected one of {', '.join(NODE_POLICIES)}, got 'x'"),
    ],
)
def test_refuses_a_policy_that_is_not_there(capsys, more, message):
    assert main(["cluster", CHANGES, *more]) == 2
    assert capsys.readouterr().err == f"fpga-pool-sim cluster: {message}\n"


def test_weights_of_one_run_are_those_that_another_begins_with(tmp_path, capsys):
    path = tmp_path / "weights.npz"
    ldwp = ["cluster", CHANGES, "--policy", "ldwp", "--node-policy", "ect", "--json"]
    means = []
    for more in (["--save-weights", str(path)], ["--weights", str(path)], ["--parameter", "explore=1"]):
        assert main([*ldwp, *more]) == 0
        means.append(json.loads(capsys.readouterr().out)["mean_response_s"])
    assert len(set(means)) == 3
    path.write_text("no weights")
    assert main([*ldwp, "--weights", str(path)]) == 2
    assert f"{path}: expected weights of ldwp (.npz)" in capsys.readouterr().err
    assert main(["cluster", CHANGES, "--policy", "ect", "--weights", str(path)]) == 2
    assert "--weights: the policy ect has no weights" in capsys.readouterr().err


def test_refuses_a_wrong_scenario_in_one_line(tmp_path, capsys):
    path = tmp_path / "wrong.toml"
    path.write_text((WORLDS / "paper.toml").read_text().replace("cores = 8", "cores = -8", 1))
    assert main(["cluster", str(path), "--policy", "ect"]) == 2
    expected = "nodes.k80: cores: expected a whole number, 1 or more, found -8"
    assert capsys.readouterr().err == f"fpga-pool-sim cluster: {path}: {expected}\n"


def test_refuses_a_warm_up_after_which_no_task_arrives(tmp_path, capsys):
    path = tmp_path / "short.toml"
    path.write_text((WORLDS / "paper.toml").read_text().replace("warm_up_s = 120", "warm_up_s = 100_000"))
    assert main(["cluster", str(path), "--policy", "ect"]) == 2
    assert "run: warm_up_s: the last task arrives before, after " in capsys.readouterr().err


def test_what_there_is_nothing_to_measure_of_is_null(tmp_path, capsys):
    path = tmp_path / "absent.toml"
    text = (WORLDS / "paper.toml").read_text()
    path.write_text(text.replace("cores = 8", "cores = 8\npresent = false").replace("tasks = 1500", "tasks = 200"))
    assert main(["cluster", str(path), "--policy", "ect", "--json"]) == 0
    result = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (result["completed"], result["mean_response_s"]) == (0, None)


def test_law_of_the_page_is_found_when_it_is_installed(tmp_path, monkeypatch, capsys):
    page = WORLDS.with_suffix(".rst").read_text()
    block = page.split(":caption: " + "my_laws.py")[1].split("\n.. code-block")[0]
    (tmp_path / "my_laws.py").write_text(textwrap.dedent(block))
    installed = tmp_path / "my_laws-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-laws\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[fpga_pool.interference_laws]\nqueueing = my_laws:Queueing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_laws", raising=False)
    path = tmp_path / "own.toml"
    text = (WORLDS / "paper.toml").read_text().replace("tasks = 1500", "tasks = 200")
    means = []
    for most in ("0.1", "0.8", "2"):
        law = f'[interference.accelerator]\nlaw = "queueing"\nmost = {most}\n'
        before, _, after = text.partition("[interference.accelerator]")
        path.write_text(before + law + after[after.index("\n[") :])
        status = main(["cluster", str(path), "--policy", "ect", "--json"])
        if status == 0:
            means.append(json.loads(capsys.readouterr().out)["mean_response_s"])
    assert means[0] < means[1]
    assert status == 2
    assert "queueing: most: expected a number, 0 or more and below 1, found 2" in capsys.readouterr().err
