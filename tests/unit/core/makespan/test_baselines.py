import numpy as np
import pytest

from fpga_pool.core.makespan import BaselineParams, Ljf, Sjf
from fpga_pool.core.types import BatchProblem

RNG = np.random.default_rng(0)


@pytest.fixture
def wordcount(network_problem):
    """Testbed of the makespan paper: 300, 300, 300 and 900 MB from one requester each; responder 1 cut to 500 Mbps."""
    return network_problem(
        megabits=[2400, 2400, 2400, 7200],
        requester=[0, 1, 2, 3],
        egress_mbps=[1000] * 4,
        responder=[0, 1],
        ingress_mbps=[1000, 500],
    )


@pytest.fixture
def dnn(compute_problem):
    """Testbed of the makespan paper: 6000, 6000, 6000 and 18000 photos on two equal accelerators, 1 s per photo."""
    return compute_problem([[6000.0] * 2, [6000.0] * 2, [6000.0] * 2, [18000.0] * 2])


def test_sjf_takes_12_s_on_the_network_testbed(wordcount):
    # Fast responder: 2400 Mb until 2.4 s and 2400 Mb until 4.8 s; slow one: 2400 Mb until 4.8 s.  Both are free at 4.8
    # s; the fast one would complete the 7200 Mb sooner (12.0 s against 19.2 s) and takes them.
    plan = Sjf().decide(wordcount, None, 0.0, RNG)
    assert plan.makespan_s == pytest.approx(12.0)
    # 14400 Mb over 1500 Mbps take 9.6 s: the optimum is 20 % below SJF (paper: 19.56 %).
    assert plan.lower_bound_s == pytest.approx(9.6)


def test_ljf_takes_14_4_s_on_the_network_testbed(wordcount):
    # The slow responder chooses first and takes the 7200 Mb: 14.4 s.  The fast one has the rest at 7.2 s.
    plan = Ljf().decide(wordcount, None, 0.0, RNG)
    assert plan.makespan_s == pytest.approx(14.4)


def test_sjf_takes_24000_photos_on_the_compute_testbed(dnn):
    # 6000 + 6000 on one; 6000 + 18000 on the other.
    assert Sjf().decide(dnn, None, 0.0, RNG).makespan_s == pytest.approx(24000.0)


def test_ljf_takes_18000_photos_on_the_compute_testbed(dnn):
    # 18000 on one; 3 x 6000 on the other: the optimum.
    plan = Ljf().decide(dnn, None, 0.0, RNG)
    assert plan.makespan_s == pytest.approx(18000.0)
    assert plan.lower_bound_s == pytest.approx(18000.0)


def test_ljf_ranks_by_the_average_over_accelerators(compute_problem):
    # The paper's example: job 0 takes 1 or 5 s (average 3), job 1 takes 3 or 4 s (average 3.5) and goes first.
    plan = Ljf().decide(compute_problem([[1.0, 5.0], [3.0, 4.0]]), None, 0.0, RNG)
    assert plan.accelerator.tolist() == [1, 0]


def two_jobs_on_one_accelerator() -> BatchProblem:
    """Return a batch of two jobs whose inputs take 1 s to move and 1 s to compute."""
    return BatchProblem(
        seconds=[[1.0], [1.0]], input_bytes=[125_000_000] * 2, requester=[0, 0], egress_bps=[1e9], responder=[0],
        ingress_bps=[1e9],
    )  # fmt: skip


@pytest.mark.parametrize("policy", [Sjf, Ljf])
@pytest.mark.parametrize(
    ("prefetch", "makespan_s"),
    [
        (0, 4.0),  # move, compute, move, compute
        (1, 3.0),  # the second input moves while the first job computes
    ],
)
def test_prefetch_overlaps_transfer_and_compute(policy, prefetch, makespan_s):
    plan = policy(BaselineParams(prefetch=prefetch)).decide(two_jobs_on_one_accelerator(), None, 0.0, RNG)
    assert plan.makespan_s == pytest.approx(makespan_s)


@pytest.mark.parametrize("prefetch", [-1, 1.5, None])
def test_params_refuse_what_is_no_number_of_jobs(prefetch):
    with pytest.raises(ValueError, match="prefetch: expected a whole number"):
        BaselineParams(prefetch=prefetch)


