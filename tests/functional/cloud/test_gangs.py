"""Gangs whose processes are servers of a real Nova, on two hosts with one pCPU each: they run once, nothing remains.

Each process draws an id at boot, and prints it with each number that it counts on its console.
"""

import configparser
import contextlib
import functools
import os
import re
import signal
import uuid

import pytest
from oslo_messaging.exceptions import MessagingTimeout

from fpga_pool.model.exceptions import DuplicateId, ServiceUnavailable
from fpga_pool.model.messages.work import GangRequest
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState, MigrationState, ProcessState
from support import guest_image
from support.servers import Libvirt
from support.waiting import wait_until

from .test_accelerated import upload

pytestmark = [pytest.mark.timeout(1800)]

PATIENCE_S = 300.0
HOSTS = ("libvirt-1", "libvirt-2")
AGENTS, SCHEDULER = tuple(f"fpga-pool-agent-{host}" for host in HOSTS), "fpga-pool-scheduler"
PROJECT = "p1"


@pytest.fixture(scope="module")
def images(all_in_one, admin, tmp_path_factory):
    """Make images of guests that execute a command: `images("count 5 rest 1")` returns the name of one."""
    kernel = guest_image.kernel() or pytest.skip("no kernel with its modules is installed: linux-image-cloud-amd64")
    directory = tmp_path_factory.mktemp("counting")
    initrd = guest_image.build_counting(directory)
    parts = {
        "kernel_id": upload(admin, "gang-kernel", without_boot_flag(kernel, directory / "kernel"), "aki", "aki"),
        "ramdisk_id": upload(admin, "gang-initrd", initrd, "ari", "ari"),
    }

    def make(command):
        name = f"gang-{uuid.uuid4()}"
        # On a busy machine an emulated timer may be too late for the kernel's check of it, which ends in a panic.  The
        # kernel also prints warnings of late timers in between the guest's output unless its log level is 0.
        line = f'console=ttyS0 loglevel=0 panic=-1 no_timer_check command="{command}"'
        file = all_in_one.directory / "hello.qcow2"
        upload(admin, name, file, "qcow2", "bare", os_command_line=line, **parts)
        return name

    return make


@pytest.fixture(scope="module")
def forever(images):
    """The name of an image whose guests run until they are ended."""
    return images("count 1000000 rest 0.5")


def without_boot_flag(kernel, copy):
    """Copy a kernel without the signature of boot sectors, which nothing that boots it here checks.

    With it, Nova refuses the kernel as a broken disk when it fetches it on the host to which a guest migrates.
    """
    code = bytearray(kernel.read_bytes())
    assert code[510:512] == b"\x55\xaa"
    code[510:512] = bytes(2)
    copy.write_bytes(code)
    return copy


