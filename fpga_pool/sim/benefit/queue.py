"""Jobs that wait for a slot of a simulated live pool, in the order in which a planning cycle considers them."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from fpga_pool.core.benefit.occupancy import Occupancy


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """A job on a CPU worker that would be complete earlier on a slot."""

    job: int
    #: Remaining seconds on a slot.
    work_s: float
    #: Latest time to begin on a slot and be complete as early as on the CPU.
    give_up_s: float


class Queue:
    """Jobs without a place, oldest first, then those that return from CPUs; `show` updates the picture with them."""

    def __init__(self, view: Occupancy, function: Sequence[int]) -> None:
        self._view, self._function = view, function
        #: Jobs without a place; those of them that had one before; and, sorted, those that have waited long enough.
        self.pending: set[int] = set()
        self._again: set[int] = set()
        self._late: list[int] = []
        #: Heap of (time after which it has waited long enough, job), for jobs that never had a place.
        self._give_up: list[tuple[float, int]] = []
        #: Jobs added since the last planning cycle, and the jobs that the picture shows as returning.
        self._new: list[int] = []
        self._shown: Collection[Returning] = ()
        self._all_again = False

    def add(self, job: int) -> None:
        """Add a waiting job that never had a place."""
        self.pending.add(job)
        self._new.append(job)

    def add_again(self, job: int) -> None:
        """Add a waiting job that has lost its place; it counts as having waited long enough."""
        self.add(job)
        self._again.add(job)
        insort(self._late, job)

    def discard(self, job: int) -> None:
        """Remove a job, if it waits."""
        if job not in self.pending:
            return
        self.pending.remove(job)
        self._again.discard(job)
        if (at := bisect_left(self._late, job)) < len(self._late) and self._late[at] == job:
            del self._late[at]
        if job in self._view.waiting[self._function[job]]:
            self._view.left(job, self._function[job])

    def wait_differently(self) -> None:
        """Recompute at the next `show` how long each job waits."""
        self._all_again = True

    def show(
        self,
        now_s: float,
        give_up_s: Callable[[int], float],
        returning: Collection[Returning],
        lets_in: Callable[[int], bool] | None,
    ) -> None:
        """Update the waiting jobs in the picture: all that want a slot now and that `lets_in` accepts."""
        if self._all_again:
            self._show_again()
        for job in self._new:
            if job in self.pending and job not in self._again:
                heapq.heappush(self._give_up, (give_up_s(job), job))
        while self._give_up and self._give_up[0][0] <= now_s:
            _, job = heapq.heappop(self._give_up)
            if job in self.pending and job not in self._again:
                insort(self._late, job)
        if lets_in is not None:
            self._show_all(now_s, give_up_s, returning, lets_in)
        else:
            self._show_changes(now_s, give_up_s, returning)
        self._new.clear()

    def _show_again(self) -> None:
        self._all_again = False
        self._give_up.clear()
        self._late = sorted(self._again)
        self._new = sorted(self.pending)
        for queue in self._view.waiting:
            self._view.queue -= len(queue)
            queue.clear()

    def _show_all(
        self,
        now_s: float,
        give_up_s: Callable[[int], float],
        returning: Collection[Returning],
        lets_in: Callable[[int], bool],
    ) -> None:
        for queue in self._view.waiting:
            self._view.queue -= len(queue)
            queue.clear()
        for job in sorted(self.pending):
            if lets_in(job):
                self._view.waits(job, self._function[job], now_s if job in self._again else give_up_s(job))
        for asks in returning:
            if lets_in(asks.job):
                self._view.waits(asks.job, self._function[asks.job], asks.give_up_s)

    def _show_changes(self, now_s: float, give_up_s: Callable[[int], float], returning: Collection[Returning]) -> None:
        view, function = self._view, self._function
        for asked in self._shown:
            if asked.job in view.waiting[function[asked.job]]:
                view.left(asked.job, function[asked.job])
        for job in self._new:
            queue = view.waiting[function[job]]
            if job in self.pending and job not in queue:
                later = list(takewhile(job.__lt__, reversed(queue)))
                view.waits(job, function[job], now_s if job in self._again else give_up_s(job))
                for other in reversed(later):
                    queue[other] = queue.pop(other)
        for job in self._again:
            view.waiting[function[job]][job] = now_s
        for asks in returning:
            view.waits(asks.job, function[asks.job], asks.give_up_s)
        self._shown = returning

    def late(self, most: int) -> list[int]:
        """Return at most `most` jobs that have waited long enough, oldest first."""
        return self._late[:most]
