import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAP = ROOT / "tools" / "map"


@pytest.mark.parametrize("tool", ["map", "results"])
def test_what_a_tool_writes_is_up_to_date(tool):
    """The tools write the map of packages and the results in README.md."""
    command = [sys.executable, ROOT / "tools" / tool, "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_each_package_has_a_row_with_the_first_paragraph_of_its_docstring(tmp_path):
    packages = runpy.run_path(str(MAP))["packages"]
    inner = tmp_path / "house" / "room"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text('"""The house: `door` and\nwindows.\n\nMore."""\n')
    (inner / "__init__.py").write_text('"""A room."""\n')
    assert (
        packages(inner.parent) == "Package,Content\n``house``,The house: ``door`` and windows\n``house/room``,A room\n"
    )
    (inner / "__init__.py").write_text("")
    with pytest.raises(ValueError, match="no docstring"):
        packages(inner.parent)
