"""The tutorial notebooks run from the first cell to the last, and are stored without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = Path(__file__).parents[2] / "doc" / "source" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))
TIMEOUT_S = 240


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_stored_without_outputs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in cells if cell.outputs or cell.execution_count] == []
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources).execute()
    assert any(cell.outputs for cell in cells)


def test_every_notebook_is_in_the_documentation():
    index = (TUTORIALS / "index.rst").read_text()
    assert NOTEBOOKS
    assert [path.stem for path in NOTEBOOKS if f"   {path.stem}\n" not in index] == []
