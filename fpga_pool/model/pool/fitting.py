"""Which slots of the pool an instance could get for a function, and what that would cost the pool.

Slots are seen as Placement sees them: those of one kind on one card are a provider, and within a provider one is as
good as another for the claim, so what matters is how many there are, from the best to the most costly.
"""

import math
from functools import cached_property

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects import SlotState
from fpga_pool.model.pool.columns import Bools, PoolColumns
from fpga_pool.model.pool.host_candidates import HostCandidates
from fpga_pool.model.pool.providers import Providers

#: What it costs to give a slot away, in the order in which an instance is given slots: the function is there and
#: nothing computes; nothing is loaded; another function is; jobs are planned on it.  Evicting a job costs more than all
#: of these together for the largest request, and the more the more it gains there.
LOADED, EMPTY, OTHER, PLANNED, EVICTION = 0.0, 1.0, 2.0, 3.0, 1000.0
#: What slots add that cannot be had.
NOT_HAD = math.inf


class Fitting:
    """The slots that an instance could get for one function: by provider, and within each from the cheapest on."""

    def __init__(self, providers: Providers, catalogue: Catalogue, function: str, stay_s: float) -> None:
        self.providers = providers
        self.function = function
        pool = providers.pool
        traits = _Traits(pool, catalogue, function)
        #: (S,) whether the function can be loaded there, whoever has the slot now; and whether it can be had now.
        self.fits: Bools = traits.fits
        #: A job that cannot be preempted computes there for the pool.
        self.kept: Bools = traits.busy & ~traits.preemptible & traits.takeable
        self.had: Bools = traits.fits & traits.takeable & pool.in_service & ~self.kept
        #: (S,) see LOADED and its siblings.
        self.cost: Floats = traits.cost
        rows = np.flatnonzero(self.had)
        rows = rows[np.lexsort((traits.cost[rows], providers.of_slot[rows]))]
        count = len(providers.uuids)
        #: (P,) how many slots can be had, and where they begin among all of those.
        self.free: Ints = np.bincount(providers.of_slot[rows], minlength=count).astype(np.int64)
        self.begin: Ints = np.concatenate([[0], np.cumsum(self.free)[:-1]]).astype(np.int64) if count else self.free
        evicted = np.where(traits.busy, traits.gain_now, 0.0)[rows]
        share = 1.0 - traits.load_s[rows] / (traits.load_s[rows] + stay_s)
        #: (N,) of the slots that can be had, by provider: cost, benefit added to the pool, time to load.
        self.costs: Floats = traits.cost[rows]
        self.gains: Floats = traits.speedup[rows] * share - evicted
        self.loads_s: Floats = traits.load_s[rows]
        #: (P,) how many times as long as on the fastest board the function computes there.
        self.slowdown: Floats = traits.slowdown[providers.slot]

    @cached_property
    def slot_candidates(self) -> HostCandidates:
        """The slots that can be had, one by one, with how they are linked."""
        return HostCandidates(self.providers, self.had, self.cost)

    def firsts(self, values: Floats, count: int, free: Ints | None = None) -> Floats:
        """Return (P,) the sum of some values over the first `count` slots of each provider.

        NOT_HAD where there are not so many; `free` (P,) says how many there are where it is fewer than `self.free`.
        Where slots are alike so are the sums, to the last bit.
        """
        rows = np.flatnonzero((self.free if free is None else free) >= count)
        added = np.full(len(self.free), NOT_HAD)
        added[rows] = values[self.begin[rows, np.newaxis] + np.arange(count)].sum(axis=1)
        return added

    def between(self, values: Floats, provider: int, given: int, count: int) -> float:
        """Return the sum of some values over the next `count` slots of a provider, after `given` of them."""
        first = self.begin[provider] + given
        return float(values[first : first + count].sum())


class _Traits:
    """What each slot is, for one function."""

    def __init__(self, pool: PoolColumns, catalogue: Catalogue, function: str) -> None:
        slots, numbers = pool.slots, pool.numbers
        wanted = catalogue.function(function)
        rows = len(slots["host"])
        self.fits = np.zeros(rows, dtype=bool)
        self.speedup, self.slowdown, load_s = np.zeros(rows), np.ones(rows), np.zeros(rows)
        for here, (board, kind) in _alike(pool, "board", "kind"):
            if catalogue.fits(function, board, kind):
                self.fits[here] = True
                self.speedup[here] = wanted.speedup_on(board)
                self.slowdown[here] = wanted.slowdown_on(board)
                load_s[here] = catalogue.boards[board].load_s(kind)
        self.gain_now, self.preemptible = np.zeros(rows), np.ones(rows, dtype=bool)
        for here, (loaded, board) in _alike(pool, "function", "board"):
            if loaded in catalogue.functions:
                self.gain_now[here] = catalogue.functions[loaded].speedup_on(board)
                self.preemptible[here] = catalogue.functions[loaded].preemptible
        state, lease = slots["state"], slots["lease"]
        self.busy = state == numbers.get(SlotState.BUSY, -1)
        unleased = lease == numbers.get("", -1)
        self.takeable = unleased | (slots["revocable"] == 1)
        working = self.busy | (state == numbers.get(SlotState.READY, -1))
        there = working & (slots["function"] == numbers.get(function, -1))
        self.load_s = np.where(there, 0.0, load_s)
        idle = unleased & ~self.busy
        self.cost = np.select(
            [self.busy, idle & there, idle & (state == numbers.get(SlotState.EMPTY, -1)), idle],
            [EVICTION + self.gain_now, LOADED, EMPTY, OTHER],
            PLANNED,
        )


def _alike(pool: PoolColumns, *names: str) -> list[tuple[Ints, tuple[str, ...]]]:
    """Return the rows of slots that have the same words in some columns, with these words."""
    stacked = np.stack([pool.slots[name] for name in names])
    key = stacked[0] * (len(pool.words) + 1) + stacked[1]
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return [
        (np.flatnonzero(of == group), tuple(pool.words[number] for number in stacked[:, row].tolist()))
        for group, row in enumerate(first.tolist())
    ]
