"""Samples the resources of a pool over a long time: memory, descriptors, threads, processors, rows, files."""

import contextlib
import csv
import os
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from fpga_pool.model.agent.objects import REMEMBERED
from fpga_pool.services.agent.journal import Journal
from fpga_pool.store import Store
from fpga_pool.store.tables import METADATA
from support.drill import Item
from support.slopes import Slope, slope

#: Allowed growth per hour, by measured quantity; other quantities are only shown.  The budget for memory is large
#: because agents remember the last 10,000 released jobs, about 0.2 KiB each.
BUDGETS_PER_H: Mapping[str, float] = {
    "memory MiB": 4.0,
    "descriptors": 2.0,
    "threads": 2.0,
    "rows": 30.0,
    "rows of the journal": 30.0,
    "files": 10.0,
    "files KiB": 4096.0,
}
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Tables of a journal; omitted are those that `fill_journal` fills completely at the beginning.
JOURNAL = ("jobs", "reports", "inputs", "results", "tokens", "processes", "flows", "holds")

Key = tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """One series: its owner, the quantity, its first and last value, and its growth."""

    who: str
    what: str
    first: float
    last: float
    growth: Slope
    #: None if the series is only shown.
    budget_per_h: float | None

    @property
    def exceeds(self) -> bool:
        """Whether it grows faster than its budget allows."""
        return self.budget_per_h is not None and self.growth.exceeds(self.budget_per_h)

    def __str__(self) -> str:
        found = "GROWS" if self.exceeds else "flat"
        found += ", ".join(f" (step of {height:+.1f})" for height in self.growth.steps)
        may = "-" if self.budget_per_h is None else f"{self.budget_per_h:g}"
        return (
            f"{self.who:20} {self.what:20} {self.first:10.1f} {self.last:10.1f} {self.growth.per_h:+10.2f}"
            f" {self.growth.error_per_h:8.2f} {may:>6}  {found}"
        )


HEADER = f"{'of':20} {'what':20} {'first':>10} {'last':>10} {'per hour':>10} {'error':>8} {'budget':>6}"


@dataclass
class Sampler:
    """Samples in its own thread until it is closed."""

    #: Process IDs by name; those in `servers` are only shown, because servers fill their caches for hours.
    pids: Mapping[str, int]
    servers: Mapping[str, int]
    #: State directories by name of the process.
    directories: Mapping[str, Path]
    store: Store
    interval_s: float
    series: dict[Key, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self._end = threading.Event()
        self._before: dict[str, tuple[float, float]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop sampling."""
        self._end.set()
        self._thread.join(60)

    def write(self, path: Path) -> None:
        """Write all samples to a CSV file."""
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("of", "what", "seconds", "value"))
            for key, samples in self.series.items():
                rows.writerows((*key, f"{at_s:.1f}", f"{value:.3f}") for at_s, value in samples)

    def verdicts(self, from_s: float, to_s: float) -> list[Verdict]:
        """Return the verdicts on the samples between two times of the monotonic clock."""
        found = []
        for (who, what), samples in sorted(self.series.items()):
            later = [sample for sample in samples if from_s <= sample[0] <= to_s]
            times_s, values = zip(*later, strict=True)
            budget = None if who in self.servers else BUDGETS_PER_H.get(what)
            found.append(Verdict(who, what, values[0], values[-1], slope(times_s, values), budget))
        return found

    def _run(self) -> None:
        while not self._end.wait(self.interval_s):
            now_s = time.monotonic()
            for (who, what), value in self._samples(now_s):
                self.series[who, what].append((now_s, value))

    def _samples(self, now_s: float) -> Iterator[tuple[Key, float]]:
        for name, pid in {**self.pids, **self.servers}.items():
            for what, value in _process(pid):
                if what == "processor s":
                    at_s, before = self._before.get(name, (now_s, value))
                    self._before[name] = now_s, value
                    if now_s == at_s:
                        continue
                    what, value = "processor %", 100 * (value - before) / (now_s - at_s)
                yield (name, what), value
        for name, directory in self.directories.items():
            sizes = list(_sizes(directory))
            yield (name, "files"), len(sizes)
            yield (name, "files KiB"), sum(sizes) / 1024
            if (directory / "journal.sqlite").exists():
                yield (name, "rows of the journal"), _journal_rows(directory / "journal.sqlite")
        with self.store.reading() as tx:
            for table in METADATA.sorted_tables:
                count = tx.connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                yield (table.name, "rows"), count


def fill_journal(path: Path) -> None:
    """Fill an agent's journal with as many ids of executed commands as it keeps, which would take weeks otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Journal(path).close()
    with contextlib.closing(sqlite3.connect(path)) as journal, journal:
        ids = ((f"00000000-0000-4000-8000-{number:012d}",) for number in range(REMEMBERED))
        journal.executemany("INSERT INTO commands VALUES (?)", ids)


def _process(pid: int) -> Iterator[tuple[str, float]]:
    """Yield the resources of a process; its memory includes its share of memory that several processes use (PSS)."""
    place = Path(f"/proc/{pid}")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        yield "memory MiB", int((place / "smaps_rollup").read_text().split("\nPss:")[1].split()[0]) / 1024
        yield "descriptors", len(list((place / "fd").iterdir()))
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        yield "threads", int(fields[17])
        yield "processor s", (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _sizes(directory: Path) -> Iterator[int]:
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                yield (Path(folder) / name).stat().st_size


def _journal_rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as journal:
        return sum(journal.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in JOURNAL)


class Pace:
    """Yields submissions: at first as fast as they are taken, then at half of that rate, until the time is over.

    Items differ in size, so the rate is that of their jobs, shares, processes and slots.
    """

    def __init__(self, work: Iterator[Item], full_s: float, whole_s: float, per_s: float = 0.0) -> None:
        self._work = work
        self._full_s, self._whole_s = full_s, whole_s
        #: Objects per second; measured if it is not given.
        self.per_s = per_s
        #: Number of items yielded, and number of their objects.
        self.items = self.objects = 0

    def __iter__(self) -> Iterator[Item]:
        begun_s = time.monotonic()
        while not self.per_s and time.monotonic() < begun_s + self._full_s:
            yield self._next()
        self.per_s = self.per_s or self.objects / self._full_s / 2
        due_s = time.monotonic()
        while due_s < begun_s + self._whole_s:
            time.sleep(max(due_s - time.monotonic(), 0.0))
            item = self._next()
            # Delays are caught up with, unless they are longer than `full_s`.
            due_s = max(due_s, time.monotonic() - self._full_s) + item.objects / self.per_s
            yield item

    def _next(self) -> Item:
        item = next(self._work)
        self.items += 1
        self.objects += item.objects
        return item
