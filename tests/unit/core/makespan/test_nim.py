import numpy as np
import pytest

from fpga_pool.core.makespan.paper.nim import Nim, NimParams
from fpga_pool.core.types import BatchProblem

TESTBED = {
    "megabits": [2400, 2400, 2400, 7200], "requester": [0, 1, 2, 3], "egress_mbps": [1000] * 4, "responder": [0, 1],
    "ingress_mbps": [1000, 500],
}  # fmt: skip
#: Figure 1: requesters of 11 and 9 Mbps with 10, 1 and 9 Mb, and two responders of 10 Mbps.
FIGURE_1 = {
    "megabits": [10, 1, 9], "requester": [0, 0, 1], "egress_mbps": [11, 9], "responder": [0, 1],
    "ingress_mbps": [10, 10],
}  # fmt: skip


def plan(problem, **params):
    return Nim(NimParams(**params)).decide(problem, None, 0.0, np.random.default_rng(0))


def arrivals_s(found):
    ends_s = np.zeros(len(found.accelerator))
    np.maximum.at(ends_s, found.segment_job, found.segment_end_s)
    return ends_s


@pytest.mark.parametrize("residual", ["none", "start", "always"])
def test_word_counting_testbed_is_optimal(network_problem, residual):
    # Makespan paper, 5.1: 900 and 300 MB at 1000 Mbps, 300 and 300 MB at 500 Mbps: 9.6 s, 20 % less than SJF's 12.0.
    found = plan(network_problem(**TESTBED), residual=residual)
    assert found.makespan_s == pytest.approx(9.6)
    assert found.lower_bound_s == pytest.approx(9.6)


def test_all_end_together_without_the_residual_rule(network_problem):
    found = plan(network_problem(**FIGURE_1), residual="none")
    assert arrivals_s(found) == pytest.approx([1.0, 1.0, 1.0])
    assert found.segment_bps == pytest.approx([10e6, 1e6, 9e6])


def test_a_small_job_in_a_group_of_its_own_ends_at_once(network_problem):
    # The paper's remedy: "only 0.1 second", to responder 0.  The 9 Mb go to the other one, and the 10 Mb come last.
    assert arrivals_s(plan(network_problem(**FIGURE_1), size_groups=3)) == pytest.approx([1.1, 0.1, 1.0])


def test_a_later_group_takes_what_the_earlier_one_leaves(network_problem):
    # The first group takes 1 of 10 Mbps for 1 s.  Of the 19 Mb, 9 Mb are sent until then, and 10 Mb in the next second.
    problem = network_problem(
        megabits=[1, 19], requester=[0, 1], egress_mbps=[1, 10], responder=[0], ingress_mbps=[10], group=[0, 1]
    )
    assert arrivals_s(plan(problem)) == pytest.approx([1.0, 2.0])


def test_only_flows_to_a_responder_that_is_a_bottleneck_are_slowed_down(network_problem):
    # 1 / f = max(12 / 11 of all ingress, 2 and 10 of each egress) = 10 s.  The slow responder can take job 0 (2 s) but
    # not job 1 (10 s alone there, with job 0 beside it).  Job 1 keeps its 1 Mbps, job 0 gets 0.2 Mbps by f.
    problem = network_problem(
        megabits=[2, 10], requester=[0, 1], egress_mbps=[1, 1], responder=[0, 1], ingress_mbps=[10, 1]
    )
    found = plan(problem, residual="none")
    assert found.makespan_s == pytest.approx(10.0)
    assert found.segment_bps == pytest.approx([0.2e6, 1e6])


@pytest.mark.parametrize(
    ("residual", "ends_s"), [("none", [2.0, 2.0, 2.0]), ("start", [0.5, 2.0, 2.0]), ("always", [0.5, 1.0, 2.0])]
)
def test_residual_bandwidth_goes_to_the_shortest(network_problem, residual, ends_s):
    # 1 / f = 8 Mb / 4 Mbps = 2 s for requester 1.  The rates are 0.5, 1 and 4 of 7 Mbps.  The other 1.5 go to the
    # first, which ends after 1 / 2 = 0.5 s.  Then its 2 Mbps go to the second: 0.5 of 2 Mb are sent, 1.5 Mb at 3 Mbps
    # take 0.5 s.
    problem = network_problem(
        megabits=[1, 2, 8], requester=[0, 0, 1], egress_mbps=[7, 4], responder=[0], ingress_mbps=[7]
    )
    assert arrivals_s(plan(problem, residual=residual)) == pytest.approx(ends_s)


def test_a_second_batch_waits_where_the_first_leaves_nothing(network_problem):
    # 1 Mb each on the only link of 1 Mbps: 0..1, and 1..2 for the one that is released at 0.5.
    found = plan(
        network_problem(
            megabits=[1, 1], requester=[0, 0], egress_mbps=[1], responder=[0], ingress_mbps=[1], release_s=[0.0, 0.5]
        )
    )
    assert found.segment_begin_s == pytest.approx([0.0, 1.0])
    assert found.makespan_s == pytest.approx(2.0)


def test_a_second_batch_begins_at_once_where_that_ends_it_earlier(network_problem):
    # The first takes 1 of 10 Mbps for 10 s; 9 Mb at the remaining 9 Mbps: 0.5..1.5 instead of 10..10.9.
    found = plan(
        network_problem(
            megabits=[10, 9], requester=[0, 1], egress_mbps=[1, 100], responder=[0], ingress_mbps=[10],
            release_s=[0.0, 0.5],
        )
    )  # fmt: skip
    assert found.segment_begin_s == pytest.approx([0.0, 0.5])
    assert arrivals_s(found) == pytest.approx([10.0, 1.5])


def test_jobs_of_responders_stay_at_home(network_problem):
    # The first job is on its own host, responder 0, and is not sent; the other one has the whole network.
    problem = network_problem(
        megabits=[100, 10], requester=[0, 1], egress_mbps=[10, 10], responder=[0, 1], ingress_mbps=[10, 10],
        local_host=[0, -1],
    )  # fmt: skip
    found = plan(problem)
    assert found.accelerator[0] == 0
    assert found.segment_job.tolist() == [1]
    assert found.makespan_s == pytest.approx(1.0)


def test_accelerators_of_one_responder_share_its_jobs():
    # Two jobs arrive at 1 s and compute 1 s each, on different accelerators.
    problem = BatchProblem(
        seconds=np.ones((2, 2)), input_bytes=[125_000] * 2, requester=[0, 1], egress_bps=[1e6, 1e6], responder=[0, 0],
        ingress_bps=[2e6],
    )  # fmt: skip
    found = plan(problem)
    assert sorted(found.accelerator.tolist()) == [0, 1]
    assert found.makespan_s == pytest.approx(2.0)


def test_without_limits_nothing_moves(network_problem):
    problem = network_problem(
        megabits=[10, 20], requester=[0, 0], egress_mbps=[np.inf], responder=[0, 1], ingress_mbps=[np.inf, np.inf]
    )
    found = plan(problem)
    assert len(found.segment_job) == 0
    assert found.makespan_s == pytest.approx(0.0)


def test_an_ingress_without_limit_takes_what_the_others_would_be_slow_with(network_problem):
    # 1 / f depends on the egress alone: 1 s.
    problem = network_problem(
        megabits=[10, 10], requester=[0, 1], egress_mbps=[10, 10], responder=[0, 1], ingress_mbps=[1, np.inf]
    )
    assert plan(problem).makespan_s == pytest.approx(1.0)


def test_refuses_wrong_parameters():
    with pytest.raises(ValueError, match="residual"):
        NimParams(residual="often")
