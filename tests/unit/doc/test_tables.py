"""Tables of the documentation that are CSV files."""

import csv
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "doc" / "source"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.csv")), ids=lambda path: path.name)
def test_every_row_has_a_cell_for_each_column(path):
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert [row for row in rows if len(row) != len(header)] == []


def test_every_convention_names_a_test_that_there_is():
    with (SOURCE / "contributor" / "conventions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["Here"] for row in rows} <= {"yes", "no"}
    tests = SOURCE.parents[1] / "tests"
    assert [row["Convention"] for row in rows if row["Here"] == "yes" and not (tests / row["Test"]).is_file()] == []
