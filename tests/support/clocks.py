"""Clocks of single processes, which can be set while the processes run."""

import os
from pathlib import Path

HOUR_S = 3600

#: Python runs this file before anything else.  libfaketime would cover all libraries, too, but its clock_nanosleep
#: fails (0.9.10) unless the monotonic clock is also set back, which no administrator can do.
SITECUSTOMIZE = """\
import time
from pathlib import Path

def offset_s(file=Path({offset!r})):
    return int(file.read_text())

real, real_ns = time.time, time.time_ns
time.time = lambda: real() + offset_s()
time.time_ns = lambda: real_ns() + offset_s() * 10**9
"""


class Clock:
    """The system's clock as one process sees it; its monotonic clock is not changed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._offset = directory / "offset"
        self.set(0)
        (directory / "sitecustomize.py").write_text(SITECUSTOMIZE.format(offset=str(self._offset)))
        places = [str(directory), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        self.launcher = ["env", f"PYTHONPATH={os.pathsep.join(filter(None, places))}"]

    def set(self, offset_s: int) -> None:
        new = self._offset.with_suffix(".new")
        new.write_text(str(offset_s))
        new.replace(self._offset)
