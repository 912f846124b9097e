"""The makespan of 200 instances on hosts that Nova selects with the pool's weighers, and without them.

    python tests/benchmarks/nova_makespan.py [SEEDS]

Sixty recorded compute nodes have a card of four slots each, of three boards with different speeds for each function.
The requests are for five functions in random order, one instance each; every instance keeps its slot.  Filters and
weighers run as in nova-scheduler; the records come from memory, and the free slots are Placement's candidates.  The
bound is the minimum makespan of all 200 requests on these slots if all are known at once; the difference to the
makespan with Nova's own weighers is the most that any weigher can save.
"""

import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from nova.conf import CONF
from nova_requests import CELL, PoolScheduler, answering, manager, recorded, spec
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from fpga_pool.model.flavor import RESOURCE_CLASS, function_trait, provider_uuid
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.nova_plugin import pool as plugin_pool

HOSTS, SLOTS, REQUESTS = 60, 4, 200
BOARDS, FUNCTIONS = ("one", "two", "three"), ("fa", "fb", "fc", "fd", "fe")
CARD, KIND = "0000:3b:00.0", "small"
#: Seconds to load a slot: 1 Gbit at 1 Gbit/s.
LOAD_S, BITSTREAM_BYTES, CONFIGURATION_BPS = 1.0, 125_000_000, 1e9


