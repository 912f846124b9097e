"""Gangs whose processes are servers of a real Nova, on the libvirt compute: they run once, and nothing is left.

A process counts for what it has drawn when it booted, and tells each number on its console.
"""

import contextlib
import os
import re
import signal
import subprocess
import uuid

import pytest

from fpga_pool.experiments import guest_image
from fpga_pool.experiments.servers import Libvirt
from fpga_pool.experiments.waiting import wait_until
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.gangs import ENDED_GANGS, GangState, MigrationState, ProcessState
from fpga_pool.model.pool.gang_admission import GangRequest

from .test_accelerated import upload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PATIENCE_S = 300.0
HOST = "libvirt-1"
AGENT, SCHEDULER = f"fpga-pool-agent-{HOST}", "fpga-pool-scheduler"
PROJECT = "p1"


@pytest.fixture(scope="module")
def images(all_in_one, admin, tmp_path_factory):
    """Make images of guests that act on a command: `images("count 5 rest 1")` returns the name of one."""
    kernel = guest_image.kernel() or pytest.skip("no kernel with its modules is installed: linux-image-cloud-amd64")
    initrd = guest_image.build_counting(tmp_path_factory.mktemp("counting"))
    parts = {
        "kernel_id": upload(admin, "gang-kernel", kernel, "aki", "aki"),
        "ramdisk_id": upload(admin, "gang-initrd", initrd, "ari", "ari"),
    }

    def make(command):
        name = f"gang-{uuid.uuid4()}"
        # Where much else runs, an emulated timer may be too late for the kernel's check of it, which ends in a panic.
        line = f'console=ttyS0 quiet panic=-1 no_timer_check command="{command}"'
        file = all_in_one.directory / "hello.qcow2"
        upload(admin, name, file, "qcow2", "bare", os_command_line=line, **parts)
        return name

    return make


