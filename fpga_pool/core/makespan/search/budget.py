"""Limits of a search: in seconds by a clock that the caller gives, or in units of work."""

from collections.abc import Callable
from math import inf

#: Looked-at pairs of job and accelerator, in one unit of work: about a millisecond where the search is compiled.
PAIRS_PER_UNIT = 1_000_000

Clock = Callable[[], float]


class Budget:
    """What is left to search.  By work it is the same on every machine, and so is the result."""

    def __init__(self, *, effort: float, time_limit_s: float = 0.0, clock: Clock | None = None) -> None:
        if time_limit_s > 0 and clock is None:
            raise ValueError("time_limit_s: requires a clock")
        self._clock = clock if time_limit_s > 0 else None
        self._end_s = self._clock() + time_limit_s if self._clock else 0.0
        self._left = effort * PAIRS_PER_UNIT
        self._parent: Budget | None = None

    @property
    def is_timed(self) -> bool:
        """Whether seconds are limited instead of work."""
        return self._clock is not None

    @property
    def left_s(self) -> float:
        """Seconds left; infinite where work is limited instead."""
        return self._end_s - self._clock() if self._clock else inf

    def part(self, share: float) -> "Budget":
        """Return a budget of that share of what is left; what is spent from it is spent from this one too."""
        part = Budget(effort=share * self._left / PAIRS_PER_UNIT)
        part._clock, part._parent = self._clock, self
        if self._clock is not None:
            now_s = self._clock()
            part._end_s = now_s + share * (self._end_s - now_s)
        return part

    def prolonged(self, seconds: float) -> "Budget":
        """Return a budget of this many more seconds; this one if work is limited."""
        if self._clock is None:
            return self
        longer = Budget(effort=0)
        longer._clock, longer._end_s = self._clock, self._end_s + seconds
        return longer

    def spend(self, pairs: float) -> None:
        """Account for work done."""
        self._left -= pairs
        if self._parent is not None:
            self._parent.spend(pairs)

    def allows(self) -> bool:
        """Return whether there is any left."""
        return self._left > 0 if self._clock is None else self._clock() < self._end_s
