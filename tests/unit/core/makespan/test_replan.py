"""Replanning of jobs that have not started."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.makespan import Ect, Makespan
from fpga_pool.core.makespan.fluid import Segments
from fpga_pool.core.makespan.replan import ReplanParams, replan
from fpga_pool.core.makespan.underway import Underway, underway_at
from fpga_pool.core.types import BatchProblem

NOTHING = Segments(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))
ONLY_APPEND = ReplanParams(effort=0)


def computing(problem, accelerator, start_s, **changes):
    """Return a plan under way without transfers."""
    return Underway(
        problem=problem,
        accelerator=np.array(accelerator),
        start_s=np.array(start_s, float),
        begun=np.zeros(problem.jobs, bool),
        transfers=NOTHING,
        **changes,
    )


def some_plan_under_way(data, problems):
    problem = data.draw(problems())
    plan = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    now_s = data.draw(st.sampled_from([0.0, 0.3, 0.7])) * plan.makespan_s
    jobs, slots = range(problem.jobs), range(problem.accelerators)
    arrived = data.draw(st.sets(st.sampled_from(jobs), max_size=2))
    able = np.isfinite(problem.seconds)
    dispensable = [slot for slot in slots if np.delete(able, slot, axis=1).any(axis=1).all()]
    lost = [data.draw(st.sampled_from(dispensable))] if dispensable and data.draw(st.booleans()) else []
    return underway_at(problem, plan, now_s, lost=lost, arrived=arrived)[0]


@given(data=st.data())
def test_any_plan_cut_anywhere_goes_on_as_a_valid_plan_that_is_never_worse_than_to_append(data, problems, verdict):
    underway = some_plan_under_way(data, problems)
    if underway.problem.jobs == 0:
        return
    found, appended = replan(underway), replan(underway, ONLY_APPEND)
    said = verdict(underway.problem, found.plan)
    assert said["valid"], said
    assert found.plan.makespan_s <= appended.plan.makespan_s
    stays = underway.begun & underway.kept
    assert (found.plan.accelerator[stays] == underway.accelerator[stays]).all()
    assert (found.placed | (found.plan.accelerator == underway.accelerator)).all()
    for group in np.unique(underway.problem.group):
        ends = [end_of(underway.problem, answer.plan, group) for answer in (found, appended)]
        assert ends[0] <= ends[1] * (1 + 1e-9)


def end_of(problem, plan, group):
    rows = np.flatnonzero(problem.group == group)
    return float((plan.start_s[rows] + problem.seconds[rows, plan.accelerator[rows]]).max())


def test_the_same_events_have_the_same_answer(compute_problem):
    seconds = np.random.default_rng(3).uniform(1.0, 9.0, (40, 6))
    problem = compute_problem(seconds)
    plan = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    answers = [replan(underway_at(problem, plan, 2.0, lost=[1])[0]).plan for _ in range(2)]
    assert (answers[0].accelerator == answers[1].accelerator).all()
    assert (answers[0].start_s == answers[1].start_s).all()


def test_a_new_job_goes_behind_the_queue_that_lets_it_end_first(compute_problem):
    # The queues end at 5 and 2; the new job takes 1 or 3 s, so it ends at 6 or 5.
    problem = compute_problem([[5.0, np.inf], [np.inf, 2.0], [1.0, 3.0]])
    found = replan(computing(problem, [0, 1, -1], [0.0, 0.0, 0.0]), ONLY_APPEND)
    assert found.plan.accelerator.tolist() == [0, 1, 1]
    assert found.plan.start_s.tolist() == [0.0, 0.0, 2.0]
    assert found.placed.tolist() == [False, False, True]


def test_jobs_leave_a_queue_that_got_longer_than_planned(compute_problem):
    # Accelerator 0 is 6 s late with its running job; its three jobs of 1 s fit behind the other's two.
    problem = compute_problem(np.ones((5, 2)), ready_s=[6.0, 0.0])
    found = replan(computing(problem, [0, 0, 0, 1, 1], [0.0, 1.0, 2.0, 0.0, 1.0]))
    assert found.plan.accelerator.tolist() == [1, 1, 1, 1, 1]
    assert found.plan.makespan_s == 5.0
    # The jobs that stay keep their order.
    assert found.plan.start_s[[3, 4]].tolist() == [0.0, 1.0]


def test_nobody_moves_for_less_than_it_is_worth(compute_problem):
    # A move would reduce 10 s to 9.95 s.
    problem = compute_problem([[5.0, 4.95], [5.0, 5.0]], ready_s=[0.0, 5.0])
    underway = computing(problem, [0, 0], [0.0, 5.0])
    assert not replan(underway, ReplanParams(gain=0.01)).placed.any()
    assert replan(underway, ReplanParams(gain=0.001)).placed.tolist() == [True, False]


def test_a_batch_is_not_delayed_for_a_later_one(compute_problem):
    # If the first batch's job moved away, the second one's, which is slow elsewhere, would end at 5 s.
    problem = compute_problem([[4.0, 4.5], [5.0, 20.0]], group=[0, 1])
    found = replan(computing(problem, [0, -1], [0.0, 0.0]))
    assert found.plan.accelerator.tolist() == [0, 0]
    assert found.plan.start_s.tolist() == [0.0, 4.0]


def test_a_search_is_asked_where_balancing_overlooks_that_a_link_is_busy():
    # Accelerator 0 has two jobs of 4 s.  The one that could move would end after 4.1 s on accelerator 1, if a transfer
    # did not fill its link for 7.5 s; on accelerator 2 it takes 6.1 s.
    problem = BatchProblem(
        seconds=[[4.0, np.inf, np.inf, np.inf], [4.0, 4.0, 6.0, np.inf], [np.inf, 0.0, np.inf, 0.0]],
        input_bytes=[0, 10**6, 75 * 10**6], requester=[0, 0, 1], egress_bps=[np.inf, np.inf],
        responder=[0, 1, 2, 1], ingress_bps=[8e7] * 3, local_host=[0, -1],
    )  # fmt: skip
    underway = Underway(
        problem=problem,
        accelerator=np.array([0, 0, 3]),
        start_s=np.array([0.0, 4.0, 7.5]),
        begun=np.array([False, False, True]),
        transfers=Segments(np.array([2]), np.array([0.0]), np.array([7.5]), np.array([8e7])),
    )
    asked = []

    def search(pinned):
        asked.append(pinned)
        plan = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
        return replace(plan, accelerator=np.array([0, 2, 3]))

    found = replan(underway, search=search)
    # A job that has begun can run nowhere else.
    assert asked[0].seconds[2].tolist() == [np.inf, np.inf, np.inf, 0.0]
    assert found.method == "search"
    assert found.plan.start_s.tolist() == pytest.approx([0.0, 0.1, 7.5])


def test_a_lost_accelerator_runs_nothing_and_what_computed_there_is_planned_again(compute_problem):
    problem = compute_problem(np.full((4, 2), 2.0))
    plan = Ect().decide(problem, None, 0.0, np.random.default_rng(0))
    underway, left = underway_at(problem, plan, 1.0, lost=[0])
    # Two queues of two jobs have computed for a second each.  Three jobs are left, two of them without an accelerator.
    assert (len(left), int((~underway.kept).sum())) == (3, 2)
    found = replan(underway)
    assert set(found.plan.accelerator.tolist()) == {1}
    assert found.plan.makespan_s == pytest.approx(1.0 + 3 * 2.0)


def test_a_new_transfer_takes_what_those_under_way_leave(network_problem):
    # 8 Mb are left of a transfer at 6 of the 8 Mbit/s of a link.  Another 4 Mb begin at 2 Mbit/s, and get all after 8/6
    # s: 2 * 8/6 = 2.667 Mb by then, the other 1.333 Mb in 1/6 s: 1.5 s.
    problem = network_problem([8, 4], [0, 1], [100, 100], [0], [8])
    under_way = Segments(np.array([0]), np.array([0.0]), np.array([8 / 6]), np.array([6e6]))
    found = replan(
        Underway(
            problem=problem,
            accelerator=np.array([0, -1]),
            start_s=np.array([8 / 6, 0.0]),
            begun=np.array([True, False]),
            transfers=under_way,
        )
    )
    assert found.plan.start_s.tolist() == pytest.approx([8 / 6, 1.5])
    assert found.plan.segment_bps.tolist() == pytest.approx([6e6, 2e6, 8e6])


def test_an_input_under_way_stays_where_it_goes(network_problem):
    # Both responders are idle, but half of the first input has been sent.
    problem = network_problem([4, 4], [0, 1], [8, 8], [0, 1], [4, 8])
    found = replan(
        Underway(
            problem=problem,
            accelerator=np.array([0, 0]),
            start_s=np.array([1.0, 2.0]),
            begun=np.array([True, False]),
            transfers=Segments(np.array([0, 1]), np.array([0.0, 1.0]), np.array([1.0, 2.0]), np.full(2, 4e6)),
        )
    )
    assert found.plan.accelerator.tolist() == [0, 1]


def test_transfers_behind_a_late_one_are_planned_again(network_problem):
    # The first transfer will take 1 s longer than planned, so the other one begins 1 s later on the same link.
    problem = network_problem([8, 4], [0, 1], [100, 100], [0], [4])
    late = Segments(np.array([0, 1]), np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.full(2, 4e6))
    found = replan(
        Underway(
            problem=problem,
            accelerator=np.array([0, 0]),
            start_s=np.array([1.0, 2.0]),
            begun=np.array([True, False]),
            transfers=late,
            retime=True,
        )
    )
    assert found.retimed.tolist() == [False, True]
    assert found.plan.segment_begin_s.tolist() == pytest.approx([0.0, 2.0])
    assert found.plan.start_s.tolist() == pytest.approx([2.0, 3.0])


def test_what_is_left_of_a_transfer_that_is_not_as_planned_gets_what_the_others_leave(network_problem):
    # 8 Mbit/s out, 6 and 8 in.  The first transfer continues at 6 until 2 s.  The other one was to continue at 2 to its
    # end; it gets 2 for 2 s, and then all: 4 Mbit of 8 are left, for 0.5 s.
    problem = network_problem([12, 8], [0, 0], [8], [0, 1], [6, 8])
    under_way = Segments(np.array([0, 1]), np.zeros(2), np.array([2.0, 4.0]), np.array([6e6, 2e6]))
    found = replan(
        Underway(
            problem=problem,
            accelerator=np.array([0, 1]),
            start_s=np.array([2.0, 4.0]),
            begun=np.array([True, True]),
            transfers=under_way,
            retime=True,
            astray=np.array([False, True]),
        )
    )
    assert found.retimed.tolist() == [False, True]
    assert found.plan.segment_bps.tolist() == pytest.approx([6e6, 2e6, 8e6])
    assert found.plan.segment_end_s.tolist() == pytest.approx([2.0, 2.0, 2.5])
    assert not found.placed.any()


@pytest.mark.parametrize("wrong", [{"effort": -1}, {"effort": 1.5}, {"gain": -0.1}, {"gain": float("inf")}])
def test_params_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ReplanParams(**wrong)


@pytest.mark.parametrize(
    ("change", "said"), [({"accelerator": np.array([0])}, "shape"), ({"accelerator": np.array([0, 9])}, "out of range")]
)
def test_a_plan_under_way_of_another_problem_is_refused(compute_problem, change, said):
    underway = computing(compute_problem(np.ones((2, 2))), [0, 1], [0.0, 0.0])
    with pytest.raises(ValueError, match=f"accelerator: .*{said}"):
        replace(underway, **change)


@pytest.mark.parametrize(("seconds", "ready_s", "pays"), [(0.002, 0.0, False), (2.0, 0.0, True), (0.002, 1.0, True)])
def test_a_sparing_policy_leaves_alone_what_is_over_in_a_moment(compute_problem, seconds, ready_s, pays):
    # 20 jobs at 0.1 ms each, and 2 % of the time: a plan pays from 0.1 s of work, or if a slot is busy for that long.
    problem = compute_problem(np.full((20, 2), seconds), ready_s=np.full(2, ready_s))
    underway = computing(problem, [0] * 20, np.arange(20) * seconds)
    found = Makespan().sparing(0.02).replan(underway, None, np.random.default_rng(0))
    assert (found is not None) == pays
