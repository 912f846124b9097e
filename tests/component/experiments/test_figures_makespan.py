"""The workload of the makespan paper, section 5, and the runners of its figures."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.types import BatchProblem
from fpga_pool.experiments.figures.figure import Settings
from fpga_pool.experiments.figures.makespan import small, throughput, variations, workload
from fpga_pool.experiments.figures.makespan import throughput as arrivals
from fpga_pool.experiments.figures.makespan.workload import Form, Shape, batch, draw

SETTINGS = Settings(seeds=(0,))


def test_workload_has_the_means_and_deviations_of_section_5_2():
    problem = batch(Form.JOINT, Shape(jobs=20_000, responders=20), seed=1)
    megabits = problem.input_bytes * 8e-6
    assert megabits.mean() == pytest.approx(200, rel=0.02)
    assert megabits.std() == pytest.approx(200, rel=0.03)  # exponential
    per_mb = problem.seconds / megabits[:, None]
    assert 0.8e-3 * (1 - 1e-3) <= per_mb[megabits > 1].min() <= per_mb[megabits > 1].max() <= 1.2e-3 * (1 + 1e-3)
    assert problem.accelerators == 100
    assert 0.8e9 <= problem.egress_bps.min() <= problem.egress_bps.max() <= 1.2e9
    assert 4e9 <= problem.ingress_bps.min() <= problem.ingress_bps.max() <= 6e9


def test_all_forms_and_numbers_of_hosts_have_the_same_jobs():
    shape = Shape(jobs=50)
    joint, network, compute = (batch(form, shape, 2) for form in (Form.JOINT, Form.NETWORK, Form.COMPUTE))
    assert np.array_equal(joint.input_bytes, network.input_bytes)
    assert np.array_equal(joint.seconds, compute.seconds)
    assert not network.seconds.any()
    assert not compute.input_bytes.any()
    assert np.isinf(compute.egress_bps).all()
    more = batch(Form.JOINT, replace(shape, requesters=400), 2)
    assert np.array_equal(joint.seconds, more.seconds)
    assert np.array_equal(joint.ingress_bps, more.ingress_bps)
    more = batch(Form.JOINT, replace(shape, responders=60), 2)
    assert np.array_equal(joint.requester, more.requester)
    assert np.array_equal(joint.egress_bps, more.egress_bps)
    assert not np.array_equal(joint.input_bytes, batch(Form.JOINT, shape, 3).input_bytes)


def test_mixtures_have_exact_shares():
    forms = variations.forms("network-and-both", 40, 1000, seed=0)
    counts = {form: int((forms == form).sum()) for form in Form}
    assert counts == {Form.COMPUTE: 400, Form.NETWORK: 300, Form.JOINT: 300}


def test_groups_are_equal_in_number_and_smallest_first():
    problem = variations.grouped(batch(Form.NETWORK, Shape(jobs=10), 0), 3)
    assert np.bincount(problem.group).tolist() == [4, 3, 3]
    largest = [problem.input_bytes[problem.group == group].max() for group in range(3)]
    assert largest == sorted(largest)


def test_estimates_err_by_job_in_proportion_to_its_input():
    shape = Shape(jobs=200, responders=2)
    actual = batch(Form.COMPUTE, shape, 4)
    believed = variations.estimated(actual, 30, shape, 4)
    ratio = (believed.seconds - actual.seconds) / (1e-3 * draw(shape, 4).megabits[:, None])
    assert np.allclose(ratio, ratio[:, :1])
    assert -0.3 <= ratio.min() < -0.25
    assert 0.25 < ratio.max() <= 0.3


def jobs_of(seconds, **optional) -> BatchProblem:
    jobs, accelerators = np.shape(seconds)
    return BatchProblem(
        seconds=seconds, input_bytes=[0] * jobs, requester=[0] * jobs, egress_bps=[np.inf],
        responder=[0] * accelerators, ingress_bps=[np.inf], **optional,
    )  # fmt: skip


def test_a_plan_is_kept_where_reality_differs():
    # Estimates of 3, 2 and 2 s on two accelerators give the plan 3 | 2 + 2, which is kept although job 0 takes 9 s.
    believed = jobs_of([[3.0, 3.0], [2.0, 2.0], [2.0, 2.0]])
    actual = jobs_of([[9.0, 9.0], [2.0, 2.0], [2.0, 2.0]])
    assert workload.makespan_s("makespan", believed, believed, 0) == pytest.approx(4.0)
    assert workload.makespan_s("makespan", believed, actual, 0) == pytest.approx(9.0)


def test_baselines_react_to_what_happens():
    # SJF expects 1, 2 and 3 s. Job 0 takes 9 s, so the other accelerator computes both other jobs: 2 + 3 s. A fixed
    # plan would compute job 2 after job 0.
    believed = jobs_of([[1.0] * 2, [2.0] * 2, [3.0] * 2])
    actual = jobs_of([[9.0] * 2, [2.0] * 2, [3.0] * 2])
    assert workload.makespan_s("sjf", believed, actual, 0) == pytest.approx(9.0)


@pytest.mark.parametrize("policy", ["makespan", "cim", "sjf"])
def test_a_later_batch_runs_on_what_the_earlier_one_leaves(policy):
    # A job of 4 s starts at 0 s. Jobs of 1 s and 3 s are released at 1 s and run on the other accelerator: 1 + 3 + 1 =
    # 5 s.
    problem = jobs_of([[4.0] * 2, [1.0] * 2, [3.0] * 2], release_s=[0.0, 1.0, 1.0])
    assert arrivals.makespan_s(policy, problem, 0) == pytest.approx(5.0)


def test_a_later_batch_is_sent_after_the_earlier_one():
    # One link of 8 Mbps and inputs of 1 MB: the first is sent from 0 to 1 s, the second, released at 0.5 s, from 1 to 2
    # s.
    problem = BatchProblem(
        seconds=[[0.0], [0.0]], input_bytes=[10**6] * 2, requester=[0, 0], egress_bps=[8e6], responder=[0],
        ingress_bps=[8e6], release_s=[0.0, 0.5],
    )  # fmt: skip
    assert arrivals.makespan_s("makespan", problem, 0) == pytest.approx(2.0)


def test_batches_arrive_evenly():
    problem = throughput.arriving(Form.COMPUTE, 4.0, 0, replace(SETTINGS, scale=0.05))
    times_s, jobs = np.unique(problem.release_s, return_counts=True)
    assert np.allclose(times_s, np.arange(20) / 4.0)
    assert jobs.tolist() == [10] * 20


def test_no_policy_is_below_the_optimum_of_a_small_batch():
    rows = list(small.measure(Form.COMPUTE, small.JOBS[0], 0, SETTINGS))
    assert rows[0].series == small.SOLVED
    assert all(row.value >= 1 - 1e-6 for row in rows)
    assert {"makespan", "sjf", "ljf", "cim"} <= {row.series for row in rows}