class Gangs:
    """The gangs of the pool, and their state in Nova, Placement and libvirt."""

    def __init__(self, cloud, scheduler, admin):
        self.cloud, self.scheduler, self.admin = cloud, scheduler, admin
        self.created = []

    def create(self, processes, usage, image, command=""):
        gang = str(uuid.uuid4())
        request = GangRequest(
            uuid=gang, project_id=PROJECT, user_id="u1", name="counts", processes=processes, runtime_s=600.0,
            cpu_usage=usage, image=image, command=command,
        )  # fmt: skip
        self.created.append(gang)
        with contextlib.suppress(DuplicateId):  # it was stored, but the response was lost
            self.scheduler.create_gang(request)
        return gang

    def detail(self, gang):
        return self.scheduler.gang(PROJECT, gang)

    def until(self, look, what):
        def heard():
            with contextlib.suppress(ServiceUnavailable, MessagingTimeout):  # the scheduler may just be starting
                return look()

        return wait_until(heard, what, PATIENCE_S)

    def until_all_run(self, gang, state, attempt=1):
        def all_run():
            found = self.detail(gang)
            assert found.gang.state not in ENDED_GANGS, found.gang.reason
            running = {process.state for process in found.process_list} == {ProcessState.RUNNING}
            return running and found.gang.state is state and found.gang.attempt == attempt

        self.until(all_run, f"all of gang {gang} run in state {state}")
        servers = self.until(lambda: self.active(gang), f"all servers of {gang} run")
        assert len(servers) == self.detail(gang).gang.processes
        return servers

    def active(self, gang):
        found = self.servers(gang)
        return found if {server["status"] for server in found.values()} == {"ACTIVE"} else {}

    def servers(self, gang):
        """Return the servers of a gang by process index; fail if there are two for one process."""
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
        assert detail.gang.state is GangState.COMPLETED, detail.gang.reason
        return detail

    def migrated(self, gang):
        """Wait until the only migration of a gang has succeeded, and return the gang."""

        def look():
            detail = self.detail(gang)
            return detail if [one.state for one in detail.migration_list] == [MigrationState.COMPLETED] else None

        return self.until(look, f"{gang} has migrated once")

    def cancel(self, *gangs):
        for gang in gangs:
            with contextlib.suppress(Exception):  # it has already ended
                self.scheduler.cancel_gang(PROJECT, gang)
        for gang in gangs:
            self.until(lambda gang=gang: self.detail(gang).gang.state in ENDED_GANGS, f"gang {gang} ends")

    def counted(self, server):
        """Return the ids and the numbers that a guest has printed to the console of its current host."""
        body = {"os-getConsoleOutput": {}}
        answer = self.admin.compute.post(f"/servers/{server['id']}/action", json=body, raise_exc=False)
        said = answer.json()["output"] if answer.ok else ""
        lines = re.findall(r"^counted ([0-9a-f-]{36}) (\d+)\r?$", said, re.MULTILINE)
        return list(dict.fromkeys(born for born, _ in lines)), [int(number) for _, number in lines]

    def until_counted(self, servers, number):
        for server in servers.values():
            so_far = functools.partial(self.counted, server)
            self.until(lambda so_far=so_far: max(so_far()[1], default=0) >= number, f"{server['id']}: {number}")

    def allocations(self, server):
        return self.admin.adapter("placement", "1.39").get(f"/allocations/{server['id']}").json()["allocations"]

    def virsh(self, host, *words):
        return self.cloud.virsh(host, *words)

    def place(self, server):
        """Return the pCPU of a server, and whether it runs in the background, as its host's hypervisor reports it."""
        host = host_of(server)
        pins = re.findall(r"^\s*0\s+(\S+)\s*$", self.virsh(host, "vcpupin", server["id"]), re.MULTILINE)
        shares = re.search(r"cpu_shares\s*:\s*(\d+)", self.virsh(host, "schedinfo", server["id"]))
        # The default without tiers is 1024 with version 1 of control groups, 100 with version 2.
        return (pins[0] if pins else "", int(shares.group(1)) < 100 if shares else None)

    def until_at(self, server, processor):
        """Wait until a server is pinned to a pCPU, in the foreground; its agent does that after the start."""
        self.until(lambda: self.place(server) == (processor, False), f"{server['name']} at pCPU {processor}")

    def kill(self, *programs):
        for program in programs:
            pid = int((self.cloud.directory / "run" / f"{program}.pid").read_text().split()[0])
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart(self, *programs):
        assert self.cloud.run("restart", *programs).returncode == 0

    def set_processors(self, *of_each):
        """Set the pCPUs of each host that are reserved for gangs; wait until the scheduler knows them."""
        starts = {host.name: host.boot for host in self.scheduler.hosts()}
        for host, processors in zip(HOSTS, of_each, strict=True):
            file = self.cloud.directory / "etc" / "fpga_pool" / f"{host}.conf"
            settings = configparser.ConfigParser(interpolation=None)
            settings.read(file)
            settings["agent"]["gang_processors"] = processors
            with file.open("w") as told:
                settings.write(told)
        self.restart(*AGENTS)

        def heard():
            return all(host.boot > starts[host.name] for host in self.scheduler.hosts() if host.name in HOSTS)

        self.until(heard, "both agents have started again")

    def nothing_is_left(self, *servers):
        """Assert that there are no servers or domains, and no allocations in Placement."""
        for gang in self.created:
            self.until(lambda gang=gang: not self.servers(gang), f"{gang} has no server")
        for server in servers:
            assert self.allocations(server) == {}
            assert not self.hosts_with(server)

    def hosts_with(self, server):
        """Return the hosts whose libvirtd knows a server."""
        return [host for host in HOSTS if server["id"] in self.virsh(host, "list", "--all", "--uuid")]


def host_of(server):
    return server["OS-EXT-SRV-ATTR:host"]


