"""Requests for linked slots: which candidates pass, their order, and which host keeps most slots connected."""

import sys
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from nova_hosts import FREE, Host, candidate, claim, fitting

from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.flavor import AcceleratorRequest, Topology
from fpga_pool.model.objects.links import CardLinks, SlotLinks
from fpga_pool.model.rules.instance.fitting import NOT_HAD
from fpga_pool.nova_plugin.request import Request

INSTANCE = ("instance", "i-1", False)


def box(host, cards, *, held=(), cables=Cables.RING, slots=1, between=Cables.FULL):
    """Return the slots of cards in one enclosure of a host; an instance holds the slots `held` (card, slot)."""
    rows = []
    for card in range(cards):
        links = CardLinks(enclosure="box", topology=cables, cards=cards, position=card, slots=between)
        for slot in range(slots):
            lease = INSTANCE if (card, slot) in held else FREE
            word = str(SlotLinks(card=links, slots=slots, position=slot))
            rows.append((host, f"c{card}", "EMPTY", "", lease, word))
    return rows


def wants(topology, count, **more):
    return AcceleratorRequest(function="sha256", count=count, topology=topology, **more)


def pairs(host, cards):
    return [candidate(host, f"c{one}", f"c{other}") for one, other in combinations(range(cards), 2)]


def test_candidates_on_cards_that_are_not_linked_are_dropped():
    host = Host("a", pairs("a", 4))
    request = Request(wants(Topology.LINE, 2), fitting(*box("a", 4)))
    assert request.first_pass([host]) == [host]
    linked = [candidate("a", f"c{one}", f"c{other}") for one, other in ((0, 1), (0, 3), (1, 2), (2, 3))]
    assert sorted(map(str, host.allocation_candidates)) == sorted(map(str, linked))


def test_a_host_without_a_ring_does_not_pass_and_says_so():
    hosts = [Host(name, [candidate(name, "c0", "c1", "c2", "c3")]) for name in ("a", "b")]
    found = fitting(*box("a", 4, cables=Cables.LINE), *box("b", 4))
    request = Request(wants(Topology.RING, 4), found, together=False)
    assert request.first_pass(hosts) == hosts[1:]
    assert request.explain(hosts[0]).endswith("4 empty; no ring of 4 free: at most 2 have these links")
    assert request.explain(hosts[1]) == "4 of 4 matching slots available; 4 empty"


def test_the_candidate_that_leaves_most_connected_comes_first():
    # Cards 2 and 7 of a ring of 8 are held, so 0 and 1 are free between them, and 3 to 6.
    host = Host("a", pairs("a", 8))
    request = Request(wants(Topology.LINE, 2), fitting(*box("a", 8, held={(2, 0), (7, 0)})))
    request.first_pass([host])
    assert host.allocation_candidates[0] == candidate("a", "c0", "c1")
    # Of the four in a row both ends are equally good, and the middle is the last choice.
    assert host.allocation_candidates[-1] == candidate("a", "c4", "c5")


def test_what_the_instances_before_have_taken_is_counted_slot_by_slot():
    # Four cards in a row: two lines of two fit unless the first one is in the middle.
    host = Host("a", pairs("a", 4))
    request = Request(wants(Topology.LINE, 2), fitting(*box("a", 4, cables=Cables.LINE)), 3)
    assert request.first_pass([host]) == [host]
    taken = [host.allocation_candidates[0]]
    claim(host)
    assert request.next_pass([host]) == [host]
    taken.append(host.allocation_candidates[0])
    claim(host)
    assert request.next_pass([host]) == []
    assert sorted(map(str, taken)) == sorted(map(str, (candidate("a", "c0", "c1"), candidate("a", "c2", "c3"))))


def test_slots_of_one_card_are_linked_as_the_card_says():
    hosts = [Host(name, [candidate(name, "c0", count=2)]) for name in ("a", "b")]
    found = fitting(*box("a", 1, slots=3, held={(0, 1)}, between=Cables.LINE), *box("b", 1, slots=3, held={(0, 1)}))
    request = Request(wants(Topology.LINE, 2), found)
    # The first and the third slot are free.  On a they are not linked; on b all slots are linked to each other.
    assert request.first_pass(hosts) == hosts[1:]
    assert request.explain(hosts[0]).endswith("no line of 2 free on one card: at most 1 have these links")


def test_hosts_without_candidates_are_judged_by_the_pool_alone():
    hosts = [Host("a"), Host("b")]
    found = fitting(*box("a", 2, cables=Cables.LINE), *box("b", 3, held={(1, 0)}, cables=Cables.LINE))
    request = Request(wants(Topology.LINE, 2), found, 2)
    assert request.first_pass(hosts) == hosts[:1]
    claim(hosts[0])
    assert request.next_pass(hosts[:1]) == []


def test_after_the_last_line_a_host_has_no_lateness():
    # Three cards in a row have a slot each: there is one line of two, but no second one.
    host = Host("a", pairs("a", 3))
    request = Request(wants(Topology.LINE, 2, runtime_s=10.0), fitting(*box("a", 3, cables=Cables.LINE)), 2)
    request.first_pass([host])
    assert request.latenesses([host])[0] < NOT_HAD
    claim(host)
    request.next_pass([host])
    assert request.latenesses([host]) == [NOT_HAD]


@pytest.mark.parametrize("topology", [Topology.ANY, Topology.LINE])
def test_connections_are_lost_by_what_is_used_up_less_than_by_what_is_cut(topology):
    # A line that uses up a pair of slots loses 2**2 pairs; one at the end of a row of four loses 4**2 - 2**2.
    hosts = [Host(name, [candidate(name, "c0", "c1")]) for name in ("four", "two")]
    found = fitting(*box("four", 4, cables=Cables.LINE), *box("two", 2, cables=Cables.LINE))
    request = Request(wants(topology, 2), found)
    request.first_pass(hosts)
    assert [request.lost_connections(host) for host in hosts] == [12, 4]


def test_hosts_that_are_alike_are_looked_at_once_and_others_by_themselves():
    names = [f"h{number}" for number in range(20)]
    boxes = [slot for name in names for slot in box(name, 4, held={(1, 0)} if name == "h7" else ())]
    found = fitting(*boxes)
    assert {id(found.slot_candidates.of(name)) for name in names if name != "h7"} == {
        id(found.slot_candidates.of("h0"))
    }
    assert len(found.slot_candidates.of("h7")) == 3
    assert found.slot_candidates.of("nowhere") == ()
    hosts = [Host(name, [candidate(name, "c0", "c1")]) for name in names]
    request = Request(wants(Topology.LINE, 2), found)
    assert request.first_pass(hosts) == [host for host in hosts if host.host != "h7"]


def test_nothing_is_said_of_one_slot():
    host = Host("a", [candidate("a", "c0")])
    request = Request(wants(Topology.ANY, 1), fitting(*box("a", 2)))
    request.first_pass([host])
    assert request.lost_connections(host) is None
