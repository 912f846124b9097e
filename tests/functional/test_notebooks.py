"""The tutorial notebooks run from the first cell to the last, and print the stored output."""

from copy import deepcopy

import pytest

from support.notebooks import TUTORIALS, printed, read, run, runs_in_pages
from support.pages import agrees

NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path, tmp_path):
    """Notebooks that run when pages are built store no output; in others, varying output is compared by its form."""
    stored = read(path)
    now = deepcopy(stored)
    run(now, tmp_path)
    assert any(printed(now))
    if runs_in_pages(stored):
        assert not any(printed(stored))
        return
    pairs = zip(printed(stored), printed(now), strict=True)
    assert [(shown, said) for shown, said in pairs if not agrees(shown, said)] == []


def test_every_notebook_is_in_the_documentation():
    index = (TUTORIALS / "index.rst").read_text()
    assert NOTEBOOKS
    assert [path.stem for path in NOTEBOOKS if f"   {path.stem}\n" not in index] == []
