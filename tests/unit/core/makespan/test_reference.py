"""The models of paper 000 as mixed integer programs, to be read beside it, and how the planners compare with them."""

import numpy as np
import pulp
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fpga_pool.core.makespan.cim import Cim
from fpga_pool.core.makespan.ncjm import Ncjm
from fpga_pool.core.makespan.nim import Nim
from fpga_pool.core.types import BatchProblem

#: PuLP 3 brings CBC with it; 4 will want it installed apart.
pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated:DeprecationWarning")

FEW = settings(max_examples=20, deadline=None)


def solved(model):
    assert pulp.LpStatus[model.solve(pulp.PULP_CBC_CMD(msg=False))] == "Optimal"
    return model.objective.value()


def placement(model, jobs, hosts):
    """Binary x_ij with (1b), (2e), (3e): every job is on one host."""
    x = model.add_variable_dicts("x", (range(jobs), range(hosts)), cat="Binary")
    for i in range(jobs):
        model += pulp.lpSum(x[i].values()) == 1
    return x


def cim_s(seconds):
    """Model (1): the least make-span of computation alone."""
    jobs, accelerators = seconds.shape
    model = pulp.LpProblem("CIM", pulp.LpMinimize)
    x, makespan = placement(model, jobs, accelerators), model.add_variable("T", 0)
    model += makespan
    for j in range(accelerators):
        model += pulp.lpSum(float(seconds[i, j]) * x[i][j] for i in range(jobs)) <= makespan  # (1a)
    return solved(model)


def nim_rc_s(megabits, requester, egress_mbps, ingress_mbps):
    """Model (3), NIM with rate control: T = 1 / f (Theorem 2)."""
    jobs, hosts = len(megabits), len(ingress_mbps)
    model = pulp.LpProblem("NIM-RC", pulp.LpMaximize)
    x, f = placement(model, jobs, hosts), model.add_variable("f", 0)
    rate = model.add_variable_dicts("rate", (range(jobs), range(hosts)), 0)
    model += f
    for j, limit in enumerate(ingress_mbps):
        model += pulp.lpSum(rate[i][j] for i in range(jobs)) <= limit  # (3a)
    for u, limit in enumerate(egress_mbps):  # (3b), summed over jobs and hosts
        model += pulp.lpSum(rate[i][j] for i in range(jobs) if requester[i] == u for j in range(hosts)) <= limit
    for i in range(jobs):
        model += pulp.lpSum(rate[i].values()) == megabits[i] * f  # (3c)
        for j in range(hosts):
            model += rate[i][j] <= x[i][j] * ingress_mbps[j]  # (3d)
    return 1.0 / solved(model)


def ncjm_s(seconds, megabits, requester, egress_mbps, ingress_mbps, horizon_s):
    """Model (6) with the placement free, one accelerator per host: the least make-span of both phases.

    Between two starts of computation rates may as well be constant, so the unknowns are the starts in their order,
    which job has which place in it, and the data each job sends in each interval.
    """
    model = pulp.LpProblem("NCJM", pulp.LpMinimize)
    x, makespan = placement(model, *seconds.shape), model.add_variable("T", 0)
    jobs, hosts = (range(count) for count in seconds.shape)
    places = jobs
    at = model.add_variable_dicts("at", (jobs, places), cat="Binary")  # job i is the k-th to start
    start = model.add_variable_dicts("start", places, 0)
    sent = model.add_variable_dicts("sent", (jobs, hosts, places), 0)  # by job i to host h, between starts k - 1 and k
    model += makespan
    for k in places:
        length = start[k] - (start[k - 1] if k else 0)
        model += length >= 0
        model += pulp.lpSum(at[i][k] for i in jobs) == 1
        for h in hosts:
            model += pulp.lpSum(sent[i][h][k] for i in jobs) <= ingress_mbps[h] * length  # (6a)
        for u, limit in enumerate(egress_mbps):
            own = [i for i in jobs if requester[i] == u]
            model += pulp.lpSum(sent[i][h][k] for i in own for h in hosts) <= limit * length  # (6b)
    for i in jobs:
        model += pulp.lpSum(at[i].values()) == 1
        model += pulp.lpSum(sent[i][h][k] for h in hosts for k in places) == megabits[i]  # (6c)
        for h in hosts:
            for k in places:
                model += sent[i][h][k] <= megabits[i] * x[i][h]
                model += sent[i][h][k] <= megabits[i] * pulp.lpSum(at[i][q] for q in places if q >= k)
                ends = start[k] + float(seconds[i, h])
                elsewhere = 2 - at[i][k] - x[i][h]  # 0 if job i is k-th to start, on host h
                model += ends <= makespan + horizon_s * elsewhere  # (6e)
                for j in jobs:  # (6d): whoever starts later on this host waits
                    for q in places:
                        if j != i and q > k:
                            model += ends <= start[q] + horizon_s * (elsewhere + 2 - at[j][q] - x[j][h])
    return solved(model)


