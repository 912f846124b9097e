"""The loss from placing requests in the order of their arrival: the rule of the makespan weigher, without Nova.

    python tests/benchmarks/reserving.py [SEEDS]

Requests of five functions hold 240 places of three boards, as in nova_makespan.py.  Makespans are relative to the
minimum with all requests known.  The following are compared: each request where it completes first; the rule of the
weigher, with run times learned from earlier requests and the mix of the places held; the rule with the run times and
the mix known from the start; and with the number of future requests of each function known.
"""

import sys

import numpy as np
from scipy.optimize import linear_sum_assignment

from fpga_pool.core.makespan.reserving import FILLED, costs, place_prices, unavoidable_s

PLACES, FUNCTIONS = np.array([80, 80, 80]), 5
#: By name: number of requests, maximum slowdown on another board, and range of run times in seconds.
WORKLOADS = {
    "as nova_makespan.py": (200, 2.0, 300, 1200),
    "as many as places": (240, 2.0, 300, 1200),
    "half as many as places": (120, 2.0, 300, 1200),
    "boards that differ more": (200, 4.0, 300, 1200),
    "run times that differ more": (200, 2.0, 10, 3000),
}
RULES = ("first", "learned", "mix known", "requests known")


def drawn(seed, requests, slowest, least_s, most_s):
    """Return completion times in seconds, shape (F, C), and functions, shape (R,)."""
    rng = np.random.default_rng(seed)
    slowdown = rng.uniform(1.0, slowest, (FUNCTIONS, len(PLACES)))
    times_s = 1.0 + rng.integers(least_s, most_s, FUNCTIONS)[:, np.newaxis] * slowdown / slowdown.min(1, keepdims=True)
    return times_s, rng.integers(0, FUNCTIONS, requests)


def least_s(times_s, functions):
    """Return the minimum makespan in seconds: the first time by which places can complete all requests."""
    there = np.repeat(np.arange(len(PLACES)), PLACES)
    for end_s in np.unique(times_s):
        late = (times_s > end_s)[functions][:, there].astype(float)
        if not late[linear_sum_assignment(late)].sum():
            return end_s
    raise ValueError("the places are too few for the requests")


def makespan_s(rule, times_s, functions):
    """Return the completion time of the last request with one of the RULES, in seconds."""
    free, held, seen, last_s = PLACES.astype(float), np.ones(FUNCTIONS), np.zeros(FUNCTIONS, bool), 0.0
    for number, function in enumerate(functions):
        held[function] += 1
        seen[function] = True
        expected_s = times_s
        if rule == "learned":
            fastest_s = times_s.min(axis=1, keepdims=True)
            usual_s = fastest_s[seen].mean()
            expected_s = np.where(seen[:, np.newaxis], times_s, usual_s * times_s / fastest_s)
        mix, filled = np.ones(FUNCTIONS) if rule == "mix known" else held, FILLED
        if rule == "requests known":
            mix = np.bincount(functions[number:], minlength=FUNCTIONS).astype(float)
            filled = mix.sum() / free.sum()
        cost = costs(expected_s, unavoidable_s(expected_s))
        score = times_s[function]
        if rule != "first":  # among equally late places, prefer the one where it completes first
            score = np.round(cost[function] + place_prices(cost, mix, free, filled), 2) + 1e-9 * score
        place = np.where(free > 0, score, np.inf).argmin()
        free[place] -= 1
        last_s = max(last_s, times_s[function, place])
    return last_s


def main(seeds):
    for name, workload in WORKLOADS.items():
        cases = [drawn(seed, *workload) for seed in range(seeds)]
        bounds_s = np.array([least_s(*case) for case in cases])
        for rule in RULES:
            share = np.array([makespan_s(rule, *case) for case in cases]) / bounds_s
            print(
                f"{name:26} {rule:14} median {np.median(share):.3f} mean {share.mean():.3f} worst {share.max():.3f}, "
                f"within 1.05: {100 * np.mean(share <= 1.05):.0f} %",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
