"""Prices that keep places for requests to come, where each request is placed when it arrives and holds its place.

To give each request the place where it ends first is not optimal: a long request that comes late finds its fast places
taken by short ones that would have ended in time anywhere.  Here the requests to come are expected in the mix of those
before them, and divided among the places so that the sum of the powers of their completion times is least, a smooth
form of the makespan (the p-norm of Aspnes et al., J. ACM 44(3), 1997).  The dual prices of the places are what
a place is worth to the requests to come; a request takes the place where its own cost and the price are least together.
"""

import numpy as np

from fpga_pool.core.types import Floats

#: Exponent of completion times.  8, 16 and most between are as good in simulations; 4 keeps too little.
_POWER = 8
#: Completion times count at most as this multiple of the longest that is unavoidable.
_MOST = 4.0
#: Share of the free places that requests to come are expected to take.
FILLED = 0.9
#: Each request is divided among its places by softmax of its costs.  The temperature falls from round to round, so that
#: prices reach the size of the largest costs first, and that of small differences last.
_TEMPERATURES = tuple(np.geomspace(20.0, 0.05, 20).tolist())
#: What is so small that it is nothing.
_LITTLE = 1e-6


def unavoidable_s(times_s: Floats) -> float:
    """Return the longest time of any request on its fastest place; (F, C), inf where one cannot be placed."""
    fastest_s = times_s.min(axis=1, initial=np.inf)
    return float(fastest_s.max(where=np.isfinite(fastest_s), initial=0.0))


def costs(times_s: Floats, longest_s: float) -> Floats:
    """Return the costs of completion times, in units of `longest_s`; inf stays inf."""
    cost: Floats = np.where(np.isfinite(times_s), np.minimum(times_s / longest_s, _MOST) ** _POWER, np.inf)
    return cost


def place_prices(cost: Floats, mix: Floats, free: Floats, filled: float = FILLED) -> Floats:
    """Return (C,) the prices at which requests ask for no more than the free places.

    `cost` (F, C) is that of each kind of request on each class of places (inf = it cannot be placed there), `mix` (F,)
    the relative frequencies of the kinds, and `free` (C,) the numbers of free places, of which a share of `filled` is
    asked for.  Places that nothing can take are worth nothing, and no requests are expected for them.
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
