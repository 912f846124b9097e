"""Runs in an emulated Debian, as its first program: two guests in control groups of version 2, on its one processor.

Groups are as libvirt makes them under systemd, and changed as libvirt and the tier driver change them; programs that
compute stand for the vCPUs.  The last line on the console is what was measured, in JSON.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from fpga_pool.drivers.tiers import cgroups

ROOT, SLICE = Path("/sys/fs/cgroup"), "machine.slice"
WINDOW_S = 3.0
BUSY = [sys.executable, "-c", "while True: pass"]


class Guest:
    """A guest with one vCPU."""

    def __init__(self, name):
        scope = ROOT / SLICE / f"machine-qemu-{name}.scope"
        for group in (scope, scope / "libvirt"):
            group.mkdir()
            (group / "cgroup.subtree_control").write_text("+cpu")
        self._within = {}
        for part, command in (("emulator", ["/bin/busybox", "sleep", "10000"]), ("vcpu0", BUSY)):
            group = scope / "libvirt" / part
            group.mkdir()
            self._within[part] = subprocess.Popen(command)
            (group / "cgroup.procs").write_text(str(self._within[part].pid))
        self.group = cgroups.of_process(self._within["emulator"].pid)

    def set_tier(self, foreground):
        """As the driver does: shares cannot be changed while the group is idle."""
        lowest, highest = self.group.shares
        self.group.idle_file.write_text("0")
        (self.group.guest / "cpu.weight").write_text(str(highest if foreground else lowest))
        self.group.idle_file.write_text("0" if foreground else "1")

    def end_vcpu(self):
        self._within["vcpu0"].kill()
        self._within["vcpu0"].wait()


def used_s(*guests):
    """What the vCPUs of guests use in a window, and how long it was."""
    begin_s, before_s = time.monotonic(), [guest.group.cpu_time_s(0) for guest in guests]
    time.sleep(WINDOW_S)
    return [
        guest.group.cpu_time_s(0) - was_s for guest, was_s in zip(guests, before_s, strict=True)
    ], time.monotonic() - begin_s


def main():
    (ROOT / "cgroup.subtree_control").write_text("+cpu")
    (ROOT / SLICE).mkdir()
    (ROOT / SLICE / "cgroup.subtree_control").write_text("+cpu")
    os.nice(-10)  # this program measures
    one, other = Guest("1"), Guest("2")
    found = {"version": one.group.version, "guest": str(one.group.guest), "shares": {}}
    for front, behind in ((one, other), (other, one)):
        front.set_tier(foreground=True)
        behind.set_tier(foreground=False)
        found["idle"] = [guest.group.is_idle for guest in (front, behind)]
        (front_s, behind_s), _ = used_s(front, behind)
        found["shares"][str(front.group.guest)] = behind_s / (front_s + behind_s)
    # As the meter of hosts sees a guest: all of it, by the pid file of its emulator.
    found["whole guest"] = one.group.cpu_time_s() >= one.group.cpu_time_s(0) > 0
    other.end_vcpu()
    (alone_s,), length_s = used_s(one)
    found["behind nobody"] = alone_s / length_s
    print(f"result: {json.dumps(found)}", flush=True)


main()
