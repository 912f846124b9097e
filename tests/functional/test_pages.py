"""The commands of the documentation, read from its pages and run in a shell, print the documented output."""

import re
import shutil
import sys

import pytest

from support.pages import PAGES_TEST, ROOT, pages, path_of, row_of, run, table

ROWS = table()
#: The commands of each page that are run here.
SHOWN = {
    name: [one for one in shown if (row := row_of(name, one, ROWS)) and row.test == PAGES_TEST]
    for name, shown in pages().items()
}
#: Pages that are also tested without `--long`.
SHORT = ("README", "user/quick-start")
#: Input files that the pages use.
INPUTS = {"a.bin": 3_000_000, "b.bin": 6_000_000, "c.bin": 1_000_000}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name, shown in SHOWN.items() if shown],
)
def test_a_page_shows_what_its_commands_print(name, tmp_path):
    if any(one.text.startswith("curl ") for one in SHOWN[name]) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    for file, size in INPUTS.items():
        (tmp_path / file).write_bytes(bytes(size))
    for file in ("doc", "tests", "README.md", "LICENSE"):
        (tmp_path / file).symlink_to(ROOT / file)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    pool = any(re.search(r"fpga-pool(-standalone)?( |$)", one.text) for one in SHOWN[name])
    assert run(path_of(name), tmp_path, SHOWN[name], pool=pool) == []
