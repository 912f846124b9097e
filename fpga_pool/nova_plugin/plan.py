"""Where the instances of one request go to complete soonest together, where their owner says how long they run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fpga_pool.core.makespan.holding import hold
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.nova_plugin.candidates import Candidate, Needs, slots_of
from fpga_pool.nova_plugin.free_slots import FreeSlots
from fpga_pool.nova_plugin.linked import Linked, Places


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
            completions.append(self._free_slots.completion_s(needs, self._wanted.runtime_s or 0.0))
            self._free_slots.take(needs)
            taken.append(needs)
        for needs in taken:
            self._free_slots.give_back(needs)
        return completions

    def _next(self, host: str, candidates: Sequence[Candidate]) -> Needs:
        """Return what the next instance on a host would take."""
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
