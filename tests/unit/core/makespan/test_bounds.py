from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fpga_pool.core.makespan.bounds import backlog_bound_s, compute_bound, job_path_s, links_s, lower_bound
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.makespan.fluid import transmit
from fpga_pool.core.types import BatchProblem


def shortest_make_span_s(problem: BatchProblem) -> float:
    """Return the best makespan over all placements and orders; transfers and queues have the same order."""
    jobs, best_s = np.arange(problem.jobs), np.inf
    able = [np.flatnonzero(np.isfinite(row)) for row in problem.seconds]
    for accelerator in map(np.array, product(*able)):
        for order in map(np.array, permutations(jobs)):
            start_s = execute(problem, accelerator, order, transmit(problem, accelerator, order).arrived_s)
            best_s = min(best_s, float((start_s + problem.seconds[jobs, accelerator]).max()))
    return best_s


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bound_is_not_above_the_best_of_all_plans(problems, data):
    problem = data.draw(problems(max_jobs=3, max_accelerators=2))
    best_s = shortest_make_span_s(problem)
    assert lower_bound(problem).seconds <= best_s * (1 + 1e-9)
    assert lower_bound(problem, best_s).seconds <= best_s * (1 + 1e-9)


def cim_lp_s(seconds, ready_s) -> float:
    """Solve CIM-LP of the makespan paper, 3.1 with (1a'): min T; ready_j + sum_i e_ij x_ij <= T; sum_j x_ij = 1."""
    jobs, slots = seconds.shape
    work = np.zeros((slots, jobs * slots + 1))
    for slot in range(slots):
        work[slot, slot : jobs * slots : slots] = seconds[:, slot]
    work[:, -1] = -1
    once = np.hstack([np.kron(np.eye(jobs), np.ones(slots)), np.zeros((jobs, 1))])
    cost = np.append(np.zeros(jobs * slots), 1)
    return linprog(cost, A_ub=work, b_ub=-ready_s, A_eq=once, b_eq=np.ones(jobs)).fun


@pytest.mark.parametrize("speeds_apart", [1.2, 5.0])
def test_compute_bound_reaches_the_linear_program(compute_problem, speeds_apart):
    rng = np.random.default_rng(1)
    seconds = rng.exponential(1.0, (60, 1)) * rng.uniform(0.8, 1.2, (60, 6)) * np.geomspace(1, speeds_apart, 6)
    ready_s = rng.uniform(0, 2, 6)
    bound_s = compute_bound(compute_problem(seconds, ready_s=ready_s)).seconds
    optimum_s = cim_lp_s(seconds, ready_s)
    assert 0.99 * optimum_s <= bound_s <= optimum_s * (1 + 1e-9)


def test_compute_bound_of_equal_accelerators_is_their_average_work(compute_problem):
    # 3 jobs of 1 s on 2 accelerators: 1.5 s, proven by prices of 1/2 each.
    bound = compute_bound(compute_problem(np.ones((3, 2))))
    assert bound.seconds == pytest.approx(1.5)
    assert bound.prices == pytest.approx([0.5, 0.5])


def test_accelerator_that_gets_ready_after_the_optimum_is_left_out(compute_problem):
    # 2 jobs of 1 s; accelerator 1 becomes ready at 100 s.  The optimum is 2 s.  The format's formula with prices of 1/2
    # would give 2 x 1/2 + 100/2 = 51 s.  The bound gives 1 / (1/2) = 2 s at best, and no prices.
    problem = compute_problem(np.ones((2, 2)), ready_s=[0.0, 100.0])
    bound = lower_bound(problem, at_most_s=2.0)
    assert bound.seconds == pytest.approx(2.0)
    assert lower_bound(problem).seconds <= 2.0


def test_prices_come_with_the_compute_bound_and_prove_it(compute_problem):
    # Ready at 0 and 1 s, 4 jobs of 1 s: 0 + 3 and 1 + 1 are not balanced, so the bound is (4 + 0 + 1) / 2 = 2.5 s.
    problem = compute_problem(np.ones((4, 2)), ready_s=[0.0, 1.0])
    bound = lower_bound(problem)
    assert bound.seconds == pytest.approx(2.5, rel=1e-3)
    assert bound.prices.sum() == pytest.approx(1.0, abs=1e-12)
    formula_s = (problem.seconds * bound.prices).min(axis=1).sum() + (bound.prices * problem.ready_s).sum()
    assert formula_s == pytest.approx(bound.seconds)


def test_no_prices_where_another_bound_is_larger(compute_problem):
    assert len(lower_bound(compute_problem([[5.0, 5.0], [1.0, 1.0]])).prices) == 0


def test_path_of_a_job_is_transfer_or_ready_slot_then_compute():
    # 1000 Mb.  Accelerator 0: min(1000, 500) Mbps takes 2 s, ready at 1 s, + 4 = 6 s.  Accelerator 1: 1 s, but it is
    # ready at 3 s and takes 1.5 s to load, + 2 = 6.5 s.
    problem = BatchProblem(
        seconds=[[4.0, 2.0]], input_bytes=[125_000_000], requester=[0], egress_bps=[1e9], responder=[0, 1],
        ingress_bps=[5e8, 2e9], ready_s=[1.0, 3.0], function=[1], loaded=[1, 0], load_s=[1.5, 1.5],
    )  # fmt: skip
    assert job_path_s(problem) == pytest.approx(6.0)


