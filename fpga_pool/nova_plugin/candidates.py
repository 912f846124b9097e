"""Nova's request and allocation candidates, read for the pool's slots, and the cost of a provider's next slots.

Nearly every candidate has one provider, and there are as many candidates as hosts or more.  So the cost of the next
slots is computed for all providers at once, and again for one of them when some of its slots are claimed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat, zip_longest
from operator import itemgetter
from typing import Any

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.flavor import NAMESPACE, RESOURCE_CLASS, TIER_SPECS
from fpga_pool.model.rules.instance.fitting import NOT_HAD, SCARCITY, Fitting

_FUNCTION = f"{NAMESPACE}:function"


def accelerator_specs(spec_obj: Any) -> Mapping[str, str] | None:
    """Return the extra specs of a request for accelerators, be they right or wrong; None for any other request."""
    extra_specs = flavor_specs(spec_obj)
    if _FUNCTION in extra_specs or any(_is_about_slots(name) for name in extra_specs):
        return extra_specs
    return None


class _LastFlavor:
    """The flavor that was read last: all filters and weighers read that of a request, one after the other."""

    def __init__(self) -> None:
        self._known: tuple[Any, Mapping[str, str]] = None, {}

    def specs(self, flavor: Any) -> Mapping[str, str]:
        """Return its extra specs; to ask whether it has some takes longer than all else for an ordinary request."""
        last, specs = self._known
        if flavor is not last:
            specs = flavor.extra_specs if flavor and "extra_specs" in flavor else {}
            self._known = flavor, specs  # at once: threads share it
        return specs


_LAST_FLAVOR = _LastFlavor()


def flavor_specs(spec_obj: Any) -> Mapping[str, str]:
    """Return the extra specs of a request's flavor; none if it has no flavor."""
    return _LAST_FLAVOR.specs(spec_obj.flavor)


def _is_about_slots(name: str) -> bool:
    return name.endswith(f":{RESOURCE_CLASS}") or (name.startswith(f"{NAMESPACE}:") and name not in TIER_SPECS)


Candidate = Mapping[str, Any]
#: Providers that a candidate allocates slots of, with their numbers.
Slots = Sequence[tuple[str, int]]
#: Rows of providers, with how many slots of each.
Needs = Sequence[tuple[int, int]]

#: Row of a provider that is none of the pool's: the last of a list, which is kept for it.
UNKNOWN = -1


def slots_of(candidate: Candidate) -> Slots:
    """Return the providers that a candidate allocates slots of, with their numbers."""
    return [
        (uuid, given["resources"][RESOURCE_CLASS])
        for uuid, given in candidate["allocations"].items()
        if RESOURCE_CLASS in given["resources"]
    ]


def only_rows(candidates: Sequence[Candidate], rows: Mapping[str, int], divided: int | None = None) -> Ints:
    """Return (C,) for each candidate the row of the only provider of the pool in it, which gives all slots.

    UNKNOWN where several do, or none.  `divided` is how many slots a flavor wants in several groups; None if it wants
    them in one, so that one provider gives all of them.  Nearly all of Nova's candidates are read here, and together
    they are larger than a processor's caches: so little of them is read, all at once and without a step of Python for
    each.
    """
    allocations = list(map(itemgetter("allocations"), candidates))
    of_candidate = np.repeat(np.arange(len(candidates)), list(map(len, allocations)))
    found = np.array(list(map(rows.get, chain.from_iterable(allocations), repeat(UNKNOWN))), dtype=np.int64)
    of_candidate, found = of_candidate[found != UNKNOWN], found[found != UNKNOWN]
    only: Ints = np.full(len(candidates), UNKNOWN)
    only[of_candidate] = found
    only[np.bincount(of_candidate, minlength=len(candidates)) != 1] = UNKNOWN
    if divided is not None:
        for place in np.flatnonzero(only != UNKNOWN).tolist():
            if any(count != divided for _, count in slots_of(candidates[place])):
                only[place] = UNKNOWN
    return only


