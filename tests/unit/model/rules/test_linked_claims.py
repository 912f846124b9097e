"""Claims of linked slots.  A host has four cards in a ring, each with two small slots in a line."""

import re

import pytest

from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.flavor import AcceleratorRequest, Topology, provider_uuid
from fpga_pool.model.messages.agents import FreeSlot, ObservedSlot
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, instance_leases

CARDS = 4


def provider(card):
    return provider_uuid("h1", f"c{card}", "small")


def observed(card, region, *, cables=Cables.RING, slots=2):
    links = CardLinks(enclosure="box", topology=cables, cards=CARDS, position=card, slots=Cables.LINE)
    return ObservedSlot(
        slot=f"h1/c{card}/r{region}", card=f"c{card}", region=f"r{region}", board="fast", kind="small",
        state=SlotState.EMPTY, links=str(SlotLinks(card=links, slots=slots, position=region)),
    )  # fmt: skip


@pytest.fixture
def linked(pool):
    """Return a function that brings up a host with `slots` slots on each card."""

    def linked(slots=2, **how):
        told = tuple(observed(card, region, slots=slots, **how) for card in range(CARDS) for region in range(slots))
        pool.heard(pool.heartbeat("h1", slots=told, jobs=[]))
        return pool

    return linked


@pytest.fixture
def claim(pool):
    """Return a function that claims linked slots for an instance, and returns their places."""

    def claim(topology, count, *, instance="vm", allocated=None):
        wanted = AcceleratorRequest(function="aes", count=count, topology=topology)
        asked = Claim(host="h1", instance=instance, project_id="p", wanted=wanted, allocated=allocated)
        with pool.tx() as tx:
            taken = claim_slots(tx, asked, pool.catalogue, pool.settings, pool.now_s)
        return [slot.name.removeprefix("h1/") for slot in taken]

    return claim


def holders(pool):
    with pool.tx() as tx:
        return {lease.slot.removeprefix("h1/"): lease.holder for lease in instance_leases(tx, "h1")}


def test_what_agents_tell_of_links_is_kept_and_a_change_is_taken_over(pool, linked):
    linked()
    assert pool.slot("h1/c3/r1").links == "box ring 4 3 line 2 1"
    linked(cables=Cables.LINE)
    assert pool.slot("h1/c3/r1").links == "box line 4 3 line 2 1"


def test_links_that_there_are_not_are_refused(pool):
    beat = pool.heartbeat(r0={"links": "box star 4 3 line 2 1"})
    with pytest.raises(InvalidInput, match="is not a valid description of a slot's links"):
        pool.heard(beat)


def test_where_placement_leaves_the_slots_of_a_card_open_linked_ones_are_taken(pool, linked, claim):
    # Three of the four slots in the line on c0 remain.  Without the middle one no two of them are linked.
    linked(slots=4)
    with pool.tx() as tx:
        claim_slots(tx, Claim(host="h1", instance="first", project_id="p", wanted=AcceleratorRequest(function="aes"),
                              allocated={provider(0): 1}), pool.catalogue, pool.settings, pool.now_s)  # fmt: skip
    assert holders(pool) == {"c0/r0": "first"}
    pool.drain("h1/c0/r2")
    pool.sent()
    message = (
        "h1: a line of 2 slots for aes is requested; of the 2 slots that are available and are allocated in Placement"
    )
    with pytest.raises(Conflict, match=f"{message} at most 1 have these links"):
        claim(Topology.LINE, 2, allocated={provider(0): 2})
    assert pool.sent() == []
    pool.resume("h1/c0/r2")
    # r1 to r3 are free: two adjacent ones are taken, not r1 and r3.
    assert claim(Topology.LINE, 2, allocated={provider(0): 2}) == ["c0/r1", "c0/r2"]


def test_slots_of_cards_that_are_not_linked_are_refused_whichever_are_free(pool, linked, claim):
    linked(slots=1)
    apart = {provider(0): 1, provider(2): 1}
    assert claim(Topology.ANY, 2, allocated=apart, instance="any") == ["c0/r0", "c2/r0"]
    with pool.tx() as tx:
        for lease in instance_leases(tx, "h1"):
            assert lease.holder == "any"
    with pytest.raises(Conflict, match="a line of 2 slots"):
        claim(Topology.LINE, 2, allocated={provider(1): 1, provider(3): 1})
    assert holders(pool) == {"c0/r0": "any", "c2/r0": "any"}


def test_neighbours_across_the_end_of_a_ring_are_linked(linked, claim):
    linked(slots=1)
    assert claim(Topology.RING, 2, allocated={provider(0): 1, provider(3): 1}) == ["c0/r0", "c3/r0"]


def test_a_ring_of_all_cards_is_one_and_on_a_line_of_cards_it_is_not(linked, claim):
    everything = {provider(card): 1 for card in range(CARDS)}
    linked(slots=1, cables=Cables.LINE)
    refused = "a ring of 4 slots for aes is requested; of the 4 slots that are available and are allocated"
    with pytest.raises(Conflict, match=re.escape(refused)):
        claim(Topology.RING, 4, allocated=everything)
    linked(slots=1)
    assert len(claim(Topology.RING, 4, allocated=everything)) == 4


def test_without_placement_a_host_gives_linked_slots_wherever_it_has_them(linked, claim):
    linked()
    assert claim(Topology.LINE, 2) == ["c0/r0", "c0/r1"]
    assert claim(Topology.LINE, 5, instance="wide") == ["c1/r0", "c1/r1", "c2/r0", "c2/r1", "c3/r0"]
    with pytest.raises(Conflict, match="of the 8 slots that fit 7 are held by virtual machines"):
        claim(Topology.RING, 2, instance="late")


def test_what_is_held_and_linked_is_kept_and_what_is_no_longer_linked_is_exchanged(pool, linked, claim):
    linked(slots=1)
    allocated = {provider(0): 1, provider(3): 1}
    assert claim(Topology.LINE, 2, allocated=allocated) == ["c0/r0", "c3/r0"]
    pool.sent()
    assert claim(Topology.LINE, 2, allocated=allocated) == ["c0/r0", "c3/r0"]
    assert pool.sent() == []
    linked(slots=1, cables=Cables.LINE)  # a cable was removed
    with pytest.raises(Conflict, match="at most 1"):
        claim(Topology.LINE, 2, allocated=allocated)
    assert claim(Topology.LINE, 2) == ["c0/r0", "c1/r0"]
    freed = [command.slot for command in pool.sent() if isinstance(command.action, FreeSlot)]
    assert freed == ["h1/c3/r0"]
