"""The libvirt runner in case of failures: its requests to libvirt, and when it gives up."""

import os
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fpga_pool.drivers.runners.domain import Consoles, Machine, ProcessDomain, SavedMemory
from fpga_pool.model.agent.gang_process import Key, ProcessSpec
from fpga_pool.model.exceptions import Conflict, NotFound, ServiceUnavailable
from fpga_pool.model.flavor import Tier

libvirt = pytest.importorskip("libvirt")
runners = pytest.importorskip("fpga_pool.drivers.runners.libvirt")
process_guests = pytest.importorskip("fpga_pool.drivers.runners.process_guests")

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
KEY = Key("5f2c1b7e-0d43-4c55-9a86-2e7a3f10bb02", 0, 1)
SPEC = ProcessSpec(key=KEY, processes=1, cpu_usage=0.5, work_s=60.0)
MANAGED_SAVE, SNAPSHOTS, CHECKPOINTS = 1, 2, 16  # virDomainUndefineFlagsValues


class Domain:
    """The domain of a process, with the interface of libvirt. State that libvirt keeps may prevent `undefine`."""

    def __init__(self, connection, keeps=0):
        self.connection, self.keeps, self.active = connection, keeps, True
        about = ProcessDomain.launched(SPEC, 1, BEHIND)
        self.element = ElementTree.tostring(about.to_element(), encoding="unicode")

    def name(self):
        return f"fpga-pool-{KEY}"

    def UUIDString(self):  # noqa: N802
        return "u"

    def ID(self):  # noqa: N802
        return 1 if self.active else -1

    def isPersistent(self):  # noqa: N802
        return 1

    def isActive(self):  # noqa: N802
        return int(self.active)

    def getCPUStats(self, _):  # noqa: N802
        return [{"cpu_time": 2_500_000_000}]

    def metadata(self, *_):
        return self.element

    def destroy(self):
        self.active = False

    def undefineFlags(self, flags):  # noqa: N802
        if self.keeps & ~flags:
            raise libvirt.libvirtError("Refusing to undefine")
        self.connection.domains.remove(self)


class Connection:
    """The part of a libvirt connection that the runner uses."""

    def __init__(self):
        self.domains = []

    def call(self, work):
        try:
            return work(self)
        except libvirt.libvirtError as error:
            raise ServiceUnavailable(str(error)) from error

    def getAllDomainStats(self, *_):  # noqa: N802
        state = {True: libvirt.VIR_DOMAIN_RUNNING, False: libvirt.VIR_DOMAIN_SHUTOFF}
        return [(domain, {"state.state": state[domain.active]}) for domain in self.domains]


class Tiers:
    """A tier driver that records its calls. It finds no guest if `missing` has a reason."""

    def __init__(self):
        self.calls, self.found, self.missing = [], [], ""

    def guests(self):
        return self.found

    def place(self, instance, tier, pcpus):
        if self.missing:
            raise NotFound(self.missing)
        self.calls.append(("place", instance, tier, list(pcpus)))

    def set_tiers(self, tiers):
        self.calls.append(("set_tiers", tiers))


@pytest.fixture
def tiers():
    return Tiers()


@pytest.fixture
def connection():
    return Connection()


@pytest.fixture
def runner(tmp_path, tiers, connection):
    consoles = Consoles(tmp_path, 3600.0)
    machine = Machine(virt_type="qemu", memory_mib=64, cpu_model="", bridge="", start_shares=1024, consoles=consoles)
    saved = SavedMemory(tmp_path, 3600.0)
    guests = process_guests.ProcessGuests(connection, tiers)
    return runners.LibvirtRunner(guests, machine, saved, tmp_path, "default", lambda: 0.0)


@pytest.fixture
def domain(connection):
    made = Domain(connection)
    connection.domains.append(made)
    return made


@pytest.mark.parametrize("keeps", [0, MANAGED_SAVE, SNAPSHOTS, CHECKPOINTS])
def test_a_domain_is_forgotten_with_all_that_libvirt_keeps_of_it(runner, domain, keeps):
    domain.keeps = keeps
    runner.end(KEY)
    assert runner.observe() == {}


def test_a_guest_whose_placing_was_interrupted_is_placed_when_it_gets_its_tier(runner, domain, tiers):
    runner.set_tier(KEY, FRONT)
    assert tiers.calls == [("place", "u", FRONT, [1])]
    runner.set_tier(KEY, BEHIND)
    assert tiers.calls[1:] == [("set_tiers", {"u": BEHIND})]


def test_a_guest_that_runs_and_cannot_be_found_is_not_taken_for_one_that_has_ended(runner, domain, tiers, monkeypatch):
    monkeypatch.setattr(process_guests, "END_SEEN_S", 0.02)
    tiers.missing = "u.pid: missing; libvirt_pid_dir is wrong"
    with pytest.raises(Conflict, match="libvirt_pid_dir is wrong"):
        runner.launch(SPEC, 1, BEHIND)


def test_a_guest_that_has_ended_at_once_was_launched(runner, domain, tiers, monkeypatch):
    monkeypatch.setattr(process_guests, "END_SEEN_S", 20.0)
    tiers.missing = "u.pid: missing"
    threading.Timer(0.1, domain.destroy).start()  # libvirt notices the end a moment later
    runner.launch(SPEC, 1, BEHIND)
    assert not domain.active


def test_a_guest_whose_save_does_not_end_is_not_told_to_have_ended(runner, domain, monkeypatch):
    monkeypatch.setattr(runners, "SAVE_END_S", 0.01)
    goes_on = threading.Event()
    domain.saveFlags = lambda *_: goes_on.wait(60)
    runner._phase = lambda _: (runners.Phase.RUNNING, "")
    runner.save(KEY)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable, match="does not end"):
            runner.end(KEY)
    goes_on.set()
    monkeypatch.setattr(runners, "SAVE_END_S", 60.0)
    runner.end(KEY)
    assert runner.observe() == {}


def test_the_cpu_time_of_a_guest_is_that_of_its_control_group(runner, domain):
    assert runner.observe()[KEY].cpu_s == 2.5
    domain.destroy()
    assert runner.observe()[KEY].cpu_s == 2.5  # the last value that was read


def test_old_consoles_are_removed_but_for_those_of_guests_that_print_nothing(runner, domain, tmp_path):
    other = "3b0f4a5e-5d55-4a0c-8a53-9f1b7dcb3a01"
    mine = f"{KEY.gang}.{KEY.index}.log"
    old = [mine, f"{other}.0.log", f"{other}.0.log.1", f"{other}.0.txt", "notes.log"]
    for name in old:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1.0, 1.0))
    (tmp_path / f"{other}.1.log").touch()
    runner.observe()
    # Files of processes on this host get a new time, so that other hosts, which do not know the processes, keep them.
    assert {path.name: path.stat().st_mtime > 1.0 for path in tmp_path.iterdir()} == {
        mine: True, f"{other}.1.log": True, f"{other}.0.txt": False, "notes.log": False
    }  # fmt: skip
    assert Consoles(tmp_path, 3600.0).sweep([]) == []


def test_a_directory_of_consoles_that_is_gone_holds_up_no_guest(runner, domain, monkeypatch, caplog):
    monkeypatch.setattr(runner._machine.consoles, "_directory", Path("/nowhere"))
    assert list(runner.observe()) == [KEY]
    assert "cannot remove old console files: " in caplog.text
