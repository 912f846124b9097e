import json

from fpga_pool.cmd.sim import OK, WRONG_USAGE, main


def test_all_figures_are_made(tmp_path, capsys):
    options = ["--points", "2", "--scale", "0.05", "--seeds", "0", "--no-pictures", "--out", str(tmp_path)]
    assert main(["figures", "lattice", *options]) == OK
    result = json.loads((tmp_path / "lattice.json").read_text())
    assert [figure["figure"] for figure in result["figures"]] == [3, 4]
    assert all(figure["claims"] for figure in result["figures"])
    assert main(["figures", "lattice", *options, "--also", "makespan"]) == WRONG_USAGE
    assert "makespan" in capsys.readouterr().err
