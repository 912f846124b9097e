"""Input and output of a simulation of online jobs: jobs, pools, faults, and a columnar record for a million jobs."""

import csv
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import Floats, Ints, floats, ints
from fpga_pool.model.catalogue import Board, Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.files import replacing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """J jobs in order of arrival."""

    #: Names, as in the file.
    jobs: tuple[str, ...]
    #: (J,) index of the function in the pool; -1 = fits into no slot of the pool.
    function: Ints
    arrival_s: Floats
    #: (J,) seconds on an accelerator that the job has alone.
    work_s: Floats
    #: (J,) seconds that a job waits for a slot before it runs on a CPU.
    patience_s: Floats
    #: Project of each job; () = the same project for all.
    project: tuple[str, ...] = ()
    #: (J,) actual speedup of each job, in vCPU equivalents; None = as in the catalogue.
    speedup: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", ints(self.function))
        object.__setattr__(self, "project", self.project or ("",) * len(self.jobs))
        if len(self.project) != len(self.jobs):
            raise ValueError(f"project: expected {len(self.jobs)} names, found {len(self.project)}")
        for name in ("arrival_s", "work_s", "patience_s", "speedup"):
            if getattr(self, name) is None:
                continue
            array = floats(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.shape != (len(self.jobs),):
                raise ValueError(f"{name}: expected shape ({len(self.jobs)},), found {array.shape}")
            if not (np.isfinite(array) & (array >= 0)).all():
                raise ValueError(f"{name}: expected finite numbers, 0 or more")
        if (np.diff(self.arrival_s) < 0).any():
            raise ValueError("arrival_s: expected jobs in order of arrival")

    @property
    def last_arrival_s(self) -> float:
        """Arrival time of the last job; 0 without jobs."""
        return float(self.arrival_s[-1]) if len(self.arrival_s) else 0.0


def uniform_pool(catalogue: Catalogue, board: Board, hosts: int, cards: int) -> OnlinePool:
    """Return a pool of `hosts` hosts with `cards` cards of one board each; cards are numbered across hosts."""
    functions = list(catalogue.functions.values())
    scarcity = catalogue.scarcity()
    kinds = sorted(dict.fromkeys(board.slots), key=lambda kind: scarcity[board.name, kind])
    count = hosts * cards
    return OnlinePool(
        functions=tuple(catalogue.functions),
        speedup=np.array([function.speedup for function in functions]),
        preemptible=np.array([function.preemptible for function in functions]),
        progress_kept=np.array([function.progress_kept for function in functions]),
        fits=np.array([[catalogue.fits(function.name, board.name, kind) for function in functions] for kind in kinds]),
        io_bps=np.array([[function.io_bps_on(board.name) for function in functions]] * len(kinds)),
        load_s=np.array([board.load_s(kind) for kind in kinds]),
        dma_bps=np.full(count, board.dma_bps),
        slot_card=np.repeat(np.arange(count), len(board.slots)),
        slot_kind=np.tile([kinds.index(kind) for kind in board.slots], count),
    )


#: Where a job ran, or how it ended.
CPU, FPGA, BOTH, FAILED, CANCELLED = range(5)
PLACES = ("cpu", "fpga", "fpga+cpu", "failed", "cancelled")


class Record:
    """One row per job, and one per stretch, an interval of constant rate on a slot."""

    def __init__(self, jobs: int, keep_stretches: bool) -> None:
        self.begin_s: Floats = np.zeros(jobs)
        self.end_s: Floats = np.zeros(jobs)
        self.where: Ints = np.zeros(jobs, np.int64)
        self.reconfigurations = 0
        self._keep = keep_stretches
        #: Per stretch: job (-1 - function for a load), slot, begin, end, rate.
        self.job, self.slot = array("q"), array("q")
        self.from_s, self.to_s, self.rate = array("d"), array("d"), array("d")

    def stretch(self, job: int, slot: int, from_s: float, to_s: float, rate: float) -> None:
        """Record a stretch on a slot."""
        if self._keep and to_s > from_s:
            self.job.append(job)
            self.slot.append(slot)
            self.from_s.append(from_s)
            self.to_s.append(to_s)
            self.rate.append(rate)

    def load(self, slot: int, function: int, from_s: float, to_s: float) -> None:
        """Record a reconfiguration."""
        self.reconfigurations += 1
        self.stretch(-1 - function, slot, from_s, to_s, 0.0)

    def lose(self, job: int, slot: int, begin_s: float) -> None:
        """Set the rate of the job's stretches on this slot after `begin_s` to 0, as its work there is lost."""
        for i in range(len(self.job) - 1, -1, -1):
            if self.to_s[i] <= begin_s and self.slot[i] == slot:
                break
            if self.job[i] == job:
                self.rate[i] = 0.0


# ---- Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Some slots fail for an interval: their loads, computations and loaded functions are lost."""

    begin_s: float
    end_s: float
    slots: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoss:
    """A host is absent for an interval, with its slots; it returns with its journal, but with empty slots."""

    begin_s: float
    end_s: float
    slots: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The computation on a slot fails, if there is one; its job is tried again."""

    at_s: float
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """A slot gets no new work for an interval; a running computation continues."""

    begin_s: float
    end_s: float
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """A job is cancelled, if it has not ended."""

    at_s: float
    job: int


Fault = Outage | HostLoss | Failure | Drain | Cancel


@dataclass(frozen=True, slots=True)
class End:
    """The end of an outage, a host loss or a drain."""

    of: Outage | HostLoss | Drain


def timeline(faults: Sequence[Fault]) -> list[tuple[float, Fault | End]]:
    """Return the beginnings and ends of the faults with their times, in order of time."""
    events: list[tuple[float, Fault | End]] = []
    for fault in faults:
        if isinstance(fault, Failure | Cancel):
            events.append((fault.at_s, fault))
        else:
            events += [(fault.begin_s, fault), (fault.end_s, End(fault))]
    return sorted(events, key=lambda event: event[0])


# ---- Files (doc/formats)

FORMAT_VERSION = 1
_VERSION = "# format_version="
_REQUIRED = ("job", "arrival_s", "project", "function", "ideal_fpga_s")


def read_trace(path: str | Path, pool: OnlinePool) -> Trace:
    """Return the jobs of the file in order of arrival; raises InvalidInput, which names the line of the error.

    The default of a job's patience is its time on an accelerator.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as stream:
            columns, lines = _columns(path, stream)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path}: not CSV text: {error}") from None
    _refuse_repeated(path, columns["job"], lines)
    arrival_s = _numbers(path, "arrival_s", columns["arrival_s"], lines)
    work_s = _numbers(path, "ideal_fpga_s", columns["ideal_fpga_s"], lines)
    patience_s = (
        _numbers(path, "patience_s", columns["patience_s"], lines, work_s) if "patience_s" in columns else work_s
    )
    function = _functions(path, columns["function"], lines, pool)
    order = np.argsort(arrival_s, kind="stable")
    return Trace(
        jobs=tuple(columns["job"][i] for i in order.tolist()),
        function=function[order],
        arrival_s=arrival_s[order],
        work_s=work_s[order],
        patience_s=patience_s[order],
        project=tuple(intern(columns["project"][i]) for i in order.tolist()),
    )


