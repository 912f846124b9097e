"""Jobs to unrelated machines, R||Cmax.

This is compute-bound planning (CIM of the makespan paper, 3.1), and network-bound planning too, where the machines are
responders (model (5) of 3.2).

Prices of the machines from the dual of CIM-LP make each job choose where it costs least; a cap on the load keeps the
balance.  That alone ends within half a percent of the bound, without a linear program, because of small jobs there are
many and they fill what large ones leave.  Ruin and recreate goes on from there.
"""

from dataclasses import dataclass

import numpy as np

from fpga_pool.core.makespan.budget import Budget
from fpga_pool.core.makespan.compiled import Loops
from fpga_pool.core.types import Floats, Ints

#: Caps that are tried, relative to the bound; the best cap is rarely further away where there are many jobs.
_CAPS = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.03, 0.05)
#: Looking at more pairs than this takes so long that caps are tried only while they help.
_MANY_PAIRS = 5_000_000
#: Shares of the way from the bound to the best makespan at which a machine counts as overloaded: where the first leads
#: no further, the search begins again at the best with the next.
_AMBITIONS = (0.9, 0.95, 0.98)
#: Steps of ruin and recreate between two looks at the budget, and steps without success that end the search: this
#: many, and per job.
_STEPS, _PATIENCE, _PATIENCE_PER_JOB = 100, 200, 20
#: Relative noise on prices where whole placements are repeated.
_NOISE = 0.001


@dataclass(slots=True, eq=False)
class Assignment:
    """A machine for each job (J,), and the resulting loads (M,), ready times included."""

    machine: Ints
    load_s: Floats

    @property
    def longest_s(self) -> float:
        """When the last machine is done."""
        return float(self.load_s.max(initial=0.0))


def earliest_completion(seconds: Floats, order: Ints, ready_s: Floats, loops: Loops | None) -> Assignment:
    """Place jobs in `order` (J,), each where it ends first; `seconds` (J, M), `ready_s` (M,)."""
    return _fill(seconds, order, np.ones(len(ready_s)), -1.0, ready_s, loops)


def improve(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    start: Assignment,
    enough_s: float,
    budget: Budget,
    rng: np.random.Generator,
    loops: Loops | None,
) -> Assignment:
    """Search for a shorter assignment until the budget is spent or `enough_s` is reached.

    Parameters
    ----------
    seconds : (J, M)
        inf = cannot run there.
    order : (J,)
        Largest first.
    ready_s : (M,)
        When each machine becomes free.
    prices : (M,)
        Of a second on each machine; those that prove the bound are best.
    start
        What is known already.
    enough_s
        The bound, or a little more.
    budget
        How long to search.
    rng
        Source of all random choices.
    loops
        What the search uses; another search without.

    """
    prices = np.maximum(prices, 1e-6 * prices.max(initial=0.0))
    best = _best_cap(seconds, order, ready_s, prices, start, enough_s, budget, loops)
    if best.longest_s <= enough_s or seconds.shape[1] < 2:
        return best
    if loops is None:
        return _repeat(seconds, order, ready_s, prices, best, enough_s, budget, rng)
    return _ruin_and_recreate(seconds, order, ready_s, prices, best, enough_s, budget, rng, loops)


def _best_cap(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    best: Assignment,
    enough_s: float,
    budget: Budget,
    loops: Loops | None,
) -> Assignment:
    failures = 0
    for excess in _CAPS:
        if not budget.allows() or best.longest_s <= enough_s * (1 + excess):
            break
        found = _fill(seconds, order, prices, enough_s * (1 + excess), ready_s, loops)
        budget.spend(seconds.size)
        if found.longest_s < best.longest_s:
            best, failures = found, 0
        else:
            failures += 1
        if failures > 1 and seconds.size > _MANY_PAIRS:
            break
    return best


def _repeat(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    best: Assignment,
    enough_s: float,
    budget: Budget,
    rng: np.random.Generator,
) -> Assignment:
    """Place all again and again, with noisy prices and a cap below the best: what numpy can do quickly."""
    idle = 0
    while budget.allows() and best.longest_s > enough_s and idle < _PATIENCE:
        cap_s = enough_s + (best.longest_s - enough_s) * rng.uniform(0.7, 1.0)
        noisy = prices * np.exp(_NOISE * rng.standard_normal(len(prices)))
        found = _fill(seconds, order, noisy, cap_s, ready_s, None)
        budget.spend(10 * seconds.size)
        idle += 1
        if found.longest_s < best.longest_s:
            best, idle = found, 0
    return best


def _ruin_and_recreate(
    seconds: Floats,
    order: Ints,
    ready_s: Floats,
    prices: Floats,
    best: Assignment,
    enough_s: float,
    budget: Budget,
    rng: np.random.Generator,
    loops: Loops,
) -> Assignment:
    jobs, machines = seconds.shape
    load_s, machine = best.load_s.copy(), best.machine.copy()
    best_s, best_machine = np.array([best.longest_s]), machine.copy()
    state = rng.integers(1, 2**63, 1, np.uint64)
    ready, fastest_s = np.array(ready_s), seconds.min(axis=1)
    moved = 6 * jobs // machines + 1
    for ambition in _AMBITIONS:
        idle = 0
        machine[:] = best_machine
        load_s[:] = _loads(seconds, machine, ready_s)
        while budget.allows() and idle < _PATIENCE + _PATIENCE_PER_JOB * jobs:
            before_s = best_s[0]
            steps = loops.kernels.ruin_and_recreate(
                seconds, fastest_s, order, prices, ready, enough_s, ambition, _STEPS, state, load_s, machine, best_s,
                best_machine,
            )  # fmt: skip
            budget.spend(_STEPS * (moved * machines + 3 * jobs))
            idle = 0 if best_s[0] < before_s else idle + _STEPS
            if steps < _STEPS:
                return Assignment(best_machine, _loads(seconds, best_machine, ready_s))
    return Assignment(best_machine, _loads(seconds, best_machine, ready_s))


def _loads(seconds: Floats, machine: Ints, ready_s: Floats) -> Floats:
    return ready_s + np.bincount(machine, seconds[np.arange(len(machine)), machine], len(ready_s))


def _fill(
    seconds: Floats, order: Ints, prices: Floats, cap_s: float, ready_s: Floats, loops: Loops | None
) -> Assignment:
    """Place jobs in `order`, each on the cheapest machine it does not fill above `cap_s`, else where it ends first."""
    load_s, machine = np.array(ready_s), np.zeros(len(order), np.int64)
    if loops is not None:
        loops.kernels.fill(seconds, order, prices, cap_s, load_s, machine)
        return Assignment(machine, load_s)
    for job in order.tolist():
        end_s = load_s + seconds[job]
        below = end_s <= cap_s
        chosen = np.argmin(np.where(below, seconds[job] * prices, np.inf) if below.any() else end_s)
        machine[job] = chosen
        load_s[chosen] = end_s[chosen]
    return Assignment(machine, load_s)
