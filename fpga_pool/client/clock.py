"""What time it is in the pool, as its answers tell."""

import math
import threading
from collections import deque

#: Answers that are looked back on: the clock follows one that is put back, by a takeover or by hand.
_ANSWERS = 32


class PoolClock:
    """The pool's clock, carried on by the monotonic one; threads may share it.

    An answer says what time it was when it was made, and takes a while to arrive: the clock is not ahead of that of the
    pool, and behind it only by the quickest of the last answers.
    """

    def __init__(self) -> None:
        self._offsets_s: deque[float] = deque(maxlen=_ANSWERS)
        self._lock = threading.Lock()

    def note(self, at: float, answered_s: float) -> None:
        """Take note of an answer that was made `at` on the pool's clock and arrived at `answered_s` here."""
        with self._lock:
            self._offsets_s.append(at - answered_s)

    def monotonic_s(self, at: float) -> float:
        """Return when, on the monotonic clock, it is `at` in the pool; `inf` before the first answer."""
        with self._lock:
            return at - max(self._offsets_s, default=-math.inf)
