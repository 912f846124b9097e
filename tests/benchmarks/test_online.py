"""The time of online policies for a large pool, and of one decision there.

    pytest tests/benchmarks/test_online.py -s

1,000 hosts with two cards of four slots each, initially empty; catalogue A, and four times the work that one slot of
each card could do.  Times are CPU times; memory is the maximum of the process until then.  Times are not asserted, as
they depend on the machine.
"""

import resource
import time

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.experiments.figures.benefit.runs import (
    LOADS_S,
    bound_vcpus,
    card_pool,
    random_trace,
    reference_catalogue,
)
from fpga_pool.sim.benefit.live import simulate

HOSTS, CARDS, ALPHA = 1000, 2, 4.0


class Timed:
    """A policy whose decisions are timed, in CPU time."""

    def __init__(self, policy):
        self._policy, self.name = policy, policy.name
        self.times_s = []

    def decide(self, *arguments):
        began_s = time.thread_time()
        move = self._policy.decide(*arguments)
        self.times_s.append(time.thread_time() - began_s)
        return move


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", ["benefit_replace", "benefit_plus"])
@pytest.mark.parametrize("jobs", [100_000, 1_000_000])
def test_large_pool(policy, jobs):
    pool = card_pool(reference_catalogue("a"), LOADS_S[0], hosts=HOSTS, cards=CARDS)
    trace = random_trace(pool, ALPHA, jobs / (ALPHA * HOSTS * CARDS), seed=1)
    timed = Timed(load_policy("online", policy))
    began_s = time.process_time()
    outcome = simulate(pool, trace, timed, keep_stretches=False)
    took_s = time.process_time() - began_s
    most_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    times_ms = 1e3 * np.array(timed.times_s)
    print(
        f"\n{policy}, {len(trace.jobs)} jobs, {pool.slots} slots: {took_s:.0f} s of processor time, {most_gb:.1f} GB,"
        f" {outcome.mean_benefit_vcpus / bound_vcpus(pool, trace):.4f} of the bound,"
        f" {outcome.reconfigurations} reconfigurations; a decision {times_ms.mean():.3f} ms"
        f" (99.9 %: {np.quantile(times_ms, 0.999):.2f}, longest {times_ms.max():.1f})"
    )
