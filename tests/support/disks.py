"""Disks that are full for a while."""

import contextlib
import os
from pathlib import Path


class Ballast:
    """A file that takes all the room that a disk has left."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def fill(self) -> None:
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size_bytes in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size_bytes))

    def leave(self, room_bytes: int) -> None:
        """Have so much room left on the full disk, or less."""
        os.truncate(self._file, max(self._file.stat().st_size - room_bytes, 0))

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