def decide(policy, problem):
    return policy.decide(problem, None, 0.0, np.random.default_rng(0))


def whole(low, high, size):
    return st.lists(st.integers(low, high).map(float), min_size=size, max_size=size)


@FEW
@given(data=st.data())
def test_theorem_1_cim_takes_at_most_twice_the_optimum(data, compute_problem):
    jobs, accelerators = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4))
    seconds = np.array(data.draw(whole(1, 20, jobs * accelerators))).reshape(jobs, -1)
    optimum_s = cim_s(seconds)
    found = decide(Cim(), compute_problem(seconds))
    assert optimum_s * (1 - 1e-6) <= found.makespan_s <= 2 * optimum_s * (1 + 1e-5)
    assert found.lower_bound_s <= optimum_s * (1 + 1e-6)


@FEW
@given(data=st.data())
def test_theorem_3_nim_takes_at_most_twice_the_optimum(data, network_problem):
    jobs, requesters, hosts = (data.draw(st.integers(1, most)) for most in (7, 3, 3))
    megabits, egress_mbps, ingress_mbps = (data.draw(whole(1, 20, size)) for size in (jobs, requesters, hosts))
    requester = data.draw(st.lists(st.integers(0, requesters - 1), min_size=jobs, max_size=jobs))
    optimum_s = nim_rc_s(megabits, requester, egress_mbps, ingress_mbps)
    found = decide(Nim(), network_problem(megabits, requester, egress_mbps, list(range(hosts)), ingress_mbps))
    assert optimum_s * (1 - 1e-5) <= found.makespan_s <= 2 * optimum_s * (1 + 1e-5)
    assert found.lower_bound_s <= optimum_s * (1 + 1e-5)


@settings(max_examples=12, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_ncjm_is_never_better_than_the_optimum_nor_is_its_bound_above(data):
    jobs, hosts = data.draw(st.integers(1, 3)), 2
    seconds = np.array(data.draw(whole(1, 9, jobs * hosts))).reshape(jobs, -1)
    megabits, egress_mbps, ingress_mbps = (data.draw(whole(1, 9, size)) for size in (jobs, 2, hosts))
    requester = data.draw(st.lists(st.integers(0, 1), min_size=jobs, max_size=jobs))
    problem = BatchProblem(
        seconds=seconds, input_bytes=np.array(megabits, np.int64) * 125_000, requester=requester,
        egress_bps=np.array(egress_mbps) * 1e6, responder=np.arange(hosts), ingress_bps=np.array(ingress_mbps) * 1e6,
    )  # fmt: skip
    found = decide(Ncjm(), problem)
    optimum_s = ncjm_s(seconds, megabits, requester, egress_mbps, ingress_mbps, horizon_s=found.makespan_s + 10.0)
    assert found.lower_bound_s <= optimum_s * (1 + 1e-5)
    assert optimum_s <= found.makespan_s * (1 + 1e-5)


def test_reference_of_the_word_counting_testbed():
    # Paper 000, 5.1: 9.6 s.
    assert nim_rc_s([2400, 2400, 2400, 7200], [0, 1, 2, 3], [1000] * 4, [1000, 500]) == pytest.approx(9.6)


def test_reference_of_one_job_after_the_other():
    # One host, 1 Mb/s.  The long job first: sent 0..1, computes 1..3; the other is sent 1..4 and computes 4..5.
    assert ncjm_s(np.array([[1.0], [2.0]]), [3.0, 1.0], [0, 0], [1.0], [1.0], horizon_s=20.0) == pytest.approx(5.0)