@pytest.fixture
def gangs(all_in_one, scheduler, admin):
    if not Libvirt.control_groups():
        pytest.skip("guests cannot be put into control groups here")
    made = Gangs(all_in_one, scheduler, admin)
    yield made
    made.cancel(*made.created)
    for name in (*AGENTS, SCHEDULER):  # pytest shows it if a test failed
        print(f"--- {name}\n{(all_in_one.directory / 'logs' / f'{name}.log').read_text()[-4000:]}")


def test_a_gang_runs_on_servers_of_its_hosts_and_ends_with_nothing_left(gangs, images):
    gang = gangs.create(2, 1.0, images("count 60 rest 0.5"), command="solve --steps 100")
    servers = gangs.until_all_run(gang, GangState.FOREGROUND)
    assert set(servers) == {0, 1}
    for index, server in servers.items():
        assert server["name"] == f"fpga-pool-{gang}.1.{index}"
        assert server["metadata"]["fpga_pool.processes"] == "2"
        resources = [given["resources"] for given in gangs.allocations(server).values()]
        assert resources == [{"MEMORY_MB": 128, "DISK_GB": 1}]  # it has no vCPUs of Nova
    on_hosts = {host_of(server): server for server in servers.values()}
    assert set(on_hosts) == set(HOSTS)
    for host, processor in zip(HOSTS, "01", strict=True):
        gangs.until_at(on_hosts[host], processor)
    gangs.until_counted(servers, 5)
    detail = gangs.finished(gang)
    assert (detail.gang.attempt, detail.gang.failures) == (1, 0)
    assert detail.gang.cpu_s > 0
    gangs.nothing_is_left(*servers.values())


def test_a_gang_one_of_whose_servers_somebody_deletes_begins_again_and_is_never_doubled(gangs, forever):
    gang = gangs.create(2, 1.0, forever)
    before = gangs.until_all_run(gang, GangState.FOREGROUND)
    gangs.admin.compute.delete(f"/servers/{before[0]['id']}")
    after = gangs.until_all_run(gang, GangState.FOREGROUND, attempt=2)
    assert not {server["id"] for server in before.values()} & {server["id"] for server in after.values()}
    assert gangs.detail(gang).gang.failures == 1
    gangs.cancel(gang)
    gangs.nothing_is_left(*before.values(), *after.values())


def test_agent_and_scheduler_that_are_killed_while_servers_are_made_find_each_of_them_again(gangs, forever):
    gang = gangs.create(2, 1.0, forever)
    gangs.until(lambda: gangs.servers(gang), "Nova has the first server")
    gangs.kill(*AGENTS, SCHEDULER)
    made = {index: server["id"] for index, server in gangs.servers(gang).items()}
    gangs.restart(*AGENTS, SCHEDULER)
    servers = gangs.until_all_run(gang, GangState.FOREGROUND)
    assert made.items() <= {index: server["id"] for index, server in servers.items()}.items()
    detail = gangs.detail(gang)
    assert (detail.gang.attempt, detail.gang.failures) == (1, 0)
    gangs.cancel(gang)
    gangs.nothing_is_left(*servers.values())


def test_a_gang_runs_behind_another_and_is_swapped_to_the_foreground_where_it_is(gangs, forever):
    goes_on = gangs.create(2, 0.3, forever)
    gangs.until_all_run(goes_on, GangState.FOREGROUND)
    swaps = gangs.create(2, 0.5, forever)
    servers = gangs.until_all_run(swaps, GangState.BACKGROUND)
    gangs.until(lambda: {gangs.place(one)[1] for one in servers.values()} == {True}, "it is behind")
    gangs.cancel(goes_on)
    assert gangs.until_all_run(swaps, GangState.FOREGROUND).keys() == servers.keys()
    gangs.until(lambda: {gangs.place(one)[1] for one in servers.values()} == {False}, "it comes first")
    detail = gangs.detail(swaps)
    assert (detail.gang.swaps, detail.gang.migrations, detail.gang.attempt) == (1, 0, 1)
    gangs.cancel(swaps)
    gangs.nothing_is_left(*servers.values())


@pytest.fixture
def one_host(gangs):
    """Give the first host both pCPUs."""
    gangs.set_processors("0,1", "")
    yield
    gangs.cancel(*gangs.created)
    gangs.set_processors("0", "1")


