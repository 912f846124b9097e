"""Load of a host, read from kernel files: processors, memory, network, pressure, and CPU use of libvirt guests.

Values that cannot be read on a host are omitted.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.drivers.tiers.cgroups import PROC, ROOT, of_process
from fpga_pool.model.exceptions import FpgaPoolError, NotFound
from fpga_pool.model.messages.counters import MOST_CARDS, MOST_GUESTS, CardCounters, GuestCounters, HostCounters

#: Minimum time between measurements, in seconds.
INTERVAL_S = 10.0
NETWORKS = Path("/sys/class/net")
_RESOURCES = ("cpu", "memory", "io")
_US_PER_S = 1e6
#: Columns of /proc/stat with idle time: idle and iowait.
_IDLE = slice(3, 5)
#: Columns of /proc/stat to sum. Later columns, with the time of guests, are included in the first ones.
_TIMES = 8
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Significant digits of rates.
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class _Reading:
    """The values of monotonic counters at one moment."""

    at_s: float
    #: Busy time and total time of the processors, in ticks.
    cpu: tuple[int, int] | None
    #: Bytes received and sent.
    network: tuple[int, int] | None
    #: Seconds in which something waited, by resource.
    waited_s: Mapping[str, float]
    #: CPU seconds of guests, by uuid.
    guests_s: Mapping[str, float]
    #: Bytes moved over the DMA of cards.
    moved: Mapping[str, int]


class HostMeter:
    """Measures the load of the host.

    `moved` returns the bytes that each card has transferred by DMA so far. The directory `pids` has a file NAME.pid for
    each guest, as written by libvirt.
    """

    def __init__(
        self,
        pids: Path,
        moved: Callable[[], Mapping[str, int]] = dict,
        *,
        proc: Path = PROC,
        cgroups: Path = ROOT,
        networks: Path = NETWORKS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pids, self._moved = pids, moved
        self._proc, self._cgroups, self._networks, self._now_s = proc, cgroups, networks, now_s
        self._before = self._read()
        #: The last measurement; None = none yet.
        self.last: HostCounters | None = None

    def measure(self, at: float) -> HostCounters | None:
        """Return the means since the last measurement; None if that is too recent.  `at` is UTC seconds."""
        if self._now_s() - self._before.at_s < INTERVAL_S:
            return None
        before, now = self._before, self._read()
        self._before, passed_s = now, now.at_s - before.at_s
        cpus, memory = os.cpu_count() or 1, self._memory()
        network = _grown(before.network, now.network)
        ticks = _grown(before.cpu, now.cpu)
        waited = {
            name: round(min(max(waited_s - before.waited_s[name], 0.0) / passed_s, 1.0), 4)
            for name, waited_s in now.waited_s.items()
            if name in before.waited_s
        }
        self.last = HostCounters(
            at=at,
            cpus=float(cpus),
            busy_cpus=round(cpus * min(ticks[0] / ticks[1], 1.0), 2) if ticks and ticks[1] else None,
            memory_bytes=memory[0] if memory else None,
            used_bytes=memory[1] if memory else None,
            received_bps=_rounded(8 * network[0] / passed_s) if network else None,
            sent_bps=_rounded(8 * network[1] / passed_s) if network else None,
            **{f"{name}_pressure": share for name, share in waited.items()},
            guests=tuple(
                GuestCounters(uuid=guest, cpus=round(max(used_s - before.guests_s[guest], 0.0) / passed_s, 2))
                for guest, used_s in sorted(now.guests_s.items())
                if guest in before.guests_s
            )[:MOST_GUESTS],
            cards=tuple(
                CardCounters(card=card, dma_bps=_rounded(8 * (moved - before.moved.get(card, 0)) / passed_s))
                for card, moved in sorted(now.moved.items())
            )[:MOST_CARDS],
        )
        return self.last

    def _read(self) -> _Reading:
        return _Reading(
            self._now_s(), self._cpu(), self._network(), dict(self._waited()), dict(self._guests()), self._moved()
        )

    def _cpu(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return _busy_and_all((self._proc / "stat").read_text().split("\n", 1)[0])
        return None

    def _memory(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
            lines = (self._proc / "meminfo").read_text().splitlines()
            sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
            return sizes["MemTotal"], sizes["MemTotal"] - sizes["MemAvailable"]
        return None

    def _network(self) -> tuple[int, int] | None:
        """Return the bytes received and sent by network cards, or by all devices but `lo` if there are no cards."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            lines = (self._proc / "self" / "net" / "dev").read_text().splitlines()[2:]
            devices = {name.strip(): columns.split() for name, _, columns in (line.partition(":") for line in lines)}
            devices.pop("lo", None)
            cards = {name: all_ for name, all_ in devices.items() if (self._networks / name / "device").exists()}
            chosen = (cards or devices).values()
            return sum(int(columns[0]) for columns in chosen), sum(int(columns[8]) for columns in chosen)
        return None

    def _waited(self) -> Iterator[tuple[str, float]]:
        for name in _RESOURCES:
            with contextlib.suppress(OSError, ValueError, IndexError):
                some = (self._proc / "pressure" / name).read_text().split("\n", 1)[0]
                yield name, int(some.rpartition("total=")[2]) / _US_PER_S

    def _guests(self) -> Iterator[tuple[str, float]]:
        for file in sorted(self._pids.glob("*.pid")):
            # A guest may end in between, and other processes have files there, too.
            with contextlib.suppress(OSError, ValueError, IndexError, FpgaPoolError):
                pid = int(file.read_text())
                words = (self._proc / str(pid) / "cmdline").read_text().split("\0")
                guest = str(uuid.UUID(words[words.index("-uuid") + 1]))
                yield guest, of_process(pid, self._cgroups, self._proc).cpu_time_s()


def busy_times_s(pcpus: Sequence[int], proc: Path = PROC) -> tuple[float, ...]:
    """Return the total busy time of each pCPU in seconds. Raises NotFound if this host lacks one."""
    lines = dict(line.split(maxsplit=1) for line in (proc / "stat").read_text().splitlines() if line.startswith("cpu"))
    try:
        return tuple(_busy_and_all(f"cpu{pcpu} {lines[f'cpu{pcpu}']}")[0] / _TICKS_PER_S for pcpu in pcpus)
    except KeyError:
        missing = min(pcpu for pcpu in pcpus if f"cpu{pcpu}" not in lines)
        raise NotFound(f"this host has no pCPU {missing}") from None


def _busy_and_all(line: str) -> tuple[int, int]:
    """Return the busy ticks and the total ticks in a line of /proc/stat."""
    times = [int(ticks) for ticks in line.split()[1:]][:_TIMES]
    return sum(times) - sum(times[_IDLE]), sum(times)


def _grown(before: tuple[int, int] | None, now: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the increases of two counters; None if they are unknown or were reset."""
    if before is None or now is None or now < before or now[1] < before[1]:
        return None
    return now[0] - before[0], now[1] - before[1]


def _rounded(value: float) -> float:
    return float(f"{max(value, 0.0):.{_DIGITS}g}")
