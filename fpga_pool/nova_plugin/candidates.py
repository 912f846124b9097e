"""The pool's slots in Nova's requests and allocation candidates, and the cost of a provider's next slots.

Nearly every candidate has one provider, and there are at least as many candidates as hosts.  So the cost of the next
slots is computed for all providers at once, and again for a provider when some of its slots are claimed.
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
    """Return the extra specs of a request for accelerators, valid or not; None for any other request."""
    extra_specs = flavor_specs(spec_obj)
    if _FUNCTION in extra_specs or any(_is_about_slots(name) for name in extra_specs):
        return extra_specs
    return None


class _LastFlavor:
    """A cache of the last flavor, as all filters and weighers read the flavor of a request one after the other."""

    def __init__(self) -> None:
        self._known: tuple[Any, Mapping[str, str]] = None, {}

    def specs(self, flavor: Any) -> Mapping[str, str]:
        """Return the flavor's extra specs; without the cache, this would dominate the time of an ordinary request."""
        last, specs = self._known
        if flavor is not last:
            specs = flavor.extra_specs if flavor and "extra_specs" in flavor else {}
            self._known = flavor, specs  # one atomic assignment, as threads share it
        return specs


_LAST_FLAVOR = _LastFlavor()


def flavor_specs(spec_obj: Any) -> Mapping[str, str]:
    """Return the extra specs of a request's flavor; empty if it has no flavor."""
    return _LAST_FLAVOR.specs(spec_obj.flavor)


def _is_about_slots(name: str) -> bool:
    return name.endswith(f":{RESOURCE_CLASS}") or (name.startswith(f"{NAMESPACE}:") and name not in TIER_SPECS)


Candidate = Mapping[str, Any]
#: (uuid, number of slots) of the providers from which a candidate allocates slots.
Slots = Sequence[tuple[str, int]]
#: (row, number of slots) of providers.
Needs = Sequence[tuple[int, int]]

#: Row of a provider that is not in the pool; as an index it selects the last entry of lists, which is reserved for it.
UNKNOWN = -1


def slots_of(candidate: Candidate) -> Slots:
    """Return the providers from which a candidate allocates slots, with the numbers of slots."""
    return [
        (uuid, given["resources"][RESOURCE_CLASS])
        for uuid, given in candidate["allocations"].items()
        if RESOURCE_CLASS in given["resources"]
    ]


