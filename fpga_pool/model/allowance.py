"""A rate limit for events of one kind: a burst at once, then a steady rate per second."""


class Allowance:
    """A token bucket for events of one kind.  The caller passes the time and holds a lock."""

    def __init__(self, at_once: float, per_s: float) -> None:
        if not (at_once >= 1 and per_s > 0):
            raise ValueError(f"expected at least 1 at once and more than 0 per second, got {at_once} and {per_s}")
        self._at_once = at_once
        self._per_s = per_s
        self._left = at_once
        self._seen_s: float | None = None
        #: Events over the limit since the last call of `missed`.
        self._missed = 0

    def take(self, now_s: float) -> bool:
        """Count one event, and return whether it is within the limit."""
        if self._seen_s is not None:
            self._left = min(self._at_once, self._left + max(now_s - self._seen_s, 0.0) * self._per_s)
        self._seen_s = now_s
        if self._left < 1:
            self._missed += 1
            return False
        self._left -= 1
        return True

    def missed(self) -> int:
        """Return how many events were over the limit since the last call."""
        missed, self._missed = self._missed, 0
        return missed

    def wait_s(self) -> float:
        """Return how many seconds after the last event the next one is within the limit."""
        return max(1 - self._left, 0.0) / self._per_s