class Gangs:
    """The gangs of the pool, and what Nova, Placement and libvirt have of them."""

    def __init__(self, cloud, scheduler, admin):
        self.cloud, self.scheduler, self.admin = cloud, scheduler, admin
        self.created = []

    def create(self, processes, usage, image, command=""):
        gang = str(uuid.uuid4())
        request = GangRequest(
            uuid=gang, project_id=PROJECT, user_id="u1", name="counts", processes=processes, runtime_s=600.0,
            cpu_usage=usage, image=image, command=command,
        )  # fmt: skip
        self.scheduler.create_gang(request)
        self.created.append(gang)
        return gang

    def detail(self, gang):
        return self.scheduler.gang(PROJECT, gang)

    def until(self, look, what):
        def heard():
            with contextlib.suppress(ServiceUnavailable):  # the scheduler may just be starting
                return look()

        return wait_until(heard, what, PATIENCE_S)

    def until_all_run(self, gang, state, attempt=1):
        def all_run():
            found = self.detail(gang)
            assert found.gang.state not in ENDED_GANGS, found.gang.reason
            running = {process.state for process in found.processes} == {ProcessState.RUNNING}
            return running and found.gang.state is state and found.gang.attempt == attempt

        self.until(all_run, f"all of gang {gang} run in state {state}")
        servers = self.until(lambda: self.active(gang), f"all servers of {gang} run")
        assert len(servers) == self.detail(gang).gang.processes
        return servers

    def active(self, gang):
        found = self.servers(gang)
        return found if {server["status"] for server in found.values()} == {"ACTIVE"} else {}

    def servers(self, gang):
        """The servers of a gang by the number of their process; there are never two of one."""
        found = {}
        for server in self.admin.compute.get("/servers/detail").json()["servers"]:
            told = server["metadata"]
            if told.get("fpga_pool.gang") == gang:
                index = int(told["fpga_pool.index"])
                assert index not in found, (found[index]["id"], server["id"])
                found[index] = server
        return found

    def finished(self, gang):
        self.until(lambda: self.detail(gang).gang.state in ENDED_GANGS, f"gang {gang} ends")
        detail = self.detail(gang)
        assert detail.gang.state is GangState.FINISHED, detail.gang.reason
        return detail

    def cancel(self, *gangs):
        for gang in gangs:
            with contextlib.suppress(Exception):  # it has ended
                self.scheduler.cancel_gang(PROJECT, gang)
        for gang in gangs:
            self.until(lambda gang=gang: self.detail(gang).gang.state in ENDED_GANGS, f"gang {gang} ends")

    def counted(self, server):
        """What a guest has told so far: its boots, and the numbers that it has counted."""
        body = {"os-getConsoleOutput": {}}
        answer = self.admin.compute.post(f"/servers/{server['id']}/action", json=body, raise_exc=False)
        said = answer.json()["output"] if answer.ok else ""
        born = re.findall(r"^born ([0-9a-f-]{36})", said, re.MULTILINE)
        return born, [int(number) for number in re.findall(r"^counted [0-9a-f-]{36} (\d+)\r?$", said, re.MULTILINE)]

    def until_counted(self, servers, number):
        for server in servers.values():
            self.until(lambda server=server: number in self.counted(server)[1], f"{server['id']} counts to {number}")

    def allocations(self, server):
        return self.admin.adapter("placement", "1.39").get(f"/allocations/{server['id']}").json()["allocations"]

    def virsh(self, *words):
        entrance = Libvirt(self.cloud.directory / "servers").entrance
        done = subprocess.run([*entrance, "virsh", *words], capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    def place(self, server):
        """The pCPU of a server, and whether it has what the foreground leaves, by its hypervisor."""
        pins = re.findall(r"^\s*0\s+(\S+)\s*$", self.virsh("vcpupin", server["id"]), re.MULTILINE)
        shares = re.search(r"cpu_shares\s*:\s*(\d+)", self.virsh("schedinfo", server["id"]))
        return (pins[0] if pins else "", int(shares.group(1)) < 1024 if shares else None)

    def kill(self, *programs):
        for program in programs:
            pid = int((self.cloud.directory / "run" / f"{program}.pid").read_text().split()[0])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self, *programs):
        assert self.cloud.run("restart", *programs).returncode == 0

    def nothing_is_left(self, *servers):
        """No server, no domain, and nothing in Placement."""
        for gang in self.created:
            self.until(lambda gang=gang: not self.servers(gang), f"{gang} has no server")
        for server in servers:
            assert self.allocations(server) == {}
            assert server["id"] not in self.virsh("list", "--all", "--uuid")


@pytest.fixture
def gangs(all_in_one, scheduler, admin):
    if not Libvirt.control_groups():
        pytest.skip("guests cannot be put into control groups here")
    made = Gangs(all_in_one, scheduler, admin)
    yield made
    made.cancel(*made.created)
    for name in (AGENT, SCHEDULER):  # pytest shows it where a test failed
        print(f"--- {name}\n{(all_in_one.directory / 'logs' / f'{name}.log').read_text()[-4000:]}")


def test_a_gang_runs_on_servers_of_its_host_and_ends_with_nothing_left(gangs, images):
    gang = gangs.create(2, 1.0, images("count 40 rest 0.5"), command="solve --steps 100")
    servers = gangs.until_all_run(gang, GangState.FOREGROUND)
    assert set(servers) == {0, 1}
    for index, server in servers.items():
        assert server["name"] == f"fpga-pool-{gang}.1.{index}"
        assert server["OS-EXT-SRV-ATTR:host"] == HOST
        assert server["metadata"]["fpga_pool.processes"] == "2"
        resources = [given["resources"] for given in gangs.allocations(server).values()]
        assert resources == [{"MEMORY_MB": 128, "DISK_GB": 1}]  # of Nova's processors it has none
    places = gangs.until(
        lambda: sorted(found) if "" not in dict(found := list(map(gangs.place, servers.values()))) else None, "pinned"
    )
    assert places == [("0", False), ("1", False)]
    gangs.until_counted(servers, 5)
    detail = gangs.finished(gang)
    assert (detail.gang.attempt, detail.gang.failures) == (1, 0)
    assert detail.gang.cpu_s > 0
    gangs.nothing_is_left(*servers.values())


