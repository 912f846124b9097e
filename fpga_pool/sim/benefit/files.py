"""Files of online jobs: the trace that comes in, jobs and stretches that go out (doc/formats)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np

from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.types import Floats
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.benefit.trace import PLACES, Record, Trace
from fpga_pool.sim.files import replacing

FORMAT_VERSION = 1
_VERSION = "# format_version="
_REQUIRED = ("job", "arrival_s", "project", "function", "ideal_fpga_s")


def read_trace(path: str | Path, pool: OnlinePool) -> Trace:
    """Return the jobs of the file in order of arrival; InvalidInput names the line that is wrong.

    A job that says nothing of its patience waits no longer than it would run.
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
    """Write where each job ran, and when."""
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
    """Return a column of seconds; an empty field means the default where there is one."""
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
    """Return the function of each job, -1 where no slot of the pool can hold it."""
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
