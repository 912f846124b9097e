"""Pool time: UTC that does not follow the system's clock, the same in all processes of a pool.

Set once from the system's clock, then carried on by the monotonic one, so that durations stay right when the system
clock is set. Schedulers are never behind what the database has seen; agents follow the scheduler.
"""

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

Clock = Callable[[], float]

#: A larger difference is logged: some machine's clock is wrong.
LOGGED_DIFFERENCE_S = 1.0


class SteadyClock:
    """UTC seconds since the epoch; threads may share it."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return what time it is in the pool."""
        return self._offset_s + time.monotonic()

    def advance_to(self, at: float) -> None:
        """Advance to `at` if that is later than now."""
        with self._lock:
            behind_s = at - self()
            if behind_s > 0:
                self._shift(behind_s)

    def agree(self, at: float, asked_at: float, answered_at: float) -> None:
        """Follow another clock that said `at` between two moments of this one, unless it may be right as it is."""
        with self._lock:
            if not asked_at <= at <= answered_at:
                self._shift(at - (asked_at + answered_at) / 2)

    def _shift(self, by_s: float) -> None:
        if abs(by_s) > LOGGED_DIFFERENCE_S:
            LOG.warning("this machine's clock differs from the pool's by %.1f s; using the pool's", by_s)
        self._offset_s += by_s
