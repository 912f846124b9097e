import numpy as np
import pytest

from fpga_pool.core.makespan.paper.ncjm import Ncjm, NcjmParams
from fpga_pool.core.types import BatchProblem

#: The bytes of 1 s at 1 Gbps.
SECOND = 125_000_000


def plan(problem, **params):
    return Ncjm(NcjmParams(**params)).decide(problem, None, 0.0, np.random.default_rng(0))


def problem(seconds, gigabits, **arrays):
    """Return a problem of one requester and one responder with 1 Gbps, except for the given `arrays`."""
    accelerators = np.shape(seconds)[1]
    given = {
        "seconds": seconds, "input_bytes": [round(SECOND * gigabit) for gigabit in gigabits],
        "requester": [0] * len(gigabits), "egress_bps": [1e9], "responder": [0] * accelerators, "ingress_bps": [1e9],
    }  # fmt: skip
    return BatchProblem(**(given | arrays))


def test_an_input_arrives_when_its_accelerator_gets_free():
    # Shortest first: job 1 is sent 0..1 and computes 1..3.  Job 0 could arrive at 2, but is sent more slowly until 3.
    found = plan(problem([[4.0], [2.0]], [1, 1]))
    assert found.start_s == pytest.approx([3.0, 1.0])
    assert found.segment_begin_s == pytest.approx([1.0, 0.0])
    assert found.segment_end_s == pytest.approx([3.0, 1.0])
    assert found.segment_bps == pytest.approx([0.5e9, 1e9])


def test_it_may_be_sent_at_once_instead():
    found = plan(problem([[4.0], [2.0]], [1, 1]), sending="as-soon-as-possible")
    assert found.segment_end_s == pytest.approx([2.0, 1.0])
    assert found.makespan_s == pytest.approx(7.0)


def test_the_longest_may_compute_first():
    found = plan(problem([[4.0], [2.0]], [1, 1]), order="longest")
    assert found.start_s == pytest.approx([1.0, 5.0])


def test_a_late_input_moves_all_later_starts():
    # The first transfer takes 3 s: job 0 computes 3..4 and job 1 4..6, sent 3..4 because the link is full before.
    found = plan(problem([[1.0], [2.0]], [3, 1]))
    assert found.start_s == pytest.approx([3.0, 4.0])
    assert found.segment_begin_s == pytest.approx([0.0, 3.0])


def test_the_job_that_can_start_first_is_sent_first():
    # Accelerator 1 is free at 2 s.  Job 0 on accelerator 0 is sent at once, job 1 after it until 2 s.
    found = plan(problem([[1.0, np.inf], [np.inf, 1.0]], [1, 1], ready_s=[0.0, 2.0]))
    assert found.segment_end_s == pytest.approx([1.0, 2.0])
    assert found.start_s == pytest.approx([1.0, 2.0])


def test_bandwidth_is_that_of_the_host_and_starts_are_those_of_its_accelerators():
    # Two accelerators of one responder: the inputs take 1 s each over the same link, one after the other.
    found = plan(problem([[1.0, np.inf], [np.inf, 1.0]], [1, 1]))
    assert sorted(found.start_s.tolist()) == pytest.approx([1.0, 2.0])


def test_jobs_of_responders_stay_at_home():
    # Elsewhere it would compute for 1 s instead of 3 s, and be sent in 0.1 s.
    found = plan(problem([[3.0, 1.0]], [0.1], responder=[0, 1], ingress_bps=[1e9, 1e9], local_host=[0]))
    assert found.accelerator.tolist() == [0]
    assert (len(found.segment_job), found.makespan_s) == (0, 3.0)


def test_a_job_that_its_own_host_cannot_run_goes_elsewhere():
    found = plan(problem([[np.inf, 1.0]], [1], responder=[0, 1], ingress_bps=[1e9, 1e9], local_host=[0]))
    assert found.accelerator.tolist() == [1]
    assert found.makespan_s == pytest.approx(2.0)


def test_an_input_is_not_sent_before_its_release():
    found = plan(problem([[1.0], [1.0]], [1, 1], release_s=[0.0, 5.0]))
    assert found.segment_begin_s == pytest.approx([0.0, 5.0])
    assert found.makespan_s == pytest.approx(7.0)


@pytest.mark.parametrize("params", [{"order": "random"}, {"sending": "later"}])
def test_refuses_wrong_parameters(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        NcjmParams(**params)
