from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.core.makespan import Ect, MakespanParams, plan
from fpga_pool.core.types import BatchProblem

STATELESS_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
#: Relative tolerance for rounding, as in the independent checker.
SLACK = 1e-6


def batch(megabits_in, seconds, megabits_out, mbps=1000.0, **optional):
    """Return one requester and one responder with links of `mbps` in both directions."""
    return BatchProblem(
        seconds=seconds,
        input_bytes=[round(mb * 1e6 / 8) for mb in megabits_in],
        output_bytes=[round(mb * 1e6 / 8) for mb in megabits_out],
        requester=[0] * len(megabits_in),
        egress_bps=[1e6 * mbps],
        responder=[0] * np.shape(seconds)[1],
        ingress_bps=[1e6 * mbps],
        **optional,
    )


def overload(owner, limit_bps, found):
    """Return the largest relative excess of results over a link's limit, ignoring slivers of time."""
    worst = 0.0
    sliver_s = SLACK * found.completion_s
    for link in np.unique(owner).tolist():
        mine = owner == link
        begin_s, end_s, bps = found.result_begin_s[mine], found.result_end_s[mine], found.result_bps[mine]
        times_s = np.unique(np.concatenate([begin_s, end_s]))
        for from_s, to_s in pairwise(times_s):
            if to_s - from_s > sliver_s:
                middle_s = (from_s + to_s) / 2
                load_bps = bps[(begin_s <= middle_s) & (middle_s < end_s)].sum()
                worst = max(worst, load_bps / limit_bps[link] - 1.0)
    return worst


def check_results(problem, found):
    """Check that results are sent completely, after their jobs and within the limits, and that the last one counts."""
    end_s = found.start_s + problem.seconds[np.arange(problem.jobs), found.accelerator]
    responder = problem.responder[found.accelerator]
    unlimited = np.isinf(problem.requester_ingress_bps[problem.requester])
    unlimited &= np.isinf(problem.responder_egress_bps[responder])
    stays = unlimited | (problem.local_host[problem.requester] == responder) | (problem.output_bytes == 0)
    sent_bits = np.bincount(
        found.result_job, (found.result_end_s - found.result_begin_s) * found.result_bps, problem.jobs
    )
    assert sent_bits == pytest.approx(np.where(stays, 0.0, 8.0 * problem.output_bytes), rel=SLACK)
    assert (found.result_begin_s >= end_s[found.result_job] * (1 - SLACK)).all()
    back_s = end_s.copy()
    np.maximum.at(back_s, found.result_job, found.result_end_s)
    assert found.completion_s == pytest.approx(back_s.max())
    job = found.result_job
    assert overload(problem.requester[job], problem.requester_ingress_bps, found) <= SLACK
    assert overload(responder[job], problem.responder_egress_bps, found) <= SLACK


@STATELESS_FIXTURES
@given(data=st.data())
@pytest.mark.parametrize("policy", ["ect", "makespan"])
def test_results_flow_back_whole_and_within_limits(verdict, problems, policy, data):
    problem = data.draw(problems())
    if policy == "ect":
        found = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    else:
        found = plan(problem, MakespanParams(effort=20))
    check_results(problem, found)
    assert verdict(problem, found)["faults"] == []
    assert found.completion_bound_s <= found.completion_s
    assert found.lower_bound_s <= found.completion_bound_s


def test_one_job_takes_input_compute_and_result():
    # 1000 Mb in at 1 Gbps, 2 s, 3000 Mb out: 1 + 2 + 3 s, which is also the bound.
    found = plan(batch([1000], [[2.0]], [3000]))
    assert (found.makespan_s, found.completion_s) == pytest.approx((3.0, 6.0))
    assert found.completion_bound_s == pytest.approx(6.0)


def test_a_load_while_the_input_moves_is_no_part_of_the_bound():
    # 1000 Mb in at 1 Gbps, during a load of another function for 1 s, then 2 s, then 3000 Mb out: 6 s as before.
    loading = {"function": [0], "loaded": [-1], "load_s": [1.0]}
    found = plan(batch([1000], [[2.0]], [3000], **loading))
    assert (found.completion_s, found.completion_bound_s) == pytest.approx((6.0, 6.0))


def test_johnsons_rule_where_links_alone_take_time():
    # In 1, 3 s; out 3, 1 s.  Short input first: out from 1 to 4 s, then the other one until 5 s; else 3 + 1 + 3 = 7 s.
    found = plan(batch([3000, 1000], [[0.0], [0.0]], [1000, 3000]))
    assert found.completion_s == pytest.approx(5.0)
    assert found.completion_bound_s == pytest.approx(5.0)


def test_results_choose_the_responder_with_the_faster_way_out():
    # Both compute equally fast; 4000 Mb take 4 s from the first responder, and 1 s from the second.
    problem = BatchProblem(
        seconds=[[1.0, 1.0]], input_bytes=[0], output_bytes=[500_000_000], requester=[0], egress_bps=[np.inf],
        responder=[0, 1], ingress_bps=[np.inf, np.inf], responder_egress_bps=[1e9, 4e9],
    )  # fmt: skip
    found = plan(problem)
    assert found.accelerator.tolist() == [1]
    assert found.completion_s == pytest.approx(2.0)


def test_results_of_local_jobs_need_no_transfer():
    found = plan(batch([1000], [[2.0]], [3000], local_host=[0]))
    assert found.completion_s == found.makespan_s == 2.0
    assert len(found.result_job) == 0


def test_batch_of_the_papers_workload_with_results_stays_within_1_4_of_its_bound():
    # Section 5.2 with results as large as inputs.  1.355 is reached.  It is unknown how much of that is due to the
    # bound, which counts each link alone, though a requester with few large jobs cannot use both of its directions at
    # once.
    rng = np.random.default_rng(5)
    megabits = rng.exponential(200, 300)
    size = (megabits * 1e6 / 8).astype(np.int64)
    problem = BatchProblem(
        seconds=0.001 * megabits[:, None] * rng.uniform(0.8, 1.2, (300, 50)), input_bytes=size, output_bytes=size,
        requester=rng.integers(0, 60, 300), egress_bps=1e9 * rng.uniform(0.8, 1.2, 60),
        responder=np.repeat(np.arange(10), 5), ingress_bps=5e9 * rng.uniform(0.8, 1.2, 10),
    )  # fmt: skip
    found = plan(problem, MakespanParams(effort=60))
    check_results(problem, found)
    assert found.completion_s <= 1.4 * found.completion_bound_s