class Case:
    """The run time of each function on each board, and the order of the requests."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        #: Slowdown of each function on each board, relative to its fastest board, shape (F, B), and its run time there
        #: in seconds, shape (F,).
        slowdown = rng.uniform(1.0, 2.0, (len(FUNCTIONS), len(BOARDS)))
        self.slowdown = slowdown / slowdown.min(axis=1, keepdims=True)
        self.run_s = rng.integers(300, 1200, len(FUNCTIONS))
        self.requests = rng.integers(0, len(FUNCTIONS), REQUESTS).tolist()

    def completion_s(self, function, board):
        return LOAD_S + self.run_s[function] * self.slowdown[function, board]

    def catalogue(self):
        """Return the catalogue as TOML."""
        lines = ["format_version = 1"]
        for f, name in enumerate(FUNCTIONS):
            lines += [
                f"[functions.{name}]", 'version = "1"', f'slot_kinds = ["{KIND}"]', "io_bps = 1e6",
                "preemptible = false", "cpu_time = { a_s = 0.0, b_s_per_byte = 4e-8 }", 'source = "benchmark"',
                f"[functions.{name}.fpga_time]",
                *(
                    f'{board} = {{ a_s = 0.0, b_s_per_byte = {1e-8 * self.slowdown[f, b]}, source = "benchmark" }}'
                    for b, board in enumerate(BOARDS)
                ),
            ]  # fmt: skip
        for board in BOARDS:
            lines += [
                f"[boards.{board}]", f"slots = {[KIND] * SLOTS}", f"configuration_bps = {CONFIGURATION_BPS}",
                "dma_bps = 1e10", 'source = "benchmark"', f"[boards.{board}.regions]",
                f"{KIND} = {{ bitstream_bytes = {BITSTREAM_BYTES} }}",
            ]  # fmt: skip
        return "\n".join(lines)

    def bound_s(self):
        """Return the minimum makespan, in seconds: the first time by which slots can complete all requests."""
        ends_s = np.array([[self.completion_s(f, b) for b in range(len(BOARDS))] for f in range(len(FUNCTIONS))])
        asked, there = np.bincount(self.requests, minlength=len(FUNCTIONS)), HOSTS // len(BOARDS) * SLOTS
        # Nodes: the source of all requests, functions, boards, and the sink of all slots.
        source, sink = 0, 1 + len(FUNCTIONS) + len(BOARDS)
        for end_s in np.unique(ends_s):
            flow = np.zeros((sink + 1, sink + 1), np.int32)
            flow[source, 1 : 1 + len(FUNCTIONS)] = asked
            flow[1 : 1 + len(FUNCTIONS), 1 + len(FUNCTIONS) : sink] = np.where(ends_s <= end_s, REQUESTS, 0)
            flow[1 + len(FUNCTIONS) : sink, sink] = there
            if maximum_flow(csr_array(flow), source, sink).flow_value == REQUESTS:
                return float(end_s)
        raise ValueError("the slots are too few for the requests")


class Cards(PoolScheduler):
    """The pool of one case, whose slots are taken one by one."""

    def __init__(self, hosts):
        self.generation, self.hosts = 1, hosts
        self.free = dict.fromkeys(hosts, SLOTS)
        rows = [(host, "default", "nova", True, 1) for host in hosts]
        slots = [self._row(host, number, "EMPTY", "") for host in hosts for number in range(SLOTS)]
        self.pool = PoolColumns.of({"default": 1}, rows, slots, (len(rows), len(slots)))

    def board(self, host):
        return self.hosts.index(host) % len(BOARDS)

    def _row(self, host, number, state, function):
        lease = ("instance", f"vm-{host}-{number}", False) if function else ("", "", False)
        place = (host, "default", f"{CARD}/r{number}", CARD, BOARDS[self.board(host)], KIND, "")
        return (*place, state, function, *lease, False, self.generation)

    def take(self, host, function):
        self.generation += 1
        self.free[host] -= 1
        taken = [self._row(host, self.free[host], "READY", FUNCTIONS[function])]
        self.pool = self.pool.merged(PoolColumns.of({"default": self.generation}, [], taken, None))

    def candidates(self, state):
        machine = {"resources": {"VCPU": 2, "MEMORY_MB": 2048}}
        slot = provider_uuid(state.host, CARD, KIND)
        return [{"allocations": {state.uuid: machine, slot: {"resources": {RESOURCE_CLASS: 1}}}}]


def placed(case, cards, nodes, services):
    """Let Nova select a host for each request; return the makespan and the number of instances on each board."""
    chosen, makespan_s, boards = manager(), 0.0, Counter()
    for function in case.requests:
        states = [each for each in chosen._get_host_states(None, {CELL: nodes}, services) if cards.free[each.host]]
        for state in states:
            state.allocation_candidates = cards.candidates(state)
        name = FUNCTIONS[function]
        request = spec(
            {
                "fpga_pool:function": name,
                "fpga_pool:runtime": str(case.run_s[function]),
                f"resources:{RESOURCE_CLASS}": "1",
                f"trait:{function_trait(name)}": "required",
            }
        )
        hosts = chosen.filter_handler.get_filtered_objects(chosen.enabled_filters, states, request, 0)
        best = chosen.weight_handler.get_weighed_objects(chosen.weighers, hosts, request)[0].obj
        best.consume_from_request(request)
        cards.take(best.host, function)
        makespan_s = max(makespan_s, case.completion_s(function, cards.board(best.host)))
        boards[BOARDS[cards.board(best.host)]] += 1
    return makespan_s, boards


def compared(seed):
    """Return the bound of a case, and its makespan with the pool's filter and weighers and without, in seconds."""
    case = Case(seed)
    nodes, services = recorded(HOSTS)
    found = {}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "catalogue.toml"
        path.write_text(case.catalogue())
        for enabled in (True, False):
            cards = Cards([node.host for node in nodes])
            plugin_pool.forget()
            with answering(cards, catalogue=str(path), enabled=enabled):
                found[enabled], _ = placed(case, cards, nodes, services)
            CONF.clear()
    return case.bound_s(), found[True], found[False]


def main(seeds):
    shares = []
    for seed in range(seeds):
        bound_s, ours_s, nova_s = compared(seed)
        shares.append((ours_s / bound_s, 1 - ours_s / nova_s, 1 - bound_s / nova_s))
        print(
            f"seed {seed}: bound {bound_s:.0f} s, with the pool's weighers {ours_s:.0f} s ({shares[-1][0]:.3f} of the "
            f"bound), with Nova's own {nova_s:.0f} s: {100 * shares[-1][1]:.0f} % less, at most "
            f"{100 * shares[-1][2]:.0f} % possible",
            flush=True,
        )
    of_bound, less, possible = zip(*shares, strict=True)
    print(
        f"medians (worst) of {seeds}: {statistics.median(of_bound):.3f} ({max(of_bound):.3f}) of the bound, "
        f"{100 * statistics.median(less):.0f} % ({100 * min(less):.0f} %) less than Nova's own, at most "
        f"{100 * statistics.median(possible):.0f} % ({100 * min(possible):.0f} %) possible"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
