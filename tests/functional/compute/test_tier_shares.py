"""What a foreground and a background guest get of one pCPU, by the kernel's accounting of CPU time.

Every figure is a ratio of CPU times of one window, and what goes to others than guests is left out of it, so that what
they do on this machine matters little.
"""

import contextlib
import statistics
import time
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from fpga_pool.drivers.tiers import cgroups
from fpga_pool.model.flavor import Tier

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PCPU = 0
WINDOW_S, WINDOWS = 2.0, 7
BOOT_S = 240.0
#: CPU time of all processes by pCPU.
ACCOUNTS = Path("/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu")


@pytest.fixture
def driver(tier_machines):
    with contextlib.closing(tier_machines.new_driver()) as made:
        yield made


@pytest.fixture
def pair(tier_machines, driver, quiet_pcpu, until):
    """Start a foreground guest that computes for a share of the time, and a background guest that always does."""

    def start(duty):
        front = tier_machines.start({"fpga_pool:tier": "foreground"}, duty=duty)
        behind = tier_machines.start({"fpga_pool:tier": "background"})
        for guest in (front, behind):
            until(lambda guest=guest: tier_machines.is_up(guest), "the guest is up", BOOT_S)
        driver.place(front, Tier.FOREGROUND, [PCPU])
        driver.place(behind, Tier.BACKGROUND, [PCPU])
        time.sleep(3)  # they begin to compute a second after they are up
        return front, behind

    return start


@dataclass
class Counters:
    """CPU time so far, seconds."""

    wall_s: float
    #: Of the vCPUs.
    front_s: float
    behind_s: float
    #: Of the whole foreground guest, what emulates its devices included.
    front_guest_s: float
    #: Of all that runs on the pCPU and is no guest: interrupts, other machines of its hypervisor, other processes.
    others_s: float


def whole_guest_s(machines, instance):
    """CPU time of all threads of a guest, by its control group."""
    pid = (machines.hypervisor.directory / "run" / "libvirt" / "qemu" / f"{machines.domains[instance].name()}.pid").read_text()  # fmt: skip  # noqa: E501
    group = cgroups.of_process(int(pid)).accounting
    if (group / "cpuacct.usage").exists():
        return int((group / "cpuacct.usage").read_text()) / 1e9
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def counters(machines, driver, front, behind):
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{PCPU} "))
    user, nice, system, _, _, irq, softirq, steal = (int(word) / 100 for word in line.split()[1:9])
    busy_s = user + nice + system + irq + softirq
    if ACCOUNTS.exists():  # to the nanosecond, where /proc/stat counts ticks
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
    """What passed in a window."""
    begin = counters(machines, driver, front, behind)
    time.sleep(WINDOW_S)
    end = counters(machines, driver, front, behind)
    return Counters(*(getattr(end, each.name) - getattr(begin, each.name) for each in fields(Counters)))


def tell(what, percent):
    low, high = min(percent), max(percent)
    print(f"{what}: median {statistics.median(percent):.2f} %, {low:.2f} to {high:.2f} % in {len(percent)} windows")


def test_a_busy_background_guest_takes_at_most_one_percent_of_a_busy_foreground_guest(tier_machines, driver, pair):
    front, behind = pair(100)
    lost = []
    for _ in range(WINDOWS):
        seen = window(tier_machines, driver, front, behind)
        lost.append(100 * seen.behind_s / (seen.front_s + seen.behind_s))
    tell("foreground at 100 %: CPU time that goes to the background instead", lost)
    assert statistics.median(lost) <= 1.0

    # The same after they have swapped.  In the second that begins with the call the former foreground gets no more than
    # what it uses until the swap has effect, and its share of the rest.
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


@pytest.mark.parametrize("duty", [80, 60, 40])
def test_a_background_guest_uses_what_the_foreground_leaves_idle(tier_machines, driver, pair, duty):
    front, behind = pair(duty)
    used, shares, others = [], [], []
    for _ in range(WINDOWS):
        seen = window(tier_machines, driver, front, behind)
        possible_s = seen.wall_s - max(0.0, seen.others_s)
        shares.append(100 * seen.front_s / possible_s)
        used.append(100 * seen.behind_s / (possible_s - seen.front_guest_s))
        others.append(100 * seen.others_s / seen.wall_s)
    tell(f"foreground at {duty} %: share of the pCPU that goes to others than guests", others)
    tell(f"foreground at {duty} %: its share of the pCPU", shares)
    tell(f"foreground at {duty} %: use by the background of what is idle", used)
    assert 0.5 * duty < statistics.median(shares) < 95.0  # else there is nothing to measure
    assert statistics.median(used) >= 92.0
