"""Reservation for the head of the queue, backfilling (step 2 of Algorithms 1 and 3), and `Dispatch`.

`in_front` and `behind` choose the processors of a gang: the function Dispatch of Algorithm 2 (two-tier paper).
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from fpga_pool.core.gangs.gangs import ALL
from fpga_pool.core.gangs.tiers import BLOCKED, NOBODY, Rows, Tiers
from fpga_pool.core.types import Floats, Ints


class Reservation(NamedTuple):
    """When the head can start by the estimates, and which processors it does not need then."""

    #: The shadow time.
    begin_s: float
    #: Number of processors idle now that other gangs may keep beyond the shadow time.
    extra: int
    #: Processors that such gangs must not use; None = they may use any.
    spared: Ints | None = None


def anywhere(view: Tiers, head: int, now_s: float, extra_ends: str) -> Reservation:
    """Return the reservation of a head that can start on any processors (Algorithm 1)."""
    ends = view.ends
    begin_s, extra = view.scans.head_start(
        ends.keys, ends.rows, ends.count, view.gangs.width, view.idle, view.width[head], now_s, extra_ends == ALL
    )
    return Reservation(begin_s, extra)


def where_it_sits(view: Tiers, head: int, now_s: float) -> Reservation:
    """Return the reservation of a head that waits in the background of its processors (Algorithm 3)."""
    processors = view.placed[head]
    in_front = view.front[processors]
    ends_s = (view.end_s(gang) for gang in set(in_front.tolist()) - {NOBODY, BLOCKED})
    spared = int((in_front == NOBODY).sum())
    return Reservation(max((now_s, *ends_s)), view.idle - spared, processors)


def next_fill(view: Tiers, order: Rows, begin: int, run_s: Floats, now_s: float, reservation: Reservation) -> int:
    """Return the position in `order`, `begin` or later, of the first gang that may start before the head; else -1.

    The gang fits on the idle processors, and ends by the reservation or needs no more than the extra processors.
    """
    begin_s, extra, _ = reservation
    found: int = view.scans.next_fill(
        order.rows, begin, order.count, view.gangs.width, run_s, view.idle, now_s, begin_s, extra
    )
    return found


def next_narrow(view: Tiers, order: Rows, begin: int, usage_threshold: float) -> int:
    """Return the position in `order`, `begin` or later, of the first gang that fits in the background; else -1.

    Only processors whose foreground usage is below the threshold count.
    """
    found: int = view.scans.next_narrow(
        order.rows, begin, order.count, view.gangs.width, view.behind, view.front_usage, usage_threshold
    )
    return found


def next_behind(view: Tiers, order: Rows, begin: int, highest_usage: Floats, usage_threshold: float) -> int:
    """Return the position in `order`, `begin` or later, of the first gang that fits in the background; else -1.

    Only processors whose foreground usage is below the threshold and the gang's highest usage count.
    """
    found: int = view.scans.next_behind(
        order.rows, begin, order.count, view.gangs.width, highest_usage, view.behind, view.front_usage, usage_threshold
    )
    return found


_NONE: Ints = np.empty(0, np.int64)


def in_front(view: Tiers, gang: int, spared: Ints | None = None) -> Ints | None:
    """Return idle processors for the foreground, none of `spared`; None if there are too few.

    Processors with the least used background come first, so that the gang's busiest process meets the least busy one;
    of equal ones the first is taken.  The gang's own background processes do not count.
    """
    width = view.width[gang]
    found: Ints = view.scans.idle_in_front(
        view.front, view.behind, view.behind_usage, gang, width, _NONE if spared is None else spared
    )
    return found if len(found) == width else None


def behind(view: Tiers, gang: int, usage_threshold: float) -> Ints | None:
    """Return processors for the background, the least used in the foreground first; None if there are too few."""
    width = view.width[gang]
    found: Ints = view.scans.idle_behind(view.behind, view.front_usage, usage_threshold, width)
    return found if len(found) == width else None


def can_swap(view: Tiers, gang: int) -> bool:
    """Return whether the foreground is idle on all processors in whose background the gang runs."""
    return bool(view.scans.all_idle(view.front, view.placed[gang]))


# ---- The expected start of each waiting gang, and the reason why it waits


class Why(Enum):
    """Why a gang is not in the foreground."""

    TOO_FEW_IDLE = "too few processors are idle"
    WOULD_DELAY = "it would delay a gang ahead of it in the queue"


@dataclass(frozen=True, slots=True)
class Outlook:
    """The expected start of a gang that waits for the foreground, and the reason why it waits."""

    gang: int
    why: Why
    #: Start by the estimates of all gangs that run or wait before it; the gang may well start sooner.
    begin_s: float


def outlook(view: Tiers, now_s: float) -> list[Outlook]:
    """Return the outlook of all gangs that wait for the foreground, the head of the queue first.

    They are served in this order, each at the first time from which it fits until its estimated end.  Gangs that run in
    the background meanwhile may need less time.
    """
    profile = _Profile(view, now_s)
    found = []
    for gang in view.queue.present():
        why = Why.TOO_FEW_IDLE if view.width[gang] > view.idle else Why.WOULD_DELAY
        found.append(Outlook(gang, why, profile.take(view.width[gang], view.estimate_s[gang])))
    return found


class _Profile:
    """Number of free processors over time, by the estimates."""

    def __init__(self, view: Tiers, now_s: float) -> None:
        self._from_s, self._free = [now_s], [view.idle]
        for gang, end_s in zip(view.ends.present(), view.ends.keys.tolist(), strict=False):
            at = self._split(max(end_s, now_s))
            for i in range(at, len(self._free)):
                self._free[i] += view.width[gang]

    def take(self, width: int, run_s: float) -> float:
        """Take processors for `run_s` at the first time from which enough of them stay free; return that time.

        Returns infinity if the view has too few processors even when all gangs have ended.
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
        """Return the index of the step that begins at this time; insert one if there is none."""
        at = bisect_left(self._from_s, time_s)
        if at == len(self._from_s) or self._from_s[at] != time_s:
            self._from_s.insert(at, time_s)
            self._free.insert(at, self._free[at - 1])
        return at
