"""The influence of the ranking's order and slices on the schedules.

    pytest tests/benchmarks/test_orders.py -s

Prints the mean share of the tight bound, in per cent, for 30 multi-task workloads on 4 rings of 8, seeds 0 to 5.
"""

import numpy as np
import pytest

from fpga_pool.core.lattice.paper import Lattice, LatticeParams
from fpga_pool.sim.lattice.workloads import Wanted, generate

SEEDS = range(6)


def share_percent(model, irregularity, params):
    shares = []
    for seed in SEEDS:
        wanted = Wanted(workloads=30, irregularity=irregularity)
        problem = generate(model, wanted, np.random.default_rng(seed)).problem
        found = Lattice(params(problem)).decide(problem, None, 0.0, np.random.default_rng(0))
        shares.append(100 * found.bound_tight_s / found.wct_s)
    return np.mean(shares)


@pytest.mark.parametrize("model", ["rtm", "rtmw", "f11"])
@pytest.mark.parametrize("irregularity", [0.1, 0.55])
def test_orders(model, irregularity):
    orders = ("fpgas,links,seconds", "fpgas,seconds", "fpgas", "fpgas,-seconds", "seconds")
    found = {order: share_percent(model, irregularity, lambda _, o=order: LatticeParams(order=o)) for order in orders}
    print(f"\n{model}, irregularity {irregularity:g}: " + "; ".join(f"{o} {s:.1f}" for o, s in found.items()))


@pytest.mark.parametrize("model", ["rtm", "rtmw", "f11"])
def test_slices(model):
    def params(part):
        return lambda problem: LatticeParams(slice_s=part * float(problem.shape_seconds.mean()))

    found = {part: share_percent(model, 0.55, params(part)) for part in (0.0, 0.1, 0.5)}
    print(f"\n{model}, slices of so many mean task times: " + "; ".join(f"{p:g} {s:.1f}" for p, s in found.items()))
