"""The search for linked slots of a host, compared with an exhaustive search."""

import importlib.util
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.rules.instance.linking import (
    SlotCandidate,
    choose_candidates,
    connected_sizes,
    largest_linked,
    lost_connections,
)

CHECKER = Path(__file__).parents[3] / "checkers" / "check_schedule.py"


@pytest.fixture(scope="module")
def connected():
    spec = importlib.util.spec_from_file_location("check_schedule", CHECKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.connected


def closes(connected, members, size, links):
    """Return whether the members form a ring, as the checker's main program decides it."""
    full = links == "full" or (links == "ring" and len(members) == size)
    return full or (len(members) <= 2 and connected(members, size, links))


def linked(connected, candidates, wish):
    """Return whether candidates are linked as in `model.objects.links`, by the independent checker's test of paths."""
    if wish == Links.ANY or len(candidates) == 1:
        return True
    cards = {candidate.card: candidate.links.card for candidate in candidates}
    on = {
        card: sorted(candidate.links.position for candidate in candidates if candidate.card == card) for card in cards
    }
    if any(links.slots is None and len(on[card]) > 1 for card, links in cards.items()):
        return False
    test = closes if wish == Links.RING else (lambda connected, *where: connected(*where))
    if len(cards) == 1:
        ((card, links),) = cards.items()
        return test(connected, on[card], candidates[0].links.slots, links.slots.name.lower())
    if len({links.enclosure for links in cards.values()}) > 1 or not candidates[0].links.card.enclosure:
        return False
    for card, links in cards.items():
        size = next(candidate.links.slots for candidate in candidates if candidate.card == card)
        if links.slots is not None and not connected(on[card], size, links.slots.name.lower()):
            return False
    some = next(iter(cards.values()))
    positions = sorted(links.position for links in cards.values())
    return test(connected, positions, some.cards, some.topology.name.lower())


@st.composite
def hosts(draw):
    """Draw up to two enclosures of up to four cards with up to three slots, some of which are missing."""
    between = draw(st.sampled_from([*Topology, None]))
    candidates = []
    for enclosure in ("a", "b")[: draw(st.integers(1, 2))]:
        cards, topology = draw(st.integers(1, 4)), draw(st.sampled_from(Topology))
        name = enclosure if cards > 1 or draw(st.booleans()) else ""
        slots = draw(st.integers(1, 3))
        for card in range(cards):
            links = CardLinks(enclosure=name, topology=topology, cards=cards, position=card, slots=between)
            for slot in range(slots):
                if draw(st.booleans()):
                    kind = f"{enclosure}{card}{'large' if slot == 2 else 'small'}"
                    where = SlotLinks(card=links, slots=slots, position=slot)
                    candidates.append(SlotCandidate(f"{enclosure}{card}", kind, where, float(draw(st.integers(0, 2)))))
    return candidates[:8]


WISHES = st.sampled_from(Links)


@given(hosts(), WISHES, st.integers(1, 6))
def test_linked_slots_are_found_wherever_there_are_some(connected, candidates, wish, count):
    possible = any(linked(connected, some, wish) for some in combinations(candidates, count))
    found = choose_candidates(candidates, wish, count)
    assert (found is not None) == possible
    if found is not None:
        assert len(set(found)) == count
        assert linked(connected, [candidates[index] for index in found], wish)


@given(hosts(), WISHES, st.integers(1, 6), st.data())
def test_of_each_provider_as_many_are_taken_as_placement_says_and_the_cheapest(
    connected, candidates, wish, count, data
):
    if count > len(candidates):
        return
    allowed = Counter(candidate.provider for candidate in data.draw(st.permutations(candidates))[:count])
    costs = [
        sum(candidate.cost for candidate in some)
        for some in combinations(candidates, count)
        if Counter(candidate.provider for candidate in some) == allowed and linked(connected, some, wish)
    ]
    found = choose_candidates(candidates, wish, count, allowed)
    assert (found is not None) == bool(costs)
    if found is not None:
        some = [candidates[index] for index in found]
        assert Counter(candidate.provider for candidate in some) == allowed
        assert linked(connected, some, wish)
        assert sum(candidate.cost for candidate in some) == min(costs)


@given(hosts())
def test_the_longest_path_is_as_long_as_is_said(connected, candidates):
    longest = max(
        (
            n
            for n in range(len(candidates) + 1)
            if any(linked(connected, s, Links.LINE) for s in combinations(candidates, n) if s)
        ),
        default=0,
    )
    assert max(connected_sizes(candidates), default=0) == longest == largest_linked(candidates, Links.LINE, 99)


def ring(cards, *, slots=1, free=None):
    """Return cards in a ring with `slots` slots each, or only the slots `free` (card, slot)."""
    return [
        SlotCandidate(f"c{card}", card, SlotLinks(card=links, slots=slots, position=slot), 0.0)
        for card in range(cards)
        for links in [CardLinks(enclosure="box", topology=Topology.RING, cards=cards, position=card)]
        for slot in range(slots)
        if free is None or (card, slot) in free
    ]


def test_a_line_is_taken_where_it_leaves_the_most_connected():
    # Free on a ring of 8: 0 and 1; 3 to 6.  A line of 2 on the small set loses 2**2 pairs, not 4**2 - 2**2.
    candidates = ring(8, free={(card, 0) for card in (0, 1, 3, 4, 5, 6)})
    assert choose_candidates(candidates, Links.LINE, 2) == (0, 1)
    assert connected_sizes(candidates) == (4, 2)
    assert lost_connections(candidates, {0, 1}) == 4
    assert lost_connections(candidates, {2, 3}) == 12
    # In the middle of the four it leaves single slots, each connected only with itself.
    assert lost_connections(candidates, {3, 4}) == 14


def test_a_ring_closes_over_two_cards_or_all_of_them():
    candidates = ring(4, slots=2)
    pairs = [
        sorted(Counter(candidates[i].card for i in choose_candidates(candidates, Links.RING, n)).values())
        for n in (2, 4, 5)
    ]
    # Two on one card; four as two and two on linked cards; five are too many for two cards, so they use all four.
    assert pairs == [[2], [2, 2], [1, 1, 1, 2]]
    assert choose_candidates(ring(4), Links.RING, 3) is None
    assert largest_linked(ring(4), Links.RING, 4) == 2


def test_slots_that_are_not_linked_are_taken_from_a_card_each():
    alone = CardLinks(slots=None)
    candidates = [SlotCandidate("c", "c", SlotLinks(card=alone, slots=2, position=slot), 0.0) for slot in range(2)]
    assert choose_candidates(candidates, Links.LINE, 2) is None
    assert choose_candidates(candidates, Links.ANY, 2) == (0, 1)
    assert connected_sizes(candidates) == (1, 1)
