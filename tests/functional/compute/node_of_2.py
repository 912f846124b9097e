"""Runs on a compute node whose kernel has version 2 of control groups only: guests of libvirt share its pCPUs.

With systemd, libvirtd already runs; otherwise it is started here, as one of several hosts of a machine.  A guest is a
firmware that computes in an endless loop; a process of a gang is a disk whose boot sector counts.  The findings are
printed as JSON in one line of the console.
"""

import contextlib
import itertools
import json
import operator
import os
import subprocess
import time
import uuid
from pathlib import Path

import libvirt

from fpga_pool.drivers.host_meter import HostMeter
from fpga_pool.drivers.libvirt_connection import LibvirtConnection
from fpga_pool.drivers.runners.domain import Consoles, Machine, SavedMemory
from fpga_pool.drivers.runners.libvirt import LibvirtRunner
from fpga_pool.drivers.runners.process_guests import ProcessGuests
from fpga_pool.drivers.tiers import cgroups
from fpga_pool.drivers.tiers.domain import wish
from fpga_pool.drivers.tiers.libvirt import LibvirtTiers
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.flavor import Tier
from support.servers import Libvirt, own_host, server

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
WINDOW_S, PATIENCE_S, KEEP_S = 2.0, 300.0, 3600.0
SYSTEMD = Path("/run/systemd/system").exists()
#: `jmp $` at the reset vector of a processor.
JUMP = b"\xeb\xfe"
PCPUS = (0, 1)
#: The code of a boot sector.  It counts on its console, a byte each time, until a key is pressed, and then powers off.
COUNTING = bytes.fromhex(
    "fa"  # cli
    "31db"  # xor bx, bx
    "43"  # next: inc bx
    "baf803 88d8 ee"  # mov dx, 0x3f8; mov al, bl; out dx, al
    "66b9 400d0300"  # mov ecx, 200000
    "6649 75fc"  # wait: dec ecx; jnz wait
    "e464 a801 74e9"  # in al, 0x64; test al, 1; jz next
    "ba0406 b80020 ef"  # mov dx, 0x604; mov ax, 0x2000; out dx, ax
    "ebfe"  # jmp $
)
ENTER, DEFAULT_WEIGHT = 28, 100
DOMAIN = """
<domain type='qemu'>
  <name>guest-{wish}</name><uuid>{uuid}</uuid><metadata>{metadata}</metadata>
  <memory unit='MiB'>16</memory><vcpu cpuset='0'>1</vcpu>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader readonly='yes' type='rom'>/firmware</loader></os>
  <devices><controller type='usb' model='none'/><memballoon model='none'/></devices>
</domain>
"""


class Node:
    """The compute node, and what is measured on it."""

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
        """Return the CPU time of each guest in a window, and the length of the window, both in seconds."""
        begin_s, before_s = time.monotonic(), [self.driver.cpu_times_s(guest)[0] for guest in guests]
        time.sleep(WINDOW_S)
        used_s = [self.driver.cpu_times_s(guest)[0] - was_s for guest, was_s in zip(guests, before_s, strict=True)]
        return used_s, time.monotonic() - begin_s

    def share(self, front, behind):
        """Return the share of the background guest in the CPU time of both."""
        (front_s, behind_s), _ = self.used_s(front, behind)
        return behind_s / (front_s + behind_s)

    def are_equal(self, one, other):
        """Wait until two guests get similar shares; the effect of the background on a guest lasts for seconds."""
        until_s = time.monotonic() + PATIENCE_S
        while not 0.3 < self.share(one, other) < 0.7:
            if time.monotonic() > until_s:
                return False
        return True

    def find(self):
        """Place two guests in tiers, change their tiers, and return what is found."""
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
        return found


