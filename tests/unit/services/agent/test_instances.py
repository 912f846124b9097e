"""Instances from the hook's question to their end: the real agent and hook, a hypervisor and a scheduler in memory."""

import contextlib
import io
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fpga_pool.drivers.guests.base import GuestDriver
from fpga_pool.drivers.guests.domain import parse
from fpga_pool.guest.accelerator import Accelerator
from fpga_pool.guest.frames import Lines
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable
from fpga_pool.model.messages import FreeSlot, HoldSlot
from fpga_pool.services.agent.instances import keeper
from fpga_pool.services.agent.instances.channel import ChannelLimits
from fpga_pool.services.agent.instances.keeper import Parts
from fpga_pool.services.agent.instances.service import Instances

HOOK = Path(__file__).parents[4] / "etc" / "fpga_pool" / "libvirt-qemu-hook"
SLOTS = ["h0/sim0/slot0", "h0/sim0/slot1"]
PATIENCE_S = 10.0


def xml(instance="vm", count=1, specs=""):
    asked = f"""<n:extraSpec name="fpga_pool:function">sha256</n:extraSpec>
        <n:extraSpec name="fpga_pool:count">{count}</n:extraSpec>""" if count else ""  # fmt: skip
    return f"""<domain><name>{instance}</name><uuid>{instance}</uuid><metadata>
        <n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:flavor name="f"><n:extraSpecs>
        {asked}{specs}</n:extraSpecs></n:flavor><n:owner><n:project uuid="p">demo</n:project></n:owner></n:instance>
        </metadata></domain>"""


class Machines(GuestDriver):
    """A hypervisor whose machines are values, and whose ports are socket pairs."""

    def __init__(self):
        self._running = {}
        self._lines = {}
        self._changed = lambda _: None
        #: Set: it does not answer about any machine.
        self.silent = False

    @classmethod
    def from_conf(cls, conf):
        return cls()

    def watch(self, changed):
        self._changed = changed
        changed("")

    def running(self):
        self._answer()
        return list(self._running.values())

    def find(self, instance):
        self._answer()
        return self._running.get(instance)

    def check(self, domain):
        if domain.name == "bare":
            raise InvalidInput("no controller")

    def attach(self, domain, number):
        known = self._running[domain.instance]
        self._running[domain.instance] = replace(known, ports={**known.ports, number: "there"})

    def detach(self, domain, number):
        known = self._running[domain.instance]
        ports = {key: path for key, path in known.ports.items() if key != number}
        self._running[domain.instance] = replace(known, ports=ports)

    def connect(self, domain, number):
        waiting = self._lines.get((domain.instance, number), [])
        if not waiting or domain.instance not in self._running:
            raise ConnectionRefusedError("nobody")
        return waiting.pop(0)

    def close(self):
        for waiting in self._lines.values():
            for end in waiting:
                end.close()

    # What happens to machines

    def begin(self, text, ports=()):
        domain = parse(text)
        self._running[domain.instance] = replace(domain, ports=dict.fromkeys(ports, "there"))
        self._changed(domain.instance)

    def end(self, instance, *, told=True):
        del self._running[instance]
        if told:
            self._changed(instance)

    def ports(self, instance):
        return sorted(self._running[instance].ports)

    def open(self, instance, number):
        """Return the guest's end of a port."""
        host, guest = socket.socketpair()
        guest.setblocking(False)
        self._lines.setdefault((instance, number), []).append(host)
        return guest.detach()

    def _answer(self):
        if self.silent:
            raise ServiceUnavailable("libvirt: it does not answer")


class Slots:
    """A scheduler that gives slots as they come, by commands to the agent."""

    def __init__(self, bench):
        self._bench = bench
        self.held = {}
        self.away = False
        self.calls = []
        self._lock = threading.Lock()

    def claim_slots(self, host, agent_id, instance, project_id, wanted):
        with self._lock:
            self._note("claim", instance)
            taken = {slot for slots in self.held.values() for slot in slots}
            free = [slot for slot in SLOTS if slot not in taken]
            if instance not in self.held:
                if len(free) < wanted.count:
                    raise Conflict(f"host {host} cannot give {wanted.count} slots to instance {instance}")
                self.held[instance] = free[: wanted.count]
            action = HoldSlot(instance=instance, project_id=project_id, function=wanted.function, lease_epoch=1)
            self._command(self.held[instance], action)
            return [type("Slot", (), {"name": slot}) for slot in self.held[instance]]

    def release_slots(self, host, agent_id, instance):
        with self._lock:
            self._note("release", instance)
            self._command(self.held.pop(instance, []), FreeSlot(instance=instance, lease_epoch=1))

    def _note(self, what, instance):
        if self.away:
            raise ServiceUnavailable("away")
        self.calls.append((what, instance))

    def _command(self, slots, action):
        self._bench.execute(*[self._bench.commands.command(action, slot) for slot in slots])


