"""Pipeline files: what `fpga-pool pipeline create` reads."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fpga_pool.client.inputs import Subtask
from fpga_pool.model.codec import Message, read
from fpga_pool.model.exceptions import InvalidInput


class SubtaskTable(Message, frozen=True, kw_only=True):
    """A `[[subtasks]]` table."""

    name: str
    function: str
    #: File that is its input, and one whose bytes are sent before it; relative to the pipeline file.
    input: str = ""
    header: str = ""
    #: "" = that of the pipeline.
    requester: str = ""
    after: tuple[str, ...] = ()


class PipelineFile(Message, frozen=True, kw_only=True):
    """A pipeline as a file describes it."""

    name: str = ""
    #: Host of the pool from which inputs are sent.
    requester: str = ""
    subtasks: tuple[SubtaskTable, ...]


def read_pipeline(path: Path) -> tuple[str, list[Subtask]]:
    """Return the name and the subtasks of a pipeline file; InvalidInput names the place of what is wrong."""
    try:
        content: Mapping[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: not a TOML file: {error}") from error
    found: PipelineFile = read(PipelineFile, content, str(path))
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
    header = b""
    if table.header:
        try:
            header = (path.parent / table.header).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{where}.header: {table.header}: cannot be read: {error.strerror}") from error
    requester = table.requester or pipeline.requester
    if not requester:
        raise InvalidInput(f"{where}: expected a requester, here or for the whole pipeline")
    return Subtask(table.name, table.function, path.parent / table.input, requester, header)
