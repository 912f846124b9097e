"""Standard Workload Format, version 2.2: one job per line in 18 fields, and a header of `; Key: value` comments."""

import gzip
import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from fpga_pool.core.types import Floats, Ints, floats
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.sim.files import replacing

#: The fields of a line, in order; -1 = unknown.
FIELDS = (
    "job", "submit_s", "wait_s", "run_s", "processors", "cpu_s", "memory_kb", "requested_processors", "requested_s",
    "requested_memory_kb", "status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_s",
)  # fmt: skip

_BLOCK_LINES = 20_000
_LONGEST_LINE = 4096
_VERSION = (2, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Swf:
    """The lines of a file."""

    #: (J, 18) in the order of the file.
    table: Floats
    #: Unchanged header fields, in order; a field may occur several times, as Note often does.
    header: Sequence[tuple[str, str]] = field(default=())

    def __post_init__(self) -> None:
        table = floats(self.table)
        object.__setattr__(self, "table", table)
        if table.ndim != 2 or table.shape[1] != len(FIELDS):
            raise ValueError(f"table: expected shape (J, {len(FIELDS)}), found {table.shape}")

    def column(self, name: str) -> Floats:
        """Return one field of all lines, shape (J,)."""
        return self.table[:, FIELDS.index(name)]


def read_swf(path: str | Path) -> Swf:
    """Return the content of a file, compressed by gzip or not; raises InvalidInput, which names the line of an error.

    Only one block of lines is in memory as text at a time.
    """
    header: list[tuple[str, str]] = []
    blocks = [np.empty((0, len(FIELDS)))]
    try:
        with _opened(path) as stream:
            lines = _job_lines(path, enumerate(_bounded(path, stream), 1), header)
            while block := list(itertools.islice(lines, _BLOCK_LINES)):
                blocks.append(_numbers(path, block))
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not a text file: {error}") from None
    return Swf(np.concatenate(blocks), tuple(header))


def write_swf(path: str | Path, swf: Swf) -> None:
    """Write a file, compressed if its name ends in .gz; equal content gives equal bytes."""
    with replacing(path) as place, place.open("wb") as raw:
        if str(path).endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                packed.writelines(_lines(swf))
        else:
            raw.writelines(_lines(swf))


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[str]]:
    with Path(path).open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    opener = gzip.open if packed else open
    # Some logs of the archive have Latin-1 names, but only in comments.
    with opener(path, "rt", encoding="utf-8", errors="surrogateescape") as stream:
        yield stream


def _bounded(path: str | Path, stream: IO[str]) -> Iterator[str]:
    """Yield the lines; a line that is too long is refused before it fills the memory."""
    for number in itertools.count(1):
        line = stream.readline(_LONGEST_LINE)
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            raise InvalidInput(f"{path}: line {number}: longer than {_LONGEST_LINE} characters")
        yield line


def _job_lines(
    path: str | Path, lines: Iterator[tuple[int, str]], header: list[tuple[str, str]]
) -> Iterator[tuple[int, str]]:
    """Yield the lines of jobs with their numbers, and add comments to `header`."""
    for number, line in lines:
        text = line.strip()
        if text.startswith(";"):
            _note(path, number, text.lstrip("; \t"), header)
        elif text:
            yield number, text


def _note(path: str | Path, number: int, text: str, header: list[tuple[str, str]]) -> None:
    """Add a comment to the header: a field, or another line of the previous field."""
    name, colon, value = text.partition(":")
    if colon and name.isalnum():
        header.append((name, value.strip()))
        if name == "Version":
            _check_version(path, number, value.strip())
    elif text and header:
        header[-1] = header[-1][0], f"{header[-1][1]}\n{text}"


def _check_version(path: str | Path, number: int, text: str) -> None:
    parts = text.split(".")
    if not all(part.isdecimal() for part in parts):
        raise InvalidInput(f"{path}: line {number}: Version: expected a number such as 2.2, found {text!r}")
    if tuple(int(part) for part in parts) > _VERSION:
        raise InvalidInput(f"{path}: line {number}: Version: {text} is newer than 2.2, the latest supported version")


def _numbers(path: str | Path, block: Sequence[tuple[int, str]]) -> Floats:
    """Return the fields of a block of lines; raises InvalidInput if a line is not valid."""
    try:
        table = np.loadtxt([text for _, text in block], ndmin=2, comments=None)
    except ValueError:
        table = np.empty((0, 0))
    if table.shape != (len(block), len(FIELDS)) or not np.isfinite(table).all():
        for number, text in block:
            _check_line(path, number, text)
    return table


def _check_line(path: str | Path, number: int, text: str) -> None:
    """Raise InvalidInput if a line does not consist of 18 finite numbers."""
    words = text.split()
    if len(words) != len(FIELDS):
        raise InvalidInput(f"{path}: line {number}: expected {len(FIELDS)} fields, found {len(words)}")
    for name, word in zip(FIELDS, words, strict=True):
        try:
            fine = np.isfinite(float(word))
        except ValueError:
            fine = False
        if not fine:
            raise InvalidInput(f"{path}: line {number}: {name}: expected a number, found {word!r}")


def _lines(swf: Swf) -> Iterator[bytes]:
    for name, value in swf.header:
        first, *more = value.split("\n")
        yield f"; {name}: {first}\n".encode(errors="surrogateescape")
        for line in more:
            yield f";   {line}\n".encode(errors="surrogateescape")
    for row in swf.table.tolist():
        yield (" ".join(_text(value) for value in row) + "\n").encode()


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


# ---- Jobs, the output of a workload model


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Jobs:
    """Jobs in order of submission."""

    submit_s: Floats
    run_s: Floats
    width: Ints


def to_swf(jobs: Jobs, estimate_s: Floats, note: str, processors: int) -> Swf:
    """Return the jobs as lines, numbered from 1; `note` is a header comment on their origin."""
    table = np.full((len(jobs.width), len(FIELDS)), -1.0)
    columns = {
        "job": np.arange(1, len(jobs.width) + 1), "submit_s": jobs.submit_s, "run_s": jobs.run_s,
        "processors": jobs.width, "requested_processors": jobs.width, "requested_s": estimate_s, "status": 1.0,
    }  # fmt: skip
    for name, values in columns.items():
        table[:, FIELDS.index(name)] = values
    header = (
        ("Version", "2.2"), ("MaxJobs", str(len(table))), ("MaxRecords", str(len(table))),
        ("MaxNodes", str(processors)), ("MaxProcs", str(processors)), ("Note", note),
    )  # fmt: skip
    return Swf(table, header)
