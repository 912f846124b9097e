"""Sets are linked exactly if the independent checker finds them connected; the chosen set is the best of all."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.topology import Links, Topology, choose, connected_runs, fragments, is_linked

TOPOLOGIES = st.sampled_from(Topology)
WISHES = st.sampled_from(Links)


@st.composite
def enclosures(draw):
    size = draw(st.integers(1, 9))
    return size, draw(TOPOLOGIES), draw(st.sets(st.integers(0, size - 1)))


def checked(checker, members, size, topology, wish):
    """Return whether the members are connected for a task, as the checker's main program decides it."""
    name = topology.name.lower()
    if wish == Links.LINE:
        return checker.connected(sorted(members), size, name)
    if wish == Links.RING:
        closed = name == "full" or (name == "ring" and len(members) == size)
        return closed or (len(members) <= 2 and checker.connected(sorted(members), size, name))
    return True


@given(enclosures(), WISHES)
def test_a_set_is_linked_exactly_where_the_checker_finds_so(check_schedule, enclosure, wish):
    size, topology, members = enclosure
    if members:
        assert is_linked(members, size, topology, wish) == checked(check_schedule, members, size, topology, wish)


@given(enclosures())
def test_runs_are_connected_and_not_with_each_other(check_schedule, enclosure):
    size, topology, members = enclosure
    runs = connected_runs(members, size, topology)
    assert sorted(index for run in runs for index in run) == sorted(members)
    name = topology.name.lower()
    assert all(check_schedule.connected(sorted(run), size, name) for run in runs)
    for one, other in combinations(runs, 2):
        assert not check_schedule.connected(sorted(one + other), size, name)


@given(enclosures(), WISHES, st.integers(1, 9))
def test_the_choice_leaves_the_best_fragments_of_all(check_schedule, enclosure, wish, count):
    size, topology, free = enclosure
    possible = [
        members
        for members in combinations(sorted(free), count)
        if checked(check_schedule, members, size, topology, wish)
    ]
    chosen = choose(free, size, topology, wish, count)
    if not possible:
        assert chosen is None
        return
    assert tuple(sorted(chosen)) in possible
    best = max(fragments(free.difference(members), size, topology) for members in possible)
    assert fragments(free.difference(chosen), size, topology) == best


@given(enclosures(), WISHES, st.integers(1, 9), st.data())
def test_the_choice_is_one_of_the_cheapest(check_schedule, enclosure, wish, count, data):
    size, topology, free = enclosure
    cost = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    sums = [
        sum(cost[index] for index in members)
        for members in combinations(sorted(free), count)
        if checked(check_schedule, members, size, topology, wish)
    ]
    chosen = choose(free, size, topology, wish, count, cost)
    assert (chosen is None) == (not sums)
    if chosen is not None:
        assert sum(cost[index] for index in chosen) == min(sums)
        assert len(set(chosen)) == count


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_members_of_a_line_come_in_the_order_of_their_path(size, count, data):
    free = data.draw(st.sets(st.integers(0, size - 1)))
    path = choose(free, size, Topology.RING, Links.LINE, count)
    for one, other in zip(path or (), (path or ())[1:], strict=False):
        assert (other - one) % size == 1


def test_a_short_run_is_used_up_before_a_long_one_is_cut():
    # On a ring of 8, 7 joins the free 0 and 1 with 3 to 6 into one run; without 7 the runs are 2 and 4 long.
    assert connected_runs({0, 1, 3, 4, 5, 6, 7}, 8, Topology.RING) == [(3, 4, 5, 6, 7, 0, 1)]
    assert choose({0, 1, 3, 4, 5, 6}, 8, Topology.RING, Links.LINE, 2) == (0, 1)
    assert choose({0, 1, 3, 4, 5, 6}, 8, Topology.RING, Links.ANY, 3) == (0, 1, 3)


def test_a_cut_is_at_the_end():
    # 3 and 4, from the middle of 2..6, would leave 1 + 2; taken from the end, the other 3 stay together.
    assert choose({2, 3, 4, 5, 6}, 8, Topology.LINE, Links.LINE, 2) == (2, 3)


def test_a_ring_of_more_than_two_is_all_of_a_ring():
    assert choose(range(4), 4, Topology.RING, Links.RING, 4) == (0, 1, 2, 3)
    assert choose(range(4), 4, Topology.RING, Links.RING, 3) is None
    assert choose(range(4), 4, Topology.LINE, Links.RING, 4) is None
    assert choose(range(4), 4, Topology.FULL, Links.RING, 3) == (0, 1, 2)
    assert choose({0, 3}, 4, Topology.RING, Links.RING, 2) == (3, 0)


@pytest.mark.parametrize("free", [{-1}, {4}])
def test_members_are_of_the_enclosure(free):
    with pytest.raises(ValueError, match="expected indices of 0 to 3"):
        choose(free, 4, Topology.LINE, Links.LINE, 1)


def test_nothing_is_not_a_choice():
    with pytest.raises(ValueError, match="count: expected 1 or more"):
        choose({0}, 4, Topology.LINE, Links.LINE, 0)