def test_a_gang_one_of_whose_servers_somebody_deletes_begins_anew_and_is_never_doubled(gangs, images):
    gang = gangs.create(2, 1.0, images("count 1000000 rest 1"))
    before = gangs.until_all_run(gang, GangState.FOREGROUND)
    gangs.admin.compute.delete(f"/servers/{before[0]['id']}")
    after = gangs.until_all_run(gang, GangState.FOREGROUND, attempt=2)
    assert not {server["id"] for server in before.values()} & {server["id"] for server in after.values()}
    assert gangs.detail(gang).gang.failures == 1
    gangs.cancel(gang)
    gangs.nothing_is_left(*before.values(), *after.values())


def test_agent_and_scheduler_that_are_killed_while_servers_are_made_find_each_of_them_again(gangs, images):
    gang = gangs.create(2, 1.0, images("count 60 rest 0.5"))
    gangs.until(lambda: gangs.servers(gang), "Nova has the first server")
    gangs.kill(AGENT, SCHEDULER)
    made = {index: server["id"] for index, server in gangs.servers(gang).items()}
    gangs.restart(AGENT, SCHEDULER)
    servers = gangs.until_all_run(gang, GangState.FOREGROUND)
    assert made.items() <= {index: server["id"] for index, server in servers.items()}.items()
    detail = gangs.finished(gang)
    assert (detail.gang.attempt, detail.gang.failures) == (1, 0)
    gangs.nothing_is_left(*servers.values())


def test_a_gang_runs_behind_another_and_is_swapped_to_the_foreground_where_it_is(gangs, images):
    goes_on, swaps = gangs.create(2, 0.3, images("count 1000000 rest 1")), None
    gangs.until_all_run(goes_on, GangState.FOREGROUND)
    swaps = gangs.create(2, 0.5, images("count 60 rest 0.5"))
    servers = gangs.until_all_run(swaps, GangState.BACKGROUND)
    gangs.until(lambda: {gangs.place(one)[1] for one in servers.values()} == {True}, "it is behind")
    gangs.cancel(goes_on)
    assert gangs.until_all_run(swaps, GangState.FOREGROUND).keys() == servers.keys()
    gangs.until(lambda: {gangs.place(one)[1] for one in servers.values()} == {False}, "it comes first")
    detail = gangs.finished(swaps)
    assert (detail.gang.swaps, detail.gang.migrations, detail.gang.attempt) == (1, 0, 1)
    gangs.nothing_is_left(*servers.values())


def test_a_gang_moves_to_another_processor_and_counts_on(gangs, images):
    forever = images("count 1000000 rest 1")
    goes_on = gangs.create(1, 0.3, forever)
    gangs.until_all_run(goes_on, GangState.FOREGROUND)
    ends = gangs.create(1, 0.9, forever)
    gangs.until_all_run(ends, GangState.FOREGROUND)
    moves = gangs.create(1, 0.5, images("count 120 rest 0.5"))
    [server] = gangs.until_all_run(moves, GangState.BACKGROUND).values()
    [born] = gangs.until(lambda: gangs.counted(server)[0], "it has booted")
    gangs.cancel(ends)
    [moved] = gangs.until_all_run(moves, GangState.FOREGROUND, attempt=2).values()
    assert moved["id"] == server["id"]
    gangs.until_counted({0: moved}, 40)
    boots, numbers = gangs.counted(moved)
    assert boots == [born]
    assert numbers == list(range(1, len(numbers) + 1))
    detail = gangs.finished(moves)
    assert [migration.state for migration in detail.migrations] == [MigrationState.DONE]
    assert detail.gang.failures == 0
    gangs.cancel(goes_on)
    gangs.nothing_is_left(server)


def test_a_gang_with_an_image_that_is_not_there_fails_and_says_why(gangs):
    gang = gangs.create(1, 1.0, "nowhere")
    gangs.until(lambda: gangs.detail(gang).gang.state in ENDED_GANGS, "it fails")
    detail = gangs.detail(gang)
    assert detail.gang.state is GangState.FAILED
    assert "image 'nowhere': 0 active images" in detail.gang.reason
    gangs.nothing_is_left()
