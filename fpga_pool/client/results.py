"""Small results as files."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


def write_files(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write small files together: each appears whole and durable under its name, or not at all.

    All are written before the first is synced to disk, which takes most of the others with it.
    """
    with contextlib.ExitStack() as stack:
        written: list[tuple[BinaryIO, Path]] = []
        for path, data in contents:
            place = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
            file: BinaryIO = stack.enter_context(open(place, "xb", opener=_private))  # Path.open takes no opener
            # Gone when it was renamed.
            stack.callback(place.unlink, missing_ok=True)
            file.write(data)
            file.flush()
            written.append((file, path))
        for file, path in written:
            os.fsync(file.fileno())
            Path(file.name).replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
