"""The commands that write the tables of the documentation on learned placement, run for some of their rows."""

import csv
from pathlib import Path

import pytest

from fpga_pool.experiments.figures.learned import prediction, tables
from fpga_pool.experiments.figures.learned.runs import Stack, results

PAGES = Path(__file__).parents[3] / "doc" / "source"
WORLD = PAGES / "user" / "worlds" / "paper.toml"


@pytest.fixture
def written(monkeypatch, capsys):
    """Return a function that runs the command of a module and returns its rows: `written(module, *arguments)`."""

    def run(module, *arguments):
        monkeypatch.setattr("sys.argv", [module.__name__, *arguments])
        module.main()
        return list(csv.reader(capsys.readouterr().out.splitlines()))

    return run


def test_errors_of_models_without_training_are_those_on_the_page(written, monkeypatch):
    quick = {name: prediction.MODELS[name] for name in ("mean of the cell", "Gaussian", "matrix factorisation")}
    monkeypatch.setattr(prediction, "MODELS", quick)
    with (PAGES / "algorithms" / "learned" / "prediction.csv").open() as file:
        header, *rows = csv.reader(file)
    assert written(prediction) == [header, *(row for row in rows if row[0] in quick)]


def test_a_table_has_means_and_deviations_of_seeds(written, monkeypatch):
    monkeypatch.setattr(tables, "TABLES", {"baselines": {"ect": ("ect", "ect")}})
    monkeypatch.setattr(tables, "_SETTINGS", {"exclusive": (False, True)})
    rows = written(tables, "baselines", str(WORLD), "--seeds", "2", "--tasks", "20", "--per-minute", "60")
    with (PAGES / "algorithms" / "learned" / "baselines.csv").open() as file:
        assert rows[0] == next(csv.reader(file))
    stack = Stack(cluster="ect", node="ect", corun=False, admission=True)
    first, second = (results(WORLD, stack, seed, load=1.0, tasks=20)["mean_response_s"] for seed in (0, 1))
    ((per_minute, policy, setting, _, mean, *_),) = rows[1:]
    assert (per_minute, policy, setting) == ("60", "``ect``", "exclusive")
    assert mean == f"{(first + second) / 2:.0f} ± {abs(first - second) / 2**0.5:.0f}"
