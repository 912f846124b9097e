"""When compiled kernels are loaded; in a process of its own where it matters that they are loaded once."""

import subprocess
import sys

import numpy as np
import pytest

from fpga_pool.core.makespan import Makespan, MakespanParams, compiled, plan
from fpga_pool.core.types import BatchProblem

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


@pytest.mark.parametrize("loaded", [(), ("kernels",), ("kernels", "joint_kernels")])
def test_joint_batches_are_planned_while_kernels_are_being_loaded(monkeypatch, verdict, loaded):
    # Both phases on one responder: half of the jobs come from each of two requesters, 0.1 s each on the network.
    rng = np.random.default_rng(1)
    problem = BatchProblem(
        seconds=rng.uniform(0.2, 0.6, (40, 4)), input_bytes=[12_500_000] * 40, requester=[0, 1] * 20,
        egress_bps=[1e9] * 2, responder=[0] * 4, ingress_bps=[1e9],
    )  # fmt: skip
    Makespan().prepare()
    monkeypatch.setattr(compiled, "_loaded", {name: compiled._loaded[name] for name in loaded})
    monkeypatch.setattr(compiled, "_put_off", set())
    monkeypatch.setattr(compiled, "_missed", set())
    Makespan().put_off_preparing()
    assert verdict(problem, plan(problem, MakespanParams(effort=20)))["faults"] == []
    assert compiled.missed()
