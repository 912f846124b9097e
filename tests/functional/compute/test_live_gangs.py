"""Gangs whose processes are real guests on two hosts: they run behind others, move with their memory, and end once.

Each process draws an id at boot, and prints it with each number that it counts on its console.  So the consoles prove
that a process has run once: one boot, and each number once, on whichever hosts it ran.
"""

import contextlib

import libvirt
import pytest

from fpga_pool.model.agent.gang_process import Key
from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.flavor import Tier
from fpga_pool.model.objects.gangs import ENDED_GANGS, GangState, MigrationState, ProcessState
from support.deployment import Deployment
from support.waiting import wait_until

from .gang_guests import domains
from .hypervisor import as_installed

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
PATIENCE_S = 300.0
#: The command of a process that computes a little and runs until it is ended.
FOREVER = "count 1000000 rest 1"

pytestmark = pytest.mark.timeout(1200)


class Pool:
    """Two hosts, each with a processor for each process of a gang; both use the same pCPUs of this machine."""

    def __init__(self, deployment, hosts, shared, processes):
        self.deployment, self.shared, self.processes = deployment, shared, processes
        self.hosts = dict(zip(("node-1", "node-2"), hosts, strict=True))
        self.client = deployment.client()

    def create(self, usage, command=FOREVER, runtime_s=600.0):
        return self.client.create_gang(self.processes, runtime_s, usage, command=command).uuid

    def until(self, condition, what):
        def look():
            with contextlib.suppress(ServiceUnavailable):  # guests may occupy this machine completely for a while
                return condition()

        wait_until(look, what, PATIENCE_S)

    def until_state(self, gang, *states):
        self.until(lambda: self.client.gang(gang).gang.state in states, f"gang {gang} is {states}")
        return self.client.gang(gang)

    def until_all_run(self, gang, state):
        def all_run():
            detail = self.client.gang(gang)
            running = {process.state for process in detail.process_list} == {ProcessState.RUNNING}
            return running and detail.gang.state is state

        self.until(all_run, f"all of gang {gang} run in state {state}")
        return self.client.gang(gang)

    def until_counted(self, gang, number):
        """Wait until each process has counted up to this number; return the id of the last boot of each."""

        def counted():
            return all(any(n >= number for _, n in self.shared.counted(gang, i)) for i in range(self.processes))

        self.until(counted, f"gang {gang} counts up to {number}")
        return [self.shared.births(gang, index)[-1] for index in range(self.processes)]

    def is_placed(self, gang, host, tier):
        """Return whether each process of a gang is on this host and in this tier, process N on pCPU N."""
        return self.places(gang) == {index: (host, tier, (index,)) for index in range(self.processes)}

    def finished(self, gang):
        detail = self.until_state(gang, *ENDED_GANGS)
        assert detail.gang.state is GangState.COMPLETED, detail.gang.reason
        return detail

    def cancel(self, *gangs):
        for gang in gangs:
            self.ask_to_end(gang)
        for gang in gangs:
            self.until_state(gang, GangState.CANCELLED)

    def ask_to_end(self, gang):
        self.until(lambda: self.client.cancel_gang(gang), f"gang {gang} is to end")

    def places(self, gang):
        """Return host, tier and pCPUs of each process of a gang, as its hypervisor reports them."""
        found = {}
        for process in self.client.gang(gang).process_list:
            with contextlib.suppress(KeyError):
                tier, pcpus = self.hosts[process.host].tier(Key(gang, process.index, process.attempt))
                found[process.index] = process.host, tier, pcpus
        return found

    def guests(self, gang=""):
        """Return the domains of a gang, or all, on both hosts."""
        return [
            domain
            for host in self.hosts.values()
            for name, domain in domains(host.connection).items()
            if gang in name and "fpga-pool-" in name
        ]

    def running(self, gang):
        """Return how many guests of a gang run, on both hosts."""
        return sum(
            gang in domain.name()
            for host in self.hosts.values()
            for domain in host.connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        )

    def nothing_is_left(self):
        self.until(lambda: not self.guests() and not self.shared.memories(), "no guest and no memory is left")


@pytest.fixture
def processes():
    """The number of processes of each gang."""
    return 2


@pytest.fixture
def pool(rabbitmq, mariadb, gang_hosts, shared, fair_guests, processes, tmp_path):
    own = {
        f"node-{number}": {
            "agent": {
                "libvirt_uri": host.hypervisor.uri,
                "gang_processors": ",".join(map(str, range(processes))),
                "gang_runner": "libvirt",
                "heartbeat_s": 0.5,
            },
            "tiers": {"libvirt_pid_dir": host.pids},
            "runner_libvirt": shared.options,
            "driver_simulated": {"cards": 0},
        }
        for number, host in enumerate(gang_hosts, 1)
    }
    options = {"scheduler": {"gang_migration_s": 5.0, "host_timeout_s": 60.0}}
    launchers = dict.fromkeys(own, as_installed())
    with Deployment(
        tmp_path / "pool", rabbitmq.url, mariadb.new_database(), options=options, own=own, launchers=launchers
    ) as made:
        yield Pool(made, gang_hosts, shared, processes)
        for name in made.names:  # pytest shows it if a test failed
            print(f"--- {name}\n{made.last_lines(name)}")


