"""Objects as rows of tables: human-readable tables have units and text, data formats have the values."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain
from pathlib import Path
from textwrap import wrap
from typing import Any, TextIO

from cliff.columns import FormattableColumn
from cliff.formatters.table import TableFormatter

from fpga_pool.client import BatchResult, JobOutcome
from fpga_pool.model.objects.pool import Job

Row = tuple[Any, ...]
Table = tuple[Sequence[str], Sequence[Row]]
One = tuple[Sequence[str], Row]
#: Columns as names of fields, or as names with functions that return the value for an object.
Columns = Sequence[str | tuple[str, Callable[[Any], Any]]]

#: Maximum width of a table; width of its last border; width of a column's border with the blanks around the text.
_WIDTH, _BORDER, _BORDERS = 80, 1, 3
#: Maximum number of characters of a short word.
_SHORT = 16


class Shown(FormattableColumn[Any]):
    """A value with a human-readable text; data formats get the value, with None for infinity, which JSON lacks."""

    def __init__(self, value: Any, text: str) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        return self._text

    def machine_readable(self) -> Any:
        return None if self._value == float("inf") else self._value


def _with_unit(value: float, unit: str) -> str:
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def as_rate(bps: float) -> Shown:
    """Return a rate with a unit; infinity is shown as "unlimited"."""
    return Shown(bps, "unlimited" if bps == float("inf") else _with_unit(bps, "bit/s"))


def as_bytes(value: int | None) -> Shown:
    """Return a number of bytes with a unit."""
    return Shown(value, "" if value is None else _with_unit(value, "B"))


def as_number(value: float) -> Shown:
    """Return a number with four significant digits; infinity is shown as "unlimited"."""
    return Shown(value, "unlimited" if value == float("inf") else f"{value:.4g}")


#: Units of longer durations: how many of each make one of the next unit, and its symbol.
_PARTS = ((60, "s"), (60, "min"), (24, "h"))


def duration(value_s: float) -> str:
    """Return a duration in words: to the millisecond below a minute, otherwise its two largest parts."""
    if value_s < 0:
        return f"-{duration(-value_s)}"
    if value_s == float("inf"):
        return "unlimited"
    if value_s < 59.9995:
        return f"{value_s:.3f}".rstrip("0").rstrip(".") + " s"
    parts, rest = [], round(value_s)
    for size, unit in _PARTS:
        rest, part = divmod(rest, size)
        parts.append((part, unit))
    largest = [f"{part:d} {unit}" for part, unit in ((rest, "d"), *reversed(parts)) if part]
    return " ".join(largest[:2])


def as_seconds(value_s: float | None) -> Shown:
    """Return a duration."""
    return Shown(value_s, "" if value_s is None else duration(value_s))


def as_moment(at: float | None) -> Shown:
    """Return a point in time: text has whole seconds, data the format of the API."""
    if at is None:
        return Shown(None, "")
    date = datetime.fromtimestamp(at, UTC)
    return Shown(date.isoformat(timespec="microseconds"), date.isoformat(sep=" ", timespec="seconds"))


def as_words(words: Iterable[str]) -> Shown:
    """Return a list of words, shown separated by commas."""
    return Shown(list(words), ", ".join(words))


def as_lines(plain: Sequence[Any], lines: Iterable[str]) -> Shown:
    """Return a list of objects, shown as one line of text each."""
    return Shown(plain, "\n".join(lines))


def join(*parts: object) -> str:
    """Join the parts of a line that are not empty."""
    return "  ".join(str(part) for part in parts if part)


_OF_JOBS = ("uuid", "index", "name", "function", "state", "attempt", "slot", "compute_s", "reason", "place")


def as_jobs(jobs: Sequence[Job]) -> Shown:
    """Return the jobs of a batch."""
    plain = [{name: getattr(job, name) for name in _OF_JOBS} for job in jobs]
    return as_lines(plain, map(_job_line, jobs))


def _job_line(job: Job) -> str:
    took = "" if job.compute_s is None else duration(job.compute_s)
    return join(str(job.index), job.name, job.function, job.state, job.place, job.slot, took, job.reason)


def shown(name: str, value: Any) -> Any:
    """Return a value formatted with the unit that its name ends with."""
    if isinstance(value, Shown):
        return value
    if value is None:
        return Shown(None, "")
    if name == "at" or name.endswith("_at"):
        return as_moment(value)
    if name.endswith("_s"):
        return as_seconds(value)
    if name.endswith("_bps"):
        return as_rate(value)
    if name.endswith(("_bytes", "_bytes_of_day")):
        return as_bytes(value)
    if isinstance(value, StrEnum):
        return str(value)
    return as_words(value) if isinstance(value, tuple | list) else value


def names(columns: Columns) -> tuple[str, ...]:
    """Return the names of columns."""
    return tuple(column if isinstance(column, str) else column[0] for column in columns)


def row(found: Any, columns: Columns) -> Row:
    """Return an object as a row."""
    return tuple(
        shown(column, getattr(found, column)) if isinstance(column, str) else shown(column[0], column[1](found))
        for column in columns
    )


def table(found: Iterable[Any], columns: Columns) -> Table:
    """Return objects as a table."""
    return names(columns), [row(one, columns) for one in found]


def single(found: Any, columns: Columns, **more: Any) -> One:
    """Return an object with additional fields, as names and values."""
    return (*names(columns), *more), (*row(found, columns), *(shown(name, value) for name, value in more.items()))


# ---- Results of batches

#: Size of the largest result that is shown in a table.
_INLINE_BYTES = 100


def results_table(called: str, names: Sequence[str], result: BatchResult, *, show_paths: bool) -> Table:
    """Return a table of the jobs' results, or where these are; columns that would be empty are left out."""
    columns = [called, "state", "slot", "compute_s", "result"]
    rows = [
        [name, str(outcome.state), outcome.slot, as_seconds(outcome.compute_s), _shown(outcome)]
        for name, outcome in zip(names, result.jobs, strict=True)
    ]
    if show_paths:
        columns.append("path")
        rows = [[*row, str(outcome.result or "")] for row, outcome in zip(rows, result.jobs, strict=True)]
    if not result.ok:
        columns.append("error")
        rows = [[*row, outcome.reason] for row, outcome in zip(rows, result.jobs, strict=True)]
    return columns, [tuple(row) for row in rows]


