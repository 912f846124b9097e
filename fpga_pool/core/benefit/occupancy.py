"""The view of online policies: waiting and running jobs, and the slots that run, load or are idle.

A shell (simulator or scheduler service) reports events to it; policies only read it.  Queries are answered from indices
per function and kind of slot, so that they cost the same in a pool of one card and of two thousand.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, MutableMapping, Sequence
from itertools import islice

from fpga_pool.core.benefit.pool import OnlinePool, fair_rates

# ---- Demand on a pool, estimated from observations: arrivals, work per job, speedups

#: Seconds after which an arrival counts for 1/e: follows a mix that changes every half minute, but not noise.
MEMORY_S = 20.0
#: Number of later jobs after which an observed run counts for 1/e.
MEMORY_JOBS = 20.0
#: Weight, in arrivals, of the mean of all functions beside a function's own arrivals: at light load only few of these
#: fall within the memory, and they are mostly noise.
PRIOR_ARRIVALS = 1.0
#: Maximum number of (function, tenant) pairs remembered; the least recently run pairs are dropped.
TENANTS = 10_000


class Demand:
    """Exponential averages per function.

    A tenant whose workload changes loses its benefit (section IV.C), so speedups are learned per function and tenant,
    and a function counts with the gain of the jobs that arrive for it.  At its start, a service derives them again from
    the newest jobs.
    """

    def __init__(self, speedup: Sequence[float], memory_s: float = MEMORY_S, memory_jobs: float = MEMORY_JOBS) -> None:
        self._memory_s, self._weight = memory_s, 1.0 / memory_jobs
        #: vCPU equivalents of an arriving job, as observed; the catalogue's value until then (section IV.C).
        self.speedup = list(speedup)
        self._catalogue = tuple(speedup)
        self._learned: dict[tuple[int, str], float] = {}
        #: Mean seconds of slot time of one job; 0 = none seen.
        self.work_s = [0.0] * len(self.speedup)
        #: Mean of the maximum seconds that a job waits; 0 = none seen.
        self.patience_s = [0.0] * len(self.speedup)
        self._sum = [0.0] * len(self.speedup)
        self._at_s = [0.0] * len(self.speedup)
        self._since_s = math.inf
        self._offered: list[float] = []
        self._more_than: dict[tuple[int, int], float] = {}
        #: Total number of arrivals.
        self._count = [0] * len(self.speedup)
        self._offered_at_s = -math.inf

    @property
    def arrivals(self) -> int:
        """Total number of jobs that have arrived."""
        return sum(self._count)

    def arrived(self, function: int, work_s: float, patience_s: float, now_s: float, tenant: str = "") -> None:
        """Count an arrival."""
        if self._learned:
            self._approach(function, self.expected(function, tenant))
        self._since_s = min(self._since_s, now_s)
        for mean_s, seen_s in ((self.work_s, work_s), (self.patience_s, patience_s)):
            known_s = mean_s[function]
            mean_s[function] = known_s + (seen_s - known_s) * self._weight if known_s else seen_s
        self._sum[function] = self._aged(function, now_s) + 1.0
        self._at_s[function] = now_s
        self._count[function] += 1

    def ran(self, function: int, speedup: float, tenant: str = "") -> None:
        """Count a run with an observed speedup over one vCPU."""
        known = self.expected(function, tenant)
        self._approach(function, speedup)
        if speedup != known:
            self._learned.pop((function, tenant), None)
            self._learned[function, tenant] = known + (speedup - known) * self._weight
            if len(self._learned) > TENANTS:
                del self._learned[next(iter(self._learned))]

    def expected(self, function: int, tenant: str) -> float:
        """Return the expected vCPU equivalents of a tenant's job."""
        return self._learned.get((function, tenant), self._catalogue[function])

    def _approach(self, function: int, speedup: float) -> None:
        self.speedup[function] += (speedup - self.speedup[function]) * self._weight

    def rates(self, now_s: float) -> Sequence[float]:
        """Return arrivals per second, by function."""
        seen_s = now_s - self._since_s
        if seen_s <= 0:
            return [0.0] * len(self._sum)
        # After `seen_s` the weights add up to memory_s * (1 - exp(-seen_s / memory_s)).  A moment is no basis for a
        # rate, so at least a twentieth of the memory counts as seen.
        seen_s = max(seen_s, 0.05 * self._memory_s)
        weights_s = self._memory_s * -math.expm1(-seen_s / self._memory_s)
        arrivals = [self._aged(function, now_s) for function in range(len(self._sum))]
        asked_for = [work_s > 0 for work_s in self.work_s]
        mean = sum(arrivals) / max(1, sum(asked_for))
        if mean == 0:
            return [0.0] * len(arrivals)
        # Posterior means of rates whose prior is a gamma distribution around the mean of all functions.
        prior, weight = PRIOR_ARRIVALS, weights_s * (1.0 + PRIOR_ARRIVALS / mean)
        return [(count + prior) / weight if seen else 0.0 for count, seen in zip(arrivals, asked_for, strict=True)]

    def offered(self, now_s: float) -> Sequence[float]:
        """Return, by function, the number of slots that all arriving jobs would keep busy; cached for a moment."""
        if not 0 <= now_s - self._offered_at_s <= 0.002 * self._memory_s:
            rates = self.rates(now_s)
            self._offered = [rate * work_s for rate, work_s in zip(rates, self.work_s, strict=True)]
            self._offered_at_s = now_s
            self._more_than.clear()
        return self._offered

    def more_than(self, slots: int, function: int, now_s: float) -> float:
        """Return the Poisson probability that more than `slots` jobs of the function are present, each on a slot."""
        offered = self.offered(now_s)[function]
        if (found := self._more_than.get((slots, function))) is None:
            found = self._more_than[slots, function] = _more_than(slots, offered)
        return found

    def likely_more_than(self, slots: int, function: int, now_s: float, of: int) -> float:
        """Return `more_than`, also for a function that was not requested yet.

        The probability that a job requests a new function is the Good-Turing estimate: the share of the jobs so far
        whose function was requested only once.  Before the first job, all functions together are assumed to keep `of`
        slots busy; this prior has the weight of an observation as long as one job.
        """
        if self._count[function]:
            return self.more_than(slots, function, now_s)
        total, unseen = sum(self._count), self._count.count(0)
        if not total:
            return _more_than(slots, of / unseen)
        work_s = sum(self.work_s) / (len(self._count) - unseen)
        offered = work_s * (of + total) / (work_s + now_s - self._since_s) if work_s else 0.0
        return _more_than(slots, offered * self._count.count(1) / total / unseen)

    def _aged(self, function: int, now_s: float) -> float:
        return self._sum[function] * math.exp((self._at_s[function] - now_s) / self._memory_s)


