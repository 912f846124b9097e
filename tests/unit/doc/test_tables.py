"""The tables of the documentation: the CSV files, and the table of figures of the makespan paper."""

import csv
import re
import tomllib
from pathlib import Path

import pytest

from support.pages import ROOT, path_of

SOURCE = Path(__file__).parents[3] / "doc" / "source"
FOUND = {
    (row["figure"], row["claim"], row["curve"]): row["found"]
    for row in tomllib.loads((ROOT / "tests" / "figures" / "makespan.toml").read_text())["range"]
}
#: For each row of the table: its figure, its claims, and the curves of the paper's algorithm.  Ours are `makespan`.
ROWS = {
    "2, improvement over SJF, word count": (2, "wordcount-over-sjf", "paper's"),
    "2, over LJF, word count": (2, "wordcount-over-ljf", "paper's"),
    "2, over SJF, DNN": (2, "dnn-over-sjf", "paper's"),
    "2, over LJF, DNN": (2, "dnn-over-ljf", "paper's"),
    "3a, over SJF, with 40": (3, "compute-over-sjf-at-40 compute-largest-over-sjf", "cim"),
    "3a, makespan over the bound": (3, "compute-near-bound", "cim mean, cim worst"),
    "3a, largest over least": (3, "compute-flat-in-requesters", "cim"),
    "3a, LJF over SJF": (3, "compute-ljf-over-sjf", "ljf"),
    "3b, makespan with 20": (3, "network-knee-responders", "nim"),
    "3b, makespan with 150": (3, "network-knee-requesters", "nim"),
    "3b, over the bound": (3, "network-at-bound", "nim"),
    "3b, over SJF": (3, "network-gain-grows", "nim first, nim last"),
    "3b, LJF over SJF": (3, "network-ljf-over-sjf", "ljf"),
    "3c, over SJF": (3, "joint-over-sjf-at-350", "ncjm"),
    "3c, over LJF": (3, "joint-over-ljf-at-350", "ncjm"),
    "3c, makespan over the sum": (3, "joint-less-than-sum", "ncjm"),
    "3c, over the bound": (3, "joint-near-bound", "ncjm mean, ncjm worst"),
    "4, correlation": (4, "compute-linear network-linear joint-linear", "cim, nim, ncjm"),
    "5a, more": (5, "compute-throughput-over-sjf", "cim least, cim most"),
    "5b, the same": (5, "network-throughput-over-sjf", "nim least, nim most"),
    "5c, the same": (5, "joint-throughput-over-sjf", "ncjm least, ncjm most"),
    "5a, b, c, more": (
        5,
        "compute-throughput-over-ljf network-throughput-over-ljf joint-throughput-over-ljf",
        "cim most, nim most, ncjm most",
    ),
    "6, over SJF": (6, "network-gap-to-sjf", "waves least, waves most"),
    "6, the same": (6, "network-and-both-gap-to-sjf", "waves least, waves most"),
    "7, six groups, average": (7, "six-groups-average", "nim"),
    "7, six groups, makespan": (7, "six-groups-makespan", "nim"),
    "7, ten groups": (7, "groups-cost-makespan", "nim"),
    "8, makespan": (8, "estimates-cost", "cim"),
}
_ROW = re.compile(r"   \* - (\d[abc]?, .*)\n(?: {7}.*\n)*     - .*\n     -(.*)\n     -(.*)\n")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.csv")), ids=lambda path: path.name)
def test_every_row_has_a_cell_for_each_column(path):
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert [row for row in rows if len(row) != len(header)] == []


def test_every_convention_names_a_test_that_there_is():
    with (SOURCE / "contributor" / "conventions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["Here"] for row in rows} <= {"yes", "no"}
    named = {row["Convention"]: row["Test"].split() for row in rows if row["Here"] == "yes"}
    assert [name for name, tests in named.items() if not tests or not all(map(is_test, tests))] == []


def is_test(name):
    """Return whether a test with this name (path::function, below `tests`) exists."""
    path, _, function = name.partition("::")
    file = ROOT / "tests" / path
    return file.is_file() and re.search(rf"^def {function}\(", file.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("name", ["unit/doc/test_tables.py", "unit/doc/test_tables.py::test_no", "no.py::test_no"])
def test_a_test_that_is_not_there_is_found(name):
    assert not is_test(name)
    assert is_test("unit/doc/test_tables.py::test_a_test_that_is_not_there_is_found")


def test_every_row_of_the_makespan_paper_is_tried():
    names = [row[1] for row in _ROW.finditer(path_of("algorithms/makespan-figures").read_text())]
    assert [name for name in names if sum(map(name.startswith, ROWS)) != 1] == []
    assert len(names) == len(ROWS)


@pytest.mark.parametrize("begins", ROWS)
def test_a_row_has_the_values_to_which_tests_of_figures_hold_it(begins):
    figure, claims, curves = ROWS[begins]
    page = path_of("algorithms/makespan-figures").read_text()
    (row,) = [row for row in _ROW.finditer(page) if row[1].startswith(begins)]
    names = curves.split(", ")
    pairs = [(claim, curve) for claim in claims.split() for curve in names]
    if len(claims.split()) == len(names):
        pairs = list(zip(claims.split(), names, strict=True))
    for cell, ours in ((row[2], False), (row[3], True)):
        shown = re.findall(r"\d+(?:\.\d+)?", cell)
        if not shown:
            continue
        found = [FOUND[figure, claim, re.sub(r"^\S+", "makespan", curve) if ours else curve] for claim, curve in pairs]
        assert shown == [f"{value:.{len(text.partition('.')[2])}f}" for text, value in zip(shown, found, strict=True)]
