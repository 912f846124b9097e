"""The guarantees that the makespan paper proves of its algorithms, measured against the optimum."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fpga_pool.core.makespan.paper.cim import Cim
from fpga_pool.core.makespan.paper.ncjm import Ncjm
from fpga_pool.core.makespan.paper.nim import Nim
from fpga_pool.core.makespan.search.exact import Exact
from fpga_pool.core.types import BatchProblem


def decide(policy, problem):
    return policy.decide(problem, None, 0.0, np.random.default_rng(0))


def optimum_s(problem):
    best = decide(Exact(), problem)
    assert best.lower_bound_s == pytest.approx(best.makespan_s, rel=1e-5)
    return best.makespan_s


def whole(low, high, size):
    return st.lists(st.integers(low, high).map(float), min_size=size, max_size=size)


@given(data=st.data())
def test_theorem_1_cim_takes_at_most_twice_the_optimum(data, compute_problem):
    jobs, accelerators = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    seconds = np.array(data.draw(whole(1, 20, jobs * accelerators))).reshape(jobs, -1)
    problem = compute_problem(seconds)
    best_s, found = optimum_s(problem), decide(Cim(), problem)
    assert best_s * (1 - 1e-6) <= found.makespan_s <= 2 * best_s * (1 + 1e-5)
    assert found.lower_bound_s <= best_s * (1 + 1e-6)


@given(data=st.data())
def test_theorem_3_nim_takes_at_most_twice_the_optimum(data, network_problem):
    jobs, requesters, hosts = (data.draw(st.integers(1, most)) for most in (7, 3, 3))
    megabits, egress_mbps, ingress_mbps = (data.draw(whole(1, 20, size)) for size in (jobs, requesters, hosts))
    requester = data.draw(st.lists(st.integers(0, requesters - 1), min_size=jobs, max_size=jobs))
    problem = network_problem(megabits, requester, egress_mbps, list(range(hosts)), ingress_mbps)
    best_s, found = optimum_s(problem), decide(Nim(), problem)
    assert best_s * (1 - 1e-5) <= found.makespan_s <= 2 * best_s * (1 + 1e-5)
    assert found.lower_bound_s <= best_s * (1 + 1e-5)


@settings(phases=[Phase.generate])
@given(data=st.data())
def test_ncjm_is_never_better_than_the_optimum_nor_is_its_bound_above(data):
    jobs, hosts = data.draw(st.integers(1, 4)), 2
    seconds = np.array(data.draw(whole(1, 9, jobs * hosts))).reshape(jobs, -1)
    megabits, egress_mbps, ingress_mbps = (data.draw(whole(1, 9, size)) for size in (jobs, 2, hosts))
    requester = data.draw(st.lists(st.integers(0, 1), min_size=jobs, max_size=jobs))
    problem = BatchProblem(
        seconds=seconds, input_bytes=np.array(megabits, np.int64) * 125_000, requester=requester,
        egress_bps=np.array(egress_mbps) * 1e6, responder=np.arange(hosts), ingress_bps=np.array(ingress_mbps) * 1e6,
    )  # fmt: skip
    best_s, found = optimum_s(problem), decide(Ncjm(), problem)
    assert found.lower_bound_s <= best_s * (1 + 1e-5)
    assert best_s <= found.makespan_s * (1 + 1e-5)
