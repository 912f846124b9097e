"""Inputs of jobs: files, bytes or open files, each opened again for every stream that sends it."""

import io
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.work import JobRequest

#: Kinds of sources: a path, the bytes themselves, or an open seekable file, which is read from its current position.
Source = str | Path | bytes | BinaryIO

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Input:
    """One job's input."""

    name: str
    input_bytes: int
    #: Opens the input at its first byte; the caller closes it.
    open: Callable[[], BinaryIO]
    #: Function to compute, and host of the pool that sends the input.
    function: str
    requester: str
    group: int = 0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job as the caller specifies it."""

    function: str
    source: Source
    #: Host of the pool that sends the input.
    requester: str
    #: Bytes sent before the source (aes reads its key and counter block there).
    header: bytes = b""
    #: "" = the name of the source.
    name: str = ""
    #: Jobs of lower groups of a batch are computed first.
    group: int = 0


@dataclass(frozen=True, slots=True)
class Subtask:
    """One subtask of a pipeline as the caller specifies it: it reads a source, or the results of others."""

    #: Unique in the pipeline; the result file is named after it.
    name: str
    function: str
    #: Only for a subtask without predecessors: its input, and the host of the pool that sends it.
    source: Source | None = None
    requester: str = ""
    header: bytes = b""
    #: Names of its predecessors, whose concatenated results are its input, in this order.
    after: tuple[str, ...] = ()


def read_subtasks(subtasks: Iterable[Subtask]) -> list[Input]:
    """Return the input of each subtask, an empty one for those that read results; InvalidInput as `read_inputs`."""
    specs = []
    for subtask in subtasks:
        if bool(subtask.after) is (subtask.source is not None):
            raise InvalidInput(f"subtask {subtask.name}: expected a source or predecessors (after), and not both")
        specs.append(
            JobSpec(
                subtask.function,
                b"" if subtask.source is None else subtask.source,
                subtask.requester,
                subtask.header,
                subtask.name,
            )
        )
    return read_inputs(specs)


def read_inputs(specs: Iterable[JobSpec]) -> list[Input]:
    """Return the input of each job; InvalidInput names the first that cannot be read."""
    given = list(specs)
    objects = [id(spec.source) for spec in given if hasattr(spec.source, "read")]
    if len(set(objects)) < len(objects):
        raise InvalidInput("files: the same open file is given twice; two streams cannot share its position")
    return [_input(spec, index) for index, spec in enumerate(given)]


def job_requests(inputs: Iterable[Input]) -> list[JobRequest]:
    """Return the request of a job for each input, with a new uuid."""
    return [
        JobRequest(
            uuid=str(uuid4()),
            name=source.name,
            function=source.function,
            requester=source.requester,
            input_bytes=source.input_bytes,
            group=source.group,
        )
        for source in inputs
    ]


def grouped_by_size(specs: Iterable[JobSpec], groups: int) -> list[JobSpec]:
    """Return jobs in groups of equal size, those with the smallest inputs first (makespan paper, section 3.5)."""
    given = list(specs)
    by_size = sorted(enumerate(read_inputs(given)), key=lambda one: one[1].input_bytes)
    for place, (index, _) in enumerate(by_size):
        given[index] = replace(given[index], group=place * groups // len(given))
    return given


def _input(spec: JobSpec, index: int) -> Input:
    if Path(spec.name).name != spec.name:
        raise InvalidInput(
            f"name: {spec.name!r} cannot be the name of a result file; expected a name without a directory"
        )
    name, size_bytes, open_ = _source(spec.source, index, spec.header)
    return Input((spec.name or name)[:_LONGEST_NAME], size_bytes, open_, spec.function, spec.requester, spec.group)


def _source(source: Source, index: int, header: bytes) -> tuple[str, int, Callable[[], BinaryIO]]:
    """Return the name of a source, its size including the header, and a function that opens it."""
    if isinstance(source, bytes):
        return f"input-{index}", len(header) + len(source), lambda: io.BytesIO(header + source)
    if isinstance(source, str | Path):
        return _file(Path(source), header)
    return _open_file(source, index, header)


def _file(path: Path, header: bytes) -> tuple[str, int, Callable[[], BinaryIO]]:
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{path}: expected a regular file")
    if not os.access(path, os.R_OK):
        raise InvalidInput(f"{path}: cannot be read: Permission denied")
    return path.name, len(header) + status.st_size, lambda: _joined(header, path.open("rb"), owned=True)


def _open_file(file: BinaryIO, index: int, header: bytes) -> tuple[str, int, Callable[[], BinaryIO]]:
    try:
        begin = file.tell()
        end = file.seek(0, io.SEEK_END)
        file.seek(begin)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"files[{index}]: an open file must be seekable: {error}") from error

    def open_() -> BinaryIO:
        file.seek(begin)
        return _joined(header, file, owned=False)

    name = getattr(file, "name", None)
    shown = Path(name).name if isinstance(name, str) else f"input-{index}"
    return shown, len(header) + end - begin, open_


def _joined(header: bytes, file: BinaryIO, *, owned: bool) -> BinaryIO:
    return io.BufferedReader(_Joined(header, file, owned=owned), 64 * 1024)


class _Joined(io.RawIOBase):
    """A stream that consists of a header and a file."""

    def __init__(self, header: bytes, file: BinaryIO, *, owned: bool) -> None:
        self._header = memoryview(header)
        self._file = file
        self._owned = owned

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._header[: len(buffer)]
        self._header = self._header[len(piece) :]
        data = piece if piece else self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if self._owned:
            self._file.close()
        super().close()
