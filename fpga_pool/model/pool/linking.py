"""Slots that are linked as a virtual machine asks for: all of them or none, and so that the others stay connected.

See `model.links` for when slots are linked.  Where Placement has said how many slots of which card are taken, only the
choice on each card is left; otherwise cards are chosen as well.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from fpga_pool.core.lattice.tasks import Links, Topology
from fpga_pool.core.lattice.topology import choose, connected_runs, is_linked
from fpga_pool.model.links import SlotLinks


@dataclass(frozen=True, slots=True)
class Spot:
    """A slot that can be had."""

    card: str
    #: What it is counted in by Placement.
    provider: Any
    links: SlotLinks
    #: What it costs the pool to give it away.
    cost: float


#: Number of slots by provider.
Allowed = Mapping[Any, int]
#: Indices of spots, in the order of their path.
Path = tuple[int, ...]


def choose_spots(spots: Sequence[Spot], wish: Links, count: int, allowed: Allowed | None = None) -> Path | None:
    """Return `count` spots of one host that are linked as wished, and of no provider more than `allowed`.

    None if there are none.  Of what was looked at it is the cheapest, and then what keeps most of the other spots
    connected.  Not all is looked at where cards are chosen as well: as few cards as will do, each filled before the
    next.
    """
    cards = _by_card(spots)
    if wish == Links.ANY:
        return _cheapest(spots, count, allowed)
    if allowed is not None and sum(allowed.values()) == count:
        needs: Counter[str] = Counter()
        providers = {spot.provider: spot.card for spot in spots}
        if not allowed.keys() <= providers.keys():
            return None
        for provider, number in allowed.items():
            needs[providers[provider]] += number
        divisions: Iterator[Mapping[str, int]] = iter([+needs])
    else:
        divisions = _divisions(spots, cards, wish, count)
    found = (_divided(spots, cards, wish, division, allowed) for division in divisions)
    paths = [path for path in found if path is not None]
    return paths[0] if len(paths) == 1 else min(paths, key=partial(_price, spots), default=None)


def connected_sizes(spots: Collection[Spot]) -> tuple[int, ...]:
    """Return how many spots a path could take that goes as far as it can, for all such paths, the longest first."""
    return tuple(sorted(map(len, _spot_runs(list(spots))), reverse=True))


def lost_connections(spots: Sequence[Spot], taken: Collection[int]) -> int:
    """Return how many pairs of spots, each spot with itself as well, are no longer connected when some are taken.

    Taking k of n that are connected loses n**2 - (n - k)**2 pairs, and cutting the others in two loses more: little is
    lost where a small set is used up, or a large one is cut at its end.
    """
    left = [spot for index, spot in enumerate(spots) if index not in taken]
    return sum(size**2 for size in connected_sizes(spots)) - sum(size**2 for size in connected_sizes(left))


def largest_linked(spots: Sequence[Spot], wish: Links, below: int) -> int:
    """Return the largest number of spots, less than `below`, that are linked as wished."""
    sizes = range(min(below - 1, len(spots)), 0, -1)
    return next((size for size in sizes if choose_spots(spots, wish, size) is not None), 0)


def _price(spots: Sequence[Spot], path: Path) -> tuple[float, int, Path]:
    return sum(spots[index].cost for index in path), lost_connections(spots, set(path)), path


def _cheapest(spots: Sequence[Spot], count: int, allowed: Allowed | None) -> Path | None:
    """Return the cheapest spots, linked or not; among equals those that few others are connected with."""
    around = {index: len(run) for run in _spot_runs(spots) for index in run}
    order = sorted(range(len(spots)), key=lambda index: (spots[index].cost, around[index], index))
    taken = list(islice(_allowed(order, spots, allowed), count))
    return tuple(taken) if len(taken) == count else None


def _allowed(places: Iterable[int], spots: Sequence[Spot], allowed: Allowed | None) -> Iterator[int]:
    """Yield places as long as so many of their provider are allowed."""
    left = None if allowed is None else Counter(dict(allowed))
    for place in places:
        if left is None:
            yield place
        elif left[spots[place].provider] > 0:
            left[spots[place].provider] -= 1
            yield place


def _by_card(spots: Sequence[Spot]) -> dict[str, list[int]]:
    """Return the indices of the spots on each card."""
    cards: defaultdict[str, list[int]] = defaultdict(list)
    for index, spot in enumerate(spots):
        cards[spot.card].append(index)
    return dict(cards)


# One card ------------------------------------------------------------------------------------------------------


def _on_card(
    spots: Sequence[Spot],
    places: Sequence[int],
    wish: Links,
    count: int,
    allowed: Allowed | None,
) -> Path | None:
    """Return the cheapest spots of one card that are linked as wished, no more of a provider than allowed."""
    between = spots[places[0]].links.card.slots
    if between is None:
        if count > 1:
            return None
        between = Topology.FULL
    if between == Topology.FULL:
        # Any of them will do: of each provider as many as are allowed, so that no choice can take too many.
        places = sorted(_allowed(sorted(places, key=lambda place: spots[place].cost), spots, allowed))
        size, index_of = len(places), dict(enumerate(places))
    else:
        size = spots[places[0]].links.slots
        index_of = {spots[place].links.position: place for place in places}
    cost = [0.0] * size
    for position, place in index_of.items():
        cost[position] = spots[place].cost

    def admits(path: Sequence[int]) -> bool:
        taken = Counter(spots[index_of[position]].provider for position in path)
        return allowed is None or all(number <= allowed.get(of, 0) for of, number in taken.items())

    found = choose(index_of, size, between, wish, count, cost, admits)
    return None if found is None else tuple(index_of[position] for position in found)


def _runs(spots: Sequence[Spot], places: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the connected sets of spots of one card."""
    links = spots[places[0]].links
    if links.card.slots is None:
        return [(place,) for place in places]
    if links.card.slots == Topology.FULL:
        return [tuple(places)]
    at = {spots[place].links.position: place for place in places}
    runs = connected_runs(at, links.slots, links.card.slots)
    return [tuple(at[position] for position in run) for run in runs]


