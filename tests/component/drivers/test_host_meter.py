"""Measurements of a host by its agent, from files of this machine's kernel and of other kernels."""

import os
import subprocess
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest

from fpga_pool.drivers import host_meter
from fpga_pool.drivers.host_meter import INTERVAL_S, HostMeter, busy_times_s
from fpga_pool.model.codec import read, to_plain
from fpga_pool.model.exceptions import NotFound
from fpga_pool.model.messages.counters import HostCounters

GUEST = "0c6b5a0e-8f1d-4a57-9a5e-5b8b6a0f7a11"
LATER = 2 * INTERVAL_S


class Time:
    """A clock that tests set."""

    now_s = 100.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def time():
    return Time()


def again(meter, time):
    """Advance the clock by LATER seconds, and measure."""
    time.now_s += LATER
    return meter.measure(at=1e9)


# ---- This machine


def test_this_machine_is_measured(tmp_path, time, eventually):
    meter = HostMeter(tmp_path, now_s=time)
    ticks = meter._cpu()
    eventually(lambda: meter._cpu()[1] > ticks[1])  # the kernel counts in hundredths of a second
    found = again(meter, time)
    assert read(HostCounters, to_plain(found)) == found  # within the bounds that a scheduler accepts
    assert found.cpus == os.cpu_count()
    assert 0 <= found.busy_cpus <= found.cpus
    assert found.memory_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found.used_bytes < found.memory_bytes
    assert found.received_bps >= 0
    assert found.guests == found.cards == ()
    measured = {name for name in ("cpu", "memory", "io") if getattr(found, f"{name}_pressure") is not None}
    assert measured == {name for name in ("cpu", "memory", "io") if (Path("/proc/pressure") / name).exists()}


def test_a_processor_is_in_use_unless_it_is_idle_or_waits_for_a_disk(tmp_path):
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {"user": 5, "nice": 1, "system": 2, "idle": 90, "iowait": 7, "irq": 1, "softirq": 1, "steal": 3}
    # The time of guests is included in `user`.
    line = " ".join(str(ticks * each) for each in [*seconds.values(), 4, 0])
    (tmp_path / "stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu10 {line.replace(str(5 * ticks), '0', 1)}\nintr 7\n")
    assert busy_times_s([10, 0], tmp_path) == (8.0, 13.0)
    with pytest.raises(NotFound, match=r"no pCPU 1$"):
        busy_times_s([1], tmp_path)


def test_processors_of_this_machine_are_in_use_some_of_the_time(eventually):
    pcpu = min(os.sched_getaffinity(0))
    before = busy_times_s([pcpu])
    eventually(lambda: busy_times_s([pcpu]) > before)


def _make_groups(stack, name):
    """Make the control groups of a guest like libvirt without systemd; return the files to write its pid to."""
    root = Path("/sys/fs/cgroup")
    hierarchies = [root] if (root / "cgroup.controllers").exists() else [root / "cpu", root / "cpuacct"]
    if not all(os.access(hierarchy / "cgroup.procs", os.W_OK) for hierarchy in hierarchies):
        pytest.skip("needs control groups that it may write")
    entries = []
    for hierarchy in hierarchies:
        group = hierarchy / name
        for path in (group, group / "emulator"):
            path.mkdir()
            stack.callback(path.rmdir)
        entries.append(group / "emulator" / "cgroup.procs")
    return entries


def test_the_processors_of_a_guest_are_those_of_its_control_group(tmp_path, time, eventually):
    """A busy program takes the role of the guest: in real control groups, and with the command line of an emulator."""
    with ExitStack() as stack:
        entries = _make_groups(stack, f"fpga-pool-test-{uuid.uuid4()}")
        guest = subprocess.Popen([sys.executable, "-c", "while True: pass", "-uuid", GUEST])
        stack.callback(lambda: (guest.kill(), guest.wait()))
        for entry in entries:
            entry.write_text(str(guest.pid))
        (tmp_path / "instance-1.pid").write_text(f"{guest.pid}\n")
        (tmp_path / "stale.pid").write_text("999999999\n")
        (tmp_path / "other.pid").write_text(f"{os.getpid()}\n")
        meter = HostMeter(tmp_path, now_s=time)
        first_s = dict(meter._guests())[GUEST]
        eventually(lambda: dict(meter._guests())[GUEST] > first_s + 0.2)
        (found,) = again(meter, time).guests
        assert found.uuid == GUEST
        # At least 0.2 s of CPU time within 20 s of the test's clock.
        assert 0.01 <= found.cpus <= 65536


# ---- Other kernels

STAT = "cpu  {busy} 0 100 {idle} 50 0 0 0 {guests} 0\ncpu0 1 2 3 4\n"
COLUMNS = "{received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0"
NET = "Inter-|   Receive |  Transmit\n face |bytes packets |bytes packets\n" + "\n".join(
    [" lo: {lo} 1 0 0 0 0 0 0 {lo} 1 0 0 0 0 0 0", f"eth0: {COLUMNS}", "tap0:{tap} 1 0 0 0 0 0 0 {tap} 1 0 0 0 0 0 0\n"]
)


