"""The inner loops of the planners, compiled by numba; see `compiled`.

Signatures are explicit, so all functions are compiled when the module is imported (once per machine: the results are
cached) and none during planning.  Random numbers come from a one-word xorshift state that the caller owns, so the same
state gives the same result.
"""

import numpy as np

from fpga_pool.core.numba import compiled

_SAME = 1e-12


@compiled("uint64(uint64[::1])")
def _random(state):  # type: ignore[no-untyped-def]
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@compiled("float64(uint64[::1])")
def _uniform(state):  # type: ignore[no-untyped-def]
    return (_random(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled("int64(uint64[::1], int64)")
def _below(state, limit):  # type: ignore[no-untyped-def]
    return np.int64(_random(state) % np.uint64(limit))


#: No value is NaN, so a minimum can be computed without branches.
_NO_NAN = {"nnan", "nsz"}


@compiled("float64(Array(float64, 1, 'C', readonly=True), float64[::1])", fastmath=_NO_NAN)
def _least_cost(seconds, prices):  # type: ignore[no-untyped-def]
    least = np.inf
    for j in range(seconds.shape[0]):
        least = min(least, seconds[j] * prices[j])
    return least


@compiled("void(Array(float64, 2, 'C', readonly=True), float64[::1], int64[::1], float64[::1])")
def cheapest(seconds, prices, column, seconds_there):  # type: ignore[no-untyped-def]
    """Write for each row of `seconds` (n, a) the first column with the smallest seconds * price, and its seconds.

    A second pass to find the column is faster than tracking it in the first pass.
    """
    for row in range(seconds.shape[0]):
        line, best = seconds[row], 0
        least = _least_cost(line, prices)
        for j in range(line.shape[0]):
            if line[j] * prices[j] <= least:
                best = j
                break
        column[row] = best
        seconds_there[row] = line[best]


@compiled("UniTuple(float64, 2)(Array(float64, 2, 'C', readonly=True), float64[::1], float64[::1], float64)")
def priced_work(seconds, prices, ready_s, at_most_s):  # type: ignore[no-untyped-def]
    """Return sum_i min_j y_j e_ij over the machines where a job ends by `at_most_s`, and over all of them."""
    usable_s, any_s = 0.0, 0.0
    for row in range(seconds.shape[0]):
        least, least_usable = np.inf, np.inf
        for j in range(seconds.shape[1]):
            if seconds[row, j] == np.inf:
                continue
            cost = seconds[row, j] * prices[j]
            if cost < least:
                least = cost
            if cost < least_usable and seconds[row, j] + ready_s[j] <= at_most_s:
                least_usable = cost
        usable_s += least_usable
        any_s += least
    return usable_s, any_s


@compiled(
    "void(Array(float64, 2, 'C', readonly=True), int64[::1], float64[::1], float64, float64[::1], int64[::1])",
)
def fill(seconds, order, prices, cap_s, load_s, machine):  # type: ignore[no-untyped-def]
    """Place jobs in `order`, each on the cheapest machine it does not fill above `cap_s`, else where it ends first.

    If no job fits below `cap_s`, this is the earliest-completion rule.  `load_s` (M,) contains the ready times and is
    updated to the loads; `machine` (J,) is written.
    """
    for i in order:
        best, least, first, first_s = -1, np.inf, 0, np.inf
        for j in range(seconds.shape[1]):
            end_s = load_s[j] + seconds[i, j]
            if end_s <= cap_s:
                cost = seconds[i, j] * prices[j]
                if cost < least:
                    least = cost
                    best = j
            elif end_s < first_s:
                first_s = end_s
                first = j
        if best < 0:
            best = first
        machine[i] = best
        load_s[best] += seconds[i, best]


@compiled(
    "int64(Array(float64, 2, 'C', readonly=True), float64[::1], int64[::1], float64[::1], float64[::1], float64,"
    " float64, int64, uint64[::1], float64[::1], int64[::1], float64[::1], int64[::1])",
)
def ruin_and_recreate(  # type: ignore[no-untyped-def]
    seconds, fastest_s, order, prices, ready_s, bound_s, ambition, steps, state, load_s, machine, best_s, best_machine
):
    """Empty an overloaded machine and a few others, and place their jobs again as `fill` does, with noisy prices.

    A machine is overloaded if its load is above the target, which is `ambition` of the way from the bound to the best
    makespan.  A step that does not increase the overload is kept.  Returns the number of steps, fewer if the bound is
    reached.  `fastest_s` (J,) is each job's time on its fastest machine: a job for which even that is too long for the
    machines not emptied is tried on the emptied ones only.
    """
    machines = seconds.shape[1]
    new_load_s, new_machine = load_s.copy(), machine.copy()
    emptied, among, everywhere = np.zeros(machines, np.bool_), np.empty(machines, np.int64), np.arange(machines)
    target_s = bound_s + (best_s[0] - bound_s) * ambition
    over_s = np.maximum(load_s - target_s, 0.0).sum()
    for step in range(steps):
        if best_s[0] <= bound_s * (1 + _SAME):
            return step
        emptied[:] = False
        worst, seen = 0, 0
        for j in range(machines):
            if load_s[j] > target_s:
                seen += 1
                if _below(state, seen) == 0:
                    worst = j
        emptied[worst] = True
        for _ in range(2 + _below(state, 7)):
            emptied[_below(state, machines)] = True
        new_load_s[:] = load_s
        now_over_s = over_s
        room_s, count = 0.0, 0
        for j in range(machines):
            if emptied[j]:
                now_over_s -= max(0.0, load_s[j] - target_s)
                new_load_s[j] = ready_s[j]
                now_over_s += max(0.0, ready_s[j] - target_s)
                among[count] = j
                count += 1
            else:
                room_s = max(room_s, target_s - load_s[j])
        kept = True
        for i in order:
            new_machine[i] = machine[i]
            if not emptied[machine[i]]:
                continue
            best, least = -1, np.inf
            for j in among[:count] if fastest_s[i] > room_s * (1 + _SAME) else everywhere:
                if new_load_s[j] + seconds[i, j] <= target_s:
                    cost = seconds[i, j] * prices[j] * (1.0 + 0.01 * _uniform(state))
                    if cost < least:
                        least = cost
                        best = j
            if best < 0:
                first_s = np.inf
                for j in range(machines):
                    if new_load_s[j] + seconds[i, j] < first_s:
                        first_s = new_load_s[j] + seconds[i, j]
                        best = j
                now_over_s += first_s - max(target_s, new_load_s[best])
                if now_over_s > over_s:
                    kept = False
                    break
            new_machine[i] = best
            new_load_s[best] += seconds[i, best]
        if kept:
            load_s[:] = new_load_s
            machine[:] = new_machine
            over_s = now_over_s
            longest_s = load_s.max()
            if longest_s < best_s[0]:
                best_s[0] = longest_s
                best_machine[:] = machine
            if over_s <= _SAME * target_s:
                target_s = bound_s + (best_s[0] - bound_s) * ambition
                over_s = np.maximum(load_s - target_s, 0.0).sum()
    return steps


@compiled(
    "void(int64[::1], int64[::1], float64[::1], int64[::1], float64[::1], int64[::1], float64[::1], float64[::1],"
    " float64[::1])",
)
def execute(end, port, now_s, holds, load_s, function, arrived_s, seconds, start_s):  # type: ignore[no-untyped-def]
    """Compute the start times of `execution.execute`: slots (n,), grouped by port, each with its jobs in queue order.

    The jobs of slot s end before index `end[s]`.  `now_s` and `holds` (n,) initially contain the time when each slot is
    free and its loaded function, and are modified.  `start_s` of each job is written.
    """
    started = np.zeros(len(seconds), np.bool_)
    first = np.zeros(len(end), np.int64)
    first[1:] = end[:-1]
    begin = 0
    while begin < len(end):
        stop, port_free_s = begin + 1, -np.inf
        while stop < len(end) and port[stop] == port[begin]:
            stop += 1
        while True:
            slot, soonest_s = -1, np.inf
            for s in range(begin, stop):
                if first[s] < end[s] and now_s[s] < soonest_s:
                    slot, soonest_s = s, now_s[s]
            if slot < 0:
                break
            chosen, next_s = -1, np.inf
            for x in range(first[slot], end[slot]):
                if started[x]:
                    continue
                if arrived_s[x] <= now_s[slot]:
                    chosen = x
                    break
                next_s = min(next_s, arrived_s[x])
            wanted = function[chosen if chosen >= 0 else first[slot]]
            if wanted != holds[slot]:
                port_free_s = max(now_s[slot], port_free_s) + load_s[slot]
                now_s[slot] = port_free_s
                holds[slot] = wanted
            elif chosen < 0:
                now_s[slot] = next_s
            else:
                started[chosen] = True
                start_s[chosen] = now_s[slot]
                # A plan expresses order by start times only, so no two jobs of a slot may have the same.
                now_s[slot] = max(now_s[slot] + seconds[chosen], np.nextafter(now_s[slot], np.inf))
                while first[slot] < end[slot] and started[first[slot]]:
                    first[slot] += 1
        begin = stop
