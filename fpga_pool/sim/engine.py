"""A discrete-event engine: a clock and what happens when."""

import heapq
import itertools
import math
from collections.abc import Callable


class Engine:
    """Runs actions in order of their times; those of one instant in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def pending(self) -> int:
        """How many actions are still to be called."""
        return len(self._agenda)

    @property
    def next_s(self) -> float:
        """When the next action is called; infinite = never."""
        return self._agenda[0][0] if self._agenda else math.inf

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Have `action` called at `time_s`, or now if that has passed."""
        heapq.heappush(self._agenda, (max(time_s, self.now_s), next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Have `action` called after a while."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Let time pass until nothing is left to happen, or until `until_s`."""
        while self._agenda and self._agenda[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._agenda)
            action()
