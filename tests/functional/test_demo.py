"""The demonstration as a show: its acts on an embedded pool."""

import json
import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "doc" / "source" / "demo.rst"


#: One file is enough: what is computed over many is in another test.
BEGIN = "import sys; from fpga_pool.experiments import acts, demo; demo.FILES = 1"
END = "sys.exit(demo.main(sys.argv[1:]))"


def demo(*words, change="pass"):
    """Run the demonstration under one policy, in 80 columns, perhaps with a part of it changed."""
    command = [sys.executable, "-c", f"{BEGIN}; {change}; {END}", "--policy", "ect", *words]
    columns = os.environ | {"COLUMNS": "80"}
    return subprocess.run(command, env=columns, capture_output=True, text=True, timeout=280, check=False)


def test_acts_end_as_they_should_and_are_those_of_its_page(tmp_path):
    found = tmp_path / "demo.json"
    done = demo("--output", tmp_path / "demo", "--json", found)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    numbers = json.loads(found.read_text())
    (row,) = numbers["policies"]
    assert (row["policy"], row["right"], row["jobs"]) == ("ect", 3, 3)
    acts = numbers["acts"]
    assert len(acts) == 4
    assert "4 of 4 acts ended as they should." in done.stdout
    page = PAGE.read_text()
    for act in acts:
        assert act["ok"]
        for line in (act["name"], *(f"    {line}" for line in act["lines"])):
            assert f"{line}\n" in done.stdout, "a line does not fit 80 columns"
        assert f"\n    {act['name']}\n" in page, "the page of the demo shows other acts"


def test_an_act_that_does_not_end_as_it_should_is_told_and_fails(tmp_path):
    """What is expected of jobs is made wrong, so that their results are."""
    done = demo("--output", tmp_path / "demo", change="acts._encrypted = lambda data: b''")
    assert done.returncode == 1
    assert "job batch-0-0 has a wrong result" in done.stdout
    assert "0 of 4 acts ended as they should." in done.stdout