@pytest.fixture
def moving(gangs, forever):
    """Start a gang behind another one, such that there is room for it on the other host once `make_room` is called.

    Returns the gang, its server before the move, and `make_room`, which returns its server after the move.
    """
    goes_on, ends = (gangs.create(1, usage, forever) for usage in (0.3, 0.9))
    for gang in (goes_on, ends):
        gangs.until_all_run(gang, GangState.FOREGROUND)
    moves = gangs.create(1, 0.5, forever)
    [server] = gangs.until_all_run(moves, GangState.BACKGROUND).values()
    gangs.until_counted({0: server}, 3)

    def make_room():
        gangs.cancel(ends)
        gangs.until_all_run(moves, GangState.FOREGROUND, attempt=2)

        def arrived():
            [moved] = gangs.servers(moves).values()
            return moved if moved["metadata"]["fpga_pool.stage"] == "run" else None

        return gangs.until(arrived, "its server has arrived")

    return moves, server, make_room


def counts_on(numbers):
    """Assert that no number is repeated, and at most one is missing, as a save loses the serial port's buffers."""
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= numbers[-1] - numbers[0], numbers


def test_a_gang_moves_to_another_processor_of_its_host_and_counts_on(gangs, one_host, moving):
    moves, server, make_room = moving
    moved = make_room()
    assert (moved["id"], host_of(moved)) == (server["id"], host_of(server))
    counted = max(gangs.counted(moved)[1])
    gangs.until_counted({0: moved}, counted + 5)
    born, numbers = gangs.counted(moved)
    assert len(born) == 1
    counts_on(numbers)
    assert numbers[0] == 1
    detail = gangs.migrated(moves)
    assert detail.gang.failures == 0
    gangs.cancel(*gangs.created)
    gangs.nothing_is_left(server)


def test_a_gang_moves_to_another_host_and_counts_on(gangs, moving):
    moves, server, make_room = moving
    (born, numbers), allocated = gangs.counted(server), gangs.allocations(server)
    moved = make_room()
    here, there = host_of(server), host_of(moved)
    assert {here, there} == set(HOSTS)
    # It is the same guest, it is nowhere else, and it has the intended place.
    assert moved["id"] == server["id"]
    assert gangs.hosts_with(moved) == [there]
    gangs.until_at(moved, str(HOSTS.index(there)))
    # Its metadata, its tags and Placement agree: its allocation has moved from one compute node to the other.
    told = {name: moved["metadata"][f"fpga_pool.{name}"] for name in ("attempt", "home", "stage", "processor")}
    assert told == {"attempt": "2", "home": there, "stage": "run", "processor": str(HOSTS.index(there))}
    assert moved["tags"] == [f"fpga_pool.{there}"]
    now = gangs.allocations(moved)
    assert not now.keys() & allocated.keys()
    assert [given["resources"] for given in now.values()] == [given["resources"] for given in allocated.values()]
    # The console starts again on another host, but the guest does not: it continues to count with the id of its boot.
    gangs.until(lambda: gangs.counted(moved)[1], "it counts on")
    born_there, numbers_there = gangs.counted(moved)
    assert born_there == born
    counts_on(numbers_there)
    assert numbers_there[0] > numbers[-1]
    detail = gangs.migrated(moves)
    assert (detail.gang.attempt, detail.gang.failures) == (2, 0)
    gangs.cancel(*gangs.created)
    gangs.nothing_is_left(server)


def test_a_gang_whose_migration_fails_half_way_begins_again_and_is_never_doubled(gangs, moving):
    moves, server, _ = moving
    [there] = set(HOSTS) - {host_of(server)}
    socket = gangs.cloud.libvirts[there].socket
    away = socket.rename(socket.with_name("away"))
    try:  # Nova lets the new host prepare itself; then libvirt does not find the other libvirtd
        gangs.cancel(gangs.created[1])
        again = gangs.until_all_run(moves, GangState.FOREGROUND, attempt=3)
    finally:
        away.rename(socket)
    assert again[0]["id"] != server["id"]
    detail = gangs.detail(moves)
    assert detail.gang.failures == 1
    gangs.cancel(*gangs.created)
    gangs.nothing_is_left(server, again[0])


def test_a_gang_with_an_image_that_is_not_there_fails_and_says_why(gangs):
    gang = gangs.create(1, 1.0, "nowhere")
    gangs.until(lambda: gangs.detail(gang).gang.state in ENDED_GANGS, "it fails")
    detail = gangs.detail(gang)
    assert detail.gang.state is GangState.FAILED
    assert "image 'nowhere': 0 active images" in detail.gang.reason
    gangs.nothing_is_left()
