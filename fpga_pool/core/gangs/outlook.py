"""When each waiting gang can be expected to start, and why it has not."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum

from fpga_pool.core.gangs.tiers import Tiers


class Why(Enum):
    """Why a gang is not in the foreground."""

    TOO_FEW_IDLE = "too few processors are idle"
    WOULD_DELAY = "it would delay a gang ahead of it in the queue"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The expected start of a gang that waits for the foreground, and the reason why it waits."""

    gang: int
    why: Why
    #: By the estimates of all that run and of all that wait before it: it may well be sooner.
    begin_s: float


def outlook(view: Tiers, now_s: float) -> list[Outlook]:
    """Return the outlook of all gangs that wait for the foreground, the head of the queue first.

    They are served in this order, each at the first time at which it fits until its estimated end.  Gangs that run in
    the background meanwhile may need less.
    """
    profile = _Profile(view, now_s)
    found = []
    for gang in view.queue.present():
        why = Why.TOO_FEW_IDLE if view.width[gang] > view.idle else Why.WOULD_DELAY
        found.append(Outlook(gang, why, profile.take(view.width[gang], view.estimate_s[gang])))
    return found


class _Profile:
    """How many processors are free from when on, by the estimates."""

    def __init__(self, view: Tiers, now_s: float) -> None:
        self._from_s, self._free = [now_s], [view.idle]
        for gang, end_s in zip(view.ends.present(), view.ends.keys.tolist(), strict=False):
            at = self._split(max(end_s, now_s))
            for i in range(at, len(self._free)):
                self._free[i] += view.width[gang]

    def take(self, width: int, run_s: float) -> float:
        """Take processors for a time as soon as there are enough for all of it; return when it begins.

        Never (infinity) where there are too few of them in the view even when all have ended.
        """
        begin = 0
        for at, free in enumerate(self._free):
            if self._from_s[at] >= self._from_s[begin] + run_s:
                break
            if free < width:
                begin = at + 1
        if begin == len(self._from_s):
            return math.inf
        begin_s = self._from_s[begin]
        for i in range(begin, self._split(begin_s + run_s)):
            self._free[i] -= width
        return begin_s

    def _split(self, time_s: float) -> int:
        """Return the place of the step that begins at this time; make one if there is none."""
        at = bisect_left(self._from_s, time_s)
        if at == len(self._from_s) or self._from_s[at] != time_s:
            self._from_s.insert(at, time_s)
            self._free.insert(at, self._free[at - 1])
        return at
