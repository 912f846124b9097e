"""A circuit breaker: who has not answered several times in a row is left alone for a while."""

import threading
from collections.abc import Callable


class Breaker:
    """Says whether to ask; after the pause one question is let through, and its answer decides.  Threads share it."""

    def __init__(self, failures: int, reset_s: float, clock: Callable[[], float]) -> None:
        self._most, self._reset_s, self._clock = failures, reset_s, clock
        self._lock = threading.Lock()
        self._failures = 0
        self._failed_at = 0.0

    def closed(self) -> bool:
        """Say whether to ask now."""
        with self._lock:
            if self._failures < self._most:
                return True
            if self._clock() - self._failed_at < self._reset_s:
                return False
            self._failed_at = self._clock()  # whoever comes next waits for what this one finds
            return True

    def note_answer(self) -> None:
        """Take note that there was an answer."""
        with self._lock:
            self._failures = 0

    def note_failure(self) -> None:
        """Take note that there was none."""
        with self._lock:
            self._failures += 1
            self._failed_at = self._clock()
