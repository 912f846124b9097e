"""When compiled kernels are loaded; in a process of its own, for they are loaded once."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

PUT_OFF = """
import sys
import numpy as np
from fpga_pool.core.makespan import Makespan, compiled
from fpga_pool.core.types import BatchProblem
def plan(seconds):
    policy.decide(BatchProblem(
        seconds=np.full((40, 4), seconds), input_bytes=[0] * 40, requester=[0] * 40, egress_bps=[np.inf],
        responder=[0] * 4, ingress_bps=[np.inf],
    ), None, 0.0, np.random.default_rng(0))
policy = Makespan().sparing(0.02)
policy.put_off_preparing()
assert not policy.unprepared
assert compiled.kernels() is None
# Ten jobs on each of four slots: over in 10 ms, nothing is searched; in 10 s, 0.2 s may be.
plan(0.001)
assert not policy.unprepared
plan(1.0)
assert policy.unprepared and "numba" not in sys.modules
policy.prepare()
assert compiled.kernels() is not None and not policy.unprepared
"""


def test_plans_go_without_kernels_that_are_put_off_until_they_are_loaded():
    subprocess.run([sys.executable, "-c", PUT_OFF], check=True, timeout=120)
