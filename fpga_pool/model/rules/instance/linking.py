"""Choice of slots with the links that a virtual machine requests: all or none, so that other slots stay connected.

`model.objects.links` defines when slots are linked.  If Placement has allocated the number of slots of each card, only
the slots on each card are chosen; otherwise the cards are chosen as well.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from fpga_pool.core.lattice.topology import Links, Topology, choose, connected_runs, is_linked
from fpga_pool.model.objects.links import SlotLinks


@dataclass(frozen=True, slots=True)
class SlotCandidate:
    """An available slot."""

    card: str
    #: Its provider in Placement.
    provider: Any
    links: SlotLinks
    #: Cost to the pool of giving the slot away.
    cost: float


#: Number of slots by provider.
Allowed = Mapping[Any, int]
#: Indices of candidates, in path order.
Path = tuple[int, ...]


def choose_candidates(
    candidates: Sequence[SlotCandidate], wish: Links, count: int, allowed: Allowed | None = None
) -> Path | None:
    """Return `count` candidates of one host with the links of `wish`, at most as many of each provider as `allowed`.

    None if there are none.  The cheapest of the examined choices is returned; ties go to the choice that keeps most of
    the other candidates connected.  If cards are chosen as well, not all choices are examined: only those with as few
    cards as possible, where each card is filled before the next.
    """
    cards = _by_card(candidates)
    if wish == Links.ANY:
        return _cheapest(candidates, count, allowed)
    if allowed is not None and sum(allowed.values()) == count:
        needs: Counter[str] = Counter()
        providers = {candidate.provider: candidate.card for candidate in candidates}
        if not allowed.keys() <= providers.keys():
            return None
        for provider, number in allowed.items():
            needs[providers[provider]] += number
        divisions: Iterator[Mapping[str, int]] = iter([+needs])
    else:
        divisions = _divisions(candidates, cards, wish, count)
    found = (_divided(candidates, cards, wish, division, allowed) for division in divisions)
    paths = [path for path in found if path is not None]
    return paths[0] if len(paths) == 1 else min(paths, key=partial(_price, candidates), default=None)


def connected_sizes(candidates: Collection[SlotCandidate]) -> tuple[int, ...]:
    """Return the sizes of the largest connected sets of candidates, in decreasing order."""
    return tuple(sorted(map(len, _candidate_runs(list(candidates))), reverse=True))


def lost_connections(candidates: Sequence[SlotCandidate], taken: Collection[int]) -> int:
    """Return how many ordered pairs of connected candidates, each with itself included, are lost by taking some.

    Taking k of n connected candidates loses n**2 - (n - k)**2 pairs, and more if it cuts the others in two. So little
    is lost by using up a small set, or by cutting a large one at its end.
    """
    left = [candidate for index, candidate in enumerate(candidates) if index not in taken]
    return sum(size**2 for size in connected_sizes(candidates)) - sum(size**2 for size in connected_sizes(left))


def largest_linked(candidates: Sequence[SlotCandidate], wish: Links, below: int) -> int:
    """Return the largest number of candidates, less than `below`, with the links of `wish`; 0 if there are none."""
    sizes = range(min(below - 1, len(candidates)), 0, -1)
    return next((size for size in sizes if choose_candidates(candidates, wish, size) is not None), 0)


def _price(candidates: Sequence[SlotCandidate], path: Path) -> tuple[float, int, Path]:
    return sum(candidates[index].cost for index in path), lost_connections(candidates, set(path)), path


def _cheapest(candidates: Sequence[SlotCandidate], count: int, allowed: Allowed | None) -> Path | None:
    """Return the `count` cheapest candidates, linked or not; ties go to those connected with the fewest others."""
    around = {index: len(run) for run in _candidate_runs(candidates) for index in run}
    order = sorted(range(len(candidates)), key=lambda index: (candidates[index].cost, around[index], index))
    taken = list(islice(_allowed(order, candidates, allowed), count))
    return tuple(taken) if len(taken) == count else None


def _allowed(places: Iterable[int], candidates: Sequence[SlotCandidate], allowed: Allowed | None) -> Iterator[int]:
    """Yield places up to the number allowed for their provider."""
    left = None if allowed is None else Counter(dict(allowed))
    for place in places:
        if left is None:
            yield place
        elif left[candidates[place].provider] > 0:
            left[candidates[place].provider] -= 1
            yield place


def _by_card(candidates: Sequence[SlotCandidate]) -> dict[str, list[int]]:
    """Return the indices of the candidates on each card."""
    cards: defaultdict[str, list[int]] = defaultdict(list)
    for index, candidate in enumerate(candidates):
        cards[candidate.card].append(index)
    return dict(cards)


# One card ------------------------------------------------------------------------------------------------------


def _on_card(
    candidates: Sequence[SlotCandidate],
    places: Sequence[int],
    wish: Links,
    count: int,
    allowed: Allowed | None,
) -> Path | None:
    """Return the cheapest candidates of one card with the links of `wish`, at most as many per provider as allowed."""
    between = candidates[places[0]].links.card.slots
    if between is None:
        if count > 1:
            return None
        between = Topology.FULL
    if between == Topology.FULL:
        # All slots are equivalent: keep only as many of each provider as are allowed, so that no choice takes too many.
        places = sorted(_allowed(sorted(places, key=lambda place: candidates[place].cost), candidates, allowed))
        size, index_of = len(places), dict(enumerate(places))
    else:
        size = candidates[places[0]].links.slots
        index_of = {candidates[place].links.position: place for place in places}
    cost = [0.0] * size
    for position, place in index_of.items():
        cost[position] = candidates[place].cost

    def admits(path: Sequence[int]) -> bool:
        taken = Counter(candidates[index_of[position]].provider for position in path)
        return allowed is None or all(number <= allowed.get(of, 0) for of, number in taken.items())

    found = choose(index_of, size, between, wish, count, cost, admits)
    return None if found is None else tuple(index_of[position] for position in found)


def _runs(candidates: Sequence[SlotCandidate], places: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the connected sets of candidates of one card."""
    links = candidates[places[0]].links
    if links.card.slots is None:
        return [(place,) for place in places]
    if links.card.slots == Topology.FULL:
        return [tuple(places)]
    at = {candidates[place].links.position: place for place in places}
    runs = connected_runs(at, links.slots, links.card.slots)
    return [tuple(at[position] for position in run) for run in runs]


