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
    """Lock `path` while the returned file is open; the kernel releases the lock however this process ends.

    Raises ServiceUnavailable with the message `complaint` if another process holds the lock.
    """
    file = path.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ServiceUnavailable(complaint) from None
    return file


LOG = logging.getLogger(__name__)

#: The pause after an error; it doubles from the first value to the second, so that lasting errors do not fill the log.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0


class Loop:
    """Calls `step` until stopped; a step returns True to be called again immediately.

    Otherwise the next step follows after `interval_s`, or later if steps would take more than a `share` of a processor.
    `wake` ends this wait.  An interval that depends on what the step has found is a function.
    """

    def __init__(
        self, name: str, step: Callable[[], bool], interval_s: float | Callable[[], float], share: float = math.inf
    ) -> None:
        self._step = step
        self._interval_s = interval_s if callable(interval_s) else lambda: interval_s
        self._share = share
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; the first step is executed immediately."""
        self._thread.start()

    def wake(self) -> None:
        """Run the next step now."""
        self._wake.set()

    @property
    def stopping(self) -> bool:
        """Whether the loop is stopping; long steps check this in order to end early."""
        return self._stop.is_set()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Let the current step end, and start no other; wait for it at most `timeout_s`."""
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
            except FpgaPoolError as error:  # expected errors: the message suffices
                LOG.error("%s: %s; next try in %.1f s", self._thread.name, error, pause_s)  # noqa: TRY400
            except Exception:
                LOG.exception("%s: step failed; next try in %.1f s", self._thread.name, pause_s)
            else:
                pause_s = FIRST_PAUSE_S
                if not again:
                    self._wake.wait(max(self._interval_s(), (time.thread_time() - began_s) / self._share))
                continue
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)