def test_load_that_begins_before_time_0_ends_sooner():
    # 1.5 s to load, 0.5 s of it before time 0, + 2 s.  If the slot is busy until 3 s, the load does not begin before.
    problem = BatchProblem(
        seconds=[[2.0]], input_bytes=[0], requester=[0], egress_bps=[1e9], responder=[0], ingress_bps=[1e9],
        function=[1], loaded=[0], load_s=[1.5], head_start_s=0.5,
    )  # fmt: skip
    assert job_path_s(problem) == pytest.approx(3.0)
    assert job_path_s(replace(problem, ready_s=[3.0])) == pytest.approx(6.5)
    assert job_path_s(replace(problem, head_start_s=2.0)) == pytest.approx(2.0)


def egress_problem(**optional) -> BatchProblem:
    """Return two jobs of 1000 Mb that compute for 1 s and 3 s, one requester of 1 Gbps, fast responders."""
    return BatchProblem(
        seconds=[[1.0, 1.0], [3.0, 3.0]], input_bytes=[125_000_000] * 2, requester=[0, 0], egress_bps=[1e9],
        responder=[0, 1], ingress_bps=[1e10, 1e10], **optional,
    )  # fmt: skip


def test_egress_bound_adds_the_tail_of_whichever_input_is_last():
    # Long tail first: 1 + 3 = 4 s.  Both inputs sent by 2 s, then the shorter tail: 3 s.  The larger one holds: 4 s.
    assert links_s(egress_problem()) == pytest.approx(4.0)


def test_egress_bound_begins_at_the_release():
    # Both are released at 5 s: 5 + max(1 + 3, 2 + 1) = 9 s.
    assert links_s(egress_problem(release_s=[5.0, 5.0])) == pytest.approx(9.0)


def test_job_that_may_run_on_its_own_host_does_not_count_as_sent():
    assert links_s(egress_problem(local_host=[1])) == 0.0


def test_ingress_bound_is_over_all_responders_together():
    # 2000 Mb over 200 + 300 Mbps take 4 s, then the shorter tail of 1 s.
    problem = BatchProblem(
        seconds=[[1.0, 1.0], [1.0, 1.0]], input_bytes=[125_000_000] * 2, requester=[0, 0], egress_bps=[np.inf],
        responder=[0, 1], ingress_bps=[2e8, 3e8],
    )  # fmt: skip
    assert links_s(problem) == pytest.approx(5.0)


def equal_jobs(responders: int, **other) -> BatchProblem:
    """Return four jobs of 1000 Mb and 1 s, one per requester; one slot on each responder; 1 Gbps everywhere."""
    given = {
        "seconds": np.ones((4, responders)), "input_bytes": [125_000_000] * 4, "requester": np.arange(4),
        "egress_bps": np.full(4, 1e9), "responder": np.arange(responders), "ingress_bps": np.full(responders, 1e9),
    }  # fmt: skip
    return BatchProblem(**given | other)


@pytest.mark.parametrize(("responders", "least_s"), [(1, 5.0), (2, 3.0), (4, 2.0)])
def test_stock_counts_that_inputs_arrive_before_they_are_computed(responders, least_s):
    # An input takes 1 s to arrive and 1 s to be computed on, while the next one arrives: 4 / responders + 1.
    assert backlog_bound_s(equal_jobs(responders), np.arange(4), 0.0) == pytest.approx(least_s)


def test_stock_is_above_the_other_bounds_where_large_jobs_are_computed_as_quickly_as_they_arrive():
    # An input takes 2 s because of its egress; two slots compute at 2 Gbps, as fast as the ingress.
    problem = equal_jobs(
        1, seconds=np.ones((4, 2)), egress_bps=np.full(4, 5e8), responder=[0, 0], ingress_bps=[2e9], requester=range(4)
    )
    others_s = max(job_path_s(problem), links_s(problem), compute_bound(problem).seconds)
    assert others_s == pytest.approx(3.0)
    # Backlog: 4 x (1 x 2 / 2 + 1 x 1 / 2) = 6 Gb s.  It has to fit under 2 t, 2 (T - t) and 2 (T - t) - (4 - 2 t): that
    # is 2 (T - 2)^2 / 2 at either end and 2 (T - 2) for 4 - T in between, 4 (T - 2) in total.
    assert backlog_bound_s(problem, np.arange(4), others_s) == pytest.approx(3.5)
    assert lower_bound(problem).seconds == pytest.approx(3.5)


def test_stock_says_nothing_where_ingress_has_no_limit_or_compute_takes_no_time():
    assert backlog_bound_s(equal_jobs(1, ingress_bps=[np.inf]), np.arange(4), 1.0) == 1.0
    assert backlog_bound_s(equal_jobs(1, seconds=np.zeros((4, 1))), np.arange(4), 1.0) == 1.0
    assert backlog_bound_s(equal_jobs(1), np.arange(0), 1.0) == 1.0


def test_stock_begins_at_the_first_release():
    assert backlog_bound_s(equal_jobs(1, release_s=[2.0, 3.0, 2.0, 2.0]), np.arange(4), 0.0) == pytest.approx(7.0)


def test_nothing_to_do_takes_no_time(compute_problem):
    bound = lower_bound(compute_problem(np.ones((0, 2))))
    assert (bound.seconds, len(bound.prices)) == (0.0, 0)
