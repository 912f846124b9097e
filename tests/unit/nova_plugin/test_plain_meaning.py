"""The answers of a request for all hosts at once, compared with a plain computation by slot and by candidate."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nova_hosts import FREE, POOL, Host, candidate, claim, fitting

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.flavor import RESOURCE_CLASS, AcceleratorRequest, provider_uuid
from fpga_pool.nova_plugin.request import Request

CATALOGUE = load_catalogue(installed_catalogue())
STAY_S = 3600.0
LITTLE = 1e-6
CARDS = ("c0", "c1")

#: The cost of giving a slot away by state, loaded function and lease, without the cost of evicted jobs; None if the
#: slot is not available.
COSTS = {
    ("READY", "sha256", FREE): 0.0,
    ("EMPTY", "", FREE): 1.0,
    ("READY", "aes", FREE): 2.0,
    ("READY", "aes", POOL): 3.0,
    ("BUSY", "aes", POOL): 1000.0,
    ("FAULTED", "", FREE): None,
    ("READY", "sha256", ("instance", "i-1", False)): None,
}


def slots_of_card(kinds):
    """Return (cost, gain) of the available slots of a card, cheapest first."""
    board = CATALOGUE.boards["demo"]
    function, other = CATALOGUE.function("sha256"), CATALOGUE.function("aes")
    found = []
    for state, loaded, lease in kinds:
        cost = COSTS[state, loaded, lease]
        if cost is None:
            continue
        evicted = other.speedup_on("demo") if state == "BUSY" else 0.0
        load_s = 0.0 if loaded == "sha256" else board.load_s("small")
        found.append((cost + evicted, function.speedup_on("demo") * (1 - load_s / (load_s + STAY_S)) - evicted))
    return sorted(found)


def meaning(pool, host, given_there, count, instances):
    """Return cost, including what decides between equal ones, and gain by card that has enough slots."""
    found = {}
    for card in CARDS:
        slots = slots_of_card(pool[host, card])[given_there.get((host, card), 0) :]
        if len(slots) >= count:
            left = len(slots) * LITTLE * (1 if instances == 1 else -1)
            found[card] = sum(cost for cost, _ in slots[:count]) + left, sum(gain for _, gain in slots[:count])
    return found


def cards_of(host):
    """Return the cards of the candidates of a host, in the order of the candidates."""
    cards = {provider_uuid(host.host, card, "small"): card for card in CARDS}
    given = [candidate["allocations"].items() for candidate in host.allocation_candidates]
    return [cards[uuid] for some in given for uuid, what in some if RESOURCE_CLASS in what["resources"]]


@given(
    kinds=st.lists(st.lists(st.sampled_from(list(COSTS)), min_size=1, max_size=4), min_size=2, max_size=8),
    count=st.integers(1, 2),
    claimed=st.lists(st.integers(0, 3), max_size=4),
)
def test_candidates_are_in_order_and_benefits_right_after_every_claim(kinds, count, claimed):
    names = [f"h{number}" for number in range(len(kinds) // 2)]
    pool = {
        (host, card): kinds[2 * row + column] for row, host in enumerate(names) for column, card in enumerate(CARDS)
    }
    slots = [(host, card, *slot) for (host, card), there in pool.items() for slot in there]
    instances = len(claimed) + 1
    request = Request(AcceleratorRequest(function="sha256", count=count), fitting(*slots), instances)
    hosts = [Host(name, [candidate(name, card, count=count) for card in CARDS]) for name in names]
    passing, given_there = request.first_pass(hosts), {}
    for choice in [*claimed, None]:
        right = {name: meaning(pool, name, given_there, count, instances) for name in names}
        assert {host.host for host in passing} == {name for name, cards in right.items() if cards}
        for host in passing:
            assert sorted(cards_of(host)) == sorted(right[host.host])
            prices = [right[host.host][card][0] for card in cards_of(host)]
            assert prices == pytest.approx(sorted(prices), abs=LITTLE / 10)
        gains = [right[host.host][cards_of(host)[0]][1] for host in passing]
        assert request.benefits(passing) == pytest.approx(gains)
        if choice is None or not passing:
            return
        # The chosen host comes first, as Nova sorts hosts, so that no claim before it was refused.
        chosen = passing[choice % len(passing)]
        place = chosen.host, cards_of(chosen)[0]
        given_there[place] = given_there.get(place, 0) + count
        claim(chosen)
        passing = request.next_pass([chosen, *(host for host in passing if host is not chosen)])


def test_hosts_that_are_alike_gain_the_same_to_the_last_bit():
    # Nova stretches the smallest difference between weights to the whole range.
    names = [f"h{number:02d}" for number in range(50)]
    slots = [(name, "c0", state, "", FREE) for name in names for state in ("EMPTY", "EMPTY", "EMPTY")]
    request = Request(AcceleratorRequest(function="sha256", count=3), fitting(*slots))
    hosts = [Host(name, [candidate(name, "c0", count=3)]) for name in names]
    passing = request.first_pass(hosts)
    assert len(set(request.benefits(passing))) == 1
    assert len(set(request.latenesses(passing))) == 1
