"""Choice of linked slots for the instances of one request, and of hosts on which these complete soonest together.

Completion times follow from the run time that the owner declares, or that instances before had.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fpga_pool.core.lattice.tasks import Links
from fpga_pool.core.makespan.greedy.placement import hold
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.objects.links import wished_links
from fpga_pool.model.rules.instance.fitting import HostCandidates, SlotCandidates
from fpga_pool.model.rules.instance.linking import choose_candidates, lost_connections
from fpga_pool.nova_plugin.candidates import Candidate, FreeSlots, Needs, slots_of

#: Places of slots among those of their host.
Places = frozenset[int]
_NONE: Places = frozenset()
#: So many outcomes are kept for requests to come.
_KEPT = 4096
#: What is so small that it only decides among equals.
_LITTLE = 1e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The slots that an instance would get."""

    places: Places
    cost: float
    #: See `model.rules.instance.linking.lost_connections`.
    lost: int

    @property
    def price(self) -> float:
        """The cost: among equals it is the less the more stays connected."""
        return self.cost + self.lost * _LITTLE


class Linked:
    """Chooses as the pool will when an instance reaches its compute node; used by one thread at a time."""

    def __init__(self, wanted: AcceleratorRequest, slot_candidates: HostCandidates) -> None:
        self._wanted = wanted
        self._slot_candidates = slot_candidates
        #: Given to instances of this request, by host.
        self._gone: dict[str, Places] = {}
        #: What was found out, for all hosts that are alike.
        self._known_alone: dict[tuple[int, Places], dict[int, Outcome | None]] = {}
        self._known: dict[tuple[int, Places, tuple[tuple[int, int], ...] | None], Outcome | None] = {}

    def gone(self, host: str) -> Places:
        """Return the slots of a host that were given to instances of this request."""
        return self._gone.get(host, _NONE)

    def outcome(self, host: str, needs: Needs | None, gone: Places | None = None) -> Outcome | None:
        """Return the slots that the next instance would get from these providers (None = any), after earlier ones."""
        slot_candidates, first = self._slot_candidates.located(host)
        if not slot_candidates:
            return None
        gone = self._gone.get(host, _NONE) if gone is None else gone
        asked = None
        if needs is not None:
            asked = tuple([(row - first, count) for row, count in needs])
            if len(asked) > 1:
                asked = tuple(sorted(asked))
        key = id(slot_candidates), gone, asked
        if key not in self._known:
            self._known[key] = _chosen(slot_candidates, wished_links(self._wanted), self._wanted.count, asked, gone)
        return self._known[key]

    def of_providers(self, host: str, count: int, rows: Sequence[int]) -> list[Outcome | None]:
        """Return what the next instance would get, if one provider gives all of it, of each of these."""
        slot_candidates, first = self._slot_candidates.located(host)
        key = id(slot_candidates), self._gone.get(host, _NONE)
        known = self._known_alone.get(key)
        if known is None:
            known = self._known_alone[key] = {}
        try:
            return [known[row - first] for row in rows]
        except KeyError:  # rarely: hosts are mostly alike
            for row in rows:
                known[row - first] = self.outcome(host, [(row, count)])
            return [known[row - first] for row in rows]

    def take(self, host: str, needs: Needs | None) -> None:
        """Note that an instance was given slots."""
        outcome = self.outcome(host, needs)
        if outcome is not None:
            self._gone[host] = self.gone(host) | outcome.places

    def needs(self, host: str, outcome: Outcome) -> tuple[tuple[int, int], ...]:
        """Return the number of these slots by provider."""
        slot_candidates, first = self._slot_candidates.located(host)
        counted = Counter(slot_candidates[place].provider for place in outcome.places)
        return tuple((first + provider, count) for provider, count in sorted(counted.items()))


