"""Slots that an instance could get for a function: by provider with their cost, and by host with their links.

Slots are counted as in Placement: the slots of one kind on one card are a provider, and a claim takes any of them, so
only their number matters, from the cheapest on.  Most hosts of a pool are alike: hosts whose slots have the same
availability, costs and links share one description, and results computed for one of them hold for all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from fpga_pool.core.cluster.slowdown import MOST_COST
from fpga_pool.core.makespan.reserving import costs, place_prices, unavoidable_s
from fpga_pool.core.types import Floats, Ints, ints
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects.links import slot_links
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.instance.linking import SlotCandidate
from fpga_pool.model.rules.shared.columns import Bools, PoolColumns, Providers

#: Slots of a host; their `card` and `provider` are numbers within the host.
SlotCandidates = tuple[SlotCandidate, ...]


class HostCandidates:
    """Available slots of hosts, by host name; made for each request, it computes only what is needed."""

    def __init__(self, providers: Providers, had: Bools, cost: Floats) -> None:
        """`had` and `cost` are (S,): whether each slot is available, and the cost to the pool of giving it away."""
        self._providers = providers
        self._rows: Ints = np.flatnonzero(had)
        self._cost: Floats = np.ascontiguousarray(cost[self._rows], dtype=np.float64)
        self._alike: dict[bytes, SlotCandidates] = {}
        self._located: dict[str, tuple[SlotCandidates, int]] = {}

    def of(self, host: str) -> SlotCandidates:
        """Return the available slots of a host; hosts that are alike share the same object."""
        return self.located(host)[0]

    def located(self, host: str) -> tuple[SlotCandidates, int]:
        """Return the available slots of a host, and the row of the provider with number 0 within the host."""
        found = self._located.get(host)
        if found is None:
            found = self._located[host] = self._found(host)
        return found

    def _found(self, host: str) -> tuple[SlotCandidates, int]:
        hosts = self._providers.hosts
        row = hosts.rows.get(host)
        if row is None:
            return (), 0
        begin, end = self._begin[row], self._begin[row + 1]
        known = self._bytes[begin * self._width : end * self._width]
        found = self._alike.get(known)
        if found is None:
            words = self._providers.pool.words
            found = self._alike[known] = tuple(
                SlotCandidate(str(card), provider, slot_links(words[links]), cost)
                for (card, provider, links, _), cost in zip(
                    self._facts[begin:end].tolist(), self._cost[begin:end].tolist(), strict=True
                )
            )
        return found, hosts.first_provider[row]

    def host_of(self, row: int) -> str:
        """Return the host of a provider."""
        pool = self._providers.pool
        word: int = pool.slots["host"][self._providers.slot[row]]
        return pool.words[word]

    def providers_of(self, host: str) -> Sequence[int]:
        """Return the rows of the providers of a host."""
        return self._providers.of_host.get(host, ())

    @cached_property
    def kinds(self) -> Ints:
        """(P,) number of the kind of each provider: equal for the same position within hosts that are alike."""
        providers, numbers = self._providers, dict[bytes, int]()
        bounds = pairwise(begin * self._width for begin in self._begin)
        alike = [numbers.setdefault(self._bytes[begin:end], len(numbers)) for begin, end in bounds]
        place = providers.hosts.provider[providers.slot]
        host = providers.pool.slot_host[providers.slot]
        return ints(np.array(alike, dtype=np.int64)[host] * (place.max(initial=0) + 1) + place)

    @cached_property
    def _facts(self) -> Ints:
        """(N, 4) card and provider within the host, word number of the links, and the bits of the cost."""
        hosts, links = self._providers.hosts, self._providers.pool.slots["links"]
        columns = (hosts.card[self._rows], hosts.provider[self._rows], links[self._rows], self._cost.view(np.int64))
        return np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))

    @cached_property
    def _bytes(self) -> bytes:
        return self._facts.tobytes()

    @cached_property
    def _width(self) -> int:
        width: int = self._facts.itemsize * self._facts.shape[1]
        return width

    @cached_property
    def _begin(self) -> list[int]:
        """(H + 1,) index of the first available slot of each host, and the number of all available slots."""
        pool = self._providers.pool
        begin: list[int] = np.searchsorted(pool.slot_host[self._rows], np.arange(len(pool.hosts["name"]) + 1)).tolist()
        return begin


#: Costs of giving a slot away, in the order in which slots are preferred: idle with the function loaded; idle and
#: empty; idle with another function loaded; with planned jobs.  Evicting a job costs more than all of these together
#: for the largest request; the job's benefit is added to the cost.
LOADED, EMPTY, OTHER, PLANNED, EVICTION = 0.0, 1.0, 2.0, 3.0, 1000.0
#: Weight of the scarcity (0 to 1) of a kind of slots in a price: more than loading or planning elsewhere, which costs
#: only seconds, while a function without a slot is not served at all; less than evicting a job.
SCARCITY = 500.0
#: Price of slots that are not available.
NOT_HAD = math.inf


class Fitting:
    """The slots that an instance could get for one function, by provider, and within each provider cheapest first."""

    def __init__(
        self,
        providers: Providers,
        catalogue: Catalogue,
        function: str,
        stay_s: float,
        run_times_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """`run_times_s` are the known expected run times of instances, by function."""
        self.providers = providers
        self.function = function
        #: Expected run time of the instance on the fastest board.
        self.stay_s = stay_s
        pool = providers.pool
        traits = _Traits(pool, catalogue, function)
        #: (S,) whether the function can be loaded there, regardless of leases; and whether the slot is available now.
        self.fits: Bools = traits.fits
        #: (S,) whether the slot computes a job of the pool that cannot be preempted.
        self.kept: Bools = traits.busy & ~traits.preemptible & traits.takeable
        available = traits.takeable & pool.in_service & ~self.kept
        self.had: Bools = traits.fits & available
        #: (S,) see LOADED and its siblings.
        self.cost: Floats = traits.cost
        rows = np.flatnonzero(self.had)
        rows = rows[np.lexsort((traits.cost[rows], providers.of_slot[rows]))]
        count = len(providers.uuids)
        #: (P,) number of available slots, and the index of the first of them among all available slots.
        self.free: Ints = np.bincount(providers.of_slot[rows], minlength=count).astype(np.int64)
        self.begin: Ints = np.concatenate([[0], np.cumsum(self.free)[:-1]]).astype(np.int64) if count else self.free
        evicted = np.where(traits.busy, traits.gain_now, 0.0)[rows]
        share = 1.0 - traits.load_s[rows] / (traits.load_s[rows] + stay_s)
        #: (N,) cost, benefit added to the pool, and load time of each available slot, by provider.
        self.costs: Floats = traits.cost[rows]
        self.gains: Floats = traits.speedup[rows] * share - evicted
        self.loads_s: Floats = traits.load_s[rows]
        #: (N,) 1 where a job is evicted, else 0.
        self.evicts: Floats = (self.costs >= EVICTION).astype(np.float64)
        #: (P,) how much other functions need the slots: see `Catalogue.scarcity`.
        self.scarcity: Floats = traits.scarcity[providers.slot]
        #: (P,) computation time relative to that on the fastest board, including the slowdown by sharing the card's DMA
        #: with its other slots.
        self.slowdown: Floats = traits.slowdown[providers.slot] * _sharing(providers, traits)
        #: (2, P) seconds of the host's ingress that are already planned, and the share of the ingress that the input of
        #: a slot needs while it runs. None = no ingress is planned on any host.
        self.ingress = _ingress(providers, traits) if pool.ingress else None
        #: The value of slots to future instances, and (P,) that of a slot of each provider.
        self.reservations = reservations(
            catalogue,
            traits.places,
            np.bincount(traits.place[available], minlength=len(traits.places)).astype(np.float64),
            {**traits.demand, function: traits.demand.get(function, 0.0) + 1.0},
            {**run_times_s, function: stay_s},
        )
        self.reserved: Floats = self.reservations.prices[traits.place[providers.slot]]

    @cached_property
    def slot_candidates(self) -> HostCandidates:
        """The available slots of each host, with their links."""
        return HostCandidates(self.providers, self.had, self.cost)

    def completions_s(self, count: int, free: Ints | None = None) -> Floats:
        """Return (P,) the completion time of an instance with `count` slots of a provider; NOT_HAD as in `firsts`."""
        return self.firsts(self.loads_s, count, free) + self.runs_s(count)

    def runs_s(self, count: int) -> Floats:
        """Return (P,) the run time of an instance with `count` slots of a provider.

        Its input arrives through the NIC of the host, after the inputs that are planned already.  Input at more
        than the NIC's rate cannot all come from outside; it is assumed to take as long as the run.
        """
        runs_s: Floats = self.stay_s * self.slowdown
        if self.ingress is None:
            return runs_s
        planned_s, share = self.ingress
        behind_s: Floats = np.maximum(runs_s, planned_s + runs_s * np.minimum(1.0, count * share))
        return behind_s

    def latenesses(self, count: int, free: Ints | None = None, completions_s: Floats | None = None) -> Floats:
        """Return (P,) how much later all instances complete if one gets `count` slots of a provider: `Reservations`.

        NOT_HAD as in `firsts`; `completions_s` are the completion times with the same slots, if known.
        """
        evictions = self.firsts(self.evicts, count, free)
        completions_s = self.completions_s(count, free) if completions_s is None else completions_s
        return self.reservations.latenesses(completions_s, self.reserved, evictions)

    def prices(self, count: int, free: Ints | None = None) -> Floats:
        """Return (P,) the price of `count` slots of each provider, with their scarcity; NOT_HAD as in `firsts`."""
        return self.firsts(self.costs, count, free) + SCARCITY * self.scarcity

    def firsts(self, values: Floats, count: int, free: Ints | None = None) -> Floats:
        """Return (P,) the sum of `values` (N,) over the first `count` available slots of each provider.

        The sum is NOT_HAD if fewer slots are available; `free` (P,) are their numbers if lower than `self.free`.
        Providers with equal values have exactly equal sums.
        """
        rows = np.flatnonzero((self.free if free is None else free) >= count)
        added = np.full(len(self.free), NOT_HAD)
        added[rows] = values[self.begin[rows, np.newaxis] + np.arange(count)].sum(axis=1)
        return added

    def between(self, values: Floats, provider: int, given: int, count: int) -> float:
        """Return the sum of `values` (N,) over `count` available slots of a provider, after the first `given`."""
        first = self.begin[provider] + given
        return float(values[first : first + count].sum())


class _Traits:
    """Properties of each slot, for one function."""

    def __init__(self, pool: PoolColumns, catalogue: Catalogue, function: str) -> None:
        slots, numbers = pool.slots, pool.numbers
        wanted = catalogue.function(function)
        rows = len(slots["host"])
        self.fits = np.zeros(rows, dtype=bool)
        self.speedup, self.slowdown, load_s = np.zeros(rows), np.ones(rows), np.zeros(rows)
        self.scarcity = np.zeros(rows)
        #: (S,) bits per second over the card's DMA: of the function, of the current function of each slot, and maximum.
        self.io_bps, self.used_bps, self.dma_bps = np.zeros(rows), np.zeros(rows), np.full(rows, np.inf)
        self.demand = _demand(pool)
        scarcity = catalogue.scarcity(self.demand)
        #: Boards with kinds of slots, and (S,) the index of each slot's board and kind in this list.
        self.places: list[Place] = []
        self.place = np.zeros(rows, dtype=np.int64)
        for here, (board, kind) in _alike(pool, "board", "kind"):
            self.place[here] = len(self.places)
            self.places.append((board, kind))
            if catalogue.fits(function, board, kind):
                self.fits[here] = True
                self.speedup[here] = wanted.speedup_on(board)
                self.slowdown[here] = wanted.slowdown_on(board)
                self.io_bps[here], self.dma_bps[here] = wanted.io_bps_on(board), catalogue.boards[board].dma_bps
                load_s[here] = catalogue.boards[board].load_s(kind)
                self.scarcity[here] = scarcity[board, kind]
        #: (S,) log of the learned factor by which each slot slows down the function beside it; 0 = not learned.
        self.added = np.zeros(rows)
        self.gain_now, self.preemptible = np.zeros(rows), np.ones(rows, dtype=bool)
        for here, (loaded, board) in _alike(pool, "function", "board"):
            if loaded in catalogue.functions:
                self.gain_now[here] = catalogue.functions[loaded].speedup_on(board)
                self.preemptible[here] = catalogue.functions[loaded].preemptible
                self.used_bps[here] = catalogue.functions[loaded].io_bps_on(board)
            self.added[here] = np.log1p(wanted.neighbour_costs.get(loaded, 0.0))
        state, lease = slots["state"], slots["lease"]
        self.busy = state == numbers.get(SlotState.BUSY, -1)
        unleased = lease == numbers.get("", -1)
        self.takeable = unleased | (slots["revocable"] == 1)
        working = self.busy | (state == numbers.get(SlotState.READY, -1))
        self.used_bps[unleased & ~self.busy] = self.added[unleased & ~self.busy] = 0.0
        there = working & (slots["function"] == numbers.get(function, -1))
        self.load_s = np.where(there, 0.0, load_s)
        idle = unleased & ~self.busy
        self.cost = np.select(
            [self.busy, idle & there, idle & (state == numbers.get(SlotState.EMPTY, -1)), idle],
            [EVICTION + self.gain_now, LOADED, EMPTY, OTHER],
            PLANNED,
        )


def _sharing(providers: Providers, traits: _Traits) -> Floats:
    """Return (P,) the factor by which the function takes longer beside the other work on the card.

    It is computed from the rates over the card's DMA, or from the learned slowdown if that is larger.
    """
    used = np.bincount(providers.of_slot, weights=traits.used_bps, minlength=len(providers.uuids))
    of_card = np.bincount(providers.card, weights=used)[providers.card]
    shared: Floats = np.maximum(1.0, (of_card + traits.io_bps[providers.slot]) / traits.dma_bps[providers.slot])
    if not traits.added.any():
        return shared
    added = np.bincount(providers.of_slot, weights=traits.added, minlength=len(providers.uuids))
    learned = np.minimum(np.exp(np.bincount(providers.card, weights=added)[providers.card]), 1.0 + MOST_COST)
    longer: Floats = np.maximum(shared, learned)
    return longer


def _ingress(providers: Providers, traits: _Traits) -> Floats:
    """Return `Fitting.ingress`, shape (2, P); 0 for hosts without planned ingress."""
    pool = providers.pool
    planned_s, ingress_bps = np.zeros(len(pool.words)), np.full(len(pool.words), np.inf)
    for name, (bits, bps) in (pool.ingress or {}).items():
        if (number := pool.numbers.get(name)) is not None:
            planned_s[number], ingress_bps[number] = bits / bps, bps
    host = pool.slots["host"][providers.slot]
    return np.stack([planned_s[host], traits.io_bps[providers.slot] / ingress_bps[host]])


def _demand(pool: PoolColumns) -> Mapping[str, float]:
    """Return the number of leased slots that hold each function."""
    held = pool.slots["function"][pool.slots["lease"] != pool.numbers.get("", -1)]
    numbers, counts = np.unique(held, return_counts=True)
    return {pool.words[number]: float(count) for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)}


def _alike(pool: PoolColumns, *names: str) -> list[tuple[Ints, tuple[str, ...]]]:
    """Return groups of slots with equal words in two columns: the rows of each group, and these words."""
    stacked = np.stack([pool.slots[name] for name in names])
    key = stacked[0] * (len(pool.words) + 1) + stacked[1]
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    return [
        (np.flatnonzero(of == group), tuple(pool.words[number] for number in stacked[:, row].tolist()))
        for group, row in enumerate(first.tolist())
    ]


# ---- Reservations: the effect of taking a slot now on the completion of future instances

#: A board, and a kind of its slots.
Place = tuple[str, str]


@dataclass(frozen=True)
class Reservations:
    """Prices of slots for an instance of one function."""

    #: (C,) by board and kind: the value of one slot to future instances; 1 is the cost of completing at `longest_s`.
    prices: Floats
    #: The longest time of any function on its fastest board, in seconds.
    longest_s: float

    def latenesses(self, completions_s: Floats, prices: Floats, evictions: Floats) -> Floats:
        """Return how much later all instances complete; inf stays inf.

        This is the cost of the completion time plus the value of the slot to future instances.  Each evicted job counts
        as if it completed last.  Results are rounded to hundredths: smaller differences are left to other terms.
        """
        latenesses: Floats = np.round(costs(completions_s, self.longest_s) + prices + evictions, 2)
        return latenesses


def reservations(
    catalogue: Catalogue,
    places: Sequence[Place],
    free: Floats,
    demand: Mapping[str, float],
    run_times_s: Mapping[str, float],
) -> Reservations:
    """Return the reservations for a pool with `free` (C,) available slots of each place.

    Future instances are expected in proportion to `demand`, the number of slots held for each function, plus one for
    each function of the catalogue.  Functions without a known run time (on the fastest board) are expected to run for
    the mean of the known ones; at least one must be known.
    """
    usual_s = float(np.mean(list(run_times_s.values())))
    times_s = np.full((len(catalogue.functions), len(places)), np.inf)
    for row, (name, function) in enumerate(catalogue.functions.items()):
        for column, (board, kind) in enumerate(places):
            if catalogue.fits(name, board, kind):
                run_s = run_times_s.get(name, usual_s) * function.slowdown_on(board)
                times_s[row, column] = catalogue.boards[board].load_s(kind) + run_s
    mix = np.array([1.0 + demand.get(name, 0.0) for name in catalogue.functions])
    longest_s = unavoidable_s(times_s) or usual_s
    return Reservations(place_prices(costs(times_s, longest_s), mix, free), longest_s)
