"""The plan of a pipeline, which is made to its end, is how the pipeline then runs on a pool that nothing disturbs."""

import random

import pytest

from fpga_pool.model.messages.work import PipelineRequest, SubtaskRequest
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.pipeline.admission import admit_pipeline, create_pipeline
from fpga_pool.model.rules.pipeline.dry_run import plan_pipeline
from fpga_pool.sim.engine import Delays
from fpga_pool.sim.pool import SimulatedPool
from support.dry_runs import context_of, policies
from support.simulated import fresh_hosts


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """A board of two slots that load at once; jobs take one or two seconds, and one more per megabyte."""
    functions = {"aes": (1.0, "small", "large"), "sha256": (2.0, "small", "large")}
    return make_catalogue(functions, slots=["small", "large"], load_s=0.001, b_s_per_byte=1e-6)


def request(chance):
    """Return a pipeline whose subtasks each read up to two of those before them."""
    subtasks = []
    for number in range(chance.randint(1, 7)):
        after = tuple(chance.sample([one.name for one in subtasks], min(len(subtasks), chance.randint(0, 2))))
        subtasks.append(
            SubtaskRequest(
                uuid=f"j{number}", name=f"s{number}", function=chance.choice(["aes", "sha256"]), after=after,
                requester="" if after else "node-1", input_bytes=0 if after else chance.choice([10**6, 3 * 10**6]),
            )
        )  # fmt: skip
    return PipelineRequest(uuid="p", project_id="p", user_id="u", subtasks=tuple(subtasks))


@pytest.mark.parametrize("seed", range(20))
def test_the_plan_of_a_pipeline_comes_true_to_its_end(catalogue, seed):
    asked = request(random.Random(seed))
    hosts = fresh_hosts(catalogue, "fast", hosts=2, cards=1, egress_bps=1e9, ingress_bps=1e9)
    pool = SimulatedPool(catalogue, hosts, delays=Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0))
    plans = []

    def ask():
        with pool.store.reading() as tx:
            admitted = admit_pipeline(tx, asked, catalogue, pool.settings, pool.engine.now_s)
        context = context_of(pool.store.reading, pool.engine.now_s, catalogue, pool.settings)
        plans.append(plan_pipeline(*admitted, context))
        pool.change(lambda tx: create_pipeline(tx, asked, catalogue, pool.settings, pool.engine.now_s))

    pool.at(2.0, ask)
    pool.run_families(policies())
    (plan,), jobs = plans, pool.outcome("p").jobs
    assert {job.state for job in jobs} <= {JobState.COMPLETED, JobState.RESULT_HELD}
    # Later ones may find slots in another order: which of them is free first is a matter of milliseconds.
    first = [number for number, subtask in enumerate(plan.subtask_list) if subtask.requester]
    assert [plan.subtask_list[number].slot for number in first] == [jobs[number].slot for number in first]
    assert [plan.dispatched_at + one.end_s for one in plan.subtask_list] == pytest.approx(
        [job.finished_at for job in jobs], abs=0.05
    )
    assert plan.lower_bound_s <= plan.planned_makespan_s
