"""What time it is in the pool, as its answers tell."""

import math
import threading


class PoolClock:
    """The pool's clock, carried on by the monotonic one; threads may share it.

    An answer says what time it was when it was made, and takes a while to arrive: the clock is never ahead of the
    pool's, and behind it only by the quickest answer so far.
    """

    def __init__(self) -> None:
        self._offset_s = -math.inf
        self._lock = threading.Lock()

    def note(self, at: float, answered_s: float) -> None:
        """Take note of an answer that was made `at` on the pool's clock and arrived at `answered_s` here."""
        with self._lock:
            self._offset_s = max(self._offset_s, at - answered_s)

    def monotonic_s(self, at: float) -> float:
        """Return when, on the monotonic clock, it is `at` in the pool; `inf` before the first answer."""
        return at - self._offset_s
