"""Which slots the instances of one request would get on a host, as they are linked, and what stays connected."""

from collections import Counter
from dataclasses import dataclass

from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.links import wished_links
from fpga_pool.model.pool.host_spots import HostSpots, Spots
from fpga_pool.model.pool.linking import choose_spots, lost_connections
from fpga_pool.nova_plugin.candidates import Needs

#: Places of slots among those of their host.
Places = frozenset[int]
_NONE: Places = frozenset()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The slots that an instance would get."""

    places: Places
    cost: float
    #: See `model.pool.linking.lost_connections`.
    lost: int


class Linked:
    """Chooses as the pool will when an instance reaches its compute node; used by one thread at a time."""

    def __init__(self, wanted: AcceleratorRequest, spots: HostSpots) -> None:
        self._wanted = wanted
        self._spots = spots
        #: Given to instances of this request, by host.
        self._gone: dict[str, Places] = {}
        #: What was found out, for all hosts that are alike.
        self._known: dict[tuple[int, Places, tuple[tuple[int, int], ...] | None], Outcome | None] = {}

    def gone(self, host: str) -> Places:
        """Return the slots of a host that were given to instances of this request."""
        return self._gone.get(host, _NONE)

    def outcome(self, host: str, needs: Needs | None, gone: Places | None = None) -> Outcome | None:
        """Return what the next instance would get of these providers (None = of any), once others are gone."""
        spots, first = self._spots.located(host)
        if not spots:
            return None
        gone = self._gone.get(host, _NONE) if gone is None else gone
        asked = None
        if needs is not None:
            asked = tuple([(row - first, count) for row, count in needs])
            if len(asked) > 1:
                asked = tuple(sorted(asked))
        key = id(spots), gone, asked
        if key not in self._known:
            self._known[key] = self._choose(spots, asked, gone)
        return self._known[key]

    def take(self, host: str, needs: Needs | None) -> None:
        """Note that an instance was given slots."""
        outcome = self.outcome(host, needs)
        if outcome is not None:
            self._gone[host] = self.gone(host) | outcome.places

    def needs(self, host: str, outcome: Outcome) -> tuple[tuple[int, int], ...]:
        """Return how many slots of which providers those are."""
        spots, first = self._spots.located(host)
        counted = Counter(spots[place].provider for place in outcome.places)
        return tuple((first + provider, count) for provider, count in sorted(counted.items()))

    def _choose(self, spots: Spots, asked: tuple[tuple[int, int], ...] | None, gone: Places) -> Outcome | None:
        left = [place for place in range(len(spots)) if place not in gone]
        some = [spots[place] for place in left]
        allowed = None if asked is None else dict(asked)
        found = choose_spots(some, wished_links(self._wanted), self._wanted.count, allowed)
        if found is None:
            return None
        return Outcome(
            places=frozenset(left[index] for index in found),
            cost=sum(some[index].cost for index in found),
            lost=lost_connections(some, set(found)),
        )
