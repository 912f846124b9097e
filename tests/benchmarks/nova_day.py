"""A day of 10,000 servers on 5,008 slots, simulated with the rules that the filter and the weighers use.

    python tests/benchmarks/nova_day.py [SERVERS]

313 hosts have four cards of four slots each, of three boards with different speeds for each function; the functions are
those of nova_makespan.py.  Servers arrive at random over 24 hours and hold one slot for the run time of their function
on its board, so that about four fifths of the slots are held after half a day.  For each server the snapshot is updated
by a delta, the fitting slots are determined, and the best provider is taken: the one with the least lateness, then the
greatest benefit, then the least scarcity.  For comparison, every server takes a random free slot.
"""

import heapq
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from nova_makespan import BOARDS, FUNCTIONS, KIND, Case

from fpga_pool.conf.catalogue import load_catalogue
from fpga_pool.model.flavor import provider_uuid
from fpga_pool.model.rules.instance.fitting import NOT_HAD, Fitting
from fpga_pool.model.rules.shared.columns import PoolColumns, Providers

HOSTS, CARDS, SLOTS, DAY_S = 313, 4, 4, 86_400.0
#: Factor of the run times compared to nova_makespan.py, with which 10,000 servers hold four fifths of the slots.
LONGER = 40


class Day:
    """The pool during a day."""

    def __init__(self, case, catalogue):
        self.case, self.catalogue, self.generation = case, catalogue, 1
        self.free, self.board, rows = {}, {}, []
        for host in range(HOSTS):
            for card in range(CARDS):
                uuid = provider_uuid(f"h{host:03}", f"c{card}", KIND)
                self.board[uuid] = (host + card) % len(BOARDS)
                places = [(f"h{host:03}", f"c{card}", number, self.board[uuid]) for number in range(SLOTS)]
                self.free[uuid] = places
                rows += [self._row(*place, "EMPTY", "") for place in places]
        hosts = [(f"h{host:03}", "default", "nova", True, 1) for host in range(HOSTS)]
        self.pool = PoolColumns.of({"default": 1}, hosts, rows, (len(hosts), len(rows)))
        self.providers = Providers.of(self.pool)
        self.changed, self.ends = {}, []
        self.run_times_s = {name: float(LONGER * case.run_s[f]) for f, name in enumerate(FUNCTIONS)}

    def _row(self, host, card, number, board, state, function):
        lease = ("instance", f"vm-{host}-{card}-{number}", False) if state == "READY" and function else ("", "", False)
        place = (host, "default", f"{card}/r{number}", card, BOARDS[board], KIND, "")
        return (*place, state, function, *lease, False, self.generation)

    def end_until(self, now_s):
        while self.ends and self.ends[0][0] <= now_s:
            _, uuid, place = heapq.heappop(self.ends)
            self.free[uuid].append(place)
            self.changed[place] = "EMPTY", ""

    def best(self, function):
        """Update the snapshot, and return the best provider; None if no slot is free."""
        self.generation += 1
        rows = [self._row(*place, *state) for place, state in self.changed.items()]
        self.changed.clear()
        self.pool = self.pool.merged(PoolColumns.of({"default": self.generation}, [], rows, None))
        self.providers = Providers.of(self.pool, self.providers)
        name = FUNCTIONS[function]
        fitting = Fitting(self.providers, self.catalogue, name, self.run_times_s[name], self.run_times_s)
        late, gain = fitting.latenesses(1), fitting.firsts(fitting.gains, 1)
        able = np.flatnonzero(late != NOT_HAD)
        if not len(able):
            return None
        return self.providers.uuids[able[np.lexsort((fitting.scarcity[able], -gain[able], late[able]))[0]]]

    def take(self, uuid, function, now_s):
        """Let a server hold a slot; return the ratio of its run time to that on its fastest board."""
        place, board = self.free[uuid].pop(), self.board[uuid]
        self.changed[place] = "READY", FUNCTIONS[function]
        heapq.heappush(self.ends, (now_s + LONGER * self.case.completion_s(function, board), uuid, place))
        return self.case.slowdown[function, board]


def simulated(servers, by_rules):
    rng = np.random.default_rng(0)
    arrivals = np.sort(rng.uniform(0.0, DAY_S, servers)).tolist()
    functions = rng.integers(0, len(FUNCTIONS), servers).tolist()
    case = Case(0)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "catalogue.toml"
        path.write_text(case.catalogue())
        day = Day(case, load_catalogue(path))
    slowdowns, cpu_ms, refused, held = [], [], Counter(), []
    for now_s, function in zip(arrivals, functions, strict=True):
        day.end_until(now_s)
        begin_s = time.process_time()
        if by_rules:
            uuid = day.best(function)
            cpu_ms.append(1e3 * (time.process_time() - begin_s))
        else:
            able = [each for each, places in day.free.items() if places]
            uuid = able[rng.integers(len(able))] if able else None
        if uuid is None:
            refused[FUNCTIONS[function]] += 1
            continue
        slowdowns.append(day.take(uuid, function, now_s))
        held.append(len(day.ends))
    slots = HOSTS * CARDS * SLOTS
    share = statistics.mean(held[len(held) // 2 :]) / slots
    how = "by the rules" if by_rules else "at random"
    print(
        f"{how}: {servers} servers on {slots} slots, {refused.total()} refused, {100 * share:.0f} % of slots held in "
        f"the second half; run {statistics.mean(slowdowns):.3f} times as long as on the fastest board (mean)"
    )
    if cpu_ms:
        median, most = statistics.median(cpu_ms), float(np.quantile(cpu_ms, 0.99))
        print(f"CPU per server: median {median:.2f} ms, 99 % {most:.2f} ms, in all {sum(cpu_ms) / 1e3:.1f} s")


def main(servers):
    for by_rules in (False, True):
        simulated(servers, by_rules)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
