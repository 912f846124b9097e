"""Reservation for the head of the queue, backfilling behind it (steps 2 of Algorithms 1 and 3), and `Dispatch`.

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
    """When the head can start by the estimates, and what it does not need then."""

    #: The shadow time.
    begin_s: float
    #: Processors idle now that gangs may keep beyond that time.
    extra: int
    #: Processors that such gangs must leave alone; None where any will do.
    spared: Ints | None = None


def anywhere(view: Tiers, head: int, now_s: float, extra_ends: str) -> Reservation:
    """Return the reservation of a head that can start on any processors (Algorithm 1)."""
    ends = view.ends
    begin_s, extra = view.scans.head_start(
        ends.keys, ends.rows, ends.count, view.gangs.width, view.idle, view.width[head], now_s, extra_ends == ALL
    )
    return Reservation(begin_s, extra)


def where_it_sits(view: Tiers, head: int, now_s: float) -> Reservation:
    """Return the reservation of a head that stays where it is in the background (Algorithm 3)."""
    processors = view.placed[head]
    in_front = view.front[processors]
    ends_s = (view.end_s(gang) for gang in set(in_front.tolist()) - {NOBODY, BLOCKED})
    spared = int((in_front == NOBODY).sum())
    return Reservation(max((now_s, *ends_s)), view.idle - spared, processors)


def next_fill(view: Tiers, order: Rows, begin: int, run_s: Floats, now_s: float, reservation: Reservation) -> int:
    """Return the place in `order`, `begin` or later, of the first gang that may be served before the head; else -1.

    It fits on what is idle, and ends by the reservation or takes no more than is extra.
    """
    begin_s, extra, _ = reservation
    found: int = view.scans.next_fill(
        order.rows, begin, order.count, view.gangs.width, run_s, view.idle, now_s, begin_s, extra
    )
    return found


def next_narrow(view: Tiers, order: Rows, begin: int, usage_threshold: float) -> int:
    """Return the place in `order`, `begin` or later, of the first gang with room behind usages below this; else -1."""
    found: int = view.scans.next_narrow(
        order.rows, begin, order.count, view.gangs.width, view.behind, view.front_usage, usage_threshold
    )
    return found


def next_behind(view: Tiers, order: Rows, begin: int, highest_usage: Floats, usage_threshold: float) -> int:
    """Return the place in `order`, `begin` or later, of the first gang with room behind usages below its highest."""
    found: int = view.scans.next_behind(
        order.rows, begin, order.count, view.gangs.width, highest_usage, view.behind, view.front_usage, usage_threshold
    )
    return found


_NONE: Ints = np.empty(0, np.int64)


def in_front(view: Tiers, gang: int, spared: Ints | None = None) -> Ints | None:
    """Return idle processors for the foreground, none of `spared`; None where there are too few.

    The least used come first, so that the gang's busiest process meets the least busy background.  Of equals the first.
    A gang that leaves the background of some does not count there any more.
    """
    width = view.width[gang]
    found: Ints = view.scans.idle_in_front(
        view.front, view.behind, view.behind_usage, gang, width, _NONE if spared is None else spared
    )
    return found if len(found) == width else None


def behind(view: Tiers, gang: int, usage_threshold: float) -> Ints | None:
    """Return processors for the background, the least used in the foreground first; None where there are too few."""
    width = view.width[gang]
    found: Ints = view.scans.idle_behind(view.behind, view.front_usage, usage_threshold, width)
    return found if len(found) == width else None


def can_swap(view: Tiers, gang: int) -> bool:
    """Return whether the foreground of all processors is idle behind which the gang runs."""
    return bool(view.scans.all_idle(view.front, view.placed[gang]))


# ---- When each waiting gang can be expected to start, and why it has not


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
