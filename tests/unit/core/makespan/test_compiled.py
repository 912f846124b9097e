"""Compiled loops are loaded at their first call, and the same loops without compilation decide the same."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.types import BatchProblem

A_MOMENT = """
import sys
import numpy as np
from fpga_pool.core.makespan import Makespan
from fpga_pool.core.types import BatchProblem
def plan(policy, seconds):
    policy.sparing(0.02).decide(BatchProblem(
        seconds=np.full((40, 4), seconds), input_bytes=[0] * 40, requester=[0] * 40, egress_bps=[np.inf],
        responder=[0] * 4, ingress_bps=[np.inf],
    ), None, 0.0, np.random.default_rng(0))
# Ten jobs on each of four slots: over in 10 ms, nothing is searched; in 10 s, 0.2 s may be.
plan(Makespan(), 0.001)
assert "numba" not in sys.modules
plan(Makespan(), 1.0)
assert "numba" in sys.modules
"""

#: Prints the plans of every policy without a long search, in a process that has no numba.
AS_WRITTEN = """
import json, sys
sys.modules["numba"] = None
from test_compiled import NAMES, planned
print(json.dumps({name: planned(name) for name in NAMES}))
"""
NAMES = ("cim", "ect", "ljf", "makespan", "ncjm", "nim", "sjf", "waves")


def planned(name):
    """Return the decision of a policy on a small batch with computation, transfers and loads."""
    rng = np.random.default_rng(3)
    problem = BatchProblem(
        seconds=rng.uniform(0.2, 0.6, (12, 4)), input_bytes=rng.integers(1, 30_000_000, 12), requester=[0, 1] * 6,
        egress_bps=[1e9] * 2, responder=[0, 0, 1, 1], ingress_bps=[1e9] * 2, function=rng.integers(0, 2, 12),
        loaded=[0, 1, 1, 0], load_s=[0.05] * 4,
    )  # fmt: skip
    plan = load_policy("batch", name).decide(problem, None, 0.0, np.random.default_rng(0))
    parts = plan.accelerator, plan.start_s, plan.segment_begin_s, plan.segment_bps, [plan.lower_bound_s]
    return [np.asarray(part).tolist() for part in parts]


def test_a_plan_of_a_moment_waits_for_nothing_to_be_compiled():
    pytest.importorskip("numba")
    subprocess.run([sys.executable, "-c", A_MOMENT], check=True, timeout=240)


@pytest.mark.long
def test_decisions_are_the_same_without_numba():
    pytest.importorskip("numba")
    command = [sys.executable, "-c", AS_WRITTEN]
    found = subprocess.run(command, check=True, timeout=240, stdout=subprocess.PIPE, cwd=Path(__file__).parent)
    assert json.loads(found.stdout) == {name: planned(name) for name in NAMES}
