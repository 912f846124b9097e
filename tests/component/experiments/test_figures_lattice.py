import json

from fpga_pool.cli.sim.main import OK, WRONG_USAGE, main
from fpga_pool.experiments.figures import lattice
from fpga_pool.experiments.figures.figure import Settings


def test_all_figures_are_made(tmp_path, capsys):
    options = ["--points", "2", "--scale", "0.05", "--seeds", "0", "--no-pictures", "--out", str(tmp_path)]
    assert main(["figures", "lattice", *options]) == OK
    result = json.loads((tmp_path / "lattice.json").read_text())
    assert [figure["figure"] for figure in result["figures"]] == [3, 4, 5]
    assert all(figure["claims"] for figure in result["figures"])
    assert main(["figures", "lattice", *options, "--also", "makespan"]) == WRONG_USAGE
    assert "makespan" in capsys.readouterr().err


def test_no_policy_is_below_the_optimum_of_a_few_tasks():
    rows = list(lattice.small_measure(lattice.PANEL, 5, 0, Settings(seeds=(0,), scale=0.05)))
    assert rows[0].series == lattice.SOLVED
    assert all(row.value >= 1 - 1e-6 for row in rows)
    assert {"lattice_plus", "lattice", "heft", "fifo"} <= {row.series for row in rows}
