import numpy as np
import pytest

from fpga_pool.core.makespan import Ect
from fpga_pool.core.makespan.greedy import largest_first, place
from fpga_pool.core.types import BatchProblem

RNG = np.random.default_rng(0)


def test_orders_by_group_then_longest_shortest_time_then_largest_input():
    problem = BatchProblem(
        seconds=[[1.0, 9.0], [3.0, 2.0], [2.0, 2.0], [5.0, 5.0]], input_bytes=[1, 1, 7, 1], requester=[0] * 4,
        egress_bps=[1e9], responder=[0, 0], ingress_bps=[1e9], group=[0, 0, 0, 1],
    )  # fmt: skip
    assert largest_first(problem).tolist() == [2, 1, 0, 3]


def test_places_where_the_job_ends_first_not_where_it_is_quickest(compute_problem):
    # Jobs of 4, 3, 2 s, half as long again on accelerator 1: 4 -> 0 (ends 4); 3 -> 1 (4.5, not 7); 2 -> 0 (6, not 7.5).
    plan = Ect().decide(compute_problem([[4.0, 6.0], [3.0, 4.5], [2.0, 3.0]]), None, 0.0, RNG)
    assert plan.accelerator.tolist() == [0, 1, 0]
    assert plan.makespan_s == pytest.approx(6.0)


def test_network_alone_is_largest_first_on_ingress(network_problem):
    # Section 5.1: the 7200 Mb go to the fast responder (7.2 s; slow 14.4).  2400 Mb: slow 4.8, fast 9.6.  2400 Mb: both
    # 9.6, and the tie goes to the one with less work so far, slow.  2400 Mb: fast 9.6, slow 14.4.  Optimum 9.6 s.
    problem = network_problem(
        megabits=[2400, 2400, 2400, 7200], requester=[0, 1, 2, 3], egress_mbps=[1000] * 4, responder=[0, 1],
        ingress_mbps=[1000, 500],
    )  # fmt: skip
    plan = Ect().decide(problem, None, 0.0, RNG)
    assert np.bincount(plan.accelerator, problem.input_bytes).tolist() == [1.2e9, 0.6e9]
    assert plan.makespan_s == pytest.approx(9.6)
    assert plan.lower_bound_s == pytest.approx(9.6)


def test_network_alone_balances_ingress_where_egress_is_the_bottleneck(network_problem):
    # One requester at 100 Mbps: every placement takes the same time, and each responder gets half of the work.
    problem = network_problem(
        megabits=[100] * 4, requester=[0] * 4, egress_mbps=[100], responder=[0, 1], ingress_mbps=[1000, 1000]
    )
    assert sorted(place(problem, largest_first(problem)).tolist()) == [0, 0, 1, 1]


def test_prefers_the_own_host_of_the_job_where_the_network_is_slower():
    # Over the network it takes 8 + 1 s, on its own host 2 s.
    problem = BatchProblem(
        seconds=[[1.0, 2.0]], input_bytes=[10**9], requester=[0], egress_bps=[1e9], responder=[0, 1],
        ingress_bps=[1e9, 1e9], local_host=[1],
    )  # fmt: skip
    plan = Ect().decide(problem, None, 0.0, RNG)
    assert plan.accelerator.tolist() == [1]
    assert plan.makespan_s == 2.0


def test_avoids_a_load_that_costs_more_than_it_gains(compute_problem):
    # On accelerator 0 the job takes 1 s after a load of 5 s.  On accelerator 1, which has its function, it takes 3 s.
    problem = compute_problem([[1.0, 3.0]], function=[7], loaded=[0, 7], load_s=[5.0, 5.0])
    assert Ect().decide(problem, None, 0.0, RNG).accelerator.tolist() == [1]


def test_job_whose_input_is_there_does_not_wait_for_the_one_before_it():
    # The longer job is first in the order but released at 10 s; the other one computes before.
    problem = BatchProblem(
        seconds=[[3.0], [1.0]], input_bytes=[0, 0], requester=[0, 0], egress_bps=[1e9], responder=[0],
        ingress_bps=[1e9], release_s=[10.0, 0.0],
    )  # fmt: skip
    plan = Ect().decide(problem, None, 0.0, RNG)
    assert plan.start_s.tolist() == [10.0, 0.0]
