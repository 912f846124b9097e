"""One request for instances, from the filter's first pass to the last weigher.

Nova fetches allocation candidates once for all instances of a request, and only claims the first candidate of a host.
So the order of the candidates determines the card, and without a record of the claims of earlier instances Nova would
claim full cards again. Nova does not report its claims; they are inferred from the hosts of the next pass.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.objects.links import wished_links
from fpga_pool.model.rules.instance.explaining import explain_host
from fpga_pool.model.rules.instance.fitting import NOT_HAD, Fitting
from fpga_pool.nova_plugin.candidates import (
    UNKNOWN,
    Candidate,
    FreeSlots,
    FurtherAttempt,
    Needs,
    Slots,
    further_attempts,
    only_rows,
    slots_of,
    what_is_left,
)
from fpga_pool.nova_plugin.linked import Linked
from fpga_pool.nova_plugin.pool import Picture

#: Weight so small that it only breaks ties.
_LITTLE = 1e-6


#: The first candidate of a host, and the row of the provider that gives all slots in it; None if several providers
#: do, or if it gives another number of slots.
First = tuple[Candidate | None, int | None]


class Offer(NamedTuple):
    """The effects of the slots that a host would give the next instance by its first candidate."""

    candidate: Candidate | None
    #: `FreeSlots.changes` when it was computed.
    changes: int
    #: Benefit that it adds to the pool, in vCPU equivalents.
    benefit: float
    #: See `Fitting.latenesses`.
    lateness: float


_NONE: First = None, None


class Request:
    """A request and the results of the filter; used by one thread at a time."""

    def __init__(
        self,
        wanted: AcceleratorRequest,
        fitting: Fitting,
        instances: int = 1,
        left: Mapping[str, int] | None = None,
        *,
        together: bool = True,
        instance: str = "",
        picture: Picture | None = None,
    ) -> None:
        """`left` is the number of slots left in Placement, by provider; for others the pool's number is used.

        `instance` is the uuid of the (first) instance, by which concurrent requests choose among equal candidates.
        `picture` is the snapshot that `fitting` was made from, for weighers that read more of it.
        """
        self.wanted, self.picture = wanted, picture
        #: Called once with the host of the next instance, in the pass after its claim or when the request ends.
        self.on_claim: Callable[[Any], None] | None = None
        #: Other candidates of the passing hosts, for an instance whose first claims Placement refuses.
        self.attempts: list[FurtherAttempt] = []
        self.fitting, self._together = fitting, together
        self._instances = instances
        self._turn = zlib.crc32(instance.encode())
        # Among equal cards, a single instance takes the one with the fewest slots left, so that others stay whole;
        # several instances spread, since Placement may know claims that the pool does not.
        per_slot_left = _LITTLE if instances == 1 else -_LITTLE
        self._free_slots = FreeSlots(fitting, what_is_left(fitting, left), per_slot_left)
        #: By row of a provider; NOT_HAD for UNKNOWN.
        self._scarcity: list[float] = [*fitting.scarcity.tolist(), NOT_HAD]
        #: Cost and gain of all slots of an instance if one provider gives them.
        self._next = self._free_slots.next(wanted.count)
        #: Number of instances on each host in the last pass, and number of instances of this request placed there.
        self._seen: dict[Any, int] = {}
        self._taken: dict[Any, int] = {}
        self._first: dict[Any, First] = {}
        self._known_rows: tuple[Sequence[Any], list[int]] = [], []  # see `_rows`
        self._offers: dict[Any, Offer] = {}
        #: Chooses the slots of each instance; None if an instance has only one slot.
        self._linked = Linked(wanted, fitting.slot_candidates) if wanted.count > 1 else None

    def is_about(self, hosts: Sequence[Any]) -> bool:
        """Return whether these are hosts of an earlier pass; Nova creates new objects for every request."""
        return bool(hosts) and hosts[0] in self._seen

    @property
    def complete(self) -> bool:
        """Whether all instances have a host; Nova then makes one more pass, for alternates."""
        return sum(self._taken.values()) >= self._instances

    # Passes of the filter

    def first_pass(self, hosts: Sequence[Any]) -> list[Any]:
        """Return the hosts that can take an instance, and sort the candidates of each, best first."""
        return self._admitted(hosts)

    def further(self, passing: Sequence[Any]) -> list[FurtherAttempt]:
        """Return the further attempts on hosts that pass.

        There are none for several instances, as later passes infer the claims from the hosts.
        """
        self.attempts = further_attempts(passing) if self._instances == 1 else []
        return self.attempts

    def next_pass(self, hosts: Sequence[Any]) -> list[Any]:
        """Return the hosts that pass after an instance was claimed; only hosts affected by the claim are checked."""
        self._known_rows = [], []
        changed = self._note_claim(hosts)
        admitted = set(self._admitted([host for host in hosts if host in changed]))
        return [host for host in hosts if host not in changed or host in admitted]

    def _note_claim(self, hosts: Sequence[Any]) -> set[Any]:
        """Find the host of the last instance; return the hosts that are affected by its claim.

        Hosts are in the order in which claims were tried. So Placement has refused the first candidate of each host
        before that of the instance, whatever the pool knows of it.
        """
        seen = self._seen
        grown = [place for place, host in enumerate(hosts) if host.num_instances > seen.get(host, host.num_instances)]
        if not grown:
            return set()
        if self.on_claim is not None:
            self.on_claim(hosts[grown[0]])
            self.on_claim = None
        for host in hosts[: grown[0]]:
            self._free_slots.refuse(self._first_needs(host) or ())
        for place in grown:
            host = hosts[place]
            self._taken[host] = self._taken.get(host, 0) + host.num_instances - seen[host]
            seen[host] = host.num_instances
            needs = self._first_needs(host) or self._anywhere(host)
            if self._linked is not None:
                self._linked.take(host.host, needs)
            self._free_slots.take(needs)
        return set(hosts[: grown[-1] + 1])

    def ended(self) -> None:
        """Find the last claim at the end of the request, as no pass follows the claim of a single instance."""
        grown = (host for host, seen in self._seen.items() if host.num_instances > seen)
        if self.on_claim is not None:
            for host in grown:
                self.on_claim(host)

    def _admitted(self, hosts: Sequence[Any]) -> list[Any]:
        """Return the hosts with a candidate that the pool can fulfil, and sort the candidates of each."""
        for host in hosts:
            self._seen[host] = host.num_instances
        listed = [host.allocation_candidates for host in hosts]
        rows = self._only_rows(list(chain.from_iterable(listed)))
        prices = self._prices(rows)[rows]
        whole, equal = _compared(rows, prices, [len(candidates) for candidates in listed])
        row_of, price_of = rows.tolist(), prices.tolist()
        passing, end = [], 0
        for host, candidates, is_whole, are_equal in zip(hosts, listed, whole, equal, strict=True):
            begin, end = end, end + len(candidates)
            if not is_whole:
                if self._admit_divided(host, candidates):
                    passing.append(host)
                continue
            first: int | None = self._turn % len(candidates)
            if not are_equal:
                first = self._put_in_order(host, candidates, price_of[begin:end])
            elif first:
                host.allocation_candidates = candidates[first:] + candidates[:first]
            if first is not None:
                self._first[host] = candidates[first], row_of[begin + first]
                passing.append(host)
        return passing

    def _only_rows(self, candidates: Sequence[Candidate]) -> Ints:
        return only_rows(candidates, self._free_slots.rows, None if self._together else self.wanted.count)

    def _prices(self, rows: Ints) -> Floats:
        """Return the price of the next instance if one of these providers gives all of its slots, shape (P + 1,)."""
        price = np.array(self._next.price)
        if self._linked is not None and self.wanted.linked:
            self._linked.examine(rows[rows != UNKNOWN])
            price[:-1] = np.where(np.isinf(price[:-1]), NOT_HAD, self._linked.price)
        return price

    def _admit_divided(self, host: Any, candidates: list[Candidate]) -> bool:
        """Do the same as `_admitted` for one host some of whose candidates take slots of several providers, or none."""
        self._first.pop(host, None)
        allocated = [slots_of(candidate) for candidate in candidates]
        if not any(allocated):  # Placement allocates no slots, so only the pool's view of the host decides
            return bool(self._anywhere(host))
        if self.wanted.linked:
            costs = [self._linked_cost(host.host, slots) for slots in allocated]
        else:
            costs = [self._cost(slots) for slots in allocated]
        return self._put_in_order(host, candidates, costs) is not None

    def _put_in_order(self, host: Any, candidates: list[Candidate], costs: list[float]) -> int | None:
        """Set the available candidates of a host, cheapest first; return the previous place of the first, None if none.

        Concurrent requests begin with different ones of equal candidates.
        """
        least = min(costs)
        equal = [place for place, cost in enumerate(costs) if cost == least]
        first = equal[self._turn % len(equal)]
        order = sorted(range(len(costs)), key=lambda place: (costs[place], (place - first) % len(costs)))
        host.allocation_candidates = [candidates[place] for place in order if costs[place] != NOT_HAD]
        return order[0] if host.allocation_candidates else None

    def _first_of(self, host: Any) -> First:
        """Return the first candidate of a host with its provider; other filters may have dropped candidates."""
        candidates = host.allocation_candidates
        if not candidates:
            return _NONE
        candidate = candidates[0]
        first = self._first.get(host)
        if first is None or first[0] is not candidate:
            row = int(self._only_rows([candidate])[0])
            first = self._first[host] = candidate, (None if row == UNKNOWN else row)
        return first

    def _first_needs(self, host: Any) -> Needs | None:
        """Return the slots that the next instance takes, by provider; None if they are not available."""
        candidate, row = self._first_of(host)
        if row is not None:
            count = self.wanted.count
            return [(row, count)] if self._free_slots.has(row, count) else None
        return self._free_slots.needs(() if candidate is None else slots_of(candidate))

    def _anywhere(self, host: Any) -> Needs:
        """Return the cheapest provider of a host that has enough slots, with their number.

        Slots that have to be linked may belong to several providers.
        """
        if self._linked is not None and self.wanted.linked:
            outcome = self._linked.outcome(host.host, None)
            return () if outcome is None else self._linked.needs(host.host, outcome)
        return self._free_slots.cheapest(host.host, self.wanted.count)

    def _cost(self, slots: Slots) -> float:
        """Return the cost of a candidate's slots for the pool; NOT_HAD if they are not available."""
        free_slots = self._free_slots
        needs = free_slots.needs(slots)
        if needs is None:
            return NOT_HAD
        tie_break = min((free_slots.tie_break(row) for row, _ in needs), default=0.0)
        return sum(free_slots.next(count).cost[row] for row, count in needs) + tie_break

    def _linked_cost(self, host: str, slots: Slots) -> float:
        """Return the same as `_cost` for slots that have to be linked."""
        needs = self._free_slots.needs(slots)
        outcome = self._linked.outcome(host, needs) if needs and self._linked is not None else None
        return NOT_HAD if outcome is None else outcome.price

    # Values for weighers

    def benefits(self, hosts: Sequence[Any]) -> list[float]:
        """Return the benefit that the next instance adds to the pool on each host (benefit paper, equation 1)."""
        return self._offered(hosts, self._next.gain, lambda host: self._offer(host).benefit)

    def latenesses(self, hosts: Sequence[Any]) -> list[float]:
        """Return how much later all instances complete with the next one on each host; see `Fitting.latenesses`.

        NOT_HAD if a host has no further slots.
        """
        return self._offered(hosts, self._next.lateness, lambda host: self._offer(host).lateness)

    def _offered(self, hosts: Sequence[Any], by_row: Sequence[float], of: Callable[[Any], float]) -> list[float]:
        """Return a value for each host: that of its first candidate's row, or by `of` if that is NOT_HAD."""
        found = [by_row[row] for row in self._rows(hosts)]
        if NOT_HAD in found:
            found = [of(host) if value == NOT_HAD else value for host, value in zip(hosts, found, strict=True)]
        return found

    def _rows(self, hosts: Sequence[Any]) -> list[int]:
        """Return the row of each host's first candidate; UNKNOWN if it is not the one that this filter put first.

        The result is cached, as all weighers request the same hosts, and candidates do not change between them.
        """
        known, rows = self._known_rows
        if known == hosts:
            return rows
        first_of, found = self._first, []
        for host in hosts:
            first, candidates = first_of.get(host), host.allocation_candidates
            row = first[1] if first is not None and candidates and first[0] is candidates[0] else None
            found.append(UNKNOWN if row is None else row)
        self._known_rows = hosts, found
        return found

    def completions_s(self, hosts: Sequence[Any]) -> tuple[Ints, Floats]:
        """Return the next instance's slowest provider and its seconds to completion on each host, shape (N,) each.

        UNKNOWN and NOT_HAD if a host has no further slots.
        """
        rows: Ints = np.array(self._rows(hosts), dtype=np.int64)
        completions_s: Floats = self._next.completion_s[rows]
        for place in np.flatnonzero(~np.isfinite(completions_s)).tolist():
            needs = self._first_needs(hosts[place]) or self._anywhere(hosts[place])
            if needs:
                rows[place] = max((row for row, _ in needs), key=self.fitting.slowdown.__getitem__)
                completions_s[place] = self._free_slots.completion_s(needs)
        return rows, completions_s

    def _offer(self, host: Any) -> Offer:
        """Return the offer of a host to the next instance, if it cannot be read from the row of its first candidate."""
        candidate = self._first_of(host)[0]
        free_slots = self._free_slots
        offer = self._offers.get(host)
        if offer is None or offer.candidate is not candidate or offer.changes != free_slots.changes:
            needs = self._first_needs(host) or self._anywhere(host)
            lateness = free_slots.lateness(needs) if needs else NOT_HAD
            offer = self._offers[host] = Offer(candidate, free_slots.changes, free_slots.gain(needs), lateness)
        return offer

    def scarcities(self, hosts: Sequence[Any]) -> list[float]:
        """Return how much other functions need the slots that the next instance takes on each host, 0 to 1."""
        return self._offered(hosts, self._scarcity, self._scarcity_of)

    def _scarcity_of(self, host: Any) -> float:
        row = self._first_of(host)[1]
        rows = [row] if row is not None else [each for each, _ in self._first_needs(host) or self._anywhere(host)]
        return max((self._scarcity[each] for each in rows), default=0.0)

    def lost_connections(self, host: Any) -> int | None:
        """Return the connections that remaining slots lose to the next instance on a host; None if it has one slot."""
        if self._linked is None:
            return None
        outcome = self._linked.outcome(host.host, self._first_needs(host) or None)
        return None if outcome is None else outcome.lost

    def losses(self, hosts: Sequence[Any]) -> list[float]:
        """Return `lost_connections` of many hosts, mostly by the row of their first candidate; NOT_HAD for None."""
        if self._linked is None:
            return [NOT_HAD] * len(hosts)
        rows = np.array(self._rows(hosts), dtype=np.int64)
        self._linked.examine(rows[rows != UNKNOWN])
        return self._offered(hosts, [*self._linked.lost.tolist(), NOT_HAD], self._lost)

    def _lost(self, host: Any) -> float:
        lost = self.lost_connections(host)
        return NOT_HAD if lost is None else float(lost)

    # Explanations

    def explain(self, host: Any) -> str:
        """Return a text that describes the slots of a host for this request."""
        _, why = explain_host(
            self.fitting, host.host, self.wanted.count, together=self._together, links=wished_links(self.wanted)
        )
        given = sum(self._free_slots.given(row) for row in self.fitting.providers.of_host.get(host.host, ()))
        return f"{why}; {given} of them assigned to instances of this request" if given else why


def _compared(rows: Ints, prices: Floats, counts: Sequence[int]) -> tuple[list[bool], list[bool]]:
    """Return for each host whether each of its candidates has a single provider, and whether all have the same price.

    `rows` and `prices` are those of all candidates, host by host; `counts` is the number of candidates of each host.
    """
    number = np.array(counts, dtype=np.int64)
    whole, equal = np.zeros((2, len(number)), dtype=bool)
    some = np.flatnonzero(number)
    if len(some):
        begins = (np.cumsum(number) - number)[some]
        least, most = (each.reduceat(prices, begins) for each in (np.minimum, np.maximum))
        whole[some] = np.minimum.reduceat(rows, begins) != UNKNOWN
        equal[some] = (least == most) & (least != NOT_HAD)
    return whole.tolist(), equal.tolist()
