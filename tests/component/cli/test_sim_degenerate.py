"""`fpga-pool-sim plan` on degenerate batches: either a valid plan, or a one-line error that names the fault."""

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.cli.sim.main import main
from fpga_pool.conf.policies import policy_names

CHECKER = Path(__file__).parents[2] / "checkers" / "check_plan.py"
INF = np.inf


def batch(seconds, size=0, egress_bps=1e9, ingress_bps=1e9, **optional):
    """Return a problem with one requester and one responder, and inputs of equal sizes."""
    seconds = np.array(seconds, dtype=float)
    jobs, accelerators = seconds.shape
    return {
        "seconds": seconds, "input_bytes": np.full(jobs, size), "requester": np.zeros(jobs, int),
        "egress_bps": np.array([egress_bps]), "responder": np.zeros(accelerators, int),
        "ingress_bps": np.array([ingress_bps]), **{name: np.array(value) for name, value in optional.items()},
    }  # fmt: skip


#: A batch and its optimal makespan, by name.
CASES = {
    "one job": (batch([[2.0, 3.0]], 125_000_000), 3.0),  # 1000 Mb at 1 Gbps, then 2 s
    "one accelerator": (batch([[1.0], [2.0], [3.0]]), 6.0),
    "zero bytes": (batch([[2.0, 2.0]] * 2), 2.0),
    "zero seconds": (batch([[0.0, 0.0]] * 2, 125_000_000), 2.0),  # 2000 Mb over one link of 1 Gbps
    "nothing at all to do": (batch([[0.0]] * 3), 0.0),
    "infinite bandwidth": (batch([[2.0]], 10**12, INF, INF), 2.0),
    "infinite egress": (batch([[2.0]], 125_000_000, INF), 3.0),
    "10^12 bytes": (batch([[2.0]], 10**12), 8002.0),  # 8e12 bits at 1 Gbps
    "one job of 10^12 bytes among jobs of one byte": (
        {**batch([[2.0]] * 3), "input_bytes": np.array([1, 10**12, 1])}, 8002.0,
    ),  # the other jobs compute meanwhile
    "duplicate sizes": (batch([[1.0, 1.0]] * 6), 3.0),
    "ready times far apart": (batch([[1.0, 1.0]] * 3, ready_s=[0.0, 1e9]), 3.0),
    "all accelerators ready late": (batch([[1.0]], ready_s=[1e6]), 1e6 + 1),
    "one way only": (batch([[INF, 1.0], [1.0, INF]]), 1.0),
    "accelerator that can run nothing": (batch([[INF, 1.0]] * 2), 2.0),
    "release far away": (batch([[1.0], [1.0]], release_s=[0.0, 1e6]), 1e6 + 1),
    "no jobs": (batch(np.zeros((0, 2))), 0.0),
}  # fmt: skip


@pytest.fixture(scope="module")
def checked():
    """Return a function that runs the independent checker in this process and returns its exit status and output."""
    spec = spec_from_file_location("check_plan", CHECKER)
    checker = module_from_spec(spec)
    spec.loader.exec_module(checker)

    def check(*paths):
        said = []
        checker.print = said.append
        return checker.main(["check_plan", *map(str, paths)]), json.loads(said[0])

    return check


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", policy_names("batch"))
def test_degenerate_batch_has_a_valid_plan(checked, tmp_path, capsys, policy, case):
    arrays, shortest_s = CASES[case]
    np.savez(tmp_path / "problem.npz", **arrays)
    paths = str(tmp_path / "problem.npz"), str(tmp_path / "plan.npz")
    status = main(["plan", paths[0], "--policy", policy, "--out", paths[1], "--json"])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    result = json.loads(printed.out)
    assert result["lower_bound_s"] <= result["makespan_s"]
    assert result["makespan_s"] >= shortest_s * (1 - 1e-9)
    if policy == "makespan":
        assert result["makespan_s"] == pytest.approx(shortest_s)
        assert result["lower_bound_s"] == pytest.approx(shortest_s)
    if len(arrays["seconds"]):
        assert checked(*paths) == (0, {**checked(*paths)[1], "faults": []})


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"seconds": [[1.0], [INF]]}, "seconds[1]: this job cannot run on any accelerator"),
        ({"seconds": [[1.0], [-1.0]]}, "seconds[1, 0]: negative"),
        ({"seconds": [[1.0], [np.nan]]}, "seconds[1, 0]: NaN"),
        (
            {"seconds": np.zeros((2, 0)), "responder": np.zeros(0, int)},
            "seconds[0]: this job cannot run on any accelerator",
        ),
        ({"egress_bps": [0.0]}, "egress_bps[0]: no bandwidth at all"),
        ({"input_bytes": [1, -1]}, "input_bytes[1]: negative"),
        ({"input_bytes": [1.5, 1.0]}, "input_bytes: expected whole numbers"),
        ({"requester": [0, 1]}, "requester[1]: index out of range"),
        ({"output_bytes": [0, -1]}, "output_bytes[1]: negative"),
        ({"output_bytes": [0]}, "output_bytes: expected shape (2,), found (1,)"),
        ({"function_output_bytes": [5]}, "function_output_bytes: requires function"),
    ],
)
def test_impossible_batch_is_refused_in_one_line_that_names_the_place(tmp_path, capsys, changed, complaint):
    arrays = batch([[1.0], [1.0]]) | {name: np.array(value) for name, value in changed.items()}
    np.savez(tmp_path / "problem.npz", **arrays)
    status = main(["plan", str(tmp_path / "problem.npz"), "--policy", "makespan", "--out", str(tmp_path / "plan.npz")])
    printed = capsys.readouterr()
    assert (status, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert complaint in printed.err


def test_results_given_per_function_flow_back(tmp_path, capsys):
    # The input of 1000 Mb takes 1 s, the computation 1 s, and the result of 2000 Mb at 1 Gbps takes 2 s.
    arrays = batch([[1.0]], 125_000_000, function=[1], loaded=[1], load_s=[0.0], function_output_bytes=[0, 250_000_000])
    np.savez(tmp_path / "problem.npz", **arrays)
    plan = str(tmp_path / "plan.npz")
    assert main(["plan", str(tmp_path / "problem.npz"), "--policy", "makespan", "--out", plan, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["makespan_s"], result["completion_s"]) == pytest.approx((2.0, 4.0))
    assert result["completion_bound_s"] == pytest.approx(4.0)
    with np.load(plan) as written:
        assert written["result_end_s"].max() == pytest.approx(4.0)
