"""Pool time (UTC that is independent of later changes of the system clock), and a failure detector that uses it.

The clock is set once from the system clock and then advanced by the monotonic clock, so that durations stay right when
the system clock is set. Schedulers are never behind the latest time in the database; agents follow the scheduler.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping

LOG = logging.getLogger(__name__)

Clock = Callable[[], float]

#: Larger differences are logged, because the clock of some machine must be wrong.
LOGGED_DIFFERENCE_S = 1.0
#: A larger correction makes the ages of earlier timestamps doubtful (`SteadyClock.steady_s`).
DOUBTFUL_DIFFERENCE_S = 60.0


class SteadyClock:
    """Clock that returns UTC seconds since the epoch; thread-safe."""

    def __init__(self) -> None:
        self._steady_since_s = time.monotonic()
        self._offset_s = time.time() - self._steady_since_s
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return the current pool time."""
        return self._offset_s + time.monotonic()

    @property
    def steady_s(self) -> float:
        """Seconds since the last correction that makes earlier timestamps doubtful, or since the start."""
        return time.monotonic() - self._steady_since_s

    def advance_to(self, at: float) -> None:
        """Advance to `at` if that is later than now."""
        with self._lock:
            behind_s = at - self()
            if behind_s > 0:
                self._shift(behind_s)

    def agree(self, at: float, asked_at: float, answered_at: float) -> None:
        """Follow another clock that read `at` between two times of this one, unless `at` lies between these times."""
        with self._lock:
            if not asked_at <= at <= answered_at:
                self._shift(at - (asked_at + answered_at) / 2)

    def _shift(self, by_s: float) -> None:
        if abs(by_s) > LOGGED_DIFFERENCE_S:
            LOG.warning("this machine's clock differs from the pool's by %.1f s; using the pool's", by_s)
        if abs(by_s) > DOUBTFUL_DIFFERENCE_S:
            self._steady_since_s = time.monotonic()
        self._offset_s += by_s


# ---- Failure detector: the time since each observed value last changed


class FailureDetector:
    """Observes named objects by values that change while the objects are alive. Only one thread calls `note`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def note(self, values: Mapping[str, Hashable]) -> dict[str, float]:
        """Record the current values; return for how many seconds each has not changed."""
        now_s = self._clock()
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == value else (value, now_s)
            for name, value in values.items()
        }
        return self.ages()

    def ages(self) -> dict[str, float]:
        """Return for how many seconds each value has been observed unchanged; any thread may call this."""
        now_s = self._clock()
        return {name: now_s - since_s for name, (_, since_s) in self._seen.items()}

    @property
    def names(self) -> frozenset[str]:
        """The names in the last observation."""
        return frozenset(self._seen)

    def restart(self) -> None:
        """Restart all ages at zero after a time in which nothing could be observed."""
        self._seen = {}
