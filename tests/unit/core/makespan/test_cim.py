import numpy as np
import pytest

from fpga_pool.core.makespan.paper.cim import Cim, CimParams
from fpga_pool.core.types import BatchProblem


def plan(problem, **params):
    return Cim(CimParams(**params)).decide(problem, None, 0.0, np.random.default_rng(0))


@pytest.mark.parametrize("method", ["one-shot", "bisection"])
def test_dnn_testbed_is_optimal(compute_problem, method):
    # Makespan paper, section 5.1: 6, 6, 6 and 18 thousand photos on two equal accelerators take 18.
    assert plan(compute_problem([[6.0, 6.0]] * 3 + [[18.0, 18.0]]), method=method).makespan_s == pytest.approx(18.0)


def test_each_accelerator_computes_its_shortest_job_first(compute_problem):
    found = plan(compute_problem([[3.0], [1.0], [2.0]]))
    assert np.argsort(found.start_s).tolist() == [1, 2, 0]


def test_an_accelerator_that_is_busy_gets_less(compute_problem):
    # c_0 = 3: the other accelerator completes all three jobs of 1 s by 3.
    assert plan(compute_problem([[1.0, 1.0]] * 3, ready_s=[3.0, 0.0])).accelerator.tolist() == [1, 1, 1]


def test_a_load_counts_as_computation(compute_problem):
    # 1 s after a load of 5 s, compared with 3 s.
    found = plan(compute_problem([[1.0, 3.0]], function=[7], loaded=[0, 7], load_s=[5.0, 5.0]))
    assert found.accelerator.tolist() == [1]


def test_a_batch_that_arrives_later_is_planned_on_what_the_first_leaves(compute_problem):
    # Job 0 holds accelerator 0 until 5 s; job 1, released at 1 s, takes the slower one: 1 + 3 = 4 s.
    found = plan(compute_problem([[5.0, 9.0], [2.0, 3.0]], release_s=[0.0, 1.0]))
    assert found.accelerator.tolist() == [0, 1]
    assert found.makespan_s == pytest.approx(5.0)


def test_small_jobs_of_a_divided_batch_do_not_wait(compute_problem):
    # Longest first is not an order of the paper.  With two groups the jobs of 1 s come first, one on each accelerator.
    found = plan(compute_problem([[4.0, 4.0], [4.0, 4.0], [1.0, 1.0], [1.0, 1.0]]), size_groups=2)
    assert found.start_s[2:].tolist() == [0.0, 0.0]


def test_inputs_are_sent_in_the_order_of_the_starts():
    # One link of 1 Gbps, 1 s each, the shorter job first: it computes 1..2, the other one from 2 on.
    problem = BatchProblem(
        seconds=[[3.0], [1.0]], input_bytes=[125_000_000] * 2, requester=[0, 0], egress_bps=[1e9], responder=[0],
        ingress_bps=[1e9],
    )  # fmt: skip
    found = plan(problem)
    assert found.start_s == pytest.approx([2.0, 1.0])
    assert found.makespan_s == pytest.approx(5.0)


def test_bisection_depends_on_the_seed_alone(compute_problem):
    problem = compute_problem(np.random.default_rng(3).uniform(1, 9, (12, 3)))
    one, two = (plan(problem, method="bisection") for _ in range(2))
    assert one.accelerator.tolist() == two.accelerator.tolist()


@pytest.mark.parametrize(
    ("params", "message"),
    [({"method": "guess"}, "method"), ({"epsilon": 0.0}, "epsilon"), ({"size_groups": 0}, "size_groups")],
)
def test_refuses_wrong_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        CimParams(**params)
