"""The contract that every batch policy must keep."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan.bounds import lower_bound
from fpga_pool.core.makespan.execution import execute
from fpga_pool.core.policy import Searching
from fpga_pool.core.types import BatchProblem
from support.pages import blocks, path_of

STATELESS_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


#: The effort of searching policies: a fifth of the default of `makespan`.
EFFORT = 60


#: `exact` refuses some of these problems, and has tests of its own; `mine` is the example of the page on extending.
@pytest.fixture(params=["mine", *(name for name in policy_names("batch") if name != "exact")])
def policy(request):
    if request.param != "mine":
        found = load_policy("batch", request.param)
        return found.searching(EFFORT, None, time.perf_counter) if isinstance(found, Searching) else found
    (example,) = [block.text for block in blocks(path_of("contributor/extending")) if block.caption == "mine.py"]
    module = {}
    exec(compile(example, "mine.py", "exec"), module)
    return module["Mine"]()


def decide(policy, problem, seed=0):
    return policy.decide(problem, None, 0.0, np.random.default_rng(seed))


@STATELESS_FIXTURES
@given(data=st.data())
def test_checker_accepts_every_plan_and_its_bound(policy, verdict, problems, data):
    problem = data.draw(problems())
    plan = decide(policy, problem)
    said = verdict(problem, plan)
    assert said["faults"] == []
    assert plan.makespan_s == pytest.approx(said["makespan_s"], rel=1e-9)
    assert (plan.start_s >= problem.release_s).all()
    assert plan.lower_bound_s <= plan.makespan_s
    # Capping the claimed bound at the makespan corrects only rounding.
    assert lower_bound(problem, plan.makespan_s).seconds <= plan.makespan_s * (1 + 1e-9)
    if (problem.local_host < 0).all():  # the checker's own bound counts local jobs as sent
        assert said["proven_bound_s"] <= plan.makespan_s * (1 + 1e-6)


@STATELESS_FIXTURES
@given(data=st.data())
def test_same_seed_gives_same_plan(policy, problems, data):
    problem = data.draw(problems())
    one, two = decide(policy, problem, seed=7), decide(policy, problem, seed=7)
    for name in ("accelerator", "start_s", "segment_job", "segment_begin_s", "segment_end_s", "segment_bps"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name


@STATELESS_FIXTURES
@given(data=st.data())
def test_slots_that_queue_by_start_time_reproduce_the_plan(policy, problems, data):
    problem = data.draw(problems())
    plan = decide(policy, problem)
    arrived_s = np.array(problem.release_s)
    np.maximum.at(arrived_s, plan.segment_job, plan.segment_end_s)
    replayed_s = execute(problem, plan.accelerator, np.argsort(plan.start_s, kind="stable"), arrived_s)
    ends_s = replayed_s + problem.seconds[np.arange(problem.jobs), plan.accelerator]
    assert ends_s.max() == pytest.approx(plan.makespan_s, rel=1e-6)


def test_one_job_on_one_accelerator_is_optimal_and_proved(policy):
    # 125 MB = 1000 Mb at 500 Mbps take 2 s, and compute 3 s.
    problem = BatchProblem(
        seconds=[[3.0]], input_bytes=[125_000_000], requester=[0], egress_bps=[1e9], responder=[0], ingress_bps=[5e8]
    )
    plan = decide(policy, problem)
    assert plan.start_s.tolist() == [2.0]
    assert plan.segment_bps.tolist() == [5e8]
    assert (plan.makespan_s, plan.lower_bound_s) == (5.0, 5.0)


def test_two_jobs_each_go_where_they_are_quick(policy, compute_problem):
    # The optimum is 1 s: each on its fast accelerator.  Both baselines choose jobs for accelerators, so ties in size
    # cannot mislead them here: SJF by completion time, LJF because job 1 is larger and accelerator 0 cannot run it.
    plan = decide(policy, compute_problem([[1.0, np.inf], [np.inf, 1.0]]))
    assert plan.accelerator.tolist() == [0, 1]
    assert (plan.makespan_s, plan.lower_bound_s) == (1.0, 1.0)


def test_empty_batch_gives_empty_plan(policy):
    problem = BatchProblem(
        seconds=np.zeros((0, 2)), input_bytes=[], requester=[], egress_bps=[1e9], responder=[0, 0], ingress_bps=[1e9]
    )
    plan = decide(policy, problem)
    assert len(plan.accelerator) == len(plan.segment_job) == 0
    assert (plan.makespan_s, plan.lower_bound_s) == (0.0, 0.0)


def test_job_at_its_own_host_needs_no_transfer(policy):
    # Over the network it takes 8 s; on its own host the job starts at once.
    problem = BatchProblem(
        seconds=[[2.0]], input_bytes=[10**9], requester=[0], egress_bps=[1e9], responder=[1],
        ingress_bps=[1e9, 1e9], local_host=[1],
    )  # fmt: skip
    plan = decide(policy, problem)
    assert len(plan.segment_job) == 0
    assert (plan.makespan_s, plan.lower_bound_s) == (2.0, 2.0)


def test_lower_group_computes_first(policy, compute_problem):
    # One accelerator; the job of group 0 is first although it is neither the shortest nor the largest.
    plan = decide(policy, compute_problem([[1.0], [2.0], [3.0]], group=[1, 0, 1]))
    assert plan.start_s[1] == 0.0


def test_higher_group_goes_ahead_while_the_lower_is_not_released(policy, compute_problem):
    # Job 0 (group 1) runs 0..1, since job 1 (group 0) is released only at 5.
    plan = decide(policy, compute_problem([[1.0], [1.0]], group=[1, 0], release_s=[0.0, 5.0]))
    assert plan.start_s.tolist() == [0.0, 5.0]


def test_load_overlaps_the_transfer(policy):
    # 1000 Mb at 1 Gbps arrive at 1 s; loading takes 3 s from ready_s = 0.5 on: compute starts at 3.5.
    problem = BatchProblem(
        seconds=[[1.0]], input_bytes=[125_000_000], requester=[0], egress_bps=[1e9], responder=[0], ingress_bps=[1e9],
        ready_s=[0.5], function=[1], loaded=[0], load_s=[3.0],
    )  # fmt: skip
    plan = decide(policy, problem)
    assert plan.start_s.tolist() == [3.5]
    assert (plan.makespan_s, plan.lower_bound_s) == (4.5, 4.5)
