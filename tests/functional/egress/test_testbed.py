"""The testbed of the makespan paper, section 5.1, at a twentieth of its size: the experiment, not its figures."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import netns

from support.servers.process import processes_naming
from support.testbed.cases import Nic
from support.testbed.experiment import remove_left_over, what_is_missing
from support.testbed.network import switched_network
from support.waiting import wait_until

SCALE = 0.05
TIMEOUT_S = 300.0
MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def whole_machine():
    if lack := what_is_missing():
        pytest.skip(lack)


@pytest.fixture
def testbed(tmp_path) -> Iterator:
    """Start the experiment; it is killed at the end if it still runs."""
    begun = []

    def start(*words: str) -> subprocess.Popen:
        command = [
            sys.executable,
            "-P",
            "-m",
            "fpga_pool.cli.sim.main",
            "testbed",
            "--json",
            "--out",
            str(tmp_path / "out"),
        ]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        begun.append(subprocess.Popen([*command, "--scale", str(SCALE), *words], text=True, **output))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def networks() -> set[str]:
    return {name for name in netns.listnetns() if re.match(r"fpt\d", name)}


def places() -> set[Path]:
    return set(MEMORY.glob("fpga-pool-testbed-*"))


def test_word_count_is_planned_sent_and_computed_as_predicted(testbed, tmp_path):
    before = networks(), places()
    process = testbed("--case", "wordcount", "--policies", "makespan,ljf")
    said, complaints = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, complaints
    (case,) = json.loads(said)["cases"]
    # A twentieth of 1800 MB over both ingress links, 1500 Mbit/s on the wire; 1448 of 1514 bytes are payload.
    assert case["optimum_s"] == pytest.approx(90e6 * 8 / (1500e6 * 1448 / 1514))
    ours, ljf = case["variants"]
    assert (ours["policy"], ours["control"], ljf["policy"]) == ("makespan", "tc", "ljf")
    assert ours["fluid_s"] == pytest.approx(case["optimum_s"])
    assert ljf["fluid_s"] == pytest.approx(1.5 * case["optimum_s"])
    assert (ljf["fluid_percent"], ljf["paper_percent"]) == (pytest.approx(100 / 3), 33.72)
    for variant in (ours, ljf):
        (run,) = variant["runs"]
        assert run["planned_s"] == pytest.approx(variant["fluid_s"])
        # Not before the bytes can have arrived, less the bursts of HTB: 1 MiB at each of three places.
        assert run["makespan_s"] > variant["fluid_s"] - 3 * 2**20 * 8 / 500e6
    # Our policy assigns two small inputs to the slow responder, LJF the largest one.
    responders = [job["responder"] for job in ours["runs"][0]["jobs"]]
    assert (sorted(responders[:3]), responders[3]) == (["responder-1", "responder-2", "responder-2"], "responder-1")
    assert [job["responder"] for job in ljf["runs"][0]["jobs"]] == ["responder-1"] * 3 + ["responder-2"]
    assert json.loads((tmp_path / "out" / "testbed.json").read_text())["cases"] == [case]
    assert "is ready" in (tmp_path / "out" / "wordcount" / "pool-tc" / "responder-1.log").read_text()
    assert (networks() - before[0], places() - before[1]) == (set(), set())


def test_what_a_killed_experiment_leaves_is_gone_with_the_next(testbed):
    before = networks(), places()
    process = testbed("--case", "wordcount", "--policies", "ect")
    wait_until(lambda: process.poll() is not None or places() - before[1], "the experiment has begun")
    assert process.poll() is None, process.communicate()
    (place,) = places() - before[1]
    agents = f"{place}/pool-tc/requester-4.conf"
    wait_until(lambda: process.poll() is not None or processes_naming(agents), "its agents run")
    assert process.poll() is None, process.communicate()
    left = networks() - before[0]
    os.kill(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT_S)
    wait_until(lambda: not processes_naming(str(place)), "its processes end with it")
    assert left <= networks()
    with switched_network([Nic(host="h", egress_bps=1e9, ingress_bps=1e9)]):
        pass
    assert left & networks() == set()
    assert place in places()
    remove_left_over()
    assert place not in places()
