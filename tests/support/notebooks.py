"""Tutorial notebooks, run and compared.

`python -m support.notebooks` runs those that are stored with their outputs, and stores what they print now.
"""

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from support.pages import SOURCE

TUTORIALS = SOURCE / "tutorials"
TIMEOUT_S = 240


def read(path: Path) -> nbformat.NotebookNode:
    """Return a valid notebook."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def run(notebook: nbformat.NotebookNode, directory: Path) -> None:
    """Run all cells, which then have their outputs."""
    resources = {"metadata": {"path": str(directory)}}
    NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=resources, record_timing=False
    ).execute()


def runs_in_pages(notebook: nbformat.NotebookNode) -> bool:
    """Return whether the build of the documentation runs it, because it has the same outputs on every machine."""
    return notebook.metadata.get("mystnb", {}).get("execution_mode") == "force"


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the text of the outputs of each cell with code."""
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(output: nbformat.NotebookNode) -> str:
    return str(output.text if output.output_type == "stream" else output.data["text/plain"])


def main() -> None:
    """Store outputs."""
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        notebook = read(path)
        if not runs_in_pages(notebook):
            with tempfile.TemporaryDirectory() as directory:
                run(notebook, Path(directory))
            # The version of Python is that of this machine.
            notebook.metadata.language_info = {"name": "python"}
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
