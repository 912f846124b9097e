"""Batches of instances that hold their places."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.makespan.greedy.placement import hold


def held(completion_s, instances):
    """Give the first completion of each host, and the further ones when they are asked for."""
    first_s = {host: seconds[0] for host, seconds in completion_s.items() if seconds}
    return hold(first_s, lambda host: completion_s[host][1:], instances)


def test_the_places_that_complete_first_are_taken():
    # a: 10, 12, 30; b: 11, 29.  Four instances: 10, 11, 12, 29.
    taken, makespan_s = held({"a": [10, 12, 30], "b": [11, 29]}, 4)
    assert taken == {"a": 2, "b": 2}
    assert makespan_s == 29


def test_all_places_are_taken_where_there_are_too_few():
    assert held({"a": [1.0], "b": []}, 3) == ({"a": 1}, 1.0)


def test_further_places_are_asked_of_hosts_that_take_an_instance_only():
    asked = []

    def further_s(host):
        asked.append(host)
        return []

    # a and b take one each; c would complete later.
    assert hold({"a": 2.0, "b": 1.0, "c": 3.0}, further_s, 2) == ({"b": 1, "a": 1}, 2.0)
    assert asked == ["b", "a"]


@given(
    completion_s=st.lists(st.lists(st.integers(1, 9), max_size=3).map(sorted), min_size=1, max_size=4),
    instances=st.integers(1, 6),
)
def test_no_other_choice_is_shorter(completion_s, instances):
    places = dict(enumerate(completion_s))
    taken, makespan_s = held(places, instances)
    possible = min(instances, sum(map(len, completion_s)))
    assert sum(taken.values()) == possible
    best = min(
        max((seconds[count - 1] for seconds, count in zip(completion_s, counts, strict=True) if count), default=0)
        for counts in product(*(range(len(seconds) + 1) for seconds in completion_s))
        if sum(counts) == possible
    )
    assert makespan_s == best