def _shown(outcome: JobOutcome) -> str:
    if outcome.result is None:
        return ""
    text = inline(outcome.result)
    return str(outcome.result) if text is None else text


def inline(path: Path) -> str | None:
    """Return the content of a result if it is one short line of text, else None."""
    if path.stat().st_size > _INLINE_BYTES:
        return None
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


# ---- Tables that fit a terminal


class FittedTable(TableFormatter):
    """The table of cliff, with long texts wrapped if it would be wider than a terminal."""

    def emit_list(
        self,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        super().emit_list(column_names, _fitted(column_names, data), stdout, parsed_args)

    def emit_one(
        self, column_names: Sequence[str], data: Sequence[Any], stdout: TextIO, parsed_args: argparse.Namespace
    ) -> None:
        values = (value for _, value in _fitted(("Field", "Value"), zip(column_names, data, strict=True)))
        super().emit_one(column_names, tuple(values), stdout, parsed_args)


def _text(value: Any) -> str:
    return value.human_readable() if isinstance(value, FormattableColumn) else str(value)


def _is_whole(name: str) -> bool:
    """Return whether the values of a column must not be wrapped: identifiers, states and points in time."""
    return name in ("uuid", "state", "Field", "at") or name.endswith(("_uuid", "_at"))


def _fitted(columns: Sequence[str], data: Iterable[Sequence[Any]]) -> list[Row]:
    """Return rows with the longest texts wrapped, in as few columns as possible."""
    rows = [tuple(row) for row in data]
    widths = [max(map(_width, (name, *(_text(row[at]) for row in rows)))) for at, name in enumerate(columns)]
    excess = sum(widths) + len(widths) * _BORDERS + _BORDER - _WIDTH
    if excess <= 0:
        return rows
    breakable = [at for at, name in enumerate(columns) if not _is_whole(name)]
    texts = [at for at in breakable if columns[at] != "result"]
    long = [at for at in texts if widths[at] > _SHORT]
    # Short words, and results, which are digests, are wrapped only if wrapping other texts is not enough.
    for some, least in ((long, _SHORT // 2), (texts, 1), (breakable, 1)):
        while excess > 0 and (able := [at for at in some if widths[at] > max(least, len(columns[at]))]):
            widths[max(able, key=widths.__getitem__)] -= 1
            excess -= 1
    return [tuple(map(_wrapped, row, widths)) for row in rows]


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _wrapped(value: Any, width: int) -> Any:
    """Return a value wrapped to lines of at most this width; the value itself if it fits."""
    text = _text(value)
    if _width(text) <= width:
        return value
    lines = text.split("\n")
    indent = "   " if len(lines) > 1 else ""
    pieces = (wrap(line, width, subsequent_indent=indent, break_on_hyphens=False) or [""] for line in lines)
    return "\n".join(chain.from_iterable(pieces))
