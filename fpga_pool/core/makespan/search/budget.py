"""Limits of a search: in seconds, measured by the caller's clock, or in units of work."""

from collections.abc import Callable
from math import inf

#: Job-accelerator pairs evaluated per unit of work, which takes about a millisecond in compiled code.
PAIRS_PER_UNIT = 1_000_000

Clock = Callable[[], float]


class Budget:
    """The remaining budget of a search.  A budget in units of work gives the same result on every machine."""

    def __init__(self, *, effort: float, time_limit_s: float = 0.0, clock: Clock | None = None) -> None:
        if time_limit_s > 0 and clock is None:
            raise ValueError("time_limit_s: requires a clock")
        self._clock = clock if time_limit_s > 0 else None
        self._end_s = self._clock() + time_limit_s if self._clock else 0.0
        self._left = effort * PAIRS_PER_UNIT
        self._parent: Budget | None = None

    @property
    def is_timed(self) -> bool:
        """Whether time is limited instead of work."""
        return self._clock is not None

    @property
    def left_s(self) -> float:
        """Seconds left; infinite if work is limited instead."""
        return self._end_s - self._clock() if self._clock else inf

    def part(self, share: float) -> "Budget":
        """Return a budget for a share of the remaining one; work spent from it is also spent from this one."""
        part = Budget(effort=share * self._left / PAIRS_PER_UNIT)
        part._clock, part._parent = self._clock, self
        if self._clock is not None:
            now_s = self._clock()
            part._end_s = now_s + share * (self._end_s - now_s)
        return part

    def prolonged(self, seconds: float) -> "Budget":
        """Return a budget that ends `seconds` later; this budget itself if work is limited."""
        if self._clock is None:
            return self
        longer = Budget(effort=0)
        longer._clock, longer._end_s = self._clock, self._end_s + seconds
        return longer

    def spend(self, pairs: float) -> None:
        """Account for work done: `pairs` evaluated."""
        self._left -= pairs
        if self._parent is not None:
            self._parent.spend(pairs)

    def allows(self) -> bool:
        """Return whether any budget is left."""
        return self._left > 0 if self._clock is None else self._clock() < self._end_s
