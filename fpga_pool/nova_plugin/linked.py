"""Choice of linked slots for the instances of one request."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fpga_pool.core.lattice.topology import Links
from fpga_pool.core.types import Floats, Ints
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.objects.links import wished_links
from fpga_pool.model.rules.instance.fitting import NOT_HAD, HostCandidates, SlotCandidates
from fpga_pool.model.rules.instance.linking import choose_candidates, lost_connections
from fpga_pool.nova_plugin.candidates import Needs

#: Positions of slots among the candidate slots of their host.
Places = frozenset[int]
_NONE: Places = frozenset()
#: Number of outcomes that are cached for later requests.
_KEPT = 4096
#: Weight so small that it only breaks ties.
_LITTLE = 1e-6


@dataclass(frozen=True, slots=True)
class Outcome:
    """The slots that an instance would get."""

    places: Places
    #: Their cost, plus a tie-breaker: less if more of the remaining slots stay connected.
    price: float
    #: See `model.rules.instance.linking.lost_connections`.
    lost: int


class Linked:
    """Chooses slots as the pool will when an instance reaches its compute node; used by one thread at a time."""

    def __init__(self, wanted: AcceleratorRequest, slot_candidates: HostCandidates) -> None:
        self._wanted = wanted
        self._slot_candidates = slot_candidates
        #: By host: slots given to instances of this request.
        self._gone: dict[str, Places] = {}
        #: Cached outcomes, shared by all hosts with the same candidates.
        self._known: dict[tuple[int, Places, tuple[tuple[int, int], ...] | None], Outcome | None] = {}
        #: (P,) price and lost connections of the next instance if one provider gives all of its slots; NOT_HAD if it
        #: cannot, NaN if not yet computed.
        self.price: Floats = np.full(len(slot_candidates.kinds), np.nan)
        self.lost: Floats = self.price.copy()

    def gone(self, host: str) -> Places:
        """Return the slots of a host that were given to instances of this request."""
        return self._gone.get(host, _NONE)

    def outcome(self, host: str, needs: Needs | None) -> Outcome | None:
        """Return the slots that the next instance, after earlier ones, would get from these providers (None = any)."""
        slot_candidates, first = self._slot_candidates.located(host)
        if not slot_candidates:
            return None
        gone = self._gone.get(host, _NONE)
        asked = None
        if needs is not None:
            asked = tuple([(row - first, count) for row, count in needs])
            if len(asked) > 1:
                asked = tuple(sorted(asked))
        key = id(slot_candidates), gone, asked
        if key not in self._known:
            self._known[key] = _chosen(slot_candidates, wished_links(self._wanted), self._wanted.count, asked, gone)
        return self._known[key]

    def examine(self, rows: Ints) -> None:
        """Compute `price` and `lost` of these providers, only once for providers of the same kind."""
        new = rows[np.isnan(self.price[rows])]
        _, first, alike = np.unique(self._slot_candidates.kinds[new], return_index=True, return_inverse=True)
        self._examine_each(new[first].tolist())
        self.price[new], self.lost[new] = self.price[new[first]][alike], self.lost[new[first]][alike]

    def _examine_each(self, rows: Sequence[int]) -> None:
        for row in rows:
            outcome = self.outcome(self._slot_candidates.host_of(row), [(row, self._wanted.count)])
            self.price[row], self.lost[row] = (NOT_HAD, NOT_HAD) if outcome is None else (outcome.price, outcome.lost)

    def take(self, host: str, needs: Needs | None) -> None:
        """Record that an instance was given slots of a host."""
        outcome = self.outcome(host, needs)
        if outcome is not None:
            self._gone[host] = self.gone(host) | outcome.places
            self._examine_each(self._slot_candidates.providers_of(host))

    def needs(self, host: str, outcome: Outcome) -> tuple[tuple[int, int], ...]:
        """Return the number of slots of an outcome by provider."""
        slot_candidates, first = self._slot_candidates.located(host)
        counted = Counter(slot_candidates[place].provider for place in outcome.places)
        return tuple((first + provider, count) for provider, count in sorted(counted.items()))


@lru_cache(maxsize=_KEPT)
def _chosen(
    slot_candidates: SlotCandidates, wish: Links, count: int, asked: tuple[tuple[int, int], ...] | None, gone: Places
) -> Outcome | None:
    """Return the slots that the pool would choose; cached, as most hosts do not change between snapshots."""
    left = [place for place in range(len(slot_candidates)) if place not in gone]
    some = [slot_candidates[place] for place in left]
    found = choose_candidates(some, wish, count, None if asked is None else dict(asked))
    if found is None:
        return None
    lost = lost_connections(some, set(found))
    cost = sum(some[index].cost for index in found)
    return Outcome(places=frozenset(left[index] for index in found), price=cost + lost * _LITTLE, lost=lost)