def only_rows(candidates: Sequence[Candidate], rows: Mapping[str, int], divided: int | None = None) -> Ints:
    """Return the row of the single pool provider of each candidate, which gives all slots, shape (C,).

    UNKNOWN if several providers of the pool are in it, or none.  `divided` is the number of slots of a flavor that
    requests them in several groups; None if it requests them in one, so that one provider gives all of them.  Together
    Nova's candidates exceed the processor's caches, so this reads little of them, without Python code for each.
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
    """Cost and gain of the next slots of a provider, by its row; NOT_HAD if it has too few, and for UNKNOWN."""

    cost: list[float]
    #: The cost plus a tie-breaker.
    price: list[float]
    #: Added benefit of the pool, in vCPU equivalents.
    gain: list[float]
    #: See `Fitting.latenesses`.
    lateness: list[float]
    #: (P + 1,) seconds until an instance that gets these slots completes.
    completion_s: Floats


class FreeSlots:
    """The free slots of providers, without those given to instances of this request; used by one thread at a time."""

    def __init__(self, fitting: Fitting, found: Ints, per_slot_left: float = 0.0) -> None:
        """`found`, shape (P,), is the number of slots of each provider for the request; see `what_is_left`.

        `per_slot_left` is added to a price for each slot that the provider has left.
        """
        self.rows = fitting.providers.rows
        self._fitting = fitting
        self.found = found
        self.per_slot_left = per_slot_left
        self._scarcity = SCARCITY * fitting.scarcity
        #: By provider: `found` without the slots given to instances of this request.
        self.left: list[int] = found.tolist()
        self._given: dict[int, int] = {}
        self._refused: set[int] = set()
        #: Incremented whenever slots are given or refused.
        self.changes = 0
        #: By number of next slots.
        self._next: dict[int, Next] = {}

    def given(self, row: int) -> int:
        """Return the number of slots of a provider given to instances of this request."""
        return self._given.get(row, 0)

    def next(self, count: int) -> Next:
        """Return the cost and gain of the next `count` slots of each provider."""
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
        """Return the rows of a candidate's providers with their numbers of slots; None if these are not available."""
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
        """Return the host's cheapest provider with this many slots, and `count`; empty if there is none."""
        rows = [
            (self.cost([(row, count)]), row)
            for row in self._fitting.providers.of_host.get(host, ())
            if self.has(row, count)
        ]
        return ((min(rows)[1], count),) if rows else ()

    def tie_break(self, row: int) -> float:
        """Return the difference of price and cost, which depends on the scarcity of the slots and the number left."""
        return float(self._scarcity[row]) + self.per_slot_left * self.left[row]

    def cost(self, needs: Needs) -> float:
        """Return the cost of the next slots of these providers for the pool."""
        return self._sum(self._fitting.costs, needs)

    def gain(self, needs: Needs) -> float:
        """Return the benefit that the next slots of these providers add to the pool, in vCPU equivalents."""
        return self._sum(self._fitting.gains, needs)

    def lateness(self, needs: Needs) -> float:
        """Return the lateness (see `Fitting.latenesses`) of an instance that waits for all these slots."""
        fitting = self._fitting
        reserved = fitting.reserved[[row for row, _ in needs]].max()
        evictions = np.array([self._sum(fitting.evicts, needs)])
        completion_s = np.array([self.completion_s(needs)])
        return float(fitting.reservations.latenesses(completion_s, reserved, evictions)[0])

    def completion_s(self, needs: Needs) -> float:
        """Return the seconds until an instance with these slots completes; those of a card are loaded one by one."""
        fitting = self._fitting
        loading_s = max(fitting.between(fitting.loads_s, row, self.given(row), count) for row, count in needs)
        runs_s = fitting.runs_s(sum(count for _, count in needs))
        return loading_s + float(runs_s[[row for row, _ in needs]].max())

    def take(self, needs: Needs) -> None:
        """Record that an instance was given slots."""
        self.changes += 1
        for row, count in needs:
            self._given[row] = self.given(row) + count
            self.left[row] -= count
            self._count_again(row)

    def refuse(self, needs: Needs) -> None:
        """Record that Placement has refused a claim of slots of these providers."""
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
    """Return the number of slots of each provider that are available in both the pool and Placement, shape (P,).

    `left` is the number of slots left in Placement of the queried providers; for others the pool's number is used.
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

# Nova claims only the first allocation candidate of each host that passes.  If many requests arrive at once, the first
# candidates of a few hosts are soon taken while others of the same hosts are free.  So the filter lists such a host
# again, with another of its candidates.  A weigher puts these attempts after all hosts, so that alternates are other
# hosts if there are any.

#: Number of hosts and further attempts together; no further attempts are added beyond it.
_ENOUGH = 64


class FurtherAttempt:
    """A proxy of a host with different allocation candidates."""

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
    """Return further attempts on hosts with sorted candidates: first the second best of each host, and so on."""
    if len(hosts) >= _ENOUGH:
        return []
    by_host = ([FurtherAttempt(host, [other]) for other in _others(host.allocation_candidates)] for host in hosts)
    attempts = (attempt for attempt in chain.from_iterable(zip_longest(*by_host)) if attempt is not None)
    return list(islice(attempts, _ENOUGH - len(hosts)))


def _others(candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates whose slots differ from all before them, as the same slots would be refused again."""
    seen: set[frozenset[tuple[str, int]]] = set()
    for candidate in candidates:
        slots = frozenset(slots_of(candidate))
        if seen and slots not in seen:
            yield candidate
        seen.add(slots)