class Gangs:
    """Two gangs with one process for each pCPU, led as by an agent, which gives commands and observes processes."""

    def __init__(self, uri, pids, pcpus):
        self.pids, self.pcpus = pids, pcpus
        self.consoles, self.saved, image = (Path("/gangs") / name for name in ("consoles", "saved", "images/default"))
        for directory in (self.consoles, self.saved, image):
            directory.mkdir(parents=True)
        (image / "disk.raw").write_bytes(COUNTING.ljust(510, bytes(1)) + b"\x55\xaa" + bytes(2**20))
        machine = Machine(
            virt_type="qemu", memory_mib=16, cpu_model="", bridge="", start_shares=cgroups.foreground_shares(),
            consoles=Consoles(self.consoles, KEEP_S),
        )  # fmt: skip
        self.connection = libvirt.open(uri)
        guests = ProcessGuests(LibvirtConnection(uri), LibvirtTiers(uri, pids, of_gangs=True))
        memory = SavedMemory(self.saved, KEEP_S)
        self.runner = LibvirtRunner(guests, machine, memory, image.parent, image.name, time.time)

    def until(self, condition, what):
        until_s = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until_s:
                raise TimeoutError(what)
            time.sleep(0.1)

    def launch(self, keys, tier, pcpus, saved=()):
        for key, pcpu, memory in itertools.zip_longest(keys, pcpus, saved, fillvalue=""):
            spec = ProcessSpec(key=key, processes=len(keys), cpu_usage=1.0, work_s=60.0, saved=memory)
            self.runner.launch(spec, pcpu, tier)

    def domains(self):
        return {domain.name(): domain for domain in self.connection.listAllDomains()}

    def counted(self, keys):
        """Return the number that each has counted up to; 0 if a number is missing or repeated."""
        said = [(self.consoles / f"{key.gang}.{key.index}.log").read_bytes() for key in keys]
        return [len(text) * (text == bytes(n % 256 for n in range(1, len(text) + 1))) for text in said]

    def count_on(self, keys, before):
        """Wait until each has counted at least three numbers further."""
        wanted = [number + 3 for number in before]
        self.until(lambda: all(map(operator.ge, self.counted(keys), wanted)), f"{keys} count on from {before}")

    def are(self, keys, phase):
        self.until(lambda: {self.runner.observe()[key].phase for key in keys} == {phase}, f"{keys} are {phase}")

    def group(self, key):
        (file,) = self.pids.glob(f"fpga-pool-{key.gang}.*.{key.index}.pid")  # it keeps the first name
        return cgroups.of_process(int(file.read_text()))

    def weight(self, key):
        """Return the CPU weight of a process; None if its group is idle, or gone."""
        with contextlib.suppress(ValueError, OSError, NotFound):
            group = self.group(key)
            return None if group.is_idle else int((group.guest / "cpu.weight").read_text())

    def places(self, *gangs):
        """Yield tier and pCPU of each process by the runner, and weight and pCPU by its control groups."""
        seen = self.runner.observe()
        for key in itertools.chain(*gangs):
            pins = (self.group(key).accounting / "vcpu0" / "cpuset.cpus.effective").read_text()
            yield str(seen[key].tier), seen[key].processor, self.weight(key), int(pins)

    def share(self, front, behind):
        """Return the background gang's share of the CPU time of both, as the runner reports it."""
        before = self.runner.observe()
        time.sleep(WINDOW_S)
        after = self.runner.observe()
        front_s, behind_s = (sum(after[key].cpu_s - before[key].cpu_s for key in keys) for keys in (front, behind))
        return behind_s / (front_s + behind_s)

    def are_let_save(self, keys):
        """Wait until each process that is being saved was seen with the default weight."""
        seen = set()

        def all_seen():
            self.runner.observe()
            seen.update(key for key in keys if self.weight(key) == DEFAULT_WEIGHT)
            return seen == set(keys)

        self.until(all_seen, f"{keys} have the default weight while they are saved")

    def find(self):
        """Start two gangs, one behind the other; exchange their tiers; then move the one, and end the other."""
        runner, nothing = self.runner, [0 for _ in self.pcpus]
        moves, ends = ([Key(gang, index, 1) for index in self.pcpus] for gang in map(str, (uuid.uuid4(), uuid.uuid4())))
        self.launch(moves, FRONT, self.pcpus)
        self.launch(ends, BEHIND, self.pcpus)
        self.count_on(moves, nothing)
        found = {"launched": [*self.places(moves, ends)], "gang behind": [self.share(moves, ends)]}
        for key, tier in [(key, BEHIND) for key in moves] + [(key, FRONT) for key in ends]:
            runner.set_tier(key, tier)
        self.count_on(ends, nothing)
        found["exchanged"] = [*self.places(moves, ends)]
        found["gang behind"].append(self.share(ends, moves))
        for key in moves:
            runner.save(key)
        self.are_let_save(moves)
        for key in ends:
            self.domains()[f"fpga-pool-{key}"].sendKey(libvirt.VIR_KEYCODE_SET_LINUX, 0, [ENTER], 1, 0)
        self.are(ends, Phase.EXITED)
        for key in ends:
            runner.end(key)
        self.are(moves, Phase.SAVED)
        for key in moves:
            runner.leave(key)
        found["left"] = [*self.domains()]
        heirs, counted = [Key(key.gang, key.index, 2) for key in moves], self.counted(moves)
        self.launch(heirs, FRONT, self.pcpus[::-1], map(str, moves))
        found["moved"] = [*self.places(heirs)]
        self.count_on(heirs, counted)
        for key, memory in zip(heirs, map(str, moves), strict=True):
            runner.end(key)
            runner.discard(memory)
        found["left"] += [*map(str, runner.observe()), *self.domains(), *map(str, self.saved.iterdir())]
        self.until(lambda: not any(own_host.CGROUPS.rglob("*qemu*")), "their control groups are gone")
        return found


def find(uri, pids):
    # Without systemd, one process for each gang is enough.
    return Node(uri, pids).find() | Gangs(uri, pids, PCPUS if SYSTEMD else PCPUS[:1]).find()


def main():
    os.nice(-10)  # the measurements of this program need priority
    libvirt.registerErrorHandler(lambda *_: None, None)
    if SYSTEMD:
        found = find("qemu:///system", Path("/run/libvirt/qemu"))
    else:
        # The usual timeouts are meant for a real processor, not for an emulated one.
        server.START_TIMEOUT_S = server.COMMAND_TIMEOUT_S = own_host.COMMAND_TIMEOUT_S = PATIENCE_S
        with Libvirt(Path("/tmp"), "libvirt-2") as host:
            host.restart()
            found = find(f"qemu+unix:///system?socket={host.socket}", host.directory / "run" / "qemu")
        groups = own_host.CGROUPS / host.own_host.label
        found["host left"] = groups.exists() or host.own_host.control_groups.exists()
    print(f"\nresult: {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main()
