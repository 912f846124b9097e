"""Prices that reserve places for future requests if each request is placed on arrival and keeps its place.

Placing each request where it ends first is not optimal: a long request that arrives late finds the fast places taken by
short requests that would have ended in time anywhere.  Here future requests are expected to have the same mix as past
ones.  They are divided among the places so that the sum of the powers of their completion times is minimal, a smooth
form of the makespan (the p-norm of Aspnes et al., J. ACM 44(3), 1997).  The dual price of a place is its value to
future requests; a request takes the place with the smallest sum of its own cost and the price.
"""

import numpy as np

from fpga_pool.core.types import Floats

#: Exponent of completion times.  Most values from 8 to 16 are equally good in simulations; 4 reserves too little.
_POWER = 8
#: Completion times are capped at this multiple of the longest unavoidable one.
_MOST = 4.0
#: Share of the free places that future requests are expected to take.
FILLED = 0.9
#: Each request is divided among its places by a softmax of its costs.  The temperature falls from round to round: early
#: rounds bring prices to the magnitude of the largest costs, late rounds resolve small differences.
_TEMPERATURES = tuple(np.geomspace(20.0, 0.05, 20).tolist())
#: Minimum demand assumed for a place, so that its logarithm is finite.
_LITTLE = 1e-6


def unavoidable_s(times_s: Floats) -> float:
    """Return the longest time of a request on its fastest place; `times_s` (F, C) is inf if it cannot be placed."""
    fastest_s = times_s.min(axis=1, initial=np.inf)
    return float(fastest_s.max(where=np.isfinite(fastest_s), initial=0.0))


def costs(times_s: Floats, longest_s: float) -> Floats:
    """Return the costs of completion times, in units of `longest_s`; inf stays inf."""
    cost: Floats = np.where(np.isfinite(times_s), np.minimum(times_s / longest_s, _MOST) ** _POWER, np.inf)
    return cost


def place_prices(cost: Floats, mix: Floats, free: Floats, filled: float = FILLED) -> Floats:
    """Return (C,) the prices at which the demand of requests does not exceed the free places.

    `cost` (F, C) is the cost of each kind of request on each class of places (inf = cannot be placed there), `mix` (F,)
    the relative frequencies of the kinds, and `free` (C,) the numbers of free places, of which a share of `filled` is
    in demand.  Places that no request can take have the price 0, and no demand is expected for them.
    """
    prices = np.zeros(len(free))
    there = np.flatnonzero((free > 0) & np.isfinite(cost).any(axis=0))
    placed = np.isfinite(cost[:, there]).any(axis=1)
    if not placed.any():
        return prices
    cost, free = cost[np.ix_(placed, there)], free[there]
    requests = mix[placed] / mix[placed].sum() * free.sum() * filled
    for temperature in _TEMPERATURES:
        likely = (cost + prices[there]) / -temperature
        share = np.exp(likely - likely.max(axis=1, keepdims=True))
        asked = (requests / share.sum(axis=1)) @ share
        prices[there] = np.maximum(0.0, prices[there] + temperature * np.log(np.maximum(asked, _LITTLE) / free))
    return prices
