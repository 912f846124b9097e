"""How often something may happen: so many times at once, and so many times a second afterwards."""


class Allowance:
    """Events of one kind, as a token bucket of the clock that its caller reads; used under its caller's lock."""

    def __init__(self, at_once: float, per_s: float) -> None:
        if not (at_once >= 1 and per_s > 0):
            raise ValueError(f"expected at least 1 at once and more than 0 per second, got {at_once} and {per_s}")
        self._at_once = at_once
        self._per_s = per_s
        self._left = at_once
        self._seen_s: float | None = None
        #: Events that were too many since the last one that was not.
        self._missed = 0

    def take(self, now_s: float) -> bool:
        """Count one event; return whether it is within the allowance."""
        if self._seen_s is not None:
            self._left = min(self._at_once, self._left + max(now_s - self._seen_s, 0.0) * self._per_s)
        self._seen_s = now_s
        if self._left < 1:
            self._missed += 1
            return False
        self._left -= 1
        return True

    def missed(self) -> int:
        """Return how many events were too many since this was last asked."""
        missed, self._missed = self._missed, 0
        return missed

    def wait_s(self) -> float:
        """Return how long after the last event another one is within the allowance."""
        return max(1 - self._left, 0.0) / self._per_s