@lru_cache(maxsize=_KEPT)
def _chosen(
    slot_candidates: SlotCandidates, wish: Links, count: int, asked: tuple[tuple[int, int], ...] | None, gone: Places
) -> Outcome | None:
    """Return the slots that the pool would choose; most hosts are the same in the next snapshots."""
    left = [place for place in range(len(slot_candidates)) if place not in gone]
    some = [slot_candidates[place] for place in left]
    found = choose_candidates(some, wish, count, None if asked is None else dict(asked))
    if found is None:
        return None
    return Outcome(
        places=frozenset(left[index] for index in found),
        cost=sum(some[index].cost for index in found),
        lost=lost_connections(some, set(found)),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """How many instances each host takes, and when the last of them completes."""

    #: When the first instance on each host would complete, and the second, third ... one.
    first_s: Mapping[Any, float]
    further_s: Callable[[Any], Sequence[float]]
    instances: Mapping[Any, int]
    makespan_s: float
    #: How late the first instance on each host would be: see `lateness`.
    late_at_first: Mapping[Any, float]

    @classmethod
    def of(cls, first_s: Mapping[Any, float], further_s: Callable[[Any], Sequence[float]], instances: int) -> "Plan":
        """Make the plan; `further_s` is asked only of hosts that take an instance, in the plan or later."""
        taken, makespan_s = hold(first_s, further_s, instances)
        late = {host: end_s / makespan_s - 1.0 if end_s > makespan_s else 0.0 for host, end_s in first_s.items()}
        return cls(first_s, further_s, taken, makespan_s, late)

    def lateness(self, host: Any, taken: int) -> float | None:
        """Return by which share the next instance on a host would complete after the plan's end; 0 = within it.

        None if there is no further slot after the instances that the host has taken.
        """
        if taken < self.instances.get(host, 0):
            return 0.0
        if taken == 0:
            return self.late_at_first.get(host)
        further_s = self.further_s(host)
        return max(0.0, further_s[taken - 1] / self.makespan_s - 1.0) if taken <= len(further_s) else None


class Completions:
    """When instances of a request would complete on a host that gets one after the other, as far as there are slots."""

    def __init__(self, wanted: AcceleratorRequest, free_slots: FreeSlots, linked: Linked | None, most: int) -> None:
        """`free_slots` is from before the request was given anything; at most `most` instances are looked at."""
        self._wanted, self._free_slots, self._most = wanted, free_slots, most
        self._linked = linked if wanted.linked else None

    def of(self, host: str, candidates: Sequence[Candidate]) -> list[float]:
        """Return them for a host with these candidates, the best first."""
        gone: Places = frozenset()
        completions: list[float] = []
        taken: list[Needs] = []
        for _ in range(self._most):
            if self._linked is None:
                needs = self._next(host, candidates[:1] if not taken else candidates)
            else:
                needs, gone = self._next_linked(self._linked, host, candidates, gone)
            if not needs:
                break
            completions.append(self._free_slots.completion_s(needs))
            self._free_slots.take(needs)
            taken.append(needs)
        for needs in taken:
            self._free_slots.give_back(needs)
        return completions

    def _next(self, host: str, candidates: Sequence[Candidate]) -> Needs:
        """Return the slots that the next instance on a host would take."""
        possible = (self._free_slots.needs(slots_of(candidate)) for candidate in candidates)
        needs = min((needs for needs in possible if needs), key=self._free_slots.cost, default=None)
        return needs or self._free_slots.cheapest(host, self._wanted.count)

    def _next_linked(
        self, linked: Linked, host: str, candidates: Sequence[Candidate], gone: Places
    ) -> tuple[Needs, Places]:
        """Return the same of slots that have to be linked, and which slots are gone then."""
        possible = [self._free_slots.needs(slots_of(candidate)) for candidate in candidates]
        outcomes = [(linked.outcome(host, needs, gone), needs) for needs in possible if needs]
        if not outcomes and (anywhere := linked.outcome(host, None, gone)):
            outcomes = [(anywhere, linked.needs(host, anywhere))]
        found = [(outcome, needs) for outcome, needs in outcomes if outcome is not None]
        if not found:
            return (), gone
        outcome, needs = min(found, key=lambda each: (each[0].cost, each[0].lost))
        return needs, gone | outcome.places