class Host:
    """A host, described by files of a kernel."""

    def __init__(self, root, time):
        self.root, self._time = root, time
        self.moved = {"card-1": 1000}

    def meter(self):
        return HostMeter(
            self.root / "pids",
            lambda: dict(self.moved),
            proc=self.root / "proc",
            cgroups=self.root / "cgroup",
            networks=self.root / "net",
            now_s=self._time,
        )

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def host(tmp_path, time, monkeypatch):
    monkeypatch.setattr(host_meter.os, "cpu_count", lambda: 4)
    host = Host(tmp_path, time)
    host.write("proc/stat", STAT.format(busy=1000, idle=9000, guests=700))
    host.write("proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  250 kB\nHugePages_Total:  0\n")
    host.write("proc/self/net/dev", NET.format(lo=5, received=1_000_000, sent=2_000_000, tap=7))
    host.write("proc/pressure/cpu", "some avg10=9.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0 total=0\n")
    host.write("net/eth0/device", "")
    return host


def test_counters_are_means_over_the_time_since_the_measurement_before(host, time):
    meter = host.meter()
    # 20 s later, 1500 of 2000 ticks were busy. The time of guests is included in that of users, and counts once.
    host.write("proc/stat", STAT.format(busy=2500, idle=9500, guests=2200))
    # 50 MB in 20 s are 20 Mbit/s. Traffic of taps and of the loopback device does not go through a network card.
    host.write("proc/self/net/dev", NET.format(lo=10**9, received=51_000_000, sent=2_123_456, tap=10**9))
    host.write("proc/pressure/cpu", "some avg10=9.00 avg60=0.00 avg300=0.00 total=6000000\n")
    host.moved["card-1"] = 26_000
    found = again(meter, time)
    assert (found.cpus, found.busy_cpus) == (4, 3.0)
    assert (found.memory_bytes, found.used_bytes) == (1000 << 10, 750 << 10)
    # 123,456 bytes in 20 s are 49,382.4 bit/s.
    assert (found.received_bps, found.sent_bps) == (2e7, 49_400)
    # 5 s of 20 s.
    assert (found.cpu_pressure, found.memory_pressure, found.io_pressure) == (0.25, None, None)
    assert [(card.card, card.dma_bps) for card in found.cards] == [("card-1", 10_000)]
    assert meter.last == found


def test_it_is_measured_every_so_often(host, time):
    meter = host.meter()
    time.now_s += INTERVAL_S - 0.1
    assert meter.measure(at=1.0) is None
    time.now_s += 0.1
    assert meter.measure(at=2.0).at == 2.0
    assert meter.measure(at=3.0) is None


def test_in_a_namespace_without_network_cards_all_devices_count_but_the_loopback_one(host, time):
    (host.root / "net" / "eth0" / "device").unlink()
    meter = host.meter()
    host.write("proc/self/net/dev", NET.format(lo=10**9, received=2_000_000, sent=2_000_000, tap=1_000_007))
    assert again(meter, time).received_bps == 800_000


@pytest.mark.parametrize("text", ["", "nonsense", "cpu  1 x\n", "cpu\n"])
def test_what_cannot_be_read_is_left_out(host, time, text):
    meter = host.meter()
    for name in ("stat", "meminfo", "self/net/dev", "pressure/cpu"):
        host.write(f"proc/{name}", text)
    found = again(meter, time)
    assert read(HostCounters, to_plain(found)) == found
    assert (found.busy_cpus, found.memory_bytes, found.cpu_pressure) == (None, None, None)


def test_counters_that_began_again_are_left_out(host, time):
    meter = host.meter()
    host.write("proc/stat", STAT.format(busy=10, idle=10, guests=0))
    host.write("proc/self/net/dev", NET.format(lo=0, received=3, sent=2_123_456, tap=0))
    host.write("proc/pressure/cpu", "some avg10=9.00 avg60=0.00 avg300=0.00 total=5\n")
    host.moved["card-1"] = 0
    found = again(meter, time)
    assert (found.busy_cpus, found.received_bps, found.sent_bps, found.cpu_pressure) == (None, None, None, 0.0)
    assert [card.dma_bps for card in found.cards] == [0.0]


SCOPE = "machine.slice/machine-qemu-1.scope"


@pytest.mark.parametrize(
    ("lines", "file", "times"),
    [
        (
            f"0::/{SCOPE}/libvirt/emulator\n",
            f"{SCOPE}/libvirt/cpu.stat",
            ["usage_usec 2500000\nuser_usec 1\n", "usage_usec 32500000\n"],
        ),
        (
            "4:cpu,cpuacct:/machine/g/emulator\n0::/\n",
            "cpuacct/machine/g/cpuacct.usage",
            ["2500000000\n", "32500000000\n"],
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_guests_of_control_groups_of_each_version(host, time, lines, file, times):
    host.write("pids/guest.pid", "7\n")
    host.write("proc/7/cgroup", lines)
    host.write("proc/7/cmdline", f"qemu-system-x86_64\0-uuid\0{GUEST}\0-S\0")
    # Guests whose files cannot be used are left out, and do not hide other guests.
    host.write("pids/broken.pid", "x\n")
    host.write("pids/foreign.pid", "8\n")
    host.write("proc/8/cmdline", "qemu\0-uuid\0not a uuid\0")
    host.write(f"cgroup/{file}", times[0])
    meter = host.meter()
    host.write(f"cgroup/{file}", times[1])
    # 30 s of CPU time in 20 s.
    assert [(guest.uuid, guest.cpus) for guest in again(meter, time).guests] == [(GUEST, 1.5)]
