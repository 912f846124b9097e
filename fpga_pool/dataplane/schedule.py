"""When a sender may send how fast: the plan's rate segments, followed on a clock and replaceable at any time."""

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects import RateSegment


class RateSchedule:
    """Segments in order of time, without overlap; an empty schedule does not limit.

    Times are relative to the anchor of whoever follows it; a rate of 0 holds, `inf` does not limit.
    """

    def __init__(self, segments: Sequence[RateSegment] = ()) -> None:
        for i, segment in enumerate(segments):
            if not segment.begin_s < segment.end_s or math.isinf(segment.begin_s):
                span = f"{segment.begin_s}..{segment.end_s}"
                raise InvalidInput(f"rate segment {i}: must begin before it ends, got {span}")
            if not segment.bps >= 0:
                raise InvalidInput(f"rate segment {i}: expected a rate of at least 0, got {segment.bps}")
        for i, (earlier, later) in enumerate(pairwise(segments)):
            if later.begin_s < earlier.end_s:
                raise InvalidInput(f"rate segment {i + 1}: begins at {later.begin_s} s, inside the one before it")
        self.segments = tuple(segments)
        self._begins_s = [segment.begin_s for segment in segments]
        positive = [segment.bps for segment in segments if segment.bps > 0]
        #: A transfer that is later than planned goes on at the last rate it had, and holds only where none was given.
        self._rate_afterwards = positive[-1] if positive else 0.0

    def rate_at(self, t_s: float) -> float:
        """Return the rate in bits per second at `t_s`: 0 before the first segment and between segments."""
        if not self.segments:
            return math.inf
        i = bisect_right(self._begins_s, t_s) - 1
        if i >= 0 and t_s < self.segments[i].end_s:
            return self.segments[i].bps
        return self._rate_afterwards if i == len(self.segments) - 1 else 0.0

    def next_change_s(self, t_s: float) -> float:
        """Return when, after `t_s`, another segment begins or ends; `inf` if none does."""
        i = bisect_right(self._begins_s, t_s) - 1
        if i >= 0 and t_s < self.segments[i].end_s:
            return self.segments[i].end_s
        return self.segments[i + 1].begin_s if i + 1 < len(self.segments) else math.inf


class FlowLimiter(Protocol):
    """One flow of an egress driver; whoever starts the transfer binds the two."""

    def set_rate(self, bps: float) -> None:
        """Limit the flow from now on; 0 closes its gate."""

    def wait_open(self, timeout_s: float) -> bool:
        """Wait until the rate is above 0; False if it still is not after the timeout."""


class Pacer:
    """Applies a schedule to a flow, driven by the sender: it has no thread of its own.

    `anchor_s` is the moment on `clock` from which the schedule counts.
    """

    def __init__(
        self,
        schedule: RateSchedule,
        limiter: FlowLimiter,
        *,
        anchor_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule = schedule
        self._limiter = limiter
        self._anchor_s = anchor_s
        self._clock = clock
        self._applied_bps: float | None = None
        self._lock = threading.Lock()

    def replace(self, schedule: RateSchedule) -> None:
        """Follow another schedule from now on, on the same anchor; any thread may call this."""
        with self._lock:
            self._schedule = schedule
        self.apply()

    def apply(self) -> float:
        """Give the flow the rate of this moment; return the seconds until the schedule changes it."""
        with self._lock:
            t_s = self._clock() - self._anchor_s
            rate_bps = self._schedule.rate_at(t_s)
            if rate_bps != self._applied_bps:
                self._limiter.set_rate(rate_bps)
                self._applied_bps = rate_bps
            return self._schedule.next_change_s(t_s) - t_s

    def wait(self, timeout_s: float) -> bool:
        """Wait until the flow may send, at most until the timeout or the next change of the schedule."""
        until_change_s = self.apply()
        return self._limiter.wait_open(min(timeout_s, until_change_s))
