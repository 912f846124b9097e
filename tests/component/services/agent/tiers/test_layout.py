"""The assignment of pCPUs to guests of two tiers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.flavor import Tier
from fpga_pool.services.agent.tiers.layout import Place, find_pcpus, rearranged

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


def test_a_background_guest_goes_where_the_foreground_uses_least():
    others = [Place(FRONT, (0, 1, 2)), Place(BEHIND, (1,))]
    usage = {(FRONT, 0): 0.9, (FRONT, 1): 0.1, (FRONT, 2): 0.5}
    # pCPU 3 has no foreground guest, and pCPU 1 already has a background guest.
    assert find_pcpus(BEHIND, 1, range(4), others, usage) == (3,)
    assert find_pcpus(BEHIND, 3, range(4), others, usage) == (3, 2, 0)


def test_a_foreground_that_was_not_measured_counts_as_busy():
    others = [Place(FRONT, (0, 1))]
    assert find_pcpus(BEHIND, 1, range(2), others, {(FRONT, 1): 0.8}) == (1,)


def test_a_guest_stays_where_it_is_preferred():
    assert find_pcpus(FRONT, 2, range(4), [], {}, preferred=(3, 2)) == (2, 3)


def test_there_is_one_guest_of_each_tier_on_a_pcpu():
    others = [Place(FRONT, (0, 1)), Place(BEHIND, (0,))]
    with pytest.raises(Conflict, match="1 pCPUs requested in the foreground, but only 0 of 2 are free"):
        find_pcpus(FRONT, 1, range(2), others, {})
    assert find_pcpus(BEHIND, 1, range(2), others, {}) == (1,)


def test_two_that_swap_stay_on_their_pcpus():
    places = {"a": Place(FRONT, (0, 1)), "b": Place(BEHIND, (0, 1)), "c": Place(FRONT, (2,))}
    assert rearranged(places, {"a": BEHIND, "b": FRONT}, range(3), {}) == {
        "a": Place(BEHIND, (0, 1)),
        "b": Place(FRONT, (0, 1)),
    }


def test_a_guest_whose_pcpus_are_taken_in_its_new_tier_keeps_those_that_are_not():
    places = {"a": Place(FRONT, (0,)), "b": Place(BEHIND, (0, 1))}
    assert rearranged(places, {"b": FRONT}, range(3), {}) == {"b": Place(FRONT, (1, 2))}
    with pytest.raises(Conflict):
        rearranged(places, {"b": FRONT}, range(2), {})


@given(st.data())
def test_no_pcpu_ever_carries_two_guests_of_a_tier(data):
    pcpus = range(data.draw(st.integers(1, 6)))
    places: dict[str, Place] = {}
    for step in range(data.draw(st.integers(1, 12))):
        try:
            if places and data.draw(st.booleans()):
                chosen = data.draw(st.sets(st.sampled_from(sorted(places)), min_size=1))
                places |= rearranged(places, {each: data.draw(st.sampled_from([FRONT, BEHIND])) for each in chosen}, pcpus, {})  # fmt: skip  # noqa: E501
            else:
                tier, vcpus = data.draw(st.sampled_from([FRONT, BEHIND])), data.draw(st.integers(1, 3))
                places[str(step)] = Place(tier, find_pcpus(tier, vcpus, pcpus, places.values(), {}))
        except Conflict:
            continue
        for tier in (FRONT, BEHIND):
            used = [pcpu for place in places.values() if place.tier == tier for pcpu in place.pcpus]
            assert len(used) == len(set(used))
            assert set(used) <= set(pcpus)
