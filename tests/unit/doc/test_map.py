import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAP = ROOT / "tools" / "map"


def test_the_map_of_packages_is_up_to_date():
    checked = subprocess.run([sys.executable, MAP, "--check"], capture_output=True, text=True, timeout=60, check=False)
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
