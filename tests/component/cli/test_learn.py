import json

import pytest

from fpga_pool.cli.learn import main
from fpga_pool.conf.learned import read_network

SMALL = ["--processes", "1", "--tasks", "40"]


def test_trains_draws_exports_and_evaluates(tmp_path, capsys):
    out = tmp_path / "training"
    few = ["--runs", "1", "--generations", "1", "--validation", "1", "--pairs", "1", "--worlds", "1"]
    assert main(["train", "--out", str(out), *few, *SMALL]) == 0
    assert "generation 1" in capsys.readouterr().out
    assert (out / "training.png").read_bytes().startswith(b"\x89PNG")
    weights = tmp_path / "mine.npz"
    assert main(["export", str(out), str(weights)]) == 0
    assert read_network(weights).weights.tobytes() == read_network(out / "weights.npz").weights.tobytes()
    which = ["--suites", "overload", "--stacks", "ect,learned,nan_weights", "--worlds", "2", "--seeds", "1"]
    assert main(["evaluate", *which, "--weights", str(weights), "--json", *SMALL]) == 0
    [suite] = json.loads(capsys.readouterr().out)
    assert suite["suite"] == "overload"
    assert suite["bounds"]["bound_per_minute"] > 0
    assert set(suite["ratios"]["learned"]) == {"ect", "best_heuristic"}
    assert suite["ratios"]["ect"]["ect"]["mean_response_s"]["ratio"] == 1
    assert main(["evaluate", *which, *SMALL]) == 0
    assert "overload: 2 worlds x 1 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "--stacks", "best"], "--stacks: 'best': no such name; available: ect, "),
        (["evaluate", "--suites", "all"], "--suites: 'all': no such name; available: train, "),
        (["evaluate", "--reference", "nothing"], "--reference: expected one of --stacks, got 'nothing'"),
        (["evaluate", "--weights", "/nowhere"], "weights: /nowhere: "),
        (["export", "/nowhere", "x"], "weights: /nowhere/best.npz: "),
        (["train", "--out", "x", "--generations", "0"], "argument --generations: expected a whole number, 1 or more"),
    ],
)
def test_says_in_one_line_what_is_wrong(capsys, words, message):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
