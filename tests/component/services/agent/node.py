"""A compute node: the real agent and hook, with a hypervisor and a scheduler in memory."""

import io
import math
import socket
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from fpga_pool.drivers.guests.domain import GuestDriver, parse
from fpga_pool.guest.accelerator import Accelerator
from fpga_pool.guest.frames import Lines
from fpga_pool.model.exceptions import Conflict, InvalidInput, ServiceUnavailable
from fpga_pool.model.messages.agents import FreeSlot, HoldSlot
from fpga_pool.services.agent.instances.channel import ChannelLimits
from fpga_pool.services.agent.instances.service import Instances
from fpga_pool.services.agent.instances.supervisor import Parts, Taps

HOOK = Path(__file__).parents[4] / "etc" / "fpga_pool" / "libvirt-qemu-hook"
SLOTS = ["h0/sim0/slot0", "h0/sim0/slot1"]
PATIENCE_S = 60.0


def xml(instance="vm", count=1, specs=""):
    asked = f"""<n:extraSpec name="fpga_pool:function">sha256</n:extraSpec>
        <n:extraSpec name="fpga_pool:count">{count}</n:extraSpec>""" if count else ""  # fmt: skip
    return f"""<domain><name>{instance}</name><uuid>{instance}</uuid><metadata>
        <n:instance xmlns:n="http://openstack.org/xmlns/libvirt/nova/1.1"><n:flavor name="f"><n:extraSpecs>
        {asked}{specs}</n:extraSpecs></n:flavor><n:owner><n:project uuid="p">demo</n:project></n:owner></n:instance>
        </metadata></domain>"""


class Machines(GuestDriver):
    """A hypervisor in memory, whose ports are socket pairs."""

    def __init__(self):
        self._running = {}
        self._lines = {}
        self._changed = lambda _: None
        #: If set, it answers no request about machines.
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

    def attach_function(self, domain, number, address):
        known = self._running[domain.instance]
        assert address not in known.functions.values()
        self._running[domain.instance] = replace(known, functions={**known.functions, number: address})

    def detach_function(self, domain, number, address):
        known = self._running[domain.instance]
        functions = {key: other for key, other in known.functions.items() if (key, other) != (number, address)}
        self._running[domain.instance] = replace(known, functions=functions)

    def connect(self, domain, number):
        waiting = self._lines.get((domain.instance, number), [])
        if not waiting or domain.instance not in self._running:
            raise ConnectionRefusedError("nobody")
        return waiting.pop(0)

    def close(self):
        for waiting in self._lines.values():
            for end in waiting:
                end.close()

    # Events of machines

    def begin(self, text, ports=(), functions=()):
        domain = parse(text)
        known = replace(domain, ports=dict.fromkeys(ports, "there"), functions=dict(functions))
        self._running[domain.instance] = known
        self._changed(domain.instance)

    def end(self, instance, *, told=True):
        del self._running[instance]
        if told:
            self._changed(instance)

    def ports(self, instance):
        return sorted(self._running[instance].ports)

    def functions(self, instance):
        return dict(self._running[instance].functions)

    def open(self, instance, number):
        """Return the guest's end of a new connection to a port."""
        host, guest = socket.socketpair()
        guest.setblocking(False)
        self._lines.setdefault((instance, number), []).append(host)
        return guest.detach()

    def _answer(self):
        if self.silent:
            raise ServiceUnavailable("libvirt: it does not answer")


class Slots:
    """A scheduler that assigns the first free slots, by commands to the agent."""

    def __init__(self, bench):
        self._bench = bench
        self.held = {}
        self.refusal = None
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

    def instance_leases(self, host):
        with self._lock:
            self._note("ask", host)
            return {
                instance: [SimpleNamespace(uuid=f"{instance} {slot}", generation=0) for slot in slots]
                for instance, slots in self.held.items()
            }

    def release_slots(self, host, agent_id, leases):
        with self._lock:
            for instance in {uuid.split()[0] for uuid in leases}:
                self._note("release", instance)
                self._command(self.held.pop(instance, []), FreeSlot(instance=instance, lease_epoch=1))

    def _note(self, what, instance):
        if self.refusal is not None:
            raise self.refusal
        self.calls.append((what, instance))

    def _command(self, slots, action):
        self._bench.execute(*[self._bench.commands.command(action, slot) for slot in slots])


class Host:
    """A compute node."""

    def __init__(self, bench, directory):
        self.bench = bench
        self.slots = Slots(bench)
        self.machines = Machines()
        self.socket = directory / "agent.sock"
        self._scratch = directory
        self.start()

    def start(self, without=()):
        """Start to follow instances. The host lacks the slots `without`."""
        agent = self.bench.agent
        parts = Parts(
            host="h0",
            agent_id=agent.agent_id,
            scheduler=self.slots,
            driver=self.machines,
            holds=agent.jobs.holds,
            guests={name: worker.guest for name, worker in agent.slots.items() if name not in without},
            scratch=self._scratch,
            limits=ChannelLimits(),
            prepare_s=5.0,
        )
        self.instances = Instances(parts, self.socket, Taps(parts.driver.running, None, math.inf))
        self.instances.start()

    def restart(self):
        """Restart the agent."""
        self.instances.stop()
        self.bench.stop()
        self.bench.start()
        self.start()

    def boot(self, text):
        """Start a machine like libvirt."""
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
    """The guest's end of a port, which is a socket here."""

    def __init__(self, machines, instance, number):
        super().__init__("port", timeout_s=PATIENCE_S)
        self._where = machines, instance, number

    def _open(self):
        machines, instance, number = self._where
        self._port = machines.open(instance, number)
        self._lines = Lines()
