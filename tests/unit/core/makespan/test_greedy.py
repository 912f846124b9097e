"""Plans that take almost no time to make."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.makespan import Ect, Makespan, MakespanParams
from fpga_pool.core.makespan.greedy import even_work_s, fitting_effort, greedy_plan


@given(data=st.data())
def test_checker_accepts_every_quick_plan_and_its_bound(data, problems, verdict):
    problem = data.draw(problems())
    plan = greedy_plan(problem, "makespan")
    said = verdict(problem, plan)
    assert said["valid"], said
    assert plan.makespan_s == pytest.approx(said["makespan_s"], rel=1e-9)
    assert plan.lower_bound_s <= plan.makespan_s


def test_where_nothing_moves_it_is_the_plan_of_earliest_completion(compute_problem):
    problem = compute_problem(np.random.default_rng(1).uniform(1.0, 5.0, (30, 4)))
    quick, ect = greedy_plan(problem, ""), Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    assert (quick.accelerator == ect.accelerator).all()
    assert quick.start_s == pytest.approx(ect.start_s)


def test_jobs_that_take_no_time_are_spread_all_the_same(compute_problem):
    # In reality they take longer than the time model says.
    assert np.bincount(greedy_plan(compute_problem(np.zeros((8, 4))), "").accelerator).tolist() == [2, 2, 2, 2]


def test_inputs_follow_each_other_on_a_link(network_problem):
    # 8 Mb and 4 Mb from two requesters to one responder at 8 Mbit/s take 1 s, then 0.5 s.
    plan = greedy_plan(network_problem([8, 4], [0, 1], [100, 100], [0], [8]), "")
    assert plan.segment_begin_s.tolist() == pytest.approx([0.0, 1.0])
    assert plan.segment_end_s.tolist() == pytest.approx([1.0, 1.5])


@pytest.mark.parametrize(
    ("work_s", "ready_s", "done_s"),
    [
        (6.0, [0.0, 0.0], 3.0),
        (6.0, [0.0, 2.0], 4.0),  # 2 s of one, then 2 s of both
        (1.0, [0.0, 5.0], 1.0),  # the second one is ready too late
        (0.0, [3.0], 0.0),
    ],
)
def test_work_fills_machines_up_to_one_level(work_s, ready_s, done_s):
    assert even_work_s(np.array([work_s / 2, work_s / 2]), np.array(ready_s)) == pytest.approx(done_s)


def test_effort_fits_what_a_batch_takes(compute_problem, network_problem):
    # 100 s of work on 10 accelerators: 2 % of 10 s are 200 ms.
    assert fitting_effort(compute_problem(np.ones((100, 10))), 0.02, 300) == 200
    assert fitting_effort(compute_problem(np.ones((100, 10))), 0.02, 50) == 50
    assert fitting_effort(compute_problem(np.full((100, 10), 0.01)), 0.02, 300) == 0
    # 80 Mb leave one requester at 8 Mbit/s, which takes 10 s as well.
    assert fitting_effort(network_problem([40, 40], [0, 0], [8], [0, 1], [100, 100]), 0.02, 300) == 200


def test_a_sparing_policy_plans_short_batches_quickly_and_searches_for_long_ones(compute_problem):
    policy = Makespan(MakespanParams(effort=20)).sparing(0.02)
    seconds = np.random.default_rng(2).uniform(1.0, 5.0, (40, 5))
    short, long = compute_problem(seconds / 1000), compute_problem(seconds)
    rng = np.random.default_rng(0)
    for each in (policy, policy.searching(None, None, lambda: 0.0)):
        assert each.decide(short, None, 0.0, rng).makespan_s == greedy_plan(short, "").makespan_s
    assert policy.decide(long, None, 0.0, rng).makespan_s < greedy_plan(long, "").makespan_s


def test_no_job_is_no_plan(compute_problem):
    assert greedy_plan(compute_problem(np.zeros((0, 2))), "").makespan_s == 0.0