@dataclass(frozen=True, slots=True)
class Next:
    """Cost and gain of the next slots of a provider, by its row: NOT_HAD where there are too few, and for UNKNOWN."""

    cost: list[float]
    #: The same with what decides among equals.
    price: list[float]
    #: Benefit of the pool, vCPU equivalents.
    gain: list[float]
    #: See `Fitting.latenesses`.
    lateness: list[float]
    #: (P + 1,) when an instance that gets these slots completes, seconds.
    completion_s: Floats


class FreeSlots:
    """Counts the slots given to instances of this request; used by one thread at a time."""

    def __init__(self, fitting: Fitting, found: Ints, per_slot_left: float = 0.0) -> None:
        """`found` (P,) is how many slots of each provider there are for the request: see `what_is_left`.

        `per_slot_left` is what a price grows by with each slot that the provider has left.
        """
        self.rows = fitting.providers.rows
        self._fitting = fitting
        self.found = found
        self.per_slot_left = per_slot_left
        self._scarcity = SCARCITY * fitting.scarcity
        #: By provider, the same without those that were given to instances of this request.
        self.left: list[int] = found.tolist()
        self._given: dict[int, int] = {}
        self._refused: set[int] = set()
        #: Grows whenever something was given or refused.
        self.changes = 0
        #: By number of slots.
        self._next: dict[int, Next] = {}

    def given(self, row: int) -> int:
        """Return how many slots of a provider went to instances of this request."""
        return self._given.get(row, 0)

    def next(self, count: int) -> Next:
        """Return what the next `count` slots of each provider add."""
        found = self._next.get(count)
        if found is None:
            fitting = self._fitting
            cost, gain = (fitting.firsts(values, count, self.found) for values in (fitting.costs, fitting.gains))
            price = cost + self._scarcity + self.per_slot_left * self.found
            completion_s = fitting.completions_s(count, self.found)
            late = fitting.latenesses(count, self.found, completion_s)
            cost_of, price_of, gain_of, late_of = ([*each.tolist(), NOT_HAD] for each in (cost, price, gain, late))
            found = Next(cost_of, price_of, gain_of, late_of, np.append(completion_s, NOT_HAD))
            self._next[count] = found
            for row in self._given.keys() | self._refused:
                self._count(row, count, found)
        return found

    def needs(self, slots: Slots) -> Needs | None:
        """Return the rows of a candidate's providers and how many slots of each; None if they cannot be had."""
        needs = []
        for uuid, count in slots:
            row = self.rows.get(uuid)
            if row is None or not self.has(row, count):
                return None
            needs.append((row, count))
        return needs

    def has(self, row: int, count: int) -> bool:
        """Return whether a provider has this many slots left."""
        return row not in self._refused and count <= self.left[row]

    def cheapest(self, host: str, count: int) -> Needs:
        """Return the provider of a host that has this many slots at the lowest cost, with that cost."""
        rows = [
            (self.cost([(row, count)]), row)
            for row in self._fitting.providers.of_host.get(host, ())
            if self.has(row, count)
        ]
        return ((min(rows)[1], count),) if rows else ()

    def tie_break(self, row: int) -> float:
        """Return what a price is more than the cost: the scarcity of the slots, and how many are left."""
        return float(self._scarcity[row]) + self.per_slot_left * self.left[row]

    def cost(self, needs: Needs) -> float:
        """Return what the next slots of these providers cost the pool."""
        return self._sum(self._fitting.costs, needs)

    def gain(self, needs: Needs) -> float:
        """Return what the next slots of these providers add to the benefit of the pool, vCPU equivalents."""
        return self._sum(self._fitting.gains, needs)

    def lateness(self, needs: Needs) -> float:
        """Return the same as `Fitting.latenesses` for an instance that waits for all these slots."""
        fitting = self._fitting
        reserved = fitting.reserved[[row for row, _ in needs]].max()
        evictions = np.array([self._sum(fitting.evicts, needs)])
        completion_s = np.array([self.completion_s(needs)])
        return float(fitting.reservations.latenesses(completion_s, reserved, evictions)[0])

    def completion_s(self, needs: Needs) -> float:
        """Return when an instance that waits for all these slots completes; those of one card are loaded one by one."""
        fitting = self._fitting
        loading_s = max(fitting.between(fitting.loads_s, row, self.given(row), count) for row, count in needs)
        runs_s = fitting.runs_s(sum(count for _, count in needs))
        return loading_s + float(runs_s[[row for row, _ in needs]].max())

    def take(self, needs: Needs) -> None:
        """Note that an instance was given slots."""
        self.changes += 1
        for row, count in needs:
            self._given[row] = self.given(row) + count
            self.left[row] -= count
            self._count_again(row)

    def refuse(self, needs: Needs) -> None:
        """Note that Placement has refused a claim of these providers."""
        self.changes += 1
        for row, _ in needs:
            self._refused.add(row)
            self._count_again(row)

    def _count_again(self, row: int) -> None:
        for count, added in self._next.items():
            self._count(row, count, added)

    def _count(self, row: int, count: int, added: Next) -> None:
        had, needs = self.has(row, count), [(row, count)]
        added.cost[row] = self.cost(needs) if had else NOT_HAD
        added.price[row] = added.cost[row] + self.tie_break(row)
        added.gain[row] = self.gain(needs) if had else NOT_HAD
        added.lateness[row] = self.lateness(needs) if had else NOT_HAD
        added.completion_s[row] = self.completion_s(needs) if had else NOT_HAD

    def _sum(self, values: Floats, needs: Needs) -> float:
        return sum(self._fitting.between(values, row, self.given(row), count) for row, count in needs)


