"""The demonstration as a presentation: its acts on an embedded pool."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fpga_pool.client import Client
from fpga_pool.experiments.acts import ACTS
from support.servers.process import processes_naming
from support.waiting import SOON_S, wait_until

PAGE = Path(__file__).parents[2] / "doc" / "source" / "demo.rst"

#: One file is enough here, as another test covers the computation over many.
BEGIN = "import sys; from fpga_pool.experiments import acts, demo; demo.FILES = 1"
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
END = "sys.exit(demo.main(sys.argv[1:]))"

#: Texts in the lines of each act that has succeeded.
SHOWN = {
    "a virtual machine takes a slot": ("leased to the instance", "was evicted, and computed as attempt", "are right"),
    "a gang comes to the foreground": ("was swapped to the foreground", "nothing was done twice"),
    "the pool is killed": ("SIGKILL to", "started again", "ended in the same attempt", "results are right"),
    "nothing is left": ("finds no stale lease", "accounted"),
}


def demo(*words, change="pass"):
    """Run the demonstration for one round with one policy, in 80 columns, after executing `change`."""
    command = [sys.executable, "-c", f"{BEGIN}; {change}; {END}", "--policy", "ect", "--rounds", "1", *words]
    columns = os.environ | {"COLUMNS": "80"}
    return subprocess.run(command, env=columns, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.long
def test_acts_end_as_they_should_and_are_those_of_its_page(tmp_path):
    found = tmp_path / "demo.json"
    done = demo("--output", tmp_path / "demo", "--json", found)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    numbers = json.loads(found.read_text())
    assert [(row["policy"], row["right"], row["jobs"]) for row in numbers["policies"]] == [("ect", 3, 3)]
    acts = numbers["acts"]
    said = {act["name"]: " ".join(act["lines"]) for act in acts}
    assert (list(said), len(acts)) == (list(SHOWN), ACTS)
    assert [(name, word) for name, words in SHOWN.items() for word in words if word not in said[name]] == []
    assert "4 of 4 acts ended as they should." in done.stdout
    assert re.search(
        r"^Watch it on http://127\.0\.0\.1:\d+/dashboard/#/schedule$", COLOURS.sub("", done.stdout), re.MULTILINE
    )
    page = PAGE.read_text()
    for act in acts:
        assert act["ok"]
        for line in (act["name"], *(f"    {line}" for line in act["lines"])):
            assert f"{line}\n" in done.stdout, "a line does not fit 80 columns"
        assert f"\n    {act['name']}\n" in page, "the page of the demo shows other acts"


@pytest.mark.long
def test_over_a_file_of_ones_own_it_prints_the_digest_and_its_page_stays_until_it_is_interrupted(tmp_path):
    """Its page stays only if it runs on a terminal, so it does here."""
    file = tmp_path / "mine.txt"
    file.write_text("four words of mine\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    command = [sys.executable, "-m", "fpga_pool.experiments.demo", "--policy", "ect", file]
    terminal, end = os.openpty()
    # Processes in the background of a shell without job control ignore SIGINT, which is inherited.
    demo = subprocess.Popen(
        ["env", "--default-signal=INT", *command, "--output", tmp_path / "out"], stdin=end, stdout=end, stderr=end
    )
    os.close(end)
    try:
        said, page = "", None
        while page is None:
            piece = os.read(terminal, 4096).decode(errors="replace")
            assert piece, said
            said = COLOURS.sub("", said + piece)
            page = re.search(r"(http://\S+)/dashboard/#/schedule/batch/(\S+)\s", said.partition("Where")[2])
        lines = [line.strip() for line in said.splitlines()]
        assert lines[lines.index("wordcount of mine.txt:") + 1] == "4"
        with Client(page[1]) as client:
            (job,) = (job for job in client.jobs(page[2]) if job.function == "sha256")
        assert lines[lines.index(digest) + 1] == f"on {job.slot}"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(180) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(terminal)


def test_ctrl_c_ends_it_in_one_line_and_its_pool_with_it(tmp_path):
    """More interrupts arrive while it ends, until it has exited."""
    command = [sys.executable, "-m", "fpga_pool.experiments.demo", "--policy", "ect", "--output", tmp_path / "out"]
    with subprocess.Popen(
        ["env", "--default-signal=INT", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        log = tmp_path / "out" / "ect" / "pool" / "pool.log"
        wait_until(log.exists, "its pool starts")
        until_s = time.monotonic() + SOON_S
        while demo.poll() is None:
            assert time.monotonic() < until_s
            demo.send_signal(signal.SIGINT)
            time.sleep(0.02)
        said = demo.stdout.read()
    assert demo.returncode == 130
    assert said.splitlines()[-1] == "tools/demo: interrupted"
    assert "Traceback" not in said
    wait_until(lambda: not processes_naming(str(tmp_path)), "its pool has ended")


@pytest.mark.long
def test_an_act_that_does_not_end_as_it_should_is_told_and_fails(tmp_path):
    """The expected results are altered, so that all jobs have wrong results."""
    done = demo("--output", tmp_path / "demo", change="acts.encrypted = lambda data, header: b''")
    assert done.returncode == 1
    assert "job batch-0-0 has a wrong result" in done.stdout
    assert "0 of 4 acts ended as they should." in done.stdout
