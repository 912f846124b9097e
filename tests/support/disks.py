"""Disks that are full for a while."""

import contextlib
from pathlib import Path


class Ballast:
    """A file that takes all the room that a disk has left."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def fill(self) -> None:
        with self._file.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            for size_bytes in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size_bytes))

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
