"""Failure detector: the time since each observed value last changed.

Judged by the observer's own clock alone: what another machine's clock says is never compared with it.
"""

from collections.abc import Hashable, Mapping

from fpga_pool.services.clock import Clock


class FailureDetector:
    """Watches named things, each by a value that changes while it lives; one thread notes them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Hashable, float]] = {}

    def note(self, values: Mapping[str, Hashable]) -> dict[str, float]:
        """Record the present values; return for how many seconds each has not changed."""
        now_s = self._clock()
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == value else (value, now_s)
            for name, value in values.items()
        }
        return self.ages()

    def ages(self) -> dict[str, float]:
        """Return for how many seconds each value has not changed, as far as was observed; any thread may ask."""
        now_s = self._clock()
        return {name: now_s - since_s for name, (_, since_s) in self._seen.items()}

    @property
    def names(self) -> frozenset[str]:
        """The keys present at the last observation."""
        return frozenset(self._seen)

    def restart(self) -> None:
        """Count from now: nothing could be seen meanwhile."""
        self._seen = {}
