"""Times of ranking, bounds and the paper's policies for many multi-FPGA tasks.

    pytest tests/benchmarks/test_ranking.py -s

Prints a line for each, with CPU seconds, the best of three; times are not asserted, as they depend on the machine.
"""

import time

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.lattice.bounds import tight_bound_s
from fpga_pool.core.lattice.paper import downset_ranks
from fpga_pool.sim.lattice.workloads import Wanted, generate

PAPERS = ("fifo", "heft", "heft_shortest", "mfit", "lattice")


def tasks(count, rings):
    return generate("rtmw", Wanted(workloads=count, tasks=(1, 1), enclosures=rings), np.random.default_rng(0)).problem


def best_s(action):
    times_s = []
    for _ in range(3):
        began_s = time.process_time()
        result = action()
        times_s.append(time.process_time() - began_s)
    return min(times_s), result


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_ranking(count):
    problem = tasks(count, 4)
    took_s, ranks = best_s(lambda: downset_ranks(problem, problem.shape_begin[:-1]))
    print(f"\nranking of {count} tasks: {took_s:.3f} s, ranks up to {ranks.max()}")


def test_bounds():
    problem = tasks(100_000, 128)
    took_s, bound_s = best_s(lambda: tight_bound_s(problem))
    print(f"\nbounds of 100000 tasks on 128 rings: {took_s:.3f} s, {bound_s:.1f} s")


@pytest.mark.parametrize("name", PAPERS)
def test_policies(name):
    problem, policy = tasks(100_000, 128), load_policy("task", name)
    policy.prepare()
    took_s, found = best_s(lambda: policy.decide(problem, None, 0.0, np.random.default_rng(0)))
    share = 100 * found.bound_tight_s / found.wct_s
    print(f"\n{name}, 100000 tasks on 128 rings: {took_s:.3f} s, {share:.2f} % of the tight bound")