# Several cards -------------------------------------------------------------------------------------------------


def _divided(
    spots: Sequence[Spot],
    cards: Mapping[str, Sequence[int]],
    wish: Links,
    division: Mapping[str, int],
    allowed: Allowed | None,
) -> Path | None:
    """Return so many spots of each card, if all that is linked as wished."""
    if any(len(cards[card]) < number for card, number in division.items()):
        return None
    at = {spots[cards[card][0]].links.card.position: card for card in division}
    if len(division) > 1:
        links = {spots[cards[card][0]].links.card for card in division}
        enclosures = {link.enclosure for link in links}
        first = next(iter(links))
        if len(enclosures) > 1 or not first.enclosure or len(at) < len(division):
            return None
        if not is_linked(at, first.cards, first.topology, wish):
            return None
        order = [at[position] for run in connected_runs(at, first.cards, first.topology) for position in run]
        wish = Links.LINE
    else:
        order = list(division)
    path: Path = ()
    for card in order:
        part = _on_card(spots, cards[card], wish, division[card], allowed)
        if part is None:
            return None
        path += part
    return path


def _divisions(
    spots: Sequence[Spot], cards: Mapping[str, Sequence[int]], wish: Links, count: int
) -> Iterator[Mapping[str, int]]:
    """Yield over which linked cards the spots could be divided: one, or as few neighbours as will do."""
    room = {card: max(map(len, _runs(spots, places))) for card, places in cards.items()}
    yield from ({card: count} for card in cards if room[card] >= count)
    for run in _card_runs(spots, cards):
        links = spots[cards[run[0]][0]].links.card
        closed = links.topology == Topology.RING and len(run) == links.cards
        if links.topology == Topology.FULL:
            run = tuple(sorted(run, key=lambda card: -room[card]))
        for start in range(len(run)):
            some = run[start:] + (run[:start] if closed else ())
            length = _length([room[card] for card in some], count)
            if length is None:
                continue
            # A ring closes over two cards that are linked, or over all; over less, each must be linked with each.
            any_closes = wish == Links.LINE or links.topology == Topology.FULL
            for several in {max(length, 2)} if any_closes else {2, len(run)}:
                if length <= several <= min(count, len(some)):
                    yield _filled(some[:several], room, count)


def _length(room: Sequence[int], count: int) -> int | None:
    """Return how many cards it takes from the first on."""
    total = 0
    for number, free in enumerate(room, 1):
        total += free
        if total >= count:
            return number
    return None


def _filled(cards: Sequence[str], room: Mapping[str, int], count: int) -> Mapping[str, int]:
    """Return how many spots each card gives: one at least, and all that it can before the next gives more."""
    division, left = {}, count
    for number, card in enumerate(cards):
        division[card] = min(room[card], left - (len(cards) - number - 1))
        left -= division[card]
    return division


def _spot_runs(spots: Sequence[Spot]) -> Iterator[tuple[int, ...]]:
    """Yield the largest connected sets of spots: each card gives the longest run it has to the one across cards."""
    cards = _by_card(spots)
    longest = {}
    for card, places in cards.items():
        longest[card], *others = sorted(_runs(spots, places), key=len, reverse=True)
        yield from others
    for run in _card_runs(spots, cards):
        yield tuple(index for card in run for index in longest[card])


def _card_runs(spots: Sequence[Spot], cards: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, ...]]:
    """Yield the connected sets of cards that have spots; a card in no enclosure is one."""
    enclosures: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for card, places in cards.items():
        links = spots[places[0]].links.card
        if links.enclosure:
            enclosures[links.enclosure][links.position] = card
        else:
            yield (card,)
    for at in enclosures.values():
        links = spots[cards[next(iter(at.values()))][0]].links.card
        for run in connected_runs(at, links.cards, links.topology):
            yield tuple(at[position] for position in run)
