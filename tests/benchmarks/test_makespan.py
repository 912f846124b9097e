"""`makespan` side by side with the other batch policies, case by case of the workload of paper 000, section 5.2.

    pytest tests/benchmarks/test_makespan.py -s

One line per case: ratio to the best lower bound known (mean and worst of the seeds), planning time (median, memory to
memory, without compilation) and, beside it, a reference loop, because machines differ.  Nothing is asserted of times.
"""

import resource
import statistics
import time

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan import Makespan, MakespanParams, plan
from fpga_pool.core.types import BatchProblem

SEEDS = range(5)

#: Form, responders (of 5 accelerators), jobs, time limit in seconds (0 = until nothing is to be gained).
CASES = [
    *[("compute", responders, 1000, 0.0) for responders in (40, 60, 80, 100)],
    *[("compute", responders, 1000, limit) for limit in (0.1, 1.0) for responders in (10, 15, 20, 25)],
    ("compute", 300, 10_000, 0.0),
    *[("network", responders, 1000, 0.0) for responders in (5, 8, 10, 12, 15, 20, 30, 60, 100)],
    *[("joint", responders, 1000, 0.0) for responders in (20, 30, 60, 100)],
    *[("joint", responders, 1000, 1.0) for responders in (5, 8, 10, 12, 15)],
]


def workload(form, responders, jobs, seed, requesters=200):
    """Sizes exponential (mean 200 Mb), 0.001 s/Mb, 1 and 5 Gbps, all deviations of +-20 %."""
    rng = np.random.default_rng(seed)
    accelerators = 5 * responders
    megabits = rng.exponential(200, jobs)
    seconds = rng.uniform(0.8, 1.2, (jobs, accelerators))
    seconds *= 0.001 * megabits[:, None]
    if form == "network":
        seconds[:] = 0.0
    seconds.setflags(write=False)  # shared instead of copied
    unlimited = form == "compute"
    return BatchProblem(
        seconds=seconds,
        input_bytes=(megabits * 1e6 / 8).astype(np.int64),
        requester=rng.integers(0, requesters, jobs),
        egress_bps=np.full(requesters, np.inf) if unlimited else 1e9 * rng.uniform(0.8, 1.2, requesters),
        responder=np.repeat(np.arange(responders), 5),
        ingress_bps=np.full(responders, np.inf) if unlimited else 5e9 * rng.uniform(0.8, 1.2, responders),
    )


def reference_loop_s():
    """Time of a fixed piece of numpy work: 20 passes over 1000 x 200."""
    numbers = np.linspace(0, 1, 200_000).reshape(1000, 200)
    began_s = time.perf_counter()
    for _ in range(20):
        numbers.argmin(axis=1)
    return time.perf_counter() - began_s


@pytest.fixture(scope="module", autouse=True)
def compiled():
    began_s = time.perf_counter()
    Makespan().prepare()
    print(f"\ncompiled or loaded in {time.perf_counter() - began_s:.2f} s")


@pytest.mark.parametrize(("form", "responders", "jobs", "limit_s"), CASES)
def test_near_the_bound(form, responders, jobs, limit_s):
    params = MakespanParams(time_limit_s=limit_s)
    times_s, ratios = [], []
    for seed in SEEDS:
        problem = workload(form, responders, jobs, seed)
        began_s = time.perf_counter()
        found = plan(problem, params, np.random.default_rng(seed), time.perf_counter)
        times_s.append(time.perf_counter() - began_s)
        ratios.append(found.makespan_s / found.lower_bound_s)
    print(
        f"\n{form:8}{jobs:7} x {5 * responders:4}  {statistics.mean(ratios):.5f} (worst {max(ratios):.5f})"
        f"  {1e3 * statistics.median(times_s):8.1f} ms  reference {1e3 * reference_loop_s():.1f} ms"
    )


def test_a_hundred_thousand_jobs():
    problem = workload("compute", 300, 100_000, 1)
    began_s = time.perf_counter()
    found = plan(problem, MakespanParams(time_limit_s=3.0), np.random.default_rng(1), time.perf_counter)
    took_s = time.perf_counter() - began_s
    most_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"\n100,000 x 1500: {found.makespan_s / found.lower_bound_s:.5f} in {took_s:.2f} s, {most_gb:.2f} GB at most")


@pytest.mark.parametrize("form", ["compute", "network", "joint"])
@pytest.mark.parametrize("responders", [10, 30, 60])
def test_no_policy_is_better(form, responders):
    problem = workload(form, responders, 1000, 11)
    lengths = {}
    for name in policy_names("batch"):
        lengths[name] = load_policy("batch", name).decide(problem, None, 0.0, np.random.default_rng(0)).makespan_s
    print(f"\n{form} {responders}: " + ", ".join(f"{name} {lengths[name]:.4f} s" for name in sorted(lengths)))
    assert lengths["makespan"] <= min(lengths.values()) * (1 + MakespanParams().gap)
