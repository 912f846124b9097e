import json

import pytest

import fpga_pool
from fpga_pool.cli.sim.main import FAILED, WRONG_USAGE, main
from support.testbed import report
from support.testbed.cases import COMPETITION, WORDCOUNT, optimum_s, predict
from support.testbed.experiment import Comparison, Variant
from support.testbed.measure import Control, JobTimes, Run


@pytest.fixture
def compared():
    """Return a function that makes a comparison, as if each variant had been measured with the given makespans."""

    def make(case, measured):
        variants = [
            Variant(
                policy=policy,
                control=control,
                prediction=predict(case, policy),
                runs=tuple(
                    Run(
                        policy=policy,
                        control=control,
                        planned_s=makespan_s,
                        makespan_s=makespan_s,
                        jobs=(
                            JobTimes(
                                requester="requester-1",
                                responder="responder-1",
                                staged_s=1.0,
                                started_s=1.0,
                                finished_s=makespan_s,
                            ),
                        ),
                        busy=0.5,
                    )
                    for makespan_s in makespans_s
                ),
            )
            for (policy, control), makespans_s in measured.items()
        ]
        return Comparison(case=case, lower_bound_s=1.0, optimum_s=optimum_s(case.problem()), variants=tuple(variants))

    return make


def test_shows_measured_fluid_and_paper_side_by_side(compared, capsys):
    comparison = compared(WORDCOUNT, {("ect", Control.TC): (10.0, 10.4), ("sjf", Control.TC): (12.75,)})
    plain = report.plain(comparison)
    ours, sjf = plain["variants"]
    assert ours["measured_s"] == pytest.approx(10.2)
    assert ours["error_percent"] == pytest.approx(100 * (10.2 / 10.0376 - 1), abs=0.01)
    assert (ours["measured_percent"], ours["paper_percent"]) == (None, None)
    assert sjf["measured_percent"] == pytest.approx(20.0)  # 1 - 10.2 / 12.75
    assert sjf["fluid_percent"] == pytest.approx(20.0)
    assert sjf["paper_percent"] == 19.56
    assert json.loads(json.dumps(plain))["optimum_s"] == plain["optimum_s"]
    report.show({"cases": [plain]})
    shown = capsys.readouterr().out
    for text in ("300/300/300/900 MB", "10.20", "12.75", "19.56", "fluid optimum 10.04 s"):
        assert text in shown


def test_compares_a_plan_without_rate_control_with_fair_shares(compared):
    comparison = compared(COMPETITION, {("ect", Control.TC): (10.0,), ("ect", Control.NONE): (15.0,)})
    _, uncontrolled = report.plain(comparison)["variants"]
    assert uncontrolled["fluid_s"] == pytest.approx(15.056, abs=1e-3)
    assert uncontrolled["paper_percent"] is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--scale", "2"], "scale: expected more than 0 and at most 1, got 2"),
        (["--scale", "nan"], "scale: expected more than 0 and at most 1, got nan"),
        (["--runs", "0"], "--runs: expected 1 or more, got 0"),
        (["--policies", "ect,nothing"], "policy 'nothing': no such batch policy"),
        (["--case", "nothing"], "invalid choice: 'nothing'"),
        (["--control", "none"], "invalid choice: 'none'"),
    ],
)
def test_says_what_is_wrong_with_the_command_line(arguments, complaint, capsys):
    assert main(["testbed", *arguments]) == WRONG_USAGE
    assert complaint in capsys.readouterr().err


def test_an_installed_package_says_that_the_testbed_needs_the_source_tree(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fpga_pool, "__file__", str(tmp_path / "fpga_pool" / "__init__.py"))
    assert main(["testbed", "--scale", "0.1"]) == FAILED
    assert capsys.readouterr().err == (
        "fpga-pool-sim testbed: it starts servers: run it from a source checkout of fpga_pool\n"
    )
