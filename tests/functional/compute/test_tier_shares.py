"""CPU time of a foreground and a background guest on one pCPU, by the kernel's accounting.

Every figure is a ratio of CPU times within one window, without the CPU time of other processes than guests, so that
other load on this machine has little influence.
"""

import contextlib
import os
import statistics
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from fpga_pool.drivers.tiers import cgroups
from fpga_pool.model.flavor import Tier
from support.waiting import wait_until

from .tier_machines import LibvirtMachines

pytestmark = [pytest.mark.timeout(600)]

PCPU = 0
#: Shares of the time, in percent, during which foreground guests compute.
DUTIES = (100, 80, 60, 40)
WINDOW_S, WINDOWS = 2.0, 5
BOOT_S = 240.0
#: Number of swaps that are timed, and timeout in seconds for each to take effect.
SWAPS, EFFECT_S = 15, 2.0
#: An effect counts if it lasts for this long.
HOLD_S = 0.02
#: CPU time of all processes by pCPU.
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu")


@pytest.fixture(scope="module")
def machines(libvirt, tier_hypervisor, kernel, busy_initrd, tmp_path_factory):
    with contextlib.closing(libvirt.open(tier_hypervisor.uri)) as connection:
        made = LibvirtMachines(tier_hypervisor, connection, kernel, busy_initrd, tmp_path_factory.mktemp("guests"))
        yield made
        made.close()


@pytest.fixture(scope="module")
def driver(machines):
    with contextlib.closing(machines.new_driver()) as made:
        yield made


@pytest.fixture(scope="module")
def guests(machines, driver, quiet_pcpu):
    """Guests of the foreground by their duty, and one of the background, which always computes; all are suspended.

    They boot concurrently.
    """
    front = {duty: machines.start({"fpga_pool:tier": "foreground"}, duty=duty) for duty in DUTIES}
    behind = machines.start({"fpga_pool:tier": "background"}, duty=100)
    booting = [*front.values(), behind]

    def all_are_up():
        for guest in filter(machines.is_up, tuple(booting)):
            machines.domains[guest].suspend()  # otherwise it would compute while others boot
            booting.remove(guest)
        return not booting

    wait_until(all_are_up, "all guests are up", BOOT_S)
    return front, behind


@pytest.fixture
def pair(machines, driver, guests):
    """Run a foreground guest that computes for a share of the time, and the background guest, on one pCPU."""
    going = []

    def resume(duty):
        front, behind = guests[0][duty], guests[1]
        for guest, tier in ((front, Tier.FOREGROUND), (behind, Tier.BACKGROUND)):
            machines.domains[guest].resume()
            going.append(guest)
            driver.place(guest, tier, [PCPU])
        time.sleep(2.0)  # they start to compute a second after they are up
        return front, behind

    yield resume
    for guest in going:
        driver.release(guest)
        machines.domains[guest].suspend()


@dataclass
class Counters:
    """Cumulative CPU times, in seconds."""

    wall_s: float
    #: Of the vCPUs.
    front_s: float
    behind_s: float
    #: Of the whole foreground guest, including the emulation of its devices.
    front_guest_s: float
    #: Of everything on the pCPU that is not a guest: interrupts, other machines of its hypervisor, other processes.
    others_s: float


def guest_group(machines, instance):
    """Return the control group that accounts for a guest."""
    pid = (machines.hypervisor.directory / "run" / "libvirt" / "qemu" / f"{machines.domains[instance].name()}.pid").read_text()  # fmt: skip  # noqa: E501
    return cgroups.of_process(int(pid)).accounting


def whole_guest_s(machines, instance):
    """Return the CPU time of all threads of a guest, by its control group."""
    group = guest_group(machines, instance)
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def counters(machines, driver, front, behind):
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{PCPU} "))
    user, nice, system, _, _, irq, softirq, steal = (int(word) / 100 for word in line.split()[1:9])
    busy_s = user + nice + system + irq + softirq
    if ACCOUNTS.exists():  # in nanoseconds; /proc/stat counts ticks
        busy_s = int(ACCOUNTS.read_text().split()[PCPU]) / 1e9
    front_guest_s = whole_guest_s(machines, front)
    guests_s = front_guest_s + whole_guest_s(machines, behind)
    return Counters(
        time.monotonic(),
        driver.cpu_times_s(front)[0],
        driver.cpu_times_s(behind)[0],
        front_guest_s,
        busy_s + steal - guests_s,
    )


def window(machines, driver, front, behind):
    """Return the CPU times used in one window."""
    begin = counters(machines, driver, front, behind)
    time.sleep(WINDOW_S)
    end = counters(machines, driver, front, behind)
    return Counters(*(getattr(end, each.name) - getattr(begin, each.name) for each in fields(Counters)))


def tell(what, percent):
    low, high = min(percent), max(percent)
    print(f"{what}: median {statistics.median(percent):.2f} %, {low:.2f} to {high:.2f} % in {len(percent)} windows")


