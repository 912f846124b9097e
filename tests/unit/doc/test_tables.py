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
