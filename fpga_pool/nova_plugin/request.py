"""One request for instances, from the filter's first pass to its last weigher.

Nova fetches allocation candidates once for all instances of a request and only ever claims the first candidate of a
host, so whoever orders the candidates chooses the card, and whoever forgets what was claimed by the instances before
lets Nova claim full cards again.  Nova does not tell what it claimed: it shows in the hosts it passes next.
"""

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fpga_pool.core.makespan.holding import hold
from fpga_pool.core.types import Ints
from fpga_pool.model.flavor import RESOURCE_CLASS, AcceleratorRequest
from fpga_pool.model.links import wished_links
from fpga_pool.model.pool.explaining import explain_host
from fpga_pool.model.pool.fitting import Fitting
from fpga_pool.nova_plugin.linked import Linked, Places

#: What is so small that it only decides among equals.
_LITTLE = 1e-6

Candidate = Mapping[str, Any]
#: Providers that a candidate allocates slots of, with their numbers.
Slots = Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host would give the next instance, if nothing else changes its first candidate."""

    slots: Slots
    #: Benefit that it adds to the pool, vCPU equivalents.
    benefit: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the instances of a request go to complete soonest together."""

    #: By host, when its next instances would complete, one after the other.
    completion_s: Mapping[Any, Sequence[float]]
    instances: Mapping[Any, int]
    makespan_s: float