def test_a_busy_background_guest_takes_at_most_one_percent_of_a_busy_foreground_guest(machines, driver, pair):
    front, behind = pair(100)
    lost = []
    for _ in range(WINDOWS):
        seen = window(machines, driver, front, behind)
        lost.append(100 * seen.behind_s / (seen.front_s + seen.behind_s))
    tell("foreground at 100 %: CPU time that goes to the background instead", lost)
    assert statistics.median(lost) <= 1.0

    # The same after a swap.  In the second after the call, the former foreground gets its CPU time until the swap takes
    # effect, and its background share of the rest.
    after = []
    for _ in range(WINDOWS):
        tiers = {front: Tier.BACKGROUND, behind: Tier.FOREGROUND}
        begin_s, used_s = time.monotonic(), driver.cpu_times_s(front)[0]
        driver.set_tiers(tiers)
        time.sleep(max(0.0, begin_s + 1.0 - time.monotonic()))
        after.append(1000 * (driver.cpu_times_s(front)[0] - used_s))
        front, behind = behind, front
    low, high = min(after), max(after)
    print(f"CPU time of the former foreground in the second after a swap: median {statistics.median(after):.1f} ms, {low:.1f} to {high:.1f} ms in {len(after)} swaps")  # fmt: skip  # noqa: E501
    assert statistics.median(after) <= 50.0


class Sampler:
    """Samples the CPU time of two guests about every millisecond, from a thread that avoids their pCPU."""

    def __init__(self, machines, guests):
        self._files = [open_usage(machines, guest) for guest in guests]
        #: Time in seconds, and CPU time of each guest in nanoseconds.
        self.samples: list[tuple[float, int, int]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self._thread.join()
        for file in self._files:
            os.close(file)

    def _run(self):
        os.sched_setaffinity(threading.get_native_id(), set(range(os.cpu_count())) - {PCPU})
        while not self._ending.is_set():
            first, second = (usage_ns(file) for file in self._files)
            self.samples.append((time.monotonic(), first, second))
            time.sleep(0.001)


def open_usage(machines, instance):
    vcpu = guest_group(machines, instance) / "vcpu0"
    return os.open(next(vcpu / name for name in ("cpuacct.usage", "cpu.stat") if (vcpu / name).exists()), os.O_RDONLY)


def usage_ns(file):
    text = os.pread(file, 200, 0).split()  # "NANOSECONDS", or "usage_usec MICROSECONDS ..."
    return int(text[0]) if len(text) == 1 else 1000 * int(text[1])


def effect_ms(samples, called_s):
    """Return how long after a call the second guest got its pCPU, i.e. nine tenths of both guests' next 20 ms, in ms.

    The result is at most 2 ms too early; the kernel accounts by its tick, which is 4 ms here.
    """
    after = [sample for sample in samples if sample[0] >= called_s]
    for number, (at_s, first, second) in enumerate(after):
        later = next((sample for sample in after[number:] if sample[0] >= at_s + HOLD_S), None)
        if later is not None:
            got = later[1] - first, later[2] - second
            if got[1] > 0 and got[1] >= 0.9 * sum(got):
                return 1000 * (at_s - called_s)
    return None


def test_a_live_swap_takes_effect_at_once(machines, driver, pair):
    """Both guests are busy: before the swap one has the pCPU, after it the other."""
    front, behind = pair(100)
    calls, effects = [], []
    for _ in range(SWAPS):
        with Sampler(machines, (front, behind)) as sampler:
            time.sleep(0.2)
            called_s = time.monotonic()
            driver.set_tiers({front: Tier.BACKGROUND, behind: Tier.FOREGROUND})
            calls.append(1000 * (time.monotonic() - called_s))
            while effect_ms(sampler.samples, called_s) is None and time.monotonic() < called_s + EFFECT_S:
                time.sleep(0.05)
        before = [sample for sample in sampler.samples if sample[0] < called_s]
        assert before[-1][1] - before[0][1] > before[-1][2] - before[0][2]  # there was something to change
        effects.append(effect_ms(sampler.samples, called_s))
        assert effects[-1] is not None, f"a swap has no effect within {EFFECT_S} s"
        front, behind = behind, front
    for what, spent in (("effect of a live swap", effects), ("the call", calls)):
        print(f"{what}: median {statistics.median(spent):.1f} ms, {min(spent):.1f} to {max(spent):.1f} ms in {SWAPS} swaps")  # fmt: skip  # noqa: E501


@pytest.mark.parametrize("duty", DUTIES[1:])
def test_a_background_guest_uses_what_the_foreground_leaves_idle(machines, driver, pair, duty):
    front, behind = pair(duty)
    used, shares, others = [], [], []
    for _ in range(WINDOWS):
        seen = window(machines, driver, front, behind)
        possible_s = seen.wall_s - max(0.0, seen.others_s)
        shares.append(100 * seen.front_s / possible_s)
        used.append(100 * seen.behind_s / (possible_s - seen.front_guest_s))
        others.append(100 * seen.others_s / seen.wall_s)
    tell(f"foreground at {duty} %: share of the pCPU that goes to others than guests", others)
    tell(f"foreground at {duty} %: its share of the pCPU", shares)
    tell(f"foreground at {duty} %: use by the background of what is idle", used)
    assert 0.5 * duty < statistics.median(shares) < 95.0  # otherwise there is nothing to measure
    assert statistics.median(used) >= 92.0
