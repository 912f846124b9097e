"""Prices of places, and the makespan of requests that take the cheapest place in the order of their arrival."""

import numpy as np
import pytest

from fpga_pool.core.makespan.reserving import costs, place_prices, unavoidable_s

#: Two kinds of requests on two classes of places: both are faster on the first, which the long one needs.
SHORT, LONG = (100.0, 200.0), (1000.0, 2000.0)


def priced(times_s, mix, free):
    times_s = np.array(times_s)
    cost = costs(times_s, unavoidable_s(times_s))
    return cost + place_prices(cost, np.array(mix, dtype=float), np.array(free, dtype=float))


def test_a_short_request_leaves_the_fast_places_that_long_ones_need():
    short, long = priced([SHORT, LONG], [1, 1], [10, 10])
    assert short.argmin() == 1
    assert long.argmin() == 0


def test_it_takes_the_fast_place_where_there_are_enough_of_them():
    # Of 20 places, 18 are expected to be taken, 9 by each kind, so the fast ones suffice for both.
    assert [row.argmin() for row in priced([SHORT, LONG], [1, 1], [19, 1])] == [0, 0]
    # Long requests are rare.
    assert [row.argmin() for row in priced([SHORT, LONG], [99, 1], [10, 10])] != [0, 1]


def test_places_that_nobody_can_take_have_no_price_and_requests_without_a_place_do_not_count():
    cost = np.array([[1.0, np.inf, 1.0], [np.inf, np.inf, np.inf]])
    prices = place_prices(cost, np.array([1.0, 50.0]), np.array([5.0, 5.0, 0.0]))
    # 4.5 requests for 5 places.
    assert prices.tolist() == [0.0, 0.0, 0.0]
    assert place_prices(cost[1:], np.array([1.0]), np.array([5.0, 5.0, 0.0])).tolist() == [0.0, 0.0, 0.0]
    assert place_prices(cost, np.array([1.0, 1.0]), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_a_place_where_a_request_cannot_be_is_infinitely_expensive_and_does_not_lengthen_what_is_unavoidable():
    times_s = np.array([[10.0, np.inf], [np.inf, np.inf], [20.0, 5.0]])
    assert unavoidable_s(times_s) == 10.0
    assert np.isinf(costs(times_s, 10.0)).tolist() == [[False, True], [True, True], [False, False]]


@pytest.mark.parametrize("seed", range(5))
def test_requests_in_any_order_complete_near_the_least_makespan(seed):
    """36 long requests need fast places; if each took the place where it ends first, short ones would get half."""
    rng = np.random.default_rng(seed)
    times_s, free, seen = np.array([SHORT, LONG]), np.array([40.0, 40.0]), np.ones(2)
    last_s = 0.0
    for kind in rng.permutation([0] * 36 + [1] * 36):
        seen[kind] += 1
        cost = costs(times_s, unavoidable_s(times_s))
        score = np.where(free > 0, cost[kind] + place_prices(cost, seen, free), np.inf)
        place = int(score.argmin())
        free[place] -= 1
        last_s = max(last_s, times_s[kind, place])
    assert last_s == 1000.0
