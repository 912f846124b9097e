"""Files (TOML) that describe batches and pipelines, and the files that they name."""

import tomllib
from pathlib import Path
from typing import TypeVar

from fpga_pool.client import JobSpec
from fpga_pool.client.inputs import Subtask
from fpga_pool.model.codec import Message, read
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.fields import Group

FileT = TypeVar("FileT", bound=Message)


def content_of(path: Path, where: str = "") -> bytes:
    """Return the content of a file; if it cannot be read, InvalidInput says why, and `where` it is named."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{where or path}: cannot be read: {error.strerror}") from error


def header_of(path: Path | None) -> bytes:
    """Return the header that is sent before each file, empty without a path; InvalidInput if it cannot be read."""
    return b"" if path is None else content_of(path, f"--header {path}")


def _read_file(kind: type[FileT], path: Path) -> FileT:
    try:
        content = tomllib.loads(content_of(path).decode())
    except ValueError as error:
        raise InvalidInput(f"{path}: not a TOML file: {error}") from error
    return read(kind, content, str(path))


def _header(where: str, directory: Path, name: str) -> bytes:
    return content_of(directory / name, f"{where}.header: {name}") if name else b""


# ---- Batches


class JobTable(Message, frozen=True, kw_only=True):
    """A `[[jobs]]` table; an empty field takes the value of the whole batch."""

    #: Input file, and file whose bytes are sent before it; both relative to the batch file.
    input: str
    header: str = ""
    function: str = ""
    requester: str = ""
    #: Empty: the name of the input file.
    name: str = ""
    group: Group = 0


class BatchFile(Message, frozen=True, kw_only=True):
    """The content of a batch file."""

    name: str = ""
    function: str = ""
    requester: str = ""
    header: str = ""
    jobs: tuple[JobTable, ...]


def read_batch(path: Path) -> tuple[str, list[JobSpec]]:
    """Return the name and the jobs of a batch file; InvalidInput names the place of an error."""
    found = _read_file(BatchFile, path)
    return found.name, [
        JobSpec(
            job.function or found.function,
            path.parent / job.input,
            job.requester or found.requester,
            _header(f"{path}: jobs[{index}]", path.parent, job.header or found.header),
            job.name,
            job.group,
        )
        for index, job in enumerate(found.jobs)
    ]


# ---- Pipelines


class SubtaskTable(Message, frozen=True, kw_only=True):
    """A `[[subtasks]]` table."""

    name: str
    function: str
    #: Input file, and file whose bytes are sent before it; both relative to the pipeline file.
    input: str = ""
    header: str = ""
    #: Empty: the requester of the pipeline.
    requester: str = ""
    after: tuple[str, ...] = ()


class PipelineFile(Message, frozen=True, kw_only=True):
    """The content of a pipeline file."""

    name: str = ""
    #: Host of the pool from which inputs are sent.
    requester: str = ""
    subtasks: tuple[SubtaskTable, ...]


def read_pipeline(path: Path) -> tuple[str, list[Subtask]]:
    """Return the name and the subtasks of a pipeline file; InvalidInput names the place of an error."""
    found = _read_file(PipelineFile, path)
    return found.name, [_subtask(path, found, index) for index in range(len(found.subtasks))]


def _subtask(path: Path, pipeline: PipelineFile, index: int) -> Subtask:
    table = pipeline.subtasks[index]
    where = f"{path}: subtasks[{index}]"
    if bool(table.input) is bool(table.after):
        raise InvalidInput(f"{where}: expected input or after, and not both")
    if table.after:
        if table.header or table.requester:
            raise InvalidInput(f"{where}: header and requester belong to a subtask with an input")
        return Subtask(table.name, table.function, after=table.after)
    header = _header(where, path.parent, table.header)
    requester = table.requester or pipeline.requester
    if not requester:
        raise InvalidInput(f"{where}: expected a requester, here or for the whole pipeline")
    return Subtask(table.name, table.function, path.parent / table.input, requester, header)