def _more_than(slots: int, offered: float) -> float:
    # Imported here because otherwise every process that imports policies would load scipy at its start.
    from scipy.special import gammainc

    return float(gammainc(slots + 1, offered))


# ---- The view

EMPTY = -1
#: Maximum number of slots compared when one of many is chosen, and of slots inspected to find these.
_LOOK, _LOOK_FAR = 8, 32

#: A set of slots, in order of insertion or of rank.
OrderedSet = MutableMapping[int, None]


class Occupancy:
    """The state of the pool at one moment."""

    def __init__(self, pool: OnlinePool, demand: Demand | None = None) -> None:
        self.pool = pool
        self.demand = demand or Demand(pool.speedup.tolist())
        functions, kinds, slots = len(pool.functions), len(pool.load_s), pool.slots
        # Plain lists: single elements of arrays are slow to read.
        self.kinds, self.functions = range(kinds), range(functions)
        #: Number of slots in service.
        self.slots = slots
        self.fits: list[list[bool]] = pool.fits.tolist()
        self.io_bps: list[list[float]] = pool.io_bps.tolist()
        self.load_s: list[float] = pool.load_s.tolist()
        self.dma_bps: list[float] = pool.dma_bps.tolist()
        self.card: list[int] = pool.slot_card.tolist()
        self.kind: list[int] = pool.slot_kind.tolist()
        self.preemptible: list[bool] = pool.preemptible.tolist()
        self.progress_kept: list[bool] = pool.progress_kept.tolist()
        #: By function: the waiting jobs, oldest first, with the time at which each gives up.
        self.waiting: list[dict[int, float]] = [{} for _ in range(functions)]
        #: Whether functions that no job waits for may be loaded.
        self.preloads = True
        #: Slots that are not preloaded, because such a load has failed recently.
        self.put_off: set[int] = set()
        #: Total number of waiting jobs.
        self.queue = 0
        #: The change since the last decision: the function whose job arrived, or the slot that became idle; None and
        #: None = consider everything.
        self.news: tuple[int | None, int | None] = (None, None)
        #: By slot: function held or being loaded; running job, -1 = none; time of the last load.
        self.holds = [EMPTY] * slots
        self.job = [-1] * slots
        self.loaded_s = [-math.inf] * slots
        #: By kind, then function (the last one: EMPTY): slots that are idle, and slots that run a preemptible job.
        self.idle: list[list[OrderedSet]] = [[self._group() for _ in range(functions + 1)] for _ in range(kinds)]
        self.evictable: list[list[OrderedSet]] = [[self._group() for _ in range(functions)] for _ in range(kinds)]
        #: By kind: number of idle slots.
        self.idle_slots = [0] * kinds
        #: By function: idle slots that hold it, slots that hold or load it, slots that load it, and expected ends of
        #: its running jobs, sorted.
        self.idle_holding = [0] * functions
        self.held = [0] * functions
        self.loading = [0] * functions
        self.ends_s: list[list[float]] = [[] for _ in range(functions)]
        #: By slot: expected end of its job.
        self.end_s = [0.0] * slots
        #: By card: whether its configuration port is loading; DMA rate that its running jobs request.
        self.port_busy = [False] * len(self.dma_bps)
        self.asked_bps = [0.0] * len(self.dma_bps)
        self._slots_of: list[list[int]] = [[] for _ in self.dma_bps]
        for slot in range(slots):
            self._slots_of[self.card[slot]].append(slot)
            self._add_idle(slot)

    def _group(self) -> OrderedSet:
        """Return an empty group of slots among which a policy chooses, in order of insertion."""
        return {}

    # Events -------------------------------------------------------------------------------------------------------

    def arrived(self, job: int, function: int, work_s: float, give_up_s: float, now_s: float, tenant: str = "") -> None:
        """Add a new job to the waiting jobs."""
        self.demand.arrived(function, work_s, give_up_s - now_s, now_s, tenant)
        self.waits(job, function, give_up_s)

    def waits(self, job: int, function: int, give_up_s: float) -> None:
        """Add a job that arrived before to the waiting jobs: a picture is rebuilt, or the job was evicted."""
        self.waiting[function][job] = give_up_s
        self.queue += 1
        self.news = function, None

    def left(self, job: int, function: int) -> None:
        """Remove a job from the waiting jobs."""
        del self.waiting[function][job]
        self.queue -= 1

    def started(self, slot: int, job: int, end_s: float) -> None:
        """Record that an idle slot runs a job."""
        function, kind = self.holds[slot], self.kind[slot]
        self._drop_idle(slot)
        self.job[slot], self.end_s[slot] = job, end_s
        insort(self.ends_s[function], end_s)
        self.asked_bps[self.card[slot]] += self.io_bps[kind][function]
        if self.preemptible[function]:
            self.evictable[kind][function][slot] = None

    def delayed(self, slot: int, end_s: float) -> None:
        """Change the expected end of the slot's job."""
        ends_s = self.ends_s[self.holds[slot]]
        del ends_s[bisect_left(ends_s, self.end_s[slot])]
        insort(ends_s, end_s)
        self.end_s[slot] = end_s

    def stopped(self, slot: int) -> None:
        """Record that a slot is idle again because its job ended or was evicted."""
        function, kind = self.holds[slot], self.kind[slot]
        ends_s = self.ends_s[function]
        del ends_s[bisect_left(ends_s, self.end_s[slot])]
        self.job[slot] = -1
        self.asked_bps[self.card[slot]] -= self.io_bps[kind][function]
        self.news = None, slot
        self.evictable[kind][function].pop(slot, None)
        self._add_idle(slot)

    def loads(self, slot: int, function: int) -> None:
        """Record that an idle slot begins to load a function."""
        before = self.holds[slot]
        self._drop_idle(slot)
        if before != EMPTY:
            self.held[before] -= 1
        self.holds[slot] = function
        self.held[function] += 1
        self.loading[function] += 1
        self._use_port(self.card[slot])

    def _use_port(self, card: int) -> None:
        """Record that a card's configuration port is loading.

        The other slots of the card cannot load meanwhile and move to the end of their groups, so that a slot that can
        load is found among the first.
        """
        self.port_busy[card] = True
        for other in self._slots_of[card]:
            group = self.idle[self.kind[other]][self.holds[other]]
            if other in group:
                del group[other]
                group[other] = None

    def loaded(self, slot: int, now_s: float) -> None:
        """Record that a slot has loaded its function and is idle."""
        function = self.holds[slot]
        self.loading[function] -= 1
        self.port_busy[self.card[slot]] = False
        self.loaded_s[slot] = now_s
        # Not only this slot has changed: the port is free again for all slots of the card.
        self.news = None, None
        self._add_idle(slot)

    def _add_idle(self, slot: int) -> None:
        kind, function = self.kind[slot], self.holds[slot]
        self.idle[kind][function][slot] = None
        self.idle_slots[kind] += 1
        if function != EMPTY:
            self.idle_holding[function] += 1

    def _drop_idle(self, slot: int) -> None:
        kind, function = self.kind[slot], self.holds[slot]
        del self.idle[kind][function][slot]
        self.idle_slots[kind] -= 1
        if function != EMPTY:
            self.idle_holding[function] -= 1

    # Queries of a decision ----------------------------------------------------------------------------------------

    def behind(self, function: int, by_s: float) -> bool:
        """Return whether more jobs of the function wait than it has slots that are idle, loading, or free by `by_s`."""
        waiting = len(self.waiting[function]) - self.idle_holding[function] - self.loading[function]
        return waiting > 0 and waiting > bisect_right(self.ends_s[function], by_s)

    def uncovered(self, function: int, most: int, extra: int = 0) -> int:
        """Return how many waiting jobs, `most` at most, no slot that holds or loads the function can take in time.

        Looks ahead by the remaining work: each idle or loading slot, and `extra` more, takes one job, and each running
        slot takes the next job in line if it ends before that job gives up.
        """
        queue = self.waiting[function]
        at_once = self.idle_holding[function] + self.loading[function] + extra
        if len(queue) <= at_once:
            return 0
        looked_at = min(most, len(queue) - at_once)
        ends_s = self.ends_s[function]
        # Jobs mostly give up in order of arrival: slots that end before the first one gives up suit all.
        taken, missed = min(looked_at, bisect_right(ends_s, next(iter(queue.values())))), 0
        if at_once > _LOOK_FAR:
            # Finding jobs far back in the queue would take longer than the whole decision; they give up no earlier.
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
        """Return the rate of a job of the function on the slot, beside the jobs on the other slots of its card."""
        card = self.card[slot]
        own_bps = self.io_bps[self.kind[slot]][function]
        # The other slots request no more than all slots of the card.
        if self.asked_bps[card] + own_bps <= self.dma_bps[card]:
            return 1.0
        others = (other for other in self._slots_of[card] if self.job[other] >= 0 and other != slot)
        demands_bps = [own_bps, *(self.io_bps[self.kind[other]][self.holds[other]] for other in others)]
        return fair_rates(demands_bps, self.dma_bps[card])[0]

    def roomiest(self, slots: Iterable[int], *, port: bool = False, loaded_by_s: float = math.inf) -> int | None:
        """Return the slot whose card has the most DMA left among the first few slots; of equal ones, the first.

        Considers only slots loaded by `loaded_by_s` and, with `port`, only cards whose configuration port is free.
        Returns None if there is no such slot.
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