def test_running_flow_takes_bandwidth_that_becomes_free(network_problem):
    # Both requesters have 1000 Mbps; one responder has 1500 Mbps for two accelerators.  SJF assigns the 1000 Mb first:
    # they get 1000 Mbps until 1 s.  The 1500 Mb get 500 Mbps until then and 1000 Mbps after: 500 + 1000 Mb until 2 s.
    problem = network_problem(
        megabits=[1000, 1500], requester=[0, 1], egress_mbps=[1000] * 2, responder=[0, 0], ingress_mbps=[1500]
    )
    plan = Sjf().decide(problem, None, 0.0, RNG)
    assert plan.segment_job.tolist() == [0, 1, 1]
    assert plan.segment_bps == pytest.approx([1e9, 5e8, 1e9])
    assert plan.segment_end_s == pytest.approx([1.0, 1.0, 2.0])


def test_without_top_up_a_flow_keeps_the_rate_it_begins_with(network_problem):
    # As above, but the 1500 Mb keep 500 Mbps, until 3 s.
    problem = network_problem(
        megabits=[1000, 1500], requester=[0, 1], egress_mbps=[1000] * 2, responder=[0, 0], ingress_mbps=[1500]
    )
    plan = Sjf(BaselineParams(top_up=False)).decide(problem, None, 0.0, RNG)
    assert plan.segment_bps == pytest.approx([1e9, 5e8])
    assert plan.segment_end_s == pytest.approx([1.0, 3.0])


def test_without_top_up_a_flow_waits_for_a_tenth_of_its_slower_link(network_problem):
    # The first flow leaves 50 of 1050 Mbps, less than a tenth of 1000, so the second begins at 1 s, at full speed.
    problem = network_problem(
        megabits=[1000, 1500], requester=[0, 1], egress_mbps=[1000] * 2, responder=[0, 0], ingress_mbps=[1050]
    )
    plan = Sjf(BaselineParams(top_up=False)).decide(problem, None, 0.0, RNG)
    assert plan.segment_begin_s == pytest.approx([0.0, 1.0])
    assert plan.segment_end_s == pytest.approx([1.0, 2.5])


@pytest.mark.parametrize(
    ("ties", "makespan_s"),
    [
        ("testbed", 14.4),  # the slow responder takes the 7200 Mb
        ("lowest-ingress", 14.4),
        ("highest-ingress", 9.6),  # the fast one takes them, from 2.4 s or 0 s on: the optimum
        ("index", 9.6),  # responder 0 is the fast one
    ],
)
def test_ties_decide_what_ljf_takes_on_the_network_testbed(wordcount, ties, makespan_s):
    assert Ljf(BaselineParams(ties=ties)).decide(wordcount, None, 0.0, RNG).makespan_s == pytest.approx(makespan_s)


def test_sjf_takes_19_2_s_on_the_network_testbed_if_the_slow_responder_goes_first(wordcount):
    # Both are available at 4.8 s; 7200 Mb at 500 Mbps take another 14.4 s.
    plan = Sjf(BaselineParams(ties="lowest-ingress")).decide(wordcount, None, 0.0, RNG)
    assert plan.makespan_s == pytest.approx(19.2)


def test_params_refuse_unknown_ties():
    with pytest.raises(ValueError, match="ties: expected one of testbed, lowest-ingress"):
        BaselineParams(ties="coin")


def test_chooses_by_estimates_while_jobs_take_their_actual_times(compute_problem):
    # By the estimates job 0 is the shorter one.  It takes 5 s, so job 1 starts at 5 s and ends at 7 s.
    believed, actual = compute_problem([[1.0], [2.0]]), compute_problem([[5.0], [2.0]])
    plan = Sjf().meet(believed, actual, RNG)
    assert plan.start_s.tolist() == [0.0, 5.0]
    assert plan.makespan_s == pytest.approx(7.0)


def test_accelerator_of_earlier_batches_is_not_available_before_ready(compute_problem):
    # Accelerator 1 becomes ready at 100 s; accelerator 0 completes both jobs by 2 s.
    plan = Sjf().decide(compute_problem([[1.0, 0.1], [1.0, 0.1]], ready_s=[0.0, 100.0]), None, 0.0, RNG)
    assert plan.accelerator.tolist() == [0, 0]
    assert plan.makespan_s == pytest.approx(2.0)