def write_jobs(path: str | Path, trace: Trace, record: Record) -> None:
    """Write the place and times of each job."""
    columns = (trace.arrival_s.tolist(), record.begin_s.tolist(), record.end_s.tolist())
    places = (PLACES[where] for where in record.where.tolist())
    rows = zip(trace.jobs, *columns, places, strict=True)
    _write(path, ("job", "arrival_s", "begin_s", "end_s", "where"), rows)


def write_stretches(path: str | Path, trace: Trace, record: Record, pool: OnlinePool, cards_per_host: int) -> None:
    """Write every stretch of constant rate on a slot, and every load."""
    card = pool.slot_card.tolist()
    first: dict[int, int] = {}
    place = [(c // cards_per_host, c % cards_per_host, s - first.setdefault(c, s)) for s, c in enumerate(card)]
    names = [f"load:{function}" for function in pool.functions]

    def rows() -> Iterator[Sequence[Any]]:
        stretches = zip(record.job, record.slot, record.from_s, record.to_s, record.rate, strict=True)
        for job, slot, from_s, to_s, rate in stretches:
            name = trace.jobs[job] if job >= 0 else names[-1 - job]
            yield name, from_s, to_s, *place[slot], rate

    _write(path, ("job", "begin_s", "end_s", "host", "card", "slot", "rate"), rows())


def _columns(path: str | Path, stream: Iterable[str]) -> tuple[dict[str, list[str]], list[int]]:
    """Return the columns of the file by name, and the line number of each row."""
    lines = _numbered(path, stream)
    number, heading = next(lines, (1, []))
    missing = [name for name in _REQUIRED if name not in heading]
    if missing:
        raise InvalidInput(f"{path}: line {number}: missing column {missing[0]!r}; a trace has {','.join(_REQUIRED)}")
    numbers: list[int] = []
    rows: list[list[str]] = []
    for number, row in lines:
        if len(row) != len(heading):
            raise InvalidInput(f"{path}: line {number}: expected {len(heading)} fields, found {len(row)}")
        numbers.append(number)
        rows.append(row)
    return {name: [row[i] for row in rows] for i, name in enumerate(heading)}, numbers


def _numbered(path: str | Path, stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are neither empty nor comments, each with the number of its line."""
    reader = csv.reader(stream)
    for row in reader:
        if not row:
            continue
        if row[0].startswith("#"):
            _check_version(path, reader.line_num, ",".join(row))
            continue
        yield reader.line_num, row


def _check_version(path: str | Path, number: int, comment: str) -> None:
    if not comment.startswith(_VERSION):
        return
    text = comment.removeprefix(_VERSION).strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(f"{path}: line {number}: format_version: expected a whole number, 1 or more, found {text!r}")
    if int(text) > FORMAT_VERSION:
        raise InvalidInput(
            f"{path}: line {number}: format_version: {text} is newer than {FORMAT_VERSION}, the latest supported "
            "version"
        )


def _numbers(
    path: str | Path, name: str, texts: Sequence[str], lines: Sequence[int], default: Floats | None = None
) -> Floats:
    """Return a column of seconds; an empty field means the default if there is one."""
    found = np.zeros(len(texts))
    for i, text in enumerate(texts):
        try:
            found[i] = float(text) if text or default is None else default[i]
        except ValueError:
            found[i] = np.nan
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(bad):
        i = int(bad[0])
        raise InvalidInput(f"{path}: line {lines[i]}: {name}: expected seconds, 0 or more, found {texts[i]!r}")
    return found


def _functions(path: str | Path, names: Sequence[str], lines: Sequence[int], pool: OnlinePool) -> np.ndarray[Any, Any]:
    """Return the index of the function of each job; -1 if it fits into no slot of the pool."""
    somewhere: list[bool] = np.any(pool.fits, axis=0).tolist()
    index = {name: i if somewhere[i] else -1 for i, name in enumerate(pool.functions)}
    found = np.zeros(len(names), np.int64)
    for i, name in enumerate(names):
        if name not in index:
            known = ", ".join(pool.functions)
            raise InvalidInput(f"{path}: line {lines[i]}: function {name!r} is not in the catalogue; it has {known}")
        found[i] = index[name]
    return found


def _refuse_repeated(path: str | Path, jobs: Sequence[str], lines: Sequence[int]) -> None:
    if len(set(jobs)) == len(jobs):
        return
    seen: set[str] = set()
    for job, line in zip(jobs, lines, strict=True):
        if job in seen:
            raise InvalidInput(f"{path}: line {line}: duplicate job {job!r}")
        seen.add(job)


def _write(path: str | Path, heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with replacing(path) as place, place.open("w", newline="", encoding="utf-8") as stream:
        stream.write(f"{_VERSION}{FORMAT_VERSION}\n")
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(rows)
