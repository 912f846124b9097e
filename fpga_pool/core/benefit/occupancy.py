"""Who waits, runs and loads: what online policies look at.

A shell (simulator or scheduler service) tells it what happens; policies only read it.  All questions that a decision
asks are answered from indices per function and kind of slot, so that they cost the same in a pool of one card and of
two thousand.
"""

import math
from bisect import bisect_left, bisect_right, insort
from itertools import islice

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.benefit.pool import OnlinePool

EMPTY = -1
#: Slots that are compared when one of many has to be chosen, and that are looked at to find them.
_LOOK, _LOOK_FAR = 8, 200

#: A set that keeps the order in which its members came.
OrderedSet = dict[int, None]


class Occupancy:
    """The pool at one moment."""

    def __init__(self, pool: OnlinePool, demand: Demand | None = None) -> None:
        self.pool = pool
        self.demand = demand or Demand(pool.speedup.tolist())
        functions, kinds, slots = len(pool.functions), len(pool.load_s), pool.slots
        # Plain lists: single elements of arrays are slow to read.
        self.kinds, self.functions = range(kinds), range(functions)
        self.fits: list[list[bool]] = pool.fits.tolist()
        self.io_bps: list[list[float]] = pool.io_bps.tolist()
        self.load_s: list[float] = pool.load_s.tolist()
        self.dma_bps: list[float] = pool.dma_bps.tolist()
        self.card: list[int] = pool.slot_card.tolist()
        self.kind: list[int] = pool.slot_kind.tolist()
        self.preemptible: list[bool] = pool.preemptible.tolist()
        self.progress_kept: list[bool] = pool.progress_kept.tolist()
        #: By function: the jobs that wait, oldest first, with the time at which each gives up.
        self.waiting: list[dict[int, float]] = [{} for _ in range(functions)]
        #: How many wait, and who came last: job and function.
        self.queue = 0
        self.newest = (-1, EMPTY)
        #: By slot: function held or being loaded; job that runs, -1 = none; when it was last loaded.
        self.holds = [EMPTY] * slots
        self.job = [-1] * slots
        self.loaded_s = [-math.inf] * slots
        #: By kind, then function (the last one: EMPTY): slots that are idle, and slots that run a preemptible job.
        self.idle: list[list[OrderedSet]] = [[{} for _ in range(functions + 1)] for _ in range(kinds)]
        self.evictable: list[list[OrderedSet]] = [[{} for _ in range(functions)] for _ in range(kinds)]
        #: By function: slots that hold or load it, slots that load it, and expected ends of its running jobs, sorted.
        self.held = [0] * functions
        self.loading = [0] * functions
        self.ends_s: list[list[float]] = [[] for _ in range(functions)]
        #: By slot: when its job is expected to end.
        self.end_s = [0.0] * slots
        #: By card: its configuration port loads; DMA rate that its running jobs ask for.
        self.port_busy = [False] * len(self.dma_bps)
        self.asked_bps = [0.0] * len(self.dma_bps)
        for slot in range(slots):
            self.idle[self.kind[slot]][EMPTY][slot] = None

    # What happened ------------------------------------------------------------------------------------------------

    def arrived(self, job: int, function: int, work_s: float, give_up_s: float, now_s: float) -> None:
        """Let a job wait."""
        self.demand.arrived(function, work_s, give_up_s - now_s, now_s)
        self.waiting[function][job] = give_up_s
        self.queue += 1
        self.newest = (job, function)

    def left(self, job: int, function: int) -> None:
        """Let a job wait no more."""
        del self.waiting[function][job]
        self.queue -= 1

    def started(self, slot: int, job: int, end_s: float) -> None:
        """Let an idle slot run a job."""
        function, kind = self.holds[slot], self.kind[slot]
        del self.idle[kind][function][slot]
        self.job[slot], self.end_s[slot] = job, end_s
        insort(self.ends_s[function], end_s)
        self.asked_bps[self.card[slot]] += self.io_bps[kind][function]
        if self.preemptible[function]:
            self.evictable[kind][function][slot] = None

    def delayed(self, slot: int, end_s: float) -> None:
        """Expect another end of the slot's job."""
        ends_s = self.ends_s[self.holds[slot]]
        del ends_s[bisect_left(ends_s, self.end_s[slot])]
        insort(ends_s, end_s)
        self.end_s[slot] = end_s

    def stopped(self, slot: int) -> None:
        """Let a slot be idle again: its job ended, or was taken off."""
        function, kind = self.holds[slot], self.kind[slot]
        ends_s = self.ends_s[function]
        del ends_s[bisect_left(ends_s, self.end_s[slot])]
        self.job[slot] = -1
        self.asked_bps[self.card[slot]] -= self.io_bps[kind][function]
        self.evictable[kind][function].pop(slot, None)
        self.idle[kind][function][slot] = None

    def loads(self, slot: int, function: int) -> None:
        """Let an idle slot load a function."""
        before, kind = self.holds[slot], self.kind[slot]
        del self.idle[kind][before][slot]
        if before != EMPTY:
            self.held[before] -= 1
        self.holds[slot] = function
        self.held[function] += 1
        self.loading[function] += 1
        self.port_busy[self.card[slot]] = True

    def loaded(self, slot: int, now_s: float) -> None:
        """Let a slot be idle with the function it has loaded."""
        self.loading[self.holds[slot]] -= 1
        self.port_busy[self.card[slot]] = False
        self.loaded_s[slot] = now_s
        self.idle[self.kind[slot]][self.holds[slot]][slot] = None

    # What a decision asks -----------------------------------------------------------------------------------------

    def idle_holding(self, function: int) -> int:
        """Return the number of idle slots that hold the function."""
        return sum(len(by_function[function]) for by_function in self.idle)

    def uncovered(self, function: int, most: int, extra: int = 0) -> int:
        """Return how many of the oldest `most` waiting jobs no slot that holds or loads the function can take in time.

        Looks ahead on the work that remains: each idle or loading slot, and `extra` more, takes one job, each running
        one the next in line when it ends before that job gives up.
        """
        queue = self.waiting[function]
        at_once = self.idle_holding(function) + self.loading[function] + extra
        if len(queue) <= at_once:
            return 0
        ends_s, taken, missed = self.ends_s[function], 0, 0
        for give_up_s in islice(queue.values(), at_once, at_once + most):
            if taken < bisect_right(ends_s, give_up_s):
                taken += 1
            else:
                missed += 1
        return missed

    def roomiest(self, slots: OrderedSet, *, port: bool = False, loaded_by_s: float = math.inf) -> int | None:
        """Return the slot whose card has most DMA left, of the first few; among equals the one that came first.

        Only those loaded by then, and with `port` those whose card's configuration port is free; None without any.
        """
        best, most_bps, found = None, -math.inf, 0
        for slot in islice(slots, _LOOK_FAR):
            card = self.card[slot]
            if (port and self.port_busy[card]) or self.loaded_s[slot] > loaded_by_s:
                continue
            left_bps = self.dma_bps[card] - self.asked_bps[card]
            if left_bps > most_bps:
                best, most_bps = slot, left_bps
            found += 1
            if found == _LOOK:
                break
        return best
