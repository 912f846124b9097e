"""Planning times of the batch policies, and ratios to the bound: the workload of the makespan paper, section 5.2.

    pytest tests/benchmarks/test_planning.py -s

Prints one line per policy and form; times are not asserted, as they depend on the machine.
"""

import statistics
import time

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.types import BatchProblem

JOBS, RESPONDERS, SLOTS_EACH, REQUESTERS, SEEDS = 1000, 40, 5, 200, range(5)


def problem(form, seed):
    """Return 1000 jobs for 200 accelerators; exponential sizes (mean 200 Mb), 0.001 s/Mb, deviations +-20 %."""
    rng = np.random.default_rng(seed)
    accelerators = RESPONDERS * SLOTS_EACH
    megabits = rng.exponential(200, JOBS)
    seconds = 0.001 * megabits[:, None] * rng.uniform(0.8, 1.2, (JOBS, accelerators))
    unlimited = form == "compute"
    return BatchProblem(
        seconds=np.zeros_like(seconds) if form == "network" else seconds,
        input_bytes=(megabits * 1e6 / 8).astype(np.int64),
        requester=rng.integers(0, REQUESTERS, JOBS),
        egress_bps=np.full(REQUESTERS, np.inf) if unlimited else 1e9 * rng.uniform(0.8, 1.2, REQUESTERS),
        responder=np.repeat(np.arange(RESPONDERS), SLOTS_EACH),
        ingress_bps=np.full(RESPONDERS, np.inf) if unlimited else 5e9 * rng.uniform(0.8, 1.2, RESPONDERS),
    )


@pytest.mark.parametrize("form", ["compute", "network", "joint"])
@pytest.mark.parametrize("policy", [name for name in policy_names("batch") if name != "exact"])
def test_planning(policy, form):
    planner, times_s, ratios = load_policy("batch", policy), [], []
    for seed in SEEDS:
        batch = problem(form, seed)
        began_s = time.perf_counter()
        plan = planner.decide(batch, None, 0.0, np.random.default_rng(seed))
        times_s.append(time.perf_counter() - began_s)
        ratios.append(plan.makespan_s / plan.lower_bound_s)
    print(
        f"\n{policy} {form}: {statistics.median(times_s):.3f} s (worst {max(times_s):.3f}),"
        f" {statistics.mean(ratios):.4f} x bound (worst {max(ratios):.4f})"
    )
