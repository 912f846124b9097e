"""Pool time, UTC that does not follow the system's clock; and for how long others were silent by it.

Set once from the system's clock, then carried on by the monotonic one, so that durations stay right when the system
clock is set. Schedulers are never behind what the database has seen; agents follow the scheduler.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping

LOG = logging.getLogger(__name__)

Clock = Callable[[], float]

#: A larger difference is logged: some machine's clock is wrong.
LOGGED_DIFFERENCE_S = 1.0
#: After a larger correction, what was dated before is not as old as it seems to be.
DOUBTFUL_DIFFERENCE_S = 60.0


class SteadyClock:
    """UTC seconds since the epoch; threads may share it."""

    def __init__(self) -> None:
        self._steady_since_s = time.monotonic()
        self._offset_s = time.time() - self._steady_since_s
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return what time it is in the pool."""
        return self._offset_s + time.monotonic()

    @property
    def steady_s(self) -> float:
        """For how long it has gone on, in seconds, without a correction that makes earlier dates doubtful."""
        return time.monotonic() - self._steady_since_s

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
        if abs(by_s) > DOUBTFUL_DIFFERENCE_S:
            self._steady_since_s = time.monotonic()
        self._offset_s += by_s


# ---- Failure detector: the time since each observed value last changed


class FailureDetector:
    """Watches named things, each by a value that changes while it lives; one thread notes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def note(self, values: Mapping[str, Hashable]) -> dict[str, float]:
        """Record the present values; return for how many seconds each has not changed."""
        now_s = self._clock()
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == value else (value, now_s)
            for name, value in values.items()
        }
        return self.ages()

    def ages(self) -> dict[str, float]:
        """Return for how many seconds each value has not changed, as far as was observed; any thread may ask."""
        now_s = self._clock()
        return {name: now_s - since_s for name, (_, since_s) in self._seen.items()}

    @property
    def names(self) -> frozenset[str]:
        """The keys present at the last observation."""
        return frozenset(self._seen)

    def restart(self) -> None:
        """Count from now: nothing could be seen meanwhile."""
        self._seen = {}
