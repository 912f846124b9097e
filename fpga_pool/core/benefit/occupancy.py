"""Waiting, running and loading jobs and slots: the view of online policies.

A shell (simulator or scheduler service) reports events to it; policies only read it.  All questions that a decision
asks are answered from indices per function and kind of slot, so that they cost the same in a pool of one card and of
two thousand.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, MutableMapping
from itertools import islice

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.benefit.pool import OnlinePool, fair_rates

EMPTY = -1
#: Slots that are compared when one of many has to be chosen, and that are looked at to find them.
_LOOK, _LOOK_FAR = 8, 32

#: A set of slots in some order: as they came, or by rank.
OrderedSet = MutableMapping[int, None]


class Occupancy:
    """The pool at one moment."""

    def __init__(self, pool: OnlinePool, demand: Demand | None = None) -> None:
        self.pool = pool
        self.demand = demand or Demand(pool.speedup.tolist())
        functions, kinds, slots = len(pool.functions), len(pool.load_s), pool.slots
        # Plain lists: single elements of arrays are slow to read.
        self.kinds, self.functions = range(kinds), range(functions)
        #: How many slots serve.
        self.slots = slots
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
        #: A function may be loaded that no job waits for.
        self.preloads = True
        #: Slots into which nothing is loaded that no job waits for: such a load has failed lately.
        self.put_off: set[int] = set()
        #: How many wait in all.
        self.queue = 0
        #: What has changed since the last decision, of which the rest follows: the function whose job arrived, or the
        #: slot that became idle; None and None = look at everything.
        self.news: tuple[int | None, int | None] = (None, None)
        #: By slot: function held or being loaded; job that runs, -1 = none; when it was last loaded.
        self.holds = [EMPTY] * slots
        self.job = [-1] * slots
        self.loaded_s = [-math.inf] * slots
        #: By kind, then function (the last one: EMPTY): slots that are idle, and slots that run a preemptible job.
        self.idle: list[list[OrderedSet]] = [[self._group() for _ in range(functions + 1)] for _ in range(kinds)]
        self.evictable: list[list[OrderedSet]] = [[self._group() for _ in range(functions)] for _ in range(kinds)]
        #: By kind: how many slots are idle.
        self.idle_slots = [0] * kinds
        #: By function: idle slots that hold it, slots that hold or load it, slots that load it, and expected ends of
        #: its running jobs, sorted.
        self.idle_holding = [0] * functions
        self.held = [0] * functions
        self.loading = [0] * functions
        self.ends_s: list[list[float]] = [[] for _ in range(functions)]
        #: By slot: when its job is expected to end.
        self.end_s = [0.0] * slots
        #: By card: its configuration port loads; DMA rate that its running jobs ask for.
        self.port_busy = [False] * len(self.dma_bps)
        self.asked_bps = [0.0] * len(self.dma_bps)
        self._slots_of: list[list[int]] = [[] for _ in self.dma_bps]
        for slot in range(slots):
            self._slots_of[self.card[slot]].append(slot)
            self.idle[self.kind[slot]][EMPTY][slot] = None
            self.idle_slots[self.kind[slot]] += 1

    def _group(self) -> OrderedSet:
        """Return a group of slots among which a policy chooses, in the order in which they come."""
        return {}

    def withdraw(self, slot: int) -> None:
        """Let a slot that is idle and empty serve no more; its number stays."""
        kind, card = self.kind[slot], self.card[slot]
        del self.idle[kind][EMPTY][slot]
        self.idle_slots[kind] -= 1
        self._slots_of[card].remove(slot)
        self.slots -= 1

    # What happened ------------------------------------------------------------------------------------------------

    def arrived(self, job: int, function: int, work_s: float, give_up_s: float, now_s: float, tenant: str = "") -> None:
        """Let a job wait."""
        self.demand.arrived(function, work_s, give_up_s - now_s, now_s, tenant)
        self.waits(job, function, give_up_s)

    def waits(self, job: int, function: int, give_up_s: float) -> None:
        """Let a job wait that has arrived before: a picture is made again, or the job was taken off a slot."""
        self.waiting[function][job] = give_up_s
        self.queue += 1
        self.news = function, None

    def left(self, job: int, function: int) -> None:
        """Let a job wait no more."""
        del self.waiting[function][job]
        self.queue -= 1

    def started(self, slot: int, job: int, end_s: float) -> None:
        """Let an idle slot run a job."""
        function, kind = self.holds[slot], self.kind[slot]
        del self.idle[kind][function][slot]
        self.idle_slots[kind] -= 1
        self.idle_holding[function] -= 1
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
        self.news = None, slot
        self.evictable[kind][function].pop(slot, None)
        self.idle[kind][function][slot] = None
        self.idle_slots[kind] += 1
        self.idle_holding[function] += 1

    def loads(self, slot: int, function: int) -> None:
        """Let an idle slot load a function."""
        before, kind = self.holds[slot], self.kind[slot]
        del self.idle[kind][before][slot]
        self.idle_slots[kind] -= 1
        if before != EMPTY:
            self.held[before] -= 1
            self.idle_holding[before] -= 1
        self.holds[slot] = function
        self.held[function] += 1
        self.loading[function] += 1
        self._use_port(self.card[slot])

    def _use_port(self, card: int) -> None:
        """Let a card's configuration port load.

        The other slots of the card cannot load meanwhile: who looks for one that can finds it among the first.
        """
        self.port_busy[card] = True
        for other in self._slots_of[card]:
            group = self.idle[self.kind[other]][self.holds[other]]
            if other in group:
                del group[other]
                group[other] = None

    def loaded(self, slot: int, now_s: float) -> None:
        """Let a slot be idle with the function it has loaded."""
        function = self.holds[slot]
        self.loading[function] -= 1
        self.port_busy[self.card[slot]] = False
        self.loaded_s[slot] = now_s
        # Not only this slot: the port is free again, for all of the card.
        self.news = None, None
        self.idle[self.kind[slot]][function][slot] = None
        self.idle_slots[self.kind[slot]] += 1
        self.idle_holding[function] += 1

    # What a decision asks -----------------------------------------------------------------------------------------

    def behind(self, function: int, by_s: float) -> bool:
        """Return whether more jobs of the function wait than slots with it are free, or will be by then."""
        waiting = len(self.waiting[function]) - self.idle_holding[function] - self.loading[function]
        return waiting > 0 and waiting > bisect_right(self.ends_s[function], by_s)

    def uncovered(self, function: int, most: int, extra: int = 0) -> int:
        """Return how many of the oldest `most` waiting jobs no slot that holds or loads the function can take in time.

        Looks ahead on the work that remains: each idle or loading slot, and `extra` more, takes one job, each running
        one the next in line when it ends before that job gives up.
        """
        queue = self.waiting[function]
        at_once = self.idle_holding[function] + self.loading[function] + extra
        if len(queue) <= at_once:
            return 0
        looked_at = min(most, len(queue) - at_once)
        ends_s = self.ends_s[function]
        # Jobs mostly give up in the order in which they came: what ends before the first does is there for all.
        taken, missed = min(looked_at, bisect_right(ends_s, next(iter(queue.values())))), 0
        if at_once > _LOOK_FAR:
            # To find those far back in the queue would take longer than the whole decision; they wait no shorter.
            return looked_at - taken
        for give_up_s in islice(queue.values(), at_once + taken, at_once + looked_at):
            if taken < len(ends_s) and ends_s[taken] <= give_up_s:
                taken += 1
            else:
                missed += 1
        return missed

    def empty_on(self, card: int) -> int:
        """Return how many slots of the card are empty."""
        return sum(self.holds[slot] == EMPTY for slot in self._slots_of[card])

    def rate(self, function: int, slot: int) -> float:
        """Return how fast a job of the function would run on the slot, beside what runs now on others of its card."""
        card = self.card[slot]
        own_bps = self.io_bps[self.kind[slot]][function]
        # Other slots ask for no more than all of them.
        if self.asked_bps[card] + own_bps <= self.dma_bps[card]:
            return 1.0
        others = (other for other in self._slots_of[card] if self.job[other] >= 0 and other != slot)
        demands_bps = [own_bps, *(self.io_bps[self.kind[other]][self.holds[other]] for other in others)]
        return fair_rates(demands_bps, self.dma_bps[card])[0]

    def roomiest(self, slots: Iterable[int], *, port: bool = False, loaded_by_s: float = math.inf) -> int | None:
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
