"""When a sender may send how fast: the plan's rate segments, followed on a clock and replaceable at any time."""

import math
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import RateSegment

#: A sender that was held up by its processor or network makes up for so much of it; what is more stays late.
_CATCH_UP_S = 0.25
#: Limit of the flow itself, over the planned rate: it spreads the bytes, and leaves room to catch up.
_HEADROOM = 2.0
#: Bytes leave in pieces of this long at the planned rate, so that a sender is not woken for each packet.
_PIECE_S = 0.01
#: A frame is received as a whole: progress reports of a slow transfer must not lag behind.
_FRAME_S, _LEAST_FRAME_BYTES = 0.1, 16 * 1024
#: Sums of rates times seconds are this exact.
_ROUNDING_BYTES = 1.0


class RateSchedule:
    """Segments in order of time, without overlap; an empty schedule does not limit.

    Times are relative to the anchor of its user; a rate of 0 holds, `inf` does not limit.
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
        #: (n + 1,) what was carried before each segment, and in the end.
        self._before_bytes = list(accumulate(sizes, initial=0.0))
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

    @property
    def end_s(self) -> float:
        """When the last segment ends; -inf without any."""
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
        """Return the bytes that have followed until `t_s` since the end, at the last rate."""
        return self._rate_afterwards * max(t_s - self.end_s, 0.0) / 8

    def next_byte(self, carried_bytes: float) -> tuple[float, float]:
        """Return when the byte after `offset` bytes leaves, and at which rate; from the end on at the last one."""
        i = self._segment_of(carried_bytes)
        if i >= len(self.segments):
            rate_bps = self._rate_afterwards if self.segments else math.inf
            surplus_bytes = max(carried_bytes - self.total_bytes, 0.0)
            return self.end_s + (8 * surplus_bytes / rate_bps if rate_bps > 0 else 0.0), rate_bps
        segment = self.segments[i]
        in_segment_bytes = max(carried_bytes - self._before_bytes[i], 0.0)
        return segment.begin_s + 8 * in_segment_bytes / segment.bps, segment.bps

    def run_bytes(self, carried_bytes: float) -> float:
        """Return how many bytes leave after an offset before the next hold; `inf` if none follows."""
        i = self._segment_of(carried_bytes)
        while i + 1 < len(self.segments):
            following = self.segments[i + 1]
            if following.bps == 0 or following.begin_s > self.segments[i].end_s:
                return self._before_bytes[i + 1] - carried_bytes
            i += 1
        return math.inf

    def piece_bytes(self, carried_bytes: float) -> float:
        """Return how many bytes leave after an offset at one rate; `inf` from the end on."""
        i = self._segment_of(carried_bytes)
        return self._before_bytes[i + 1] - carried_bytes if i < len(self.segments) else math.inf

    def _segment_of(self, carried_bytes: float) -> int:
        """Return the segment that carries the byte after an offset; one with a rate of 0 carries none."""
        return bisect_right(self._before_bytes, max(carried_bytes, 0.0) + _ROUNDING_BYTES) - 1


class FlowLimiter(Protocol):
    """One flow of an egress driver, bound to the transfer when that starts."""

    def set_rate(self, bps: float) -> None:
        """Limit the flow from now on; 0 while its sender holds."""


class NoLimit:
    """A flow that only its sender holds back."""

    def set_rate(self, bps: float) -> None:
        """Accept any rate."""


class Pacer:
    """Says how much of an input may leave by now, so that it is never ahead of its plan; it has no thread of its own.

    One thread sends, any may replace the schedule.  A schedule may be for what is left of the input: then it is about
    the last bytes of it, unless it is `from_first_byte`: then what it does not carry follows at its last rate.
    `anchor_s` is the moment on `clock` from which the schedule counts.
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
        #: What has left before the schedule begins.
        self._before_bytes = 0.0 if self._from_first_byte else max(self._input_bytes - schedule.total_bytes, 0.0)
        #: By how much the sender is later than the schedule and will not make up for.
        self._late_s = 0.0

    def replace(self, schedule: RateSchedule) -> None:
        """Follow another schedule from now on, on the same anchor."""
        with self._changed:
            self._follow(schedule)
            self._changed.notify_all()

    def sent(self, count: int) -> None:
        """Note that this many more bytes have left."""
        self._sent_bytes += count

    def quota(self, wanted_bytes: int) -> int:
        """Return how many of the given bytes may leave now: all, none, or pieces that are worth sending."""
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
        """Return how many of the given bytes leave soon and without a hold between them: at least 1."""
        carried_bytes = self._sent_bytes - self._before_bytes
        _, rate_bps = self._schedule.next_byte(carried_bytes)
        soon_bytes = max(rate_bps * _FRAME_S / 8, _LEAST_FRAME_BYTES)
        return max(int(min(most_bytes, soon_bytes, self._schedule.run_bytes(carried_bytes))), 1)

    def hold_s(self) -> float:
        """Return the seconds until a piece may leave."""
        with self._changed:
            t_s, due_s, rate_bps = self._position()
            left_bytes = max(self._input_bytes - self._sent_bytes, 1)
            piece_s = 8 * self._piece_bytes(left_bytes, rate_bps) / rate_bps if rate_bps > 0 else math.inf
            return max(due_s + piece_s - t_s, 0.0)

    def wait(self, timeout_s: float) -> None:
        """Wait until a piece may leave, for this long at most."""
        with self._changed:
            self._changed.wait(min(timeout_s, self.hold_s()))

    def _position(self) -> tuple[float, float, float]:
        """Return the time on the schedule, when the next byte is due there, and at which rate it is to leave."""
        due_s, rate_bps = self._schedule.next_byte(self._sent_bytes - self._before_bytes)
        t_s = self._clock() - self._anchor_s - self._late_s
        beyond_s = t_s - due_s - _CATCH_UP_S
        if beyond_s > 0 and not math.isinf(rate_bps):
            self._late_s += beyond_s
            t_s -= beyond_s
        return t_s, due_s, rate_bps

    def _piece_bytes(self, wanted_bytes: int, rate_bps: float) -> float:
        # The rest of a piece at a lower rate would come later than a sender makes up for.
        at_one_rate = self._schedule.piece_bytes(self._sent_bytes - self._before_bytes)
        return min(wanted_bytes, at_one_rate, max(rate_bps * _PIECE_S / 8, 1.0))

    def _limit(self, rate_bps: float) -> None:
        if rate_bps != self._applied_bps:
            self._limiter.set_rate(rate_bps)
            self._applied_bps = rate_bps
