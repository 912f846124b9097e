"""Descriptions of the links of cards and slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.topology import Topology
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.links import ALONE, USUAL, CardLinks, SlotLinks, read_enclosures, slot_links


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True) | st.just(""),
    st.sampled_from(Topology),
    st.integers(1, 9),
    st.sampled_from([*Topology, None]),
    st.data(),
)
def test_a_word_says_what_it_was_made_of(enclosure, topology, cards, between, data):
    position, slots = data.draw(st.integers(0, cards - 1)), data.draw(st.integers(1, 9))
    card = CardLinks(enclosure=enclosure, topology=topology, cards=cards, position=position, slots=between)
    links = SlotLinks(card=card, slots=slots, position=data.draw(st.integers(0, slots - 1)))
    if not str(links):
        assert (enclosure, between) == ("", Topology.FULL)
        assert slot_links("") is USUAL
    else:
        assert slot_links(str(links)) == links


@pytest.mark.parametrize(
    "text",
    ["box", "box ring 8 8 full 4 0", "box ring 8 0 full 4 4", "box star 8 0 full 4 0", "box ring 8 0 full 04 0",
     "b/x ring 8 0 full 4 0", "box ring 8 -1 full 4 0", "box ring 2000 0 full 4 0", "- ring 1 0 full 4 0"],
)  # fmt: skip
def test_what_is_no_word_of_links_is_refused(text):
    with pytest.raises(InvalidInput, match="is not a valid description of a slot's links"):
        slot_links(text)


def test_cards_are_in_the_enclosures_that_the_operator_tells():
    links = read_enclosures(["box ring c1,c0", "other line c2"], "line", ["c0", "c1", "c2", "c3"])
    ring = {"enclosure": "box", "topology": Topology.RING, "cards": 2, "slots": Topology.LINE}
    assert links["c1"] == CardLinks(**ring, position=0)
    assert links["c0"] == CardLinks(**ring, position=1)
    assert links["c2"].topology == Topology.LINE
    assert links["c3"] == CardLinks(slots=Topology.LINE)
    assert read_enclosures([], "full", ["c0"]) == {"c0": ALONE}
    assert read_enclosures([], "none", ["c0"]) == {"c0": CardLinks(slots=None)}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            ["box ring"],
            "'box ring' is invalid; expected NAME TOPOLOGY SERIAL,SERIAL,... with a TOPOLOGY of line, ring, full",
        ),
        (["box star c0,c1"], "'box star c0,c1' is invalid"),
        (["box ring c0,c9"], "enclosure box: no card 'c9'; available: c0, c1"),
        (["box ring c0,c0"], "enclosure box: card c0 is in an enclosure already"),
        (["box ring c0", "box line c1"], "enclosure box is defined twice"),
    ],
)
def test_a_wrong_line_is_refused_with_what_is_right(lines, reason):
    with pytest.raises(InvalidInput) as refused:
        read_enclosures(lines, "full", ["c0", "c1"])
    assert str(refused.value).startswith(reason)
