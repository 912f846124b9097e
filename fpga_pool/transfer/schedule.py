"""Pacing of a sender: the planned rate segments, followed on a clock and replaceable at any time."""

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import RateSegment

#: Delay, caused by its CPU or network, that a sender may catch up; a larger delay shifts the rest of its schedule.
_CATCH_UP_S = 0.25
#: The flow is limited to this multiple of the planned rate, which spreads the bytes but allows it to catch up.
_HEADROOM = 2.0
#: Duration of a piece at the planned rate: bytes are sent in pieces, so that a sender is not woken for each packet.
_PIECE_S = 0.01
#: Frames are limited to this duration, but not below this size, so that progress reports of slow transfers do not lag.
_FRAME_S, _LEAST_FRAME_BYTES = 0.1, 16 * 1024
#: Rounding error of sums of rates times durations.
_ROUNDING_BYTES = 1.0


class RateSchedule:
    """Segments in order of time, without overlap; an empty schedule means no limit.

    Times are relative to an anchor that the user defines. A rate of 0 holds the transfer, `inf` does not limit it.
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
                raise InvalidInput(f"rate segment {i + 1}: begins at {later.begin_s} s, before the previous one ends")
        self.segments = tuple(segments)
        self._begins_s = [segment.begin_s for segment in segments]
        sizes = (segment.bps * (segment.end_s - segment.begin_s) / 8 if segment.bps else 0.0 for segment in segments)
        #: Bytes carried before each segment, and in total, length n + 1.
        self._before_bytes = list(accumulate(sizes, initial=0.0))
        positive = [segment.bps for segment in segments if segment.bps > 0]
        #: Rate after the end: a late transfer continues at the last positive rate, or holds if there was none.
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
        """Return the next time after `t_s` at which a segment begins or ends; `inf` if there is none."""
        i = bisect_right(self._begins_s, t_s) - 1
        if i >= 0 and t_s < self.segments[i].end_s:
            return self.segments[i].end_s
        return self.segments[i + 1].begin_s if i + 1 < len(self.segments) else math.inf

    @property
    def end_s(self) -> float:
        """End of the last segment; -inf if there are none."""
        return self.segments[-1].end_s if self.segments else -math.inf

    @property
    def total_bytes(self) -> float:
        """Bytes that all segments carry."""
        return self._before_bytes[-1]

    def carried_bytes(self, t_s: float) -> float:
        """Return the bytes that the segments carry until `t_s`."""
        i = bisect_right(self._begins_s, t_s) - 1
        if i < 0:
            return 0.0
        segment = self.segments[i]
        if math.isinf(segment.bps):
            return math.inf
        return self._before_bytes[i] + segment.bps * (min(t_s, segment.end_s) - segment.begin_s) / 8

    def surplus_bytes(self, t_s: float) -> float:
        """Return the bytes sent between the end of the schedule and `t_s`, at the last rate."""
        return self._rate_afterwards * max(t_s - self.end_s, 0.0) / 8

    def next_byte(self, carried_bytes: float) -> tuple[float, float]:
        """Return when the byte after `carried_bytes` is sent, and at which rate; after the end at the last rate."""
        i = self._segment_of(carried_bytes)
        if i >= len(self.segments):
            rate_bps = self._rate_afterwards if self.segments else math.inf
            surplus_bytes = max(carried_bytes - self.total_bytes, 0.0)
            return self.end_s + (8 * surplus_bytes / rate_bps if rate_bps > 0 else 0.0), rate_bps
        segment = self.segments[i]
        in_segment_bytes = max(carried_bytes - self._before_bytes[i], 0.0)
        return segment.begin_s + 8 * in_segment_bytes / segment.bps, segment.bps

    def run_bytes(self, carried_bytes: float) -> float:
        """Return how many bytes are sent after `carried_bytes` before the next hold; `inf` if none follows."""
        i = self._segment_of(carried_bytes)
        while i + 1 < len(self.segments):
            following = self.segments[i + 1]
            if following.bps == 0 or following.begin_s > self.segments[i].end_s:
                return self._before_bytes[i + 1] - carried_bytes
            i += 1
        return math.inf

    def piece_bytes(self, carried_bytes: float) -> float:
        """Return how many bytes are sent after `carried_bytes` until the rate changes; `inf` after the end."""
        i = self._segment_of(carried_bytes)
        return self._before_bytes[i + 1] - carried_bytes if i < len(self.segments) else math.inf

    def _segment_of(self, carried_bytes: float) -> int:
        """Return the index of the segment that carries the byte after `carried_bytes`; n if it is after the end."""
        return bisect_right(self._before_bytes, max(carried_bytes, 0.0) + _ROUNDING_BYTES) - 1


class FlowLimiter(Protocol):
    """One flow of an egress driver."""

    def set_rate(self, bps: float) -> None:
        """Limit the flow from now on; 0 while its sender sends nothing."""


class NoLimit:
    """A flow that is limited by its sender only."""

    def set_rate(self, bps: float) -> None:
        """Accept any rate."""


class Pacer:
    """Tells a sender how many bytes it may send now, so that it is never ahead of its plan.

    One thread sends; any thread may replace the schedule.  A schedule that carries less than the input applies to the
    last bytes of the input.  With `from_first_byte` it applies to the first bytes, and the rest follows at its last
    rate.  `anchor_s` is the time on `clock` at which the schedule starts.
    """

    def __init__(
        self,
        schedule: RateSchedule,
        limiter: FlowLimiter,
        input_bytes: int,
        *,
        anchor_s: float,
        clock: Callable[[], float] = time.monotonic,
        from_first_byte: bool = False,
    ) -> None:
        self._limiter = limiter
        self._input_bytes = input_bytes
        self._from_first_byte = from_first_byte
        self._anchor_s = anchor_s
        self._clock = clock
        self._applied_bps: float | None = None
        self._sent_bytes = 0
        self._changed = threading.Condition()
        self._follow(schedule)

    def _follow(self, schedule: RateSchedule) -> None:
        self._schedule = schedule
        #: Bytes of the input before those that the schedule carries.
        self._before_bytes = 0.0 if self._from_first_byte else max(self._input_bytes - schedule.total_bytes, 0.0)
        #: Delay against the schedule that the sender does not catch up.
        self._late_s = 0.0

    def replace(self, schedule: RateSchedule) -> None:
        """Follow another schedule from now on, with the same anchor."""
        with self._changed:
            self._follow(schedule)
            self._changed.notify_all()

    def sent(self, count: int) -> None:
        """Record that `count` more bytes were sent."""
        self._sent_bytes += count

    def quota(self, wanted_bytes: int) -> int:
        """Return how many of `wanted_bytes` may be sent now; 0 if they are fewer than a piece worth sending."""
        with self._changed:
            t_s, due_s, rate_bps = self._position()
            self._limit(0.0 if t_s < due_s else _HEADROOM * rate_bps)
            if t_s < due_s:
                return 0
            ends = t_s >= self._schedule.end_s and not (self._from_first_byte and rate_bps > 0)
            if ends or math.isinf(rate_bps):
                return wanted_bytes
            planned_bytes = self._before_bytes + self._schedule.carried_bytes(t_s)
            if self._from_first_byte:
                planned_bytes += self._schedule.surplus_bytes(t_s)
            if math.isinf(planned_bytes):
                return wanted_bytes
            allowed = int(planned_bytes) - self._sent_bytes
            worthwhile = allowed + _ROUNDING_BYTES >= self._piece_bytes(wanted_bytes, rate_bps)
            return min(wanted_bytes, allowed) if worthwhile else 0

    def frame_bytes(self, most_bytes: int) -> int:
        """Return the size of the next frame, 1..`most_bytes`: bytes that will be sent soon and without a hold."""
        carried_bytes = self._sent_bytes - self._before_bytes
        _, rate_bps = self._schedule.next_byte(carried_bytes)
        soon_bytes = max(rate_bps * _FRAME_S / 8, _LEAST_FRAME_BYTES)
        return max(int(min(most_bytes, soon_bytes, self._schedule.run_bytes(carried_bytes))), 1)

    def hold_s(self) -> float:
        """Return the seconds until the next piece may be sent."""
        with self._changed:
            t_s, due_s, rate_bps = self._position()
            left_bytes = max(self._input_bytes - self._sent_bytes, 1)
            piece_s = 8 * self._piece_bytes(left_bytes, rate_bps) / rate_bps if rate_bps > 0 else math.inf
            return max(due_s + piece_s - t_s, 0.0)

    def wait(self, timeout_s: float) -> None:
        """Wait until the next piece may be sent, at most `timeout_s`."""
        with self._changed:
            self._changed.wait(min(timeout_s, self.hold_s()))

    def _position(self) -> tuple[float, float, float]:
        """Return the current time on the schedule, and the planned time and rate of the next byte."""
        due_s, rate_bps = self._schedule.next_byte(self._sent_bytes - self._before_bytes)
        t_s = self._clock() - self._anchor_s - self._late_s
        beyond_s = t_s - due_s - _CATCH_UP_S
        if beyond_s > 0 and not math.isinf(rate_bps):
            self._late_s += beyond_s
            t_s -= beyond_s
        return t_s, due_s, rate_bps

    def _piece_bytes(self, wanted_bytes: int, rate_bps: float) -> float:
        # A piece ends where the rate changes: at a lower rate its rest would take longer than a sender can catch up.
        at_one_rate = self._schedule.piece_bytes(self._sent_bytes - self._before_bytes)
        return min(wanted_bytes, at_one_rate, max(rate_bps * _PIECE_S / 8, 1.0))

    def _limit(self, rate_bps: float) -> None:
        if rate_bps != self._applied_bps:
            self._limiter.set_rate(rate_bps)
            self._applied_bps = rate_bps