def lived_once(pool, gang, born):
    """Assert that each process has booted once, and counted every number once, to the end."""
    for index in range(pool.processes):
        assert pool.shared.births(gang, index) == [born[index]]
        numbers = [number for _, number in pool.shared.counted(gang, index)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert pool.shared.done(gang, index) == [born[index]]


def states(detail):
    return [entry.after for entry in detail.gang.history if entry.before not in ("", entry.after)]


def moving(pool, count):
    """Start a gang behind another one on node-1, and free the foreground of node-2."""
    goes_on = pool.create(0.3)
    pool.until_all_run(goes_on, GangState.FOREGROUND)
    ends = pool.create(0.9)
    pool.until_all_run(ends, GangState.FOREGROUND)
    moves = pool.create(0.5, f"count {count} rest 0.3")
    detail = pool.until_all_run(moves, GangState.BACKGROUND)
    assert {process.host for process in detail.process_list} == {"node-1"}
    pool.until(lambda: pool.is_placed(moves, "node-1", BEHIND), "it is behind the first")
    born = pool.until_counted(moves, 5)
    pool.ask_to_end(ends)
    return goes_on, moves, born


def test_a_gang_runs_behind_another_moves_with_its_memory_and_one_is_swapped_where_it_is(pool):
    """1. It counts behind a gang. 2. It moves and continues. 3. The next gang is swapped. 4. All end."""
    goes_on, moves, born = moving(pool, count=120)
    detail = pool.until_all_run(moves, GangState.FOREGROUND)
    assert {process.host for process in detail.process_list} == {"node-2"}
    pool.until(lambda: pool.is_placed(moves, "node-2", FRONT), "it is in front there")
    swaps = pool.create(0.3, "count 80 rest 0.3")
    pool.until_all_run(swaps, GangState.BACKGROUND)
    assert {process.host for process in pool.client.gang(swaps).process_list} == {"node-1"}
    pool.cancel(goes_on)

    detail = pool.finished(moves)
    assert states(detail) == ["BACKGROUND", "MOVING", "FOREGROUND", "COMPLETED"]
    assert [migration.state for migration in detail.migration_list] == [MigrationState.COMPLETED]
    assert (detail.gang.attempt, detail.gang.failures) == (2, 0)
    assert detail.gang.cpu_s > 0
    lived_once(pool, moves, born)
    detail = pool.finished(swaps)
    assert (detail.gang.swaps, detail.gang.migrations, detail.gang.attempt) == (1, 0, 1)
    lived_once(pool, swaps, [pool.shared.births(swaps, index)[0] for index in range(2)])
    pool.nothing_is_left()


@pytest.mark.parametrize("processes", [1])
def test_agents_that_are_killed_leave_guests_running_and_the_next_ones_restore_tiers_and_end_moves(pool):
    goes_on, moves, born = moving(pool, count=120)
    pool.until_state(moves, GangState.MOVING, GangState.FOREGROUND)
    for node in pool.hosts:
        pool.deployment.kill(node)
    before = {domain.UUIDString(): domain.ID() for domain in pool.guests(goes_on)}
    assert all(domain.isActive() for domain in pool.guests(goes_on))
    with contextlib.closing(pool.hosts["node-1"].new_tiers(of_gangs=True)) as tiers:
        tiers.set_tiers(dict.fromkeys(before, BEHIND))  # as if it had been killed in the middle of a change
    for node in pool.hosts:
        pool.deployment.restart(node)
    pool.until_all_run(moves, GangState.FOREGROUND)
    pool.until(lambda: {place[1] for place in pool.places(goes_on).values()} == {FRONT}, "tiers are restored")
    assert {domain.UUIDString(): domain.ID() for domain in pool.guests(goes_on)} == before
    assert pool.client.gang(goes_on).gang.attempt == 1
    detail = pool.finished(moves)
    assert (detail.gang.attempt, detail.gang.failures) == (2, 0)
    lived_once(pool, moves, born)
    pool.cancel(goes_on)
    pool.nothing_is_left()


def test_a_gang_whose_guest_is_destroyed_from_outside_begins_again_as_a_whole_and_is_never_doubled(pool):
    gang = pool.create(1.0, "count 30 rest 0.3")
    pool.until_all_run(gang, GangState.FOREGROUND)
    born = pool.until_counted(gang, 3)
    pool.guests(gang)[0].destroy()

    def began_again():
        assert pool.running(gang) <= 2
        return pool.client.gang(gang).gang.attempt == 2

    pool.until(began_again, "it has another attempt")
    detail = pool.finished(gang)
    assert (detail.gang.attempt, detail.gang.failures) == (2, 1)
    assert states(detail) == ["FOREGROUND", "QUEUED", "FOREGROUND", "COMPLETED"]
    for index in range(2):
        boots = pool.shared.births(gang, index)
        assert boots[0] == born[index]
        assert pool.shared.done(gang, index) == [boots[-1]]
        assert boots[-1] != born[index]
    pool.nothing_is_left()


@pytest.mark.parametrize("processes", [1])
def test_a_gang_that_is_cancelled_on_its_way_leaves_no_guest_and_no_memory(pool):
    goes_on, moves, _ = moving(pool, count=1_000_000)
    pool.until_state(moves, GangState.MOVING, GangState.FOREGROUND)
    pool.cancel(moves, goes_on)
    pool.nothing_is_left()


def test_a_gang_with_an_image_that_is_not_there_fails_and_says_why(pool):
    gang = pool.client.create_gang(1, 60.0, 1.0, image="nowhere").uuid
    detail = pool.until_state(gang, *ENDED_GANGS)
    assert detail.gang.state is GangState.FAILED
    assert "nowhere has no kernel and no disk.qcow2" in detail.gang.reason
    pool.nothing_is_left()
