"""One process at a time on a state directory."""

import fcntl
from pathlib import Path
from typing import TextIO

from fpga_pool.model.exceptions import ServiceUnavailable


def exclusive(path: Path, complaint: str) -> TextIO:
    """Lock `path` for as long as the file returned is open; the kernel ends it with us, however that happens.

    ServiceUnavailable with `complaint` if another process holds the lock.
    """
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ServiceUnavailable(complaint) from None
    return file