class Host:
    """One compute node."""

    def __init__(self, bench, directory):
        self.bench = bench
        self.slots = Slots(bench)
        self.machines = Machines()
        self.socket = directory / "agent.sock"
        self._scratch = directory
        self.start()

    def start(self):
        agent = self.bench.agent
        parts = Parts(
            host="h0",
            agent_id=agent.agent_id,
            scheduler=self.slots,
            driver=self.machines,
            holds=agent.jobs.holds,
            guests={name: worker.guest for name, worker in agent.slots.items()},
            scratch=self._scratch,
            limits=ChannelLimits(),
            prepare_s=5.0,
        )
        self.instances = Instances(parts, self.socket)
        self.instances.start()

    def restart(self):
        """Start the agent again."""
        self.instances.stop()
        self.bench.stop()
        self.bench.start()
        self.start()

    def boot(self, text):
        """Do what libvirt does."""
        self.instances.asked("prepare", text)
        self.machines.begin(text)

    def held(self, instance="vm"):
        return self.bench.jobs.holds.slots_of(instance)

    def compute(self, instance="vm", number=0, data=b"abc"):
        port = Port(self.machines, instance, number)
        with port:
            sink = io.BytesIO()
            port.run(io.BytesIO(data), sink)
            return sink.getvalue()


class Port(Accelerator):
    """The guest's end of a port that is a socket here."""

    def __init__(self, machines, instance, number):
        super().__init__("port", timeout_s=PATIENCE_S)
        self._where = machines, instance, number

    def _open(self):
        machines, instance, number = self._where
        self._port = machines.open(instance, number)
        self._lines = Lines()


@pytest.fixture
def host(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(keeper, "LOOK_S", 0.05)
    monkeypatch.setattr(keeper, "CLAIM_AGAIN_S", 0.05)
    made = Host(bench, tmp_path)
    yield made
    made.instances.stop()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("instance-", "channel-", "hook"))]


SHA256_OF_ABC = b"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"


def test_a_machine_starts_when_its_slots_are_ready_and_computes_on_them(host, until):
    host.instances.asked("prepare", xml(count=2))
    assert host.held() == SLOTS
    assert all(host.bench.jobs.holds.of(slot).ready for slot in SLOTS)
    host.machines.begin(xml(count=2))
    until(lambda: host.machines.ports("vm") == [0, 1])
    assert host.compute(number=0) == SHA256_OF_ABC
    assert host.compute(number=1) == SHA256_OF_ABC


