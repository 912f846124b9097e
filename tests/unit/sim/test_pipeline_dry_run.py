"""The plan of a whole pipeline predicts how it runs on a pool without disturbances."""

import random
from itertools import count

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
    """Return a catalogue with a board of two slots that load at once; jobs take 1 or 2 s, and 1 s more per megabyte."""
    functions = {"aes": (1.0, "small", "large"), "sha256": (2.0, "small", "large")}
    return make_catalogue(functions, slots=["small", "large"], load_s=0.001, b_s_per_byte=1e-6)


@pytest.fixture(scope="module")
def doubling(make_catalogue):
    """Return a catalogue whose results are as large as the inputs: reading two results doubles the size."""
    function = {
        "version": "1.0", "slot_kinds": ["small"], "io_bps": 8e6, "preemptible": False,
        "cpu_time": {"a_s": 1.0, "b_s_per_byte": 1e-9}, "fpga_time": {"fast": {"a_s": 1.0, "b_s_per_byte": 1e-10}},
        "result_size": {"a_bytes": 0.0, "b_bytes_per_byte": 1.0}, "source": "test",
    }  # fmt: skip
    return make_catalogue({"aes": function}, slots=["small", "large"], load_s=0.001)


def layers(number):
    """Return a pipeline of layers of two subtasks, each of which reads both results of the layer before."""
    subtasks = tuple(
        SubtaskRequest(
            uuid=f"j{layer}.{side}", name=f"s{layer}.{side}", function="aes",
            after=(f"s{layer - 1}.0", f"s{layer - 1}.1") if layer else (),
            requester="" if layer else "node-1", input_bytes=0 if layer else 1000,
        )
        for layer in range(number) for side in range(2)
    )  # fmt: skip
    return PipelineRequest(uuid="p", project_id="p", user_id="u", subtasks=subtasks)


def test_results_that_are_too_large_to_be_read_end_a_plan(doubling):
    plan, jobs = planned(doubling, layers(40))
    # 1000 bytes doubled 30 times are less than 2**40, doubled 31 times more.
    assert [one.end_s is not None for one in plan.subtask_list] == [True] * 2 * 31 + [False] * 2 * 9
    states = [JobState.COMPLETED] * 62 + [JobState.FAILED] * 2 + [JobState.CANCELLED] * 16
    assert [job.state for job in jobs] == states
    assert plan.pending_reason == (
        f"subtask s31.0 would fail: the results of its predecessors are {1000 * 2**31} bytes, more than the pool takes"
    )
    assert (plan.lower_bound_s, plan.planned_makespan_s, plan.ends_at) == (None, None, None)


def test_a_pipeline_that_takes_longest_to_plan_is_planned_in_part(catalogue):
    subtasks = tuple(
        SubtaskRequest(
            uuid=f"j{number}", name=f"s{number}", function="aes", after=(f"s{number - 1}",) if number else (),
            requester="" if number else "node-1", input_bytes=0 if number else 1000,
        )
        for number in range(20)
    )  # fmt: skip
    asked = PipelineRequest(uuid="p", project_id="p", user_id="u", subtasks=subtasks)
    now = count(0, 0.25)
    plan, _ = planned(catalogue, asked, timer=now.__next__)
    assert [one.end_s is not None for one in plan.subtask_list] == [True] * 9 + [False] * 11
    assert plan.pending_reason == "only its first subtasks are planned: a plan of all would take too long"


def request(chance):
    """Return a pipeline whose subtasks each read up to two earlier ones."""
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
    plan, jobs = planned(catalogue, request(random.Random(seed)))
    assert {job.state for job in jobs} <= {JobState.COMPLETED, JobState.RESULT_HELD}
    # Later ones may get slots in another order, since milliseconds decide which slot is free first.
    first = [number for number, subtask in enumerate(plan.subtask_list) if subtask.requester]
    assert [plan.subtask_list[number].slot for number in first] == [jobs[number].slot for number in first]
    assert [plan.dispatched_at + one.end_s for one in plan.subtask_list] == pytest.approx(
        [job.finished_at for job in jobs], abs=0.05
    )
    assert plan.lower_bound_s <= plan.planned_makespan_s


def planned(catalogue, asked, **options):
    """Return the plan of a pipeline, and its jobs at the end of the run."""
    hosts = fresh_hosts(catalogue, "fast", hosts=2, cards=1, egress_bps=1e9, ingress_bps=1e9)
    pool = SimulatedPool(catalogue, hosts, delays=Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0))
    plans = []

    def ask():
        with pool.store.reading() as tx:
            admitted = admit_pipeline(tx, asked, catalogue, pool.settings, pool.engine.now_s)
        context = context_of(pool.store.reading, pool.engine.now_s, catalogue, pool.settings, **options)
        plans.append(plan_pipeline(*admitted, context))
        pool.change(lambda tx: create_pipeline(tx, asked, catalogue, pool.settings, pool.engine.now_s))

    pool.at(2.0, ask)
    pool.run_families(policies())
    return plans[0], pool.outcome("p").jobs
