"""The network between one agent and all other processes is cut, and restored."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fpga_pool.model.objects.pool import JobState, SlotState
from support.servers import RabbitMQ
from support.waiting import wait_until

SHORT_S = 2.0
#: States of a job that has begun to compute.
BEGUN = {JobState.RUNNING, JobState.RESULT_HELD, JobState.COMPLETED}


@dataclass(frozen=True)
class Cable:
    """A bridge of this machine, and one host at it, which is a network namespace."""

    #: Name of the namespace and of the bridge; with a "p" appended, of the host's port at the bridge.
    name: str
    machine_address: str
    host_address: str

    @contextlib.contextmanager
    def laid(self) -> Iterator["Cable"]:
        inside = f"-n {self.name}"
        try:
            _ip(f"netns add {self.name}")
            _ip(f"link add {self.name} type bridge")
            _ip(f"link add {self.name}p type veth peer name eth0 netns {self.name}")
            _ip(f"link set {self.name}p master {self.name} up")
            _ip(f"address add {self.machine_address}/30 dev {self.name}")
            _ip(f"link set {self.name} up")
            _ip(f"{inside} link set lo up")
            _ip(f"{inside} address add {self.host_address}/30 dev eth0")
            _ip(f"{inside} link set eth0 up")
            yield self
        finally:
            for words in (f"netns del {self.name}", f"link del {self.name}p", f"link del {self.name}"):
                with contextlib.suppress(AssertionError):  # it was not created, or has gone with its namespace
                    _ip(words)

    def cut(self) -> None:
        """Drop all packets in both directions, without errors at either end."""
        self._set_port("disabled")

    def join(self) -> None:
        self._set_port("forwarding")

    def _set_port(self, state: str) -> None:
        subprocess.run(["bridge", "link", "set", "dev", f"{self.name}p", "state", state], check=True, timeout=30)


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"ip {words}: {done.stderr}"


@pytest.fixture(scope="module")
def cable():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if absent := [tool for tool in ("ip", "bridge") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(absent)} (iproute2)")
    # Reserved for benchmarks of network devices (RFC 2544), so they are not routed.
    net = f"198.19.{100 + os.getpid() % 100}"
    with Cable(f"fpo{os.getpid()}", f"{net}.1", f"{net}.2").laid() as cable:
        yield cable


@pytest.fixture(scope="module")
def scene(run_pool, run_server, servers_directory, cable, mariadb):
    """A pool whose agent node-2 is at the far end of the cable."""
    for broker in run_server(RabbitMQ(servers_directory / "far", ("127.0.0.1", cable.machine_address))):
        far = {
            "DEFAULT": {"transport_url": broker.url.replace("127.0.0.1", cable.machine_address)},
            "agent": {"data_address": cable.host_address},
        }
        with run_pool(
            broker,
            mariadb.new_database(),
            agents=2,
            own={"node-2": far},
            launchers={"node-2": ["ip", "netns", "exec", cable.name]},
        ) as scene:
            yield scene


@pytest.mark.timeout(600)
def test_a_short_cut_displaces_nothing(scene, cable):
    # Before: 2 jobs compute on each host, 2 wait there.
    work = scene.begin_twice_full(seconds=2.0)
    places = {job.uuid: job.host for job in work.jobs()}

    cable.cut()
    time.sleep(SHORT_S)
    cable.join()

    # After: each job was done where it was planned, in its first attempt.
    work.finish()
    assert work.attempts() == {1}
    assert {job.uuid: job.host for job in work.jobs()} == places
    assert not scene.hosts_were_lost()


@pytest.mark.timeout(600)
def test_jobs_of_a_host_that_is_cut_off_for_long_are_done_elsewhere_and_its_reports_come_too_late(scene, cable):
    # Before: 2 jobs compute on each host, 2 wait there.
    work = scene.begin_twice_full(seconds=2.5)
    far = {job.uuid for job in work.jobs() if job.host == "node-2"}
    assert len(far) == 4
    assert scene.alive() == {"node-1": True, "node-2": True}

    cable.cut()
    wait_until(lambda: scene.alive() == {"node-1": True, "node-2": False}, "node-2 is lost")
    wait_until(
        lambda: any(job.state in BEGUN and job.attempt == 2 for job in work.jobs()),
        "jobs of node-2 compute elsewhere",
    )
    # node-2 has computed all four, as it had 5 s of work and was lost after that.  It reports them now.
    cable.join()

    # After: the reports of node-2 are ignored; its jobs are done on node-1, and nothing of them remains on node-2.
    work.finish()
    assert {job.uuid: (job.host, job.attempt) for job in work.jobs()} == {
        job.uuid: ("node-1", 2 if job.uuid in far else 1) for job in work.jobs()
    }
    wait_until(lambda: scene.alive() == {"node-1": True, "node-2": True}, "node-2 is back")
    wait_until(lambda: scene.held("node-2") == set(), "node-2 has forgotten the jobs")
    free = {SlotState.EMPTY, SlotState.READY}
    wait_until(lambda: set(scene.slot_states("node-2")) <= free, "its slots are free")
    later = scene.begin([0.5] * 8)
    later.finish()
    assert {job.host for job in later.jobs()} == {"node-1", "node-2"}