def test_a_machine_that_ended_leaves_its_slots_scrubbed_to_others(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.compute(data=b"secret")
    host.machines.end("vm")
    until(lambda: host.held() == [] and not any(host.bench.driver.memory(host.bench.address)))
    assert host.slots.held == {}
    until(lambda: host.instances._keepers == {})


def test_an_end_that_nobody_told_is_noticed(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.machines.end("vm", told=False)
    until(lambda: host.held() == [])


def test_a_start_without_slots_is_refused_and_gives_back_all(host, until):
    with pytest.raises(Conflict, match="cannot give 3 slots"):
        host.instances.asked("prepare", xml(count=3))
    until(lambda: ("release", "vm") in host.slots.calls and host.instances._keepers == {})


def test_a_start_whose_load_fails_is_refused_and_gives_back_all(host, until):
    host.bench.driver.fail_next_load(host.bench.address)
    with pytest.raises(Exception, match="loading sha256 failed"):
        host.instances.asked("prepare", xml())
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_cannot_have_ports_is_refused_before_anything_is_claimed(host):
    with pytest.raises(InvalidInput, match="no controller"):
        host.instances.asked("prepare", xml("bare"))
    assert ("claim", "bare") not in host.slots.calls


def test_a_start_that_failed_after_its_slots_were_ready_gives_them_back_at_once(host, until):
    host.instances.asked("prepare", xml())
    host.instances.asked("release", xml())
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_is_about_to_start_keeps_its_slots_although_it_does_not_run_yet(host):
    host.instances.asked("prepare", xml())
    for _ in range(10):
        host.instances._keepers["vm"]._look()
    assert host.held() == [SLOTS[0]]


def test_a_machine_that_is_started_again_has_slots_whatever_is_heard_of_its_end(host, until):
    """Hard reboot: the end of the machine before is told while the next start is under way, and after it."""
    host.boot(xml())
    for _ in range(5):
        host.machines.end("vm", told=False)
        host.instances.asked("release", xml())
        host.instances.asked("prepare", xml())
        host.instances.changed("vm")
        assert host.held() == [SLOTS[0]]
        host.machines.begin(xml())
        until(lambda: host.machines.ports("vm") == [0])
    assert host.compute() == SHA256_OF_ABC


def test_a_machine_restored_with_its_ports_is_served_on_them(host, until):
    """Resume after suspend: libvirt saved the channel with the machine."""
    host.instances.asked("prepare", xml())
    host.machines.begin(xml(), ports=[0, 1])
    until(lambda: host.machines.ports("vm") == [0])
    assert host.compute() == SHA256_OF_ABC


def test_guests_are_served_again_after_the_agent_was_started_again(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.restart()
    assert host.held() == [SLOTS[0]]
    assert host.compute() == SHA256_OF_ABC


def test_a_machine_that_ended_while_the_agent_was_away_leaves_its_slots(host, until):
    host.boot(xml())
    host.instances.stop()
    host.bench.stop()
    host.machines.end("vm", told=False)
    host.bench.start()
    host.start()
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_machine_that_runs_without_slots_gets_them(host, until):
    host.machines.begin(xml())
    host.instances.changed("")
    until(lambda: host.held() == [SLOTS[0]])
    assert host.compute() == SHA256_OF_ABC


def test_slots_are_given_back_when_the_scheduler_is_there_again(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.slots.away = True
    host.machines.end("vm")
    with pytest.raises(ServiceUnavailable):
        host.instances.asked("prepare", xml("other"))
    host.slots.away = False
    until(lambda: host.held() == [] and host.slots.held == {})


def test_a_start_waits_for_a_scheduler_that_does_not_answer_for_a_moment(host):
    host.slots.away = True
    back = threading.Timer(0.3, lambda: setattr(host.slots, "away", False))
    back.start()
    host.instances.asked("prepare", xml())
    back.join()
    assert host.held() == [SLOTS[0]]


def test_nothing_is_given_back_while_the_hypervisor_does_not_answer(host, until):
    host.boot(xml())
    until(lambda: host.machines.ports("vm") == [0])
    host.machines.silent = True
    for _ in range(5):
        with contextlib.suppress(ServiceUnavailable):
            host.instances._keepers["vm"]._look()
    assert host.held() == [SLOTS[0]]
    host.machines.silent = False
    assert host.compute() == SHA256_OF_ABC


def test_a_slot_that_is_taken_away_takes_its_port_along(host, until):
    host.boot(xml(count=2))
    until(lambda: host.machines.ports("vm") == [0, 1])
    host.bench.execute(host.bench.commands.command(FreeSlot(instance="vm", lease_epoch=1), SLOTS[1]))
    until(lambda: host.machines.ports("vm") == [0])


def test_a_machine_without_accelerator_flavor_is_nobodys_business(host):
    host.instances.asked("prepare", xml("plain", count=0))
    host.machines.begin(xml("plain", count=0))
    assert host.instances._keepers == {}
    assert host.slots.calls == []


class TestHook:
    """The hook as libvirt calls it, with an agent behind its socket."""

    @pytest.fixture
    def ask(self, host, tmp_path):
        def run(text, operation="prepare", suboperation="begin", config=""):
            (tmp_path / "hook.conf").write_text(f"[hook]\nsocket = {host.socket}\ntimeout_s = 20\n{config}")
            program = HOOK.read_text().replace("/etc/libvirt/hooks/fpga_pool.conf", str(tmp_path / "hook.conf"))
            (tmp_path / "hook").write_text(program)
            done = subprocess.run(
                [sys.executable, tmp_path / "hook", "name", operation, suboperation, "-"],
                input=text, capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            return done.returncode, done.stderr

        return run

    def test_it_lets_a_machine_start_whose_slots_are_ready(self, host, ask):
        assert ask(xml()) == (0, "")
        assert host.held() == [SLOTS[0]]

    def test_it_refuses_with_the_agents_reason(self, ask):
        assert ask(xml(count=3)) == (1, "fpga_pool: host h0 cannot give 3 slots to instance vm\n")

    def test_it_refuses_a_wrong_flavor(self, ask):
        code, said = ask(xml(count=1, specs='<n:extraSpec name="fpga_pool:tier">third</n:extraSpec>'))
        assert code == 1
        assert "fpga_pool:tier: 'third' is wrong" in said

    def test_it_tells_the_end(self, host, ask, until):
        ask(xml())
        assert ask(xml(), "release", "end") == (0, "")
        until(lambda: host.held() == [])

    def test_without_an_agent_it_refuses_unless_it_is_told_otherwise(self, host, ask):
        host.instances.stop()
        code, said = ask(xml())
        assert code == 1
        assert "the agent does not answer on" in said
        assert ask(xml(), config="without_agent = start\n") == (0, "")
        assert ask(xml(count=0)) == (0, "")
        assert ask(xml(), "release", "end")[0] == 0
        host.start()

    def test_it_refuses_live_migration_of_accelerated_machines_only(self, ask):
        assert ask(xml(), "migrate", "begin") == (
            1, "fpga_pool: machines with accelerators are not migrated live; migrate this one cold\n"
        )  # fmt: skip
        assert ask(xml(), "migrate", "begin", config="live_migration = allow\n") == (0, "")
        assert ask(xml(count=0), "migrate", "begin") == (0, "")

    def test_it_does_not_read_what_it_need_not(self, ask):
        assert ask("no XML at all", "started", "begin") == (0, "")
