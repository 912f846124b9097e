"""What guests of gangs boot from, and the directory of the memory of those that are on their way elsewhere."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.exceptions import InvalidInput, ServiceUnavailable

#: Where the kernel's own parameters end up where an image has none.
DEFAULT_CMDLINE = "console=ttyS0"
DISKS = ("disk.qcow2", "disk.raw")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIX = ".memory"


@dataclass(frozen=True, slots=True)
class Image:
    """What a guest boots from: a kernel, a disk, or both."""

    kernel: Path | None
    initrd: Path | None
    cmdline: str
    disk: Path | None


def find_image(directory: Path, name: str) -> Image:
    """Return an image by its name; InvalidInput says what is missing."""
    place = directory / _checked(name, "image")
    kernel, initrd, cmdline = place / "kernel", place / "initrd", place / "cmdline"
    disk = next((place / disk for disk in DISKS if (place / disk).is_file()), None)
    if not kernel.is_file() and disk is None:
        raise InvalidInput(f"image {name!r}: {place} has no kernel and no {' or '.join(DISKS)}")
    try:
        words = " ".join(cmdline.read_text().split()) if cmdline.is_file() else DEFAULT_CMDLINE
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"image {name!r}: {cmdline}: {error}") from error
    return Image(
        kernel=kernel if kernel.is_file() else None,
        initrd=initrd if initrd.is_file() else None,
        cmdline=words,
        disk=disk,
    )


class SavedMemory:
    """The directory of saved memories that hosts share; each has the name of the process that it was."""

    def __init__(self, directory: Path, keep_s: float) -> None:
        self._directory = directory
        self._keep_s = keep_s

    def file(self, name: str) -> Path:
        """Return where a memory is; InvalidInput where it cannot be called so."""
        return self._directory / f"{_checked(name, 'saved memory')}{_SUFFIX}"

    def remove(self, name: str) -> None:
        """Remove a memory; nothing where there is none.  ServiceUnavailable where the directory does not answer."""
        try:
            self.file(name).unlink(missing_ok=True)
        except OSError as error:
            raise ServiceUnavailable(f"{self._directory}: {error}") from error

    def sweep(self) -> list[str]:
        """Remove what nobody has wanted for long; return what that was."""
        swept = []
        try:
            for file in self._directory.glob(f"*{_SUFFIX}"):
                if time.time() - file.stat().st_mtime > self._keep_s:
                    file.unlink(missing_ok=True)
                    swept.append(file.name.removesuffix(_SUFFIX))
        except FileNotFoundError:  # another host was faster; the next turn sees the rest
            return swept
        except OSError as error:
            raise ServiceUnavailable(f"{self._directory}: {error}") from error
        return swept


def _checked(name: str, what: str) -> str:
    """Refuse what would lead out of a directory."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{what}: {name!r} cannot be the name of one")
    return name
