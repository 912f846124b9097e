"""UTC that never jumps: set once from the system's clock, then carried on by the monotonic one.

Durations stay right when somebody sets the clock back; times in the database stay in order within a process.
"""

import time
from collections.abc import Callable

Clock = Callable[[], float]


def steady_utc() -> Clock:
    """Return a clock of UTC seconds since the epoch."""
    offset_s = time.time() - time.monotonic()
    return lambda: offset_s + time.monotonic()
