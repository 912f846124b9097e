"""Disks that are temporarily full, and disks from which machines boot."""

import contextlib
import os
from pathlib import Path

BOOT_DISK_BYTES = 1 << 20
#: Without a partition Glance and Nova do not recognize a disk image: active, type 83, from block 1 on.
_PARTITION = bytes.fromhex("80000200830020000100000ff0700000")


def boot_disk(code: bytes) -> bytes:
    """Return a disk from which a machine boots, with this code and its data at 7c00h."""
    sector = code.ljust(446, b"\0") + _PARTITION.ljust(64, b"\0") + b"\x55\xaa"
    return sector.ljust(BOOT_DISK_BYTES, b"\0")


class Ballast:
    """A file that takes all free space of a disk."""

    def __init__(self, disk: Path) -> None:
        self._file = disk / "ballast"

    def fill(self) -> None:
        with self._file.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size_bytes in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size_bytes))

    def leave(self, room_bytes: int) -> None:
        """Leave at most this much free space on the full disk."""
        os.truncate(self._file, max(self._file.stat().st_size - room_bytes, 0))

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)
