"""How fast the data port reads: a token bucket that lets its users run into debt and tells them how long to wait."""

import math

from fpga_pool.model.exceptions import InvalidInput

#: What may pass at once after a pause: this long at full rate.  A port that did not get the processor for a while must
#: be able to catch up, or its links stand still for good.
_BURST_S = 0.25


class TokenBucket:
    """Meter of one rate, shared by any number of streams; used by one thread."""

    def __init__(self, rate_bps: float, now_s: float) -> None:
        if not rate_bps > 0:
            raise InvalidInput(f"rate_bps: expected more than 0, got {rate_bps}")
        self._rate_bps = rate_bps
        #: When everything taken so far has been paid for.
        self._paid_s = now_s

    def take(self, taken_bytes: int, now_s: float) -> float:
        """Count bytes that were read; return how many seconds to wait before reading on.

        Each stream waits for the debt of all: the next bytes of any of them come after those already taken.
        """
        if math.isinf(self._rate_bps):
            return 0.0
        self._paid_s = max(self._paid_s, now_s - _BURST_S) + 8 * taken_bytes / self._rate_bps
        return max(0.0, self._paid_s - now_s)
