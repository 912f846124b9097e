"""The threat model names tests that exist, in the files that it names."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
PAGE = TESTS.parent / "doc" / "source" / "admin" / "threat-model.rst"
STOPPED = PAGE.read_text().split("What is stopped\n")[1].split("What is not stopped\n")[0]
#: The last cell of each row below the head of the table.
CELLS = [row.rsplit("\n     - ", 1)[1] for row in re.split(r"\n   \* -", STOPPED)[2:]]


def _named(cell):
    names = re.findall(r"``([^`]+)``", cell)
    return [name for name in names if "/" in name], [name for name in names if "/" not in name]


def test_each_attack_has_a_test():
    assert len(CELLS) > 40
    assert [cell for cell in CELLS if not _named(cell)[0]] == []


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: (_named(cell)[1] or _named(cell)[0])[0])
def test_the_tests_of_an_attack_exist(cell):
    places, names = _named(cell)
    files = [
        file
        for place in places
        for file in ([TESTS / place] if place.endswith(".py") else [*(TESTS / place).rglob("test_*.py")])
    ]
    code = "".join(file.read_text() for file in files)
    assert [name for name in names if not re.search(rf"^def {name}\(", code, re.MULTILINE)] == []
    assert "def test_" in code
