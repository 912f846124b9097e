"""Runs on a compute node whose kernel has version 2 of control groups alone: guests of libvirt share its one pCPU.

Under systemd libvirtd runs already; otherwise it is started here, as one of several hosts of a machine.  A guest is a
firmware that computes without end.  One line of the console has what was found, in JSON.
"""

import contextlib
import json
import os
import subprocess
import time
import uuid
from pathlib import Path

import libvirt

from fpga_pool.drivers.host_meter import HostMeter
from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.runners.domain import Machine, SavedMemory
from fpga_pool.drivers.runners.libvirt import LibvirtRunner
from fpga_pool.drivers.runners.process_guests import ProcessGuests
from fpga_pool.drivers.tiers.cgroups import foreground_shares
from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.model.agent.gang_process import Key, ProcessSpec
from fpga_pool.model.flavor import Tier
from support.servers import Libvirt, own_host, server

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
WINDOW_S, PATIENCE_S = 3.0, 300.0
SYSTEMD = Path("/run/systemd/system").exists()
#: `jmp $`, where a processor begins and where a firmware begins a disk.
JUMP = b"\xeb\xfe"
DOMAIN = """
<domain type='qemu'>
  <name>guest-{wish}</name><uuid>{uuid}</uuid><metadata>{metadata}</metadata>
  <memory unit='MiB'>16</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader readonly='yes' type='rom'>/firmware</loader></os>
  <devices><controller type='usb' model='none'/><memballoon model='none'/></devices>
</domain>
"""


class Node:
    """What is found, and how."""

    def __init__(self, uri, pids):
        self.uri, self.pids = uri, pids
        self.connection = libvirt.open(uri)
        self.driver = LibvirtTiers(uri, pids)
        Path("/firmware").write_bytes(bytes(0xFFF0) + JUMP + bytes(14))

    def start(self, wanted):
        instance = str(uuid.uuid4())
        text = DOMAIN.format(wish=wanted, uuid=instance, metadata=wish(wanted))
        self.connection.createXML(text, libvirt.VIR_DOMAIN_START_PAUSED)
        return instance

    def domain(self, instance):
        return self.connection.lookupByUUIDString(instance)

    def tiers(self):
        return {guest.instance: guest.tier for guest in self.driver.guests()}

    def used_s(self, *guests):
        """CPU time of guests in a window, and how long it was."""
        begin_s, before_s = time.monotonic(), [self.driver.cpu_times_s(guest)[0] for guest in guests]
        time.sleep(WINDOW_S)
        used_s = [self.driver.cpu_times_s(guest)[0] - was_s for guest, was_s in zip(guests, before_s, strict=True)]
        return used_s, time.monotonic() - begin_s

    def share(self, front, behind):
        """Share of a guest of what both use."""
        (front_s, behind_s), _ = self.used_s(front, behind)
        return behind_s / (front_s + behind_s)

    def are_equal(self, one, other):
        """Wait until two guests get about the same; the kernel remembers for seconds who was in the background."""
        until_s = time.monotonic() + PATIENCE_S
        while not 0.3 < self.share(one, other) < 0.7:
            if time.monotonic() > until_s:
                return False
        return True

    def find(self):
        """Put two guests into tiers, and change these."""
        found = {}
        front, behind = guests = self.start("foreground"), self.start("background")
        for guest in guests:
            self.domain(guest).resume()
        found["equal"] = [self.are_equal(front, behind)]
        self.driver.place(front, FRONT, [0])
        self.driver.place(behind, BEHIND, [0])
        found["group"] = str(self.driver._groups[front].guest)
        found["behind"] = [self.share(front, behind)]
        if SYSTEMD:
            subprocess.run(["systemctl", "daemon-reload"], check=True, timeout=PATIENCE_S)
            found["reloaded"] = [str(self.tiers()[guest]) for guest in guests]
            self.driver.place(behind, BEHIND, [0])
        with contextlib.closing(LibvirtTiers(self.uri, self.pids)) as other:
            found["placed"] = {guest.instance: guest.tier for guest in other.guests()} == {front: FRONT, behind: BEHIND}
        self.driver.set_tiers({front: BEHIND, behind: FRONT})
        found["swapped"] = self.tiers() == {front: BEHIND, behind: FRONT}
        found["behind"].append(self.share(behind, front))
        found["measured"] = dict(HostMeter(self.pids)._guests()).keys() == set(guests)
        self.domain(behind).suspend()
        (alone_s,), length_s = self.used_s(front)
        found["behind nobody"] = alone_s / length_s
        self.domain(behind).resume()
        for guest in guests:
            self.driver.release(guest)
        found["equal"].append(self.are_equal(front, behind))
        for guest in guests:
            self.domain(guest).destroy()
        return found | self.find_gang()

    def find_gang(self):
        """Launch a process of a gang in the background, and put it into the foreground."""
        image = Path("/images/default")
        image.mkdir(parents=True)
        (image / "disk.raw").write_bytes(JUMP + bytes(508) + b"\x55\xaa")
        machine = Machine(
            virt_type="qemu", memory_mib=16, cpu_model="", bridge="", start_shares=foreground_shares(), consoles=None
        )
        guests = ProcessGuests(LibvirtConnection(self.uri), LibvirtTiers(self.uri, self.pids, of_gangs=True))
        runner = LibvirtRunner(guests, machine, SavedMemory(Path("/tmp"), 60.0), image.parent, "default", time.time)
        spec = ProcessSpec(key=Key(str(uuid.uuid4()), 0, 1), processes=1, cpu_usage=0.5, work_s=60.0)
        runner.launch(spec, 0, BEHIND)
        seen = [runner.observe()[spec.key]]
        runner.set_tier(spec.key, FRONT)
        seen.append(runner.observe()[spec.key])
        runner.end(spec.key)
        return {"gang": [str(process.tier) for process in seen], "ended": runner.observe() == {}}


def main():
    os.nice(-10)  # this program measures
    libvirt.registerErrorHandler(lambda *_: None, None)
    if SYSTEMD:
        found = Node("qemu:///system", Path("/run/libvirt/qemu")).find()
    else:
        # Timeouts are for a processor, not for an emulated one.
        server.START_TIMEOUT_S = server.COMMAND_TIMEOUT_S = own_host.COMMAND_TIMEOUT_S = PATIENCE_S
        with Libvirt(Path("/tmp"), "libvirt-2") as host:
            host.restart()
            found = Node(f"qemu+unix:///system?socket={host.socket}", host.directory / "run" / "qemu").find()
        groups = own_host.CGROUPS / host.own_host.label
        found["left"] = groups.exists() or host.own_host.control_groups.exists()
    print(f"\nresult: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
