"""Objects as rows of tables: a table for people has units and text, data formats have the values."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cliff.columns import FormattableColumn

from fpga_pool.model.objects.pool import Job, place_kind

Row = tuple[Any, ...]
Table = tuple[Sequence[str], Sequence[Row]]
One = tuple[Sequence[str], Row]
#: Names of fields; or names with functions of the object.
Columns = Sequence[str | tuple[str, Callable[[Any], Any]]]


class Shown(FormattableColumn[Any]):
    """A value with its text for people; data formats get the value, but JSON has no infinity."""

    def __init__(self, value: Any, text: str) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        return self._text

    def machine_readable(self) -> Any:
        return None if self._value == float("inf") else self._value


def as_rate(bps: float) -> Shown:
    """Return a rate with a unit, perhaps without a limit."""
    if bps == float("inf"):
        return Shown(bps, "unlimited")
    for unit, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bps >= factor:
            return Shown(bps, f"{bps / factor:.4g} {unit}")
    return Shown(bps, f"{bps:.4g} bit/s")


def as_number(value: float) -> Shown:
    """Return a number with four digits, perhaps without a limit."""
    return Shown(value, "unlimited" if value == float("inf") else f"{value:.4g}")


def as_seconds(value_s: float | None) -> Shown:
    """Return a duration, to the millisecond."""
    return Shown(value_s, "" if value_s is None else f"{value_s:.3f}")


def as_moment(at: float | None) -> Shown:
    """Return a point in time, in whole seconds; as data as in the API."""
    if at is None:
        return Shown(None, "")
    date = datetime.fromtimestamp(at, UTC)
    return Shown(date.isoformat(timespec="microseconds"), date.isoformat(sep=" ", timespec="seconds"))


def as_words(words: Iterable[str]) -> Shown:
    """Return a list of words."""
    return Shown(list(words), ", ".join(words))


def as_lines(plain: Sequence[Any], lines: Iterable[str]) -> Shown:
    """Return a list of objects, each with its line for people."""
    return Shown(plain, "\n".join(lines))


def join(*parts: object) -> str:
    """Return the parts of a line that are not empty."""
    return "  ".join(str(part) for part in parts if part)


_OF_JOBS = ("index", "name", "function", "state", "attempt", "slot", "compute_s", "reason")


def as_jobs(jobs: Sequence[Job]) -> Shown:
    """Return the jobs of a batch."""
    plain = [
        {"uuid": job.uuid, **{name: getattr(job, name) for name in _OF_JOBS}, "place": place_kind(job.slot)}
        for job in jobs
    ]
    return as_lines(plain, map(_job_line, jobs))


def _job_line(job: Job) -> str:
    took = "" if job.compute_s is None else f"{job.compute_s:.3f} s"
    return join(str(job.index), job.name, job.function, job.state, place_kind(job.slot), job.slot, took, job.reason)


def shown(name: str, value: Any) -> Any:
    """Return a value as the unit in its name says."""
    if isinstance(value, Shown) or (value is None and name.endswith("_bps")):
        return value
    if name == "at" or name.endswith("_at"):
        return as_moment(value)
    if name.endswith("_s"):
        return as_seconds(value)
    if name.endswith("_bps"):
        return as_rate(value)
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
    """Return an object, and more of it, as one."""
    return (*names(columns), *more), (*row(found, columns), *(shown(name, value) for name, value in more.items()))
