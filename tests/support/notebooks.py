"""Runs tutorial notebooks and reads their outputs.

`python -m support.notebooks` runs the notebooks that are stored with their outputs, and stores the new outputs.
"""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from support.pages import SOURCE

TUTORIALS = SOURCE / "tutorials"
TIMEOUT_S = 240


def read(path: Path) -> nbformat.NotebookNode:
    """Read and validate a notebook."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def run(notebook: nbformat.NotebookNode, directory: Path) -> None:
    """Run all cells, and store their outputs in the notebook."""
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources, record_timing=False
    ).execute()


def runs_in_pages(notebook: nbformat.NotebookNode) -> bool:
    """Return whether the documentation's build runs a notebook, because its outputs are the same on every machine."""
    return notebook.metadata.get("mystnb", {}).get("execution_mode") == "force"


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the text of the outputs of each cell with code."""
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(output: nbformat.NotebookNode) -> str:
    return str(output.text if output.output_type == "stream" else output.data["text/plain"])


def main() -> None:
    """Run the notebooks that are stored with outputs, and store these."""
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        notebook = read(path)
        if not runs_in_pages(notebook):
            with tempfile.TemporaryDirectory() as directory:
                run(notebook, Path(directory))
            # Leave out the version of Python, which depends on the machine.
            notebook.metadata.language_info = {"name": "python"}
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
