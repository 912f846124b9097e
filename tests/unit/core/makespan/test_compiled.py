"""Who runs the inner loops is part of a policy's value; a plan of a moment needs none that are compiled."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.core.makespan import Ect, Ljf, Makespan, Sjf
from fpga_pool.core.makespan.kernels.compiled import Kernels
from fpga_pool.core.makespan.online.replan import replan
from fpga_pool.core.makespan.online.underway import underway_at
from fpga_pool.core.makespan.paper.cim import Cim
from fpga_pool.core.makespan.paper.ncjm import Ncjm, Waves
from fpga_pool.core.makespan.paper.nim import Nim
from fpga_pool.core.types import BatchProblem

A_MOMENT = """
import sys
import numpy as np
from fpga_pool.core.makespan import Makespan
from fpga_pool.core.makespan.kernels.compiled import Kernels
from fpga_pool.core.types import BatchProblem
def plan(policy, seconds):
    policy.sparing(0.02).decide(BatchProblem(
        seconds=np.full((40, 4), seconds), input_bytes=[0] * 40, requester=[0] * 40, egress_bps=[np.inf],
        responder=[0] * 4, ingress_bps=[np.inf],
    ), None, 0.0, np.random.default_rng(0))
# Ten jobs on each of four slots: over in 10 ms, nothing is searched; in 10 s, 0.2 s may be.
plan(Makespan(), 0.001)
plan(Makespan(kernels=Kernels.PLAIN), 1.0)
assert "numba" not in sys.modules
plan(Makespan(), 1.0)
assert "numba" in sys.modules
"""


def test_a_plan_of_a_moment_waits_for_nothing_to_be_compiled():
    pytest.importorskip("numba")
    subprocess.run([sys.executable, "-c", A_MOMENT], check=True, timeout=240)


def test_without_numba_there_are_no_compiled_loops(monkeypatch):
    monkeypatch.delattr("fpga_pool.core.makespan.kernels.loops", raising=False)
    monkeypatch.setitem(sys.modules, "fpga_pool.core.makespan.kernels.loops", None)
    assert Kernels.COMPILED.load() is None


def test_other_budgets_keep_the_kernels():
    policy = Makespan(kernels=Kernels.PLAIN)
    for other in (policy.sparing(0.02), policy.searching(7, None, lambda: 0.0), policy.searching(None, 1.0, lambda: 0)):
        assert other._kernels is Kernels.PLAIN


@pytest.fixture
def problem():
    """Both phases on one responder: half of the jobs come from each of two requesters, 0.1 s each on the network."""
    rng = np.random.default_rng(1)
    return BatchProblem(
        seconds=rng.uniform(0.2, 0.6, (40, 4)), input_bytes=[12_500_000] * 40, requester=[0, 1] * 20,
        egress_bps=[1e9] * 2, responder=[0] * 4, ingress_bps=[1e9],
    )  # fmt: skip


def test_around_what_is_under_way_plain_kernels_do_not_search(problem):
    plan = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    underway, _ = underway_at(problem, plan, 1.0, lost=[0])
    found = Makespan(kernels=Kernels.PLAIN).replan(underway, None, np.random.default_rng(0))
    assert found.method != "search"
    assert np.array_equal(found.plan.start_s, replan(underway).plan.start_s)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("policy", [Cim, Ect, Ljf, Ncjm, Nim, Sjf, Waves])
@given(data=st.data())
def test_policies_that_do_not_search_decide_the_same_whoever_runs_the_loops(policy, problems, data):
    problem = data.draw(problems(max_accelerators=12))
    compiled, plain = (
        policy(kernels=kernels).decide(problem, None, 0.0, np.random.default_rng(0))
        for kernels in (Kernels.COMPILED, Kernels.PLAIN)
    )
    for name in ("accelerator", "start_s", "segment_job", "segment_begin_s", "segment_end_s", "segment_bps"):
        assert np.array_equal(getattr(compiled, name), getattr(plain, name)), name
    assert compiled.lower_bound_s == pytest.approx(plain.lower_bound_s, rel=1e-9)
