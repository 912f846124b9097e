"""Small results as files."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


def write_files(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write small files together: each appears whole and durable under its name, or not at all.

    All are written before the first is synced to disk, which takes most of the others with it.
    """
    token = uuid4().hex[:8]
    #: What is not under its name yet.  In texts: with paths as objects half of the time would be theirs.
    unnamed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, unnamed)
        written: list[tuple[BinaryIO, str]] = []
        for number, (path, data) in enumerate(contents):
            directory, name = os.path.split(path)
            place = os.path.join(directory, f".{name}.{token}-{number}")  # noqa: PTH118
            file: BinaryIO = stack.enter_context(open(place, "xb", opener=_private))  # Path.open takes no opener
            unnamed[place] = os.fspath(path)
            file.write(data)
            file.flush()
            written.append((file, place))
        for file, place in written:
            os.fsync(file.fileno())
            os.replace(place, unnamed[place])  # noqa: PTH105
            del unnamed[place]


def _remove(places: Iterable[str]) -> None:
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)  # noqa: PTH108


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
