"""The slots that an instance could get, their cost to the pool, and why a host can or cannot take the instance."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.cluster.slowdown import MOST_COST
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import UnknownFunction
from fpga_pool.model.extra_specs import Spread, consistent_extra_specs
from fpga_pool.model.flavor import AcceleratorRequest, provider_uuid
from fpga_pool.model.rules.instance.explaining import explain_host, host_terms, larger_than_hosts
from fpga_pool.model.rules.instance.fitting import EMPTY, EVICTION, LOADED, NOT_HAD, OTHER, PLANNED, Fitting
from fpga_pool.model.rules.instance.observations import NeighbourCost, Observations
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers

FREE, POOL, INSTANCE = ("", "", False), ("pool", "default", True), ("instance", "i-1", False)

#: On the slow board everything takes twice as long.  A load takes 1 s (1e6 bytes at 8e6 bit/s).
CATALOGUE = Catalogue.from_mapping(
    {
        "format_version": 1,
        "functions": {
            name: {
                "version": "1",
                "slot_kinds": kinds,
                "io_bps": 1e9,
                "preemptible": preemptible,
                "cpu_time": {"a_s": 0.0, "b_s_per_byte": cpu},
                "fpga_time": {
                    "fast": {"a_s": 0.0, "b_s_per_byte": 1e-9},
                    "slow": {"a_s": 0.0, "b_s_per_byte": 2e-9},
                },
                "source": "this test",
            }
            for name, kinds, preemptible, cpu in (
                ("f", ["small"], False, 8e-9),
                ("g", ["small"], True, 4e-9),
                ("h", ["small"], False, 2e-9),
            )
        },
        "boards": {
            name: {
                "slots": ["small", "large"],
                "regions": {kind: {"luts": 100, "bitstream_bytes": 1_000_000} for kind in ("small", "large")},
                "configuration_bps": 8e6,
                "dma_bps": 1e10,
                "source": "this test",
            }
            for name in ("fast", "slow")
        },
    },
    "catalogue of the test",
)


def pool(*slots, alive=True):
    """Return columns of slots (place, state, function, lease); a place is host/card/region, slow cards start "slow"."""
    rows, hosts = [], {}
    for place, state, function, lease in slots:
        host, card, region = place.split("/")
        board = "slow" if card.startswith("slow") else "fast"
        kind = "large" if region.startswith("large") else "small"
        hosts[host] = (host, "default", "zone", alive, 1)
        rows.append((host, "default", f"{card}/{region}", card, board, kind, "", state, function, *lease, False, 1))
    return PoolColumns.of({"default": 1}, list(hosts.values()), rows, (len(hosts), len(rows)))


def fitting(*slots, function="f", stay_s=99.0, **how):
    return Fitting(Providers.of(pool(*slots, **how)), CATALOGUE, function, stay_s)


def row(found, host, card, kind="small"):
    return found.providers.rows[provider_uuid(host, card, kind)]


def cost(found, provider, given, count):
    return found.between(found.costs, provider, given, count)


def test_the_slots_of_a_provider_are_those_of_one_kind_on_one_card():
    found = fitting(
        ("a/c0/r0", "EMPTY", "", FREE), ("a/c0/r1", "EMPTY", "", FREE), ("a/c0/large0", "EMPTY", "", FREE),
        ("a/c1/r0", "EMPTY", "", FREE), ("b/c0/r0", "EMPTY", "", FREE),
    )  # fmt: skip
    assert found.free[row(found, "a", "c0")] == 2
    assert found.free[row(found, "a", "c0", "large")] == 0  # f needs small slots
    assert sorted(found.free[number] for number in found.providers.of_host["a"]) == [0, 1, 2]
    assert len(found.providers.of_host["b"]) == 1


def test_slots_are_given_from_the_cheapest_on():
    found = fitting(
        ("a/c0/r0", "READY", "g", FREE), ("a/c0/r1", "READY", "f", FREE), ("a/c0/r2", "BUSY", "g", POOL),
        ("a/c0/r3", "EMPTY", "", FREE), ("a/c0/r4", "READY", "f", POOL),
    )  # fmt: skip
    provider = row(found, "a", "c0")
    # The running g saves 4 vCPUs, which its eviction costs.
    expected = [LOADED, EMPTY, OTHER, PLANNED, EVICTION + 4]
    assert [cost(found, provider, given, 1) for given in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("state", "function", "lease", "alive"),
    [
        ("FAULTED", "", FREE, True),
        ("DRAINED", "", FREE, True),
        ("EMPTY", "", FREE, False),
        ("READY", "f", INSTANCE, True),
        ("BUSY", "h", POOL, True),  # h cannot be preempted
    ],
)
def test_what_cannot_be_had_is_not_counted(state, function, lease, alive):
    found = fitting(("a/c0/r0", state, function, lease), alive=alive)
    assert found.free[row(found, "a", "c0")] == 0
    assert found.firsts(found.costs, 1).tolist() == [NOT_HAD]


def test_benefit_is_speedup_less_what_is_evicted_less_the_share_of_loading():
    found = fitting(("a/c0/r0", "READY", "f", FREE), ("a/c1/r0", "BUSY", "g", POOL), ("a/slow0/r0", "EMPTY", "", FREE))
    gain = {card: found.between(found.gains, row(found, "a", card), 0, 1) for card in ("c0", "c1", "slow0")}
    # f saves 8 vCPUs on the fast board, 4 on the slow one.  A load takes 1 s of 100 s.  Evicting g costs its 4 vCPUs.
    assert gain == pytest.approx({"c0": 8.0, "c1": 8 * 0.99 - 4, "slow0": 4 * 0.99})
    assert found.slowdown[row(found, "a", "slow0")] == 2


#: CATALOGUE with learned costs: f takes 1.5 times as long beside g, and 3 times as long beside h.
LEARNED = Observations(
    neighbour_costs=(
        NeighbourCost(function="f", beside="g", cost=0.5),
        NeighbourCost(function="f", beside="h", cost=2.0),
        NeighbourCost(function="unknown", beside="g", cost=1.0),
    )
).applied_to(CATALOGUE)


def test_a_function_takes_longer_beside_what_holds_slots_of_the_card_once_that_is_learned():
    slots = [
        ("a/c0/r0", "EMPTY", "", FREE), ("a/c0/r1", "BUSY", "g", POOL), ("a/c0/large0", "READY", "g", INSTANCE),
        # A slot that is loaded but not held, an empty one, and one on another card are no neighbours.
        ("b/c0/r0", "READY", "f", FREE), ("b/c0/r1", "READY", "g", FREE), ("b/c1/r0", "BUSY", "g", POOL),
        ("c/c0/r0", "EMPTY", "", FREE), ("c/c0/r1", "BUSY", "h", POOL), ("c/c0/r2", "BUSY", "h", POOL),
    ]  # fmt: skip
    before = fitting(*slots)
    found = Fitting(Providers.of(pool(*slots)), LEARNED, "f", 99.0)
    for number, beside in ((row(found, "a", "c0"), 1.5 * 1.5), (row(found, "b", "c0"), 1.0)):
        assert found.slowdown[number] == pytest.approx(max(before.slowdown[number], beside))
    # Two neighbours h would make it 9 times as long; learned costs count up to a factor of 4.
    assert found.slowdown[row(found, "c", "c0")] == pytest.approx(1 + MOST_COST)
    assert found.completions_s(1)[row(found, "b", "c0")] == 99.0
    assert found.completions_s(1)[row(found, "a", "c0")] == pytest.approx(99.0 * 2.25 + 1.0)  # a load takes 1 s
    # For g nothing was learned.
    assert (
        Fitting(Providers.of(pool(*slots)), LEARNED, "g", 99.0).slowdown == fitting(*slots, function="g").slowdown
    ).all()


def test_the_best_of_each_provider_is_told_where_there_is_enough():
    found = fitting(("a/c0/r0", "READY", "f", FREE), ("a/c0/r1", "EMPTY", "", FREE), ("b/c0/r0", "EMPTY", "", FREE))
    rows = [row(found, host, "c0") for host in ("a", "b")]
    assert found.firsts(found.costs, 2)[rows].tolist() == [LOADED + EMPTY, NOT_HAD]
    assert found.firsts(found.costs, 1)[rows].tolist() == [LOADED, EMPTY]
    assert found.firsts(found.costs, 1, np.array([0, 1]))[rows].tolist() == [NOT_HAD, EMPTY]


def test_input_comes_after_what_the_pool_has_planned_to_send_to_the_host():
    slots = [(f"{host}/c/small{n}", "EMPTY", "", FREE) for host in "abc" for n in (1, 2)]
    # f reads 1 Gbit/s: half of a's ingress, twice b's.
    ingress = {"a": (100e9, 2e9), "b": (5e9, 0.5e9), "gone": (1e9, 1e9)}
    found = Fitting(Providers.of(replace(pool(*slots), ingress=ingress)), CATALOGUE, "f", 99.0)
    a, b, c = (row(found, host, "c") for host in "abc")
    # a: 50 s planned, then half of 99 s (all of it for two slots).  b: 10 s, then at most 99 s.  c: nothing planned.
    assert found.runs_s(1)[[a, b, c]].tolist() == [99.5, 109.0, 99.0]
    assert found.runs_s(2)[[a, b, c]].tolist() == [149.0, 109.0, 99.0]
    assert (found.completions_s(1) - found.runs_s(1)).tolist() == found.firsts(found.loads_s, 1).tolist()
    assert [host_terms(found, host, 1).ingress_s for host in "abc"] == [50.0, 10.0, 0.0]
    assert host_terms(found, "a", 1).lateness > host_terms(found, "c", 1).lateness


def test_a_short_instance_leaves_fast_slots_to_the_long_ones_that_are_expected():
    """Eight slots are held for g, whose instances run for an hour; those of f run for a minute."""
    held = [(f"z/c{card}/r{number}", "READY", "g", INSTANCE) for card in (0, 1) for number in range(4)]
    free = [(f"a/{card}/r{number}", "EMPTY", "", FREE) for card in ("c0", "slow0") for number in range(4)]
    best = {}
    for function, stay_s, others in (("f", 60.0, {"g": 3600.0}), ("g", 3600.0, {"f": 60.0})):
        found = Fitting(Providers.of(pool(*held, *free)), CATALOGUE, function, stay_s, others)
        late = found.latenesses(1)
        best[function] = min(("c0", "slow0"), key=lambda card, late=late, found=found: late[row(found, "a", card)])
    assert best == {"f": "slow0", "g": "c0"}


def test_functions_whose_run_time_is_not_known_reserve_nothing_against_the_one_that_is():
    found = fitting(("a/c0/r0", "EMPTY", "", FREE), ("a/slow0/r0", "EMPTY", "", FREE))
    late = found.latenesses(1)
    assert late[row(found, "a", "c0")] < late[row(found, "a", "slow0")]
    assert found.latenesses(2).tolist() == [NOT_HAD, NOT_HAD]


def test_a_function_that_is_not_in_the_catalogue_is_named():
    with pytest.raises(UnknownFunction, match="nothing"):
        fitting(("a/c0/r0", "EMPTY", "", FREE), function="nothing")


def test_a_pool_without_slots_has_no_providers():
    found = fitting()
    assert not len(found.firsts(found.costs, 1))
    assert explain_host(found, "a", 1) == (False, "the pool has no slots on this host")


def test_providers_of_the_same_slots_are_not_worked_out_again():
    first = Providers.of(pool(("a/c0/r0", "EMPTY", "", FREE)))
    again = Providers.of(pool(("a/c0/r0", "EMPTY", "", FREE)), first)
    assert again.uuids is first.uuids
    other = Providers.of(pool(("a/c0/r0", "EMPTY", "", FREE), ("a/c1/r0", "EMPTY", "", FREE)), first)
    assert len(other.uuids) == 2


def test_it_is_explained_why_a_host_passes():
    found = fitting(
        ("a/c0/r0", "READY", "f", FREE), ("a/c0/r1", "BUSY", "g", POOL), ("a/c0/r2", "READY", "f", INSTANCE)
    )
    passes, why = explain_host(found, "a", 2)
    assert passes
    assert why == (
        "2 of 3 matching slots available; 1 with f loaded; 1 running a job of the pool that would be evicted; "
        "1 held by an instance"
    )


def test_it_is_explained_why_a_host_does_not_pass():
    found = fitting(("a/c0/r0", "EMPTY", "", FREE), ("a/c1/r0", "EMPTY", "", FREE), ("b/c0/large0", "EMPTY", "", FREE))
    assert explain_host(found, "b", 1) == (False, "none of its 1 slots can hold f")
    passes, why = explain_host(found, "a", 2)
    assert not passes
    assert why.endswith("2 empty; 2 requested on one card, at most 1 available")


def test_a_flavor_larger_than_every_host_is_named_whatever_holds_the_slots():
    known = pool(
        ("a/c0/r0", "READY", "f", INSTANCE), ("a/c0/r1", "EMPTY", "", FREE), ("a/c1/r0", "FAULTED", "", FREE),
        ("b/c0/r0", "EMPTY", "", FREE),
    )  # fmt: skip

    def found(count, spread=Spread.CARD, known=known):
        specs = consistent_extra_specs(AcceleratorRequest(function="f", count=count), spread)
        return larger_than_hosts(known, CATALOGUE, specs)

    assert found(2) is None
    assert found(3) == "fpga_pool:count: no host has 3 slots for f, at most 2"
    assert found(3, Spread.HOST) is None
    assert found(4, Spread.HOST) == "fpga_pool:count: no host has 4 slots for f, at most 3"
    # More cards of this host may be reported later.
    assert found(4, known=pool(("a/c0/large0", "EMPTY", "", FREE))) is None