class Request:
    """What is known about a request, and what was found out; used by one thread at a time."""

    def __init__(
        self,
        wanted: AcceleratorRequest,
        fitting: Fitting,
        instances: int = 1,
        left: Mapping[str, int] | None = None,
        *,
        together: bool = True,
    ) -> None:
        """`left` is what Placement has left of providers that were asked for; others are as the pool knows them."""
        self.wanted = wanted
        self.plan: Plan | None = None
        self._fitting, self._together = fitting, together
        self._rows = fitting.providers.rows
        self._instances = instances
        #: Slots given to instances of this request, by provider; providers whose claims Placement refused.
        self._given: dict[int, int] = {}
        self._refused: set[int] = set()
        #: Instances on each host when it was seen last, and how many of this request went there.
        self._seen: dict[Any, int] = {}
        self._taken: dict[Any, int] = {}
        self._offers: dict[Any, Offer] = {}
        #: What the first candidate of each host allocates, as long as that is its first.
        self._allocated: dict[Any, tuple[Candidate, Slots]] = {}
        #: Which slots they are; None where there is only one for each instance.
        self._linked = Linked(wanted, fitting.spots) if wanted.count > 1 else None
        #: (P,) slots of each provider that instances of this request can get.
        self._free = fitting.free if left is None else _less(fitting, left)
        #: Whether there is only one instance: what a provider costs and gains is worked out for all at once, by uuid.
        self._single = instances == 1 and left is None
        self._cost_there: Mapping[str, float] = {}
        self._gain_there: Mapping[str, float] = {}
        if self._single:
            self._cost_there = fitting.firsts(fitting.cost_sum, wanted.count, _LITTLE * fitting.free.astype(np.float64))
            self._gain_there = fitting.firsts(fitting.gain_sum, wanted.count)

    def is_about(self, hosts: Sequence[Any]) -> bool:
        """Say whether these are hosts of an earlier pass: Nova makes new ones for every request."""
        return bool(hosts) and hosts[0] in self._seen

    # Passes of the filter

    def first_pass(self, hosts: Sequence[Any]) -> list[Any]:
        """Return the hosts that can take an instance, the candidates of each in order from the best on."""
        self._seen = {host: host.num_instances for host in hosts}
        return [host for host in hosts if self._admit(host)]

    def next_pass(self, hosts: Sequence[Any]) -> list[Any]:
        """Return the same after an instance was claimed; only hosts for which that changed something are looked at."""
        changed = self._note_claim(hosts)
        return [host for host in hosts if host not in changed or self._admit(host)]

    def _note_claim(self, hosts: Sequence[Any]) -> set[Any]:
        """Find where the last instance went.

        Hosts come in the order in which their claims were tried: of those before it Placement has refused the first
        candidate, whatever the pool thinks of it.
        """
        grown = [
            place for place, host in enumerate(hosts) if host.num_instances > self._seen.get(host, host.num_instances)
        ]
        if not grown:
            return set()
        for host in hosts[: grown[0]]:
            self._refused |= {row for row, _ in self._needs(self._first_slots(host)) or ()}
        for place in grown:
            host = hosts[place]
            self._taken[host] = self._taken.get(host, 0) + host.num_instances - self._seen[host]
            self._seen[host] = host.num_instances
            needs = self._needs(self._first_slots(host)) or self._anywhere(host, self._given)
            if self._linked is not None:
                self._linked.take(host.host, needs)
            for row, count in needs:
                self._given[row] = self._given.get(row, 0) + count
        return set(hosts[: grown[-1] + 1])

    def _admit(self, host: Any) -> bool:
        """Order the candidates of a host; say whether there is one that the pool can fulfil."""
        candidates = host.allocation_candidates
        allocated = [_slots_of(candidate) for candidate in candidates]
        if not any(allocated):
            return self._admit_unallocated(host)
        cost_of = partial(self._linked_cost, host.host) if self.wanted.linked else self._cost
        costs = [cost_of(slots) for slots in allocated]
        order = sorted((cost, place) for place, cost in enumerate(costs) if cost is not None)
        if not order:
            return False
        host.allocation_candidates = [candidates[place] for _, place in order]
        first = order[0][1]
        self._allocated[host] = candidates[first], allocated[first]
        return True

    def _first_slots(self, host: Any) -> Slots:
        """Return what the first candidate of a host allocates; other filters may have dropped some."""
        if not host.allocation_candidates:
            return ()
        first = host.allocation_candidates[0]
        known = self._allocated.get(host)
        if known is None or known[0] is not first:
            known = self._allocated[host] = first, _slots_of(first)
        return known[1]

    def _admit_unallocated(self, host: Any) -> bool:
        """Judge a host where Placement allocates no slots: by what the pool knows of it alone."""
        return bool(self._anywhere(host, self._given))

    def _anywhere(self, host: Any, given: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        """Return the cheapest provider of a host that has enough slots, with how many of them.

        Slots that have to be linked may be of several.
        """
        count, fitting = self.wanted.count, self._fitting
        if self._linked is not None and self.wanted.linked:
            outcome = self._linked.outcome(host.host, None)
            return () if outcome is None else self._linked.needs(host.host, outcome)
        rows = [
            (fitting.between(fitting.cost_sum, row, given.get(row, 0), count), row)
            for row in fitting.providers.of_host.get(host.host, ())
            if self._has(row, given, count)
        ]
        return ((min(rows)[1], count),) if rows else ()

    def _cost(self, slots: Slots) -> float | None:
        """Return what a candidate's slots cost the pool; None if they cannot be had.

        Among equals one instance takes the card with the fewest slots left, so that others stay whole; several spread,
        since Placement may know of claims that the pool does not.
        """
        if self._is_single(slots):
            return self._cost_there.get(slots[0][0])
        needs = self._needs(slots)
        if needs is None:
            return None
        cost = self._sum(self._fitting.cost_sum, needs, self._given)
        left = min((int(self._free[row]) - self._given.get(row, 0) for row, _ in needs), default=0)
        return cost + (left if self._instances == 1 else -left) * _LITTLE

    def _is_single(self, slots: Slots) -> bool:
        """Say whether these are all slots of a single instance, of one provider, and no claim of it was seen yet."""
        return (
            self._single
            and len(slots) == 1
            and slots[0][1] == self.wanted.count
            and not self._given
            and not self._refused
        )

    def _linked_cost(self, host: str, slots: Slots) -> float | None:
        """Return the same of slots that have to be linked: among equals it is the less the more stays connected."""
        needs = self._needs(slots)
        outcome = self._linked.outcome(host, needs) if needs and self._linked is not None else None
        return None if outcome is None else outcome.cost + outcome.lost * _LITTLE

    def _needs(self, slots: Slots) -> tuple[tuple[int, int], ...] | None:
        """Return the rows of a candidate's providers and how many slots of each; None if they cannot be had."""
        return self._needs_after(slots, self._given)

    def _needs_after(self, slots: Slots, given: Mapping[int, int]) -> tuple[tuple[int, int], ...] | None:
        needs = []
        for uuid, count in slots:
            row = self._rows.get(uuid)
            if row is None or not self._has(row, given, count):
                return None
            needs.append((row, count))
        return tuple(needs)

    def _has(self, row: int, given: Mapping[int, int], count: int) -> bool:
        return row not in self._refused and given.get(row, 0) + count <= int(self._free[row])

    def _sum(self, sums: Any, needs: Sequence[tuple[int, int]], given: Mapping[int, int]) -> float:
        return sum(self._fitting.between(sums, row, given.get(row, 0), count) for row, count in needs)

    # What weighers read

    def benefit(self, host: Any) -> float:
        """Return what the next instance would add to the benefit of the pool on a host (paper 003, equation 1)."""
        slots = self._first_slots(host)
        if self._is_single(slots) and slots[0][0] in self._gain_there:
            return self._gain_there[slots[0][0]]
        offer = self._offers.get(host)
        if offer is None or offer.slots is not slots or self._given:
            needs = self._needs(slots) or self._anywhere(host, self._given)
            offer = self._offers[host] = Offer(slots, self._sum(self._fitting.gain_sum, needs, self._given))
        return offer.benefit

    def lost_connections(self, host: Any) -> int | None:
        """Return what the next instance on a host takes from what is connected there; None where it has one slot."""
        if self._linked is None:
            return None
        outcome = self._linked.outcome(host.host, self._needs(self._first_slots(host)) or None)
        return None if outcome is None else outcome.lost

    def make_plan(self, hosts: Sequence[Any]) -> None:
        """Plan all instances of the request as a batch, if its owner says how long they run."""
        runtime_s = self.wanted.runtime_s
        if runtime_s is None:
            return
        there_s: Mapping[str, float] = {}
        if self._single and not self.wanted.linked:
            fitting = self._fitting
            there_s = fitting.firsts(fitting.load_sum_s, self.wanted.count, runtime_s * fitting.slowdown)
        completion_s = {}
        for host in hosts:
            slots = self._first_slots(host)
            if self._is_single(slots) and slots[0][0] in there_s:
                completion_s[host] = [there_s[slots[0][0]]]
            else:
                completion_s[host] = self._completions(host, runtime_s)
        self.plan = Plan(completion_s, *hold(completion_s, self._instances))

    def _completions(self, host: Any, runtime_s: float) -> list[float]:
        """Return when the first, second ... instance on a host would complete, as far as there are slots."""
        given: dict[int, int] = {}
        gone: Places = frozenset()
        completions: list[float] = []
        for _ in range(self._instances):
            if self._linked is None or not self.wanted.linked:
                needs = self._next_needs(host, given)
            else:
                needs, gone = self._next_linked(self._linked, host, given, gone)
            if not needs:
                break
            completions.append(self._completion_s(needs, given, runtime_s))
            for row, count in needs:
                given[row] = given.get(row, 0) + count
        return completions

    def _next_needs(self, host: Any, given: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
        """Return what the next instance on a host would take."""
        if not given:  # its candidates are in order
            return self._needs(self._first_slots(host)) or self._anywhere(host, given)
        possible = (self._needs_after(_slots_of(candidate), given) for candidate in host.allocation_candidates)
        needs = min(
            (needs for needs in possible if needs),
            key=lambda needs: self._sum(self._fitting.cost_sum, needs, given),
            default=None,
        )
        return needs or self._anywhere(host, given)

    def _next_linked(
        self, linked: Linked, host: Any, given: Mapping[int, int], gone: Places
    ) -> tuple[tuple[tuple[int, int], ...], Places]:
        """Return the same of slots that have to be linked, and which slots are gone then."""
        possible = [self._needs_after(_slots_of(candidate), given) for candidate in host.allocation_candidates]
        outcomes = [(linked.outcome(host.host, needs, gone), needs) for needs in possible if needs]
        if not outcomes and (anywhere := linked.outcome(host.host, None, gone)):
            outcomes = [(anywhere, linked.needs(host.host, anywhere))]
        found = [(outcome, needs) for outcome, needs in outcomes if outcome is not None]
        if not found:
            return (), gone
        outcome, needs = min(found, key=lambda each: (each[0].cost, each[0].lost))
        return needs, gone | outcome.places

    def _completion_s(self, needs: Sequence[tuple[int, int]], given: Mapping[int, int], runtime_s: float) -> float:
        """Return how long an instance takes that waits for all its slots; those of a card are loaded one by one."""
        fitting = self._fitting
        loading_s = max(fitting.between(fitting.load_sum_s, row, given.get(row, 0), count) for row, count in needs)
        return loading_s + runtime_s * max(float(fitting.slowdown[row]) for row, _ in needs)

    def lateness(self, host: Any) -> float | None:
        """Return by which share the next instance on a host would complete after the plan's end; 0 = within it.

        None where nothing is planned, or there is no further slot.
        """
        if self.plan is None:
            return None
        taken = self._taken.get(host, 0)
        if taken < self.plan.instances.get(host, 0):
            return 0.0
        completion_s = self.plan.completion_s.get(host, ())
        if taken >= len(completion_s):
            return None
        return max(0.0, completion_s[taken] / self.plan.makespan_s - 1.0)

    # Why

    def explain(self, host: Any) -> str:
        """Say of a host what the pool has there for this request."""
        _, why = explain_host(
            self._fitting, host.host, self.wanted.count, together=self._together, links=wished_links(self.wanted)
        )
        given = sum(self._given.get(row, 0) for row in self._fitting.providers.of_host.get(host.host, ()))
        return f"{why}; {given} of them given to instances of this request" if given else why


def _less(fitting: Fitting, left: Mapping[str, int]) -> Ints:
    """Return (P,) what both the pool and Placement can give."""
    free = fitting.free.copy()
    for uuid, count in left.items():
        row = fitting.providers.rows.get(uuid)
        if row is not None:
            free[row] = min(free[row], max(0, count))
    return free


def _slots_of(candidate: Candidate) -> Slots:
    """Return the providers that a candidate allocates slots of, with their numbers."""
    return [
        (uuid, given["resources"][RESOURCE_CLASS])
        for uuid, given in candidate["allocations"].items()
        if RESOURCE_CLASS in given["resources"]
    ]


class Requests:
    """The requests under way, each as long as Nova keeps its RequestSpec; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: weakref.WeakKeyDictionary[Any, Request | None] = weakref.WeakKeyDictionary()

    def get(self, spec: Any) -> Request | None:
        """Return what was found out about a request; None where the filter did not look at it."""
        with self._lock:
            return self._of.get(spec)

    def keep(self, spec: Any, request: Request) -> None:
        """Remember what the next pass and the weighers need."""
        with self._lock:
            self._of[spec] = request

    def drop(self, spec: Any) -> None:
        """Forget an earlier request with the same RequestSpec."""
        with self._lock:
            self._of.pop(spec, None)


REQUESTS = Requests()