def what_is_left(fitting: Fitting, left: Mapping[str, int] | None) -> Ints:
    """Return (P,) the slots available in both the pool and Placement.

    `left` is what Placement has left of providers that were asked for; others are as the pool knows them.
    """
    if left is None:
        return fitting.free
    free = fitting.free.copy()
    for uuid, count in left.items():
        row = fitting.providers.rows.get(uuid)
        if row is not None:
            free[row] = min(free[row], max(0, count))
    return free


# ---- Further attempts

# Nova claims only the first allocation candidate of each host that passes.  Where many requests arrive at once, the
# first candidates of a few hosts are soon taken while others of the same hosts are free.  So the filter lists such a
# host again, with one of its other candidates; a weigher puts these attempts after all hosts, so that alternates are
# other hosts where there are any.

#: Hosts and further attempts together: where so many hosts pass, there is no need for more.
_ENOUGH = 64


class FurtherAttempt:
    """A host in every respect, but with allocation candidates of its own."""

    def __init__(self, host: Any, candidates: Sequence[Any]) -> None:
        """`host` is Nova's HostState."""
        self.__dict__["_host"] = host
        self.__dict__["allocation_candidates"] = list(candidates)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_host"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "allocation_candidates":
            self.__dict__[name] = value
        else:
            setattr(self._host, name, value)

    def __repr__(self) -> str:
        return f"{self._host!r} (further attempt)"


def further_attempts(hosts: Sequence[Any]) -> list[FurtherAttempt]:
    """Return further attempts on hosts whose candidates are in order, the next best of each host first."""
    if len(hosts) >= _ENOUGH:
        return []
    by_host = ([FurtherAttempt(host, [other]) for other in _others(host.allocation_candidates)] for host in hosts)
    attempts = (attempt for attempt in chain.from_iterable(zip_longest(*by_host)) if attempt is not None)
    return list(islice(attempts, _ENOUGH - len(hosts)))


def _others(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates that take other slots than those before them; the same slots would be refused again."""
    seen: set[frozenset[tuple[str, int]]] = set()
    for candidate in candidates:
        slots = frozenset(slots_of(candidate))
        if seen and slots not in seen:
            yield candidate
        seen.add(slots)
