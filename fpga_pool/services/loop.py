"""A thread that repeats a step when woken or after an interval, and a lock file that admits one process at a time."""

import fcntl
import logging
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable


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


LOG = logging.getLogger(__name__)

#: An error is followed by a pause that doubles from the first to the second: a lasting one does not fill the log.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0


class Loop:
    """Calls `step` until stopped; a step returns True to be called again immediately.

    Unless it does, or is woken, the next one waits for the interval, or longer, so that steps take at most a `share` of
    a processor.
    """

    def __init__(self, name: str, step: Callable[[], bool], interval_s: float, share: float = math.inf) -> None:
        self._step = step
        self._interval_s = interval_s
        self._share = share
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first step is executed immediately."""
        self._thread.start()

    def wake(self) -> None:
        """Have the next step taken now."""
        self._wake.set()

    @property
    def stopping(self) -> bool:
        """Whether no other step is to be taken: a long one ends early then."""
        return self._stop.is_set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let the current step end, and no other begin."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            self._wake.clear()
            began_s = time.thread_time()
            try:
                again = self._step()
            except FpgaPoolError as error:  # known and named; its message says it all
                LOG.error("%s: %s; next try in %.1f s", self._thread.name, error, pause_s)  # noqa: TRY400
            except Exception:
                LOG.exception("%s: step failed; next try in %.1f s", self._thread.name, pause_s)
            else:
                pause_s = FIRST_PAUSE_S
                if not again:
                    self._wake.wait(max(self._interval_s, (time.thread_time() - began_s) / self._share))
                continue
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