# Several cards -------------------------------------------------------------------------------------------------


def _divided(
    candidates: Sequence[SlotCandidate],
    cards: Mapping[str, Sequence[int]],
    wish: Links,
    division: Mapping[str, int],
    allowed: Allowed | None,
) -> Path | None:
    """Return as many candidates of each card as `division` has, with the links of `wish`; None if there are none."""
    if any(len(cards[card]) < number for card, number in division.items()):
        return None
    at = {candidates[cards[card][0]].links.card.position: card for card in division}
    if len(division) > 1:
        links = {candidates[cards[card][0]].links.card for card in division}
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
        part = _on_card(candidates, cards[card], wish, division[card], allowed)
        if part is None:
            return None
        path += part
    return path


def _divisions(
    candidates: Sequence[SlotCandidate], cards: Mapping[str, Sequence[int]], wish: Links, count: int
) -> Iterator[Mapping[str, int]]:
    """Yield divisions of `count` candidates among linked cards: one card, or as few neighboring cards as suffice."""
    room = {card: max(map(len, _runs(candidates, places))) for card, places in cards.items()}
    yield from ({card: count} for card in cards if room[card] >= count)
    for run in _card_runs(candidates, cards):
        links = candidates[cards[run[0]][0]].links.card
        closed = links.topology == Topology.RING and len(run) == links.cards
        if links.topology == Topology.FULL:
            run = tuple(sorted(run, key=lambda card: -room[card]))
        for start in range(len(run)):
            some = run[start:] + (run[:start] if closed else ())
            length = _length([room[card] for card in some], count)
            if length is None:
                continue
            # A ring closes over two linked cards, or over all cards of a ring; other numbers require full links.
            any_closes = wish == Links.LINE or links.topology == Topology.FULL
            for several in {max(length, 2)} if any_closes else {2, len(run)}:
                if length <= several <= min(count, len(some)):
                    yield _filled(some[:several], room, count)


def _length(room: Sequence[int], count: int) -> int | None:
    """Return how many cards, from the first on, have room for `count` candidates; None if even all have too little."""
    total = 0
    for number, free in enumerate(room, 1):
        total += free
        if total >= count:
            return number
    return None


def _filled(cards: Sequence[str], room: Mapping[str, int], count: int) -> Mapping[str, int]:
    """Return the number of candidates of each card: at least one, and as many as possible of the first cards."""
    division, left = {}, count
    for number, card in enumerate(cards):
        division[card] = min(room[card], left - (len(cards) - number - 1))
        left -= division[card]
    return division


def _candidate_runs(candidates: Sequence[SlotCandidate]) -> Iterator[tuple[int, ...]]:
    """Yield the largest connected sets of candidates; a set across cards consists of the longest run of each card."""
    cards = _by_card(candidates)
    longest = {}
    for card, places in cards.items():
        longest[card], *others = sorted(_runs(candidates, places), key=len, reverse=True)
        yield from others
    for run in _card_runs(candidates, cards):
        yield tuple(index for card in run for index in longest[card])


def _card_runs(candidates: Sequence[SlotCandidate], cards: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, ...]]:
    """Yield the connected sets of cards that have candidates; a card outside any enclosure forms a set alone."""
    enclosures: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for card, places in cards.items():
        links = candidates[places[0]].links.card
        if links.enclosure:
            enclosures[links.enclosure][links.position] = card
        else:
            yield (card,)
    for at in enclosures.values():
        links = candidates[cards[next(iter(at.values()))][0]].links.card
        for run in connected_runs(at, links.cards, links.topology):
            yield tuple(at[position] for position in run)
