"""Invariants of every world under every policy, and times computed by hand."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.cli.sim.cluster import make_law
from fpga_pool.conf.policies import policy_names, policy_with
from fpga_pool.core.cluster.policies import NODE_POLICIES
from fpga_pool.sim.cluster.bound import bounds, summary
from fpga_pool.sim.cluster.simulator import pipeline_steps, simulate
from fpga_pool.sim.cluster.tables import read_world
from fpga_pool.sim.cluster.workload import draw
from support.seeds import names

WORLD = """
[estimates]
error = 0.5
noise = 0.3
[interference.accelerator]
law = "{law}"
[interference.cpu]
law = "bottleneck"
[nodes.a]
count = 2
cores = 2
memory_gb = 4
accelerator = "x"
accelerators = 2
accelerator_memory_gb = 3
places = {places}
fails_after_s = {fails_after_s}
repair_s = 15
[nodes.b]
count = 2
cores = 3
memory_gb = 3
speed = 1.5
[nodes.c]
present = false
cores = 1
memory_gb = 8
accelerator = "y"
accelerators = 1
accelerator_memory_gb = 8
[subtasks.read]
seconds = {{ cpu = [0.2, 0.01] }}
memory_gb = 1
cpu_demands = {{ bandwidth = 0.6 }}
[subtasks.filter]
seconds = {{ cpu = [1, 0.1], x = [0.5, 0.02], y = 1 }}
memory_gb = 2
accelerator_memory_gb = 1.5
demands = {{ sm = 0.7, dram = 0.2 }}
[subtasks.match]
seconds = {{ cpu = [2, 0.05], x = [0.2, 0.03] }}
memory_gb = 1.5
accelerator_memory_gb = 1
demands = {{ sm = 0.2, dram = 0.9 }}
[pipelines.chain]
subtasks = ["read", "filter", "match"]
[pipelines.fork]
subtasks = ["read", "filter", "match"]
edges = [["read", "filter"], ["read", "match"]]
[[arrivals]]
tasks = {tasks}
per_minute = 60
input_mb = [1, 40]
together = {together}
persistence = 0.5
burst_factor = 4
burst_s = 5
calm_s = 10
[[events]]
at_s = 5
kind = "join"
nodes = "c"
[[events]]
at_s = 10
kind = "leave"
nodes = "b"
[[events]]
at_s = 12
kind = "fail"
nodes = "a"
"""

#: Two tasks of one subtask each, of 10 s on the only accelerator.
PAIR = """
[nodes.only]
cores = 1
memory_gb = 8
accelerator = "x"
accelerators = 1
accelerator_memory_gb = 8
[subtasks.step]
seconds = { x = 10 }
memory_gb = 5
demands = { sm = 0.8 }
[pipelines.single]
subtasks = ["step"]
[interference.accelerator]
law = "bottleneck"
[[arrivals]]
tasks = 2
per_minute = 120
together = 2
spacing = "even"
input_mb = 125
"""

SETTINGS = [(corun, admission) for corun in (False, True) for admission in (False, True)]


def run(world, policy, seed=0, **values):
    workload = draw(world, seed)
    return workload, simulate(world, workload, policy_with("cluster", policy, values), seed)


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    policy=st.sampled_from(policy_names("cluster")),
    node=st.sampled_from(sorted(NODE_POLICIES)),
    corun_admission=st.sampled_from(SETTINGS),
    seed=st.integers(0, 1000),
)
def test_every_subtask_runs_once_after_those_it_needs_within_the_memory(
    world, data, policy, node, corun_admission, seed
):
    law = data.draw(st.sampled_from(["saturation", "pressure", "bottleneck"]))
    places, together = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    fails_after_s = data.draw(st.sampled_from([8, 1e6]))
    text = WORLD.format(law=law, places=places, together=together, fails_after_s=fails_after_s, tasks=40)
    there = world(text)
    corun, admission = corun_admission
    workload, outcome = run(there, policy, seed, node=node, corun=corun, admission=admission)
    pipelines = pipeline_steps(there)
    # Nodes of kind b never fail and can run every pipeline.
    assert np.isfinite(outcome.end_s).all()
    done = defaultdict(list)
    for each in outcome.executions:
        if each.completed:
            done[each.task, each.step].append(each)
            assert each.end_s - each.begin_s >= each.alone_s * (1 - 1e-6)
    last = {}
    for task, number in enumerate(workload.pipeline):
        pipeline = pipelines[number]
        for step, before in enumerate(pipeline.before):
            # At most once per placement, and the last time on the node of the last placement of the task.
            assert 1 <= len(done[task, step]) <= outcome.placements[task]
            own = last[task, step] = done[task, step][-1]
            assert own.node == outcome.node[task]
            assert all(last[task, first].end_s <= own.begin_s + 1e-9 for first in before)
            assert own.begin_s > workload.arrival_s[task]
        assert outcome.end_s[task] == max(last[task, step].end_s for step in range(len(pipeline.types)))
    if fails_after_s > 1000:  # the only failure is the event of the file
        again = Counter(outcome.placements.tolist())
        assert set(again) <= {1, 2}
        assert [key for key, found in done.items() if len(found) > outcome.placements[key[0]]] == []
    assert_within_limits(there, workload, outcome, corun=corun, admission=admission)


def assert_within_limits(world, workload, outcome, *, corun, admission):
    """Sweep over begins and ends, ends first, and check places and the memory of nodes and accelerators."""
    kinds = [table for table in world.nodes for _ in range(table.count)]
    pipelines = pipeline_steps(world)
    moments = []
    for each in outcome.executions:
        subtask = world.subtasks[pipelines[workload.pipeline[each.task]].types[each.step]]
        moments += [(each.end_s, 0, -1, each, subtask), (each.begin_s, 1, 1, each, subtask)]
    used, shared, running = Counter(), Counter(), Counter()
    for _, _, sign, each, subtask in sorted(moments, key=lambda moment: moment[:2]):
        unit = (each.node, each.unit)
        running[unit] += sign
        used[each.node] += sign * subtask.memory_gb
        shared[unit] += sign * subtask.accelerator_memory_gb * (each.unit > 0)
        table = kinds[each.node]
        assert running[unit] <= (table.cores if each.unit == 0 else table.places if corun else 1)
        assert shared[unit] <= table.accelerator_memory_gb
        assert not admission or used[each.node] <= table.memory_gb


@pytest.mark.parametrize("policy", names(policy_names("cluster"), {"ldwp"}))
def test_same_seed_gives_the_same_outcome_and_another_one_another(world, policy):
    text = WORLD.format(law="pressure", places=2, together=2, fails_after_s=20, tasks=60)
    first, again, other = (run(world(text), policy, seed)[1] for seed in (3, 3, 4))
    assert first.executions == again.executions
    assert first.executions != other.executions


def test_policies_meet_the_same_world(world):
    text = WORLD.format(law="pressure", places=2, together=2, fails_after_s=20, tasks=60)
    there = world(text)
    alone = []
    for policy in ("random", "ect"):
        workload, outcome = run(there, policy, 5, node="ect")
        assert (workload.arrival_s == outcome.arrival_s).all()
        alone.append({(e.task, e.step, e.node, e.unit > 0): e.alone_s for e in outcome.executions})
    common = alone[0].keys() & alone[1].keys()
    assert len(common) > 40
    assert all(alone[0][key] == alone[1][key] for key in common)


def test_outcome_is_independent_of_the_order_in_which_simultaneous_tasks_are_told(world, tmp_path):
    lines = [f"{10 * (i // 6)},{('chain', 'fork')[i % 2]},{5 + i % 3}" for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join(["arrival_s,pipeline,input_mb", *lines]))
    (tmp_path / "two.csv").write_text("\n".join(["arrival_s,pipeline,input_mb", *lines[::-1]]))
    text = WORLD.format(law="saturation", places=2, together=1, fails_after_s=1e9, tasks=1)
    begin, end = text.index("[[arrivals]]"), text.index("[[events]]")
    outcomes = [
        run(world(f'{text[:begin]}[[arrivals]]\ntrace = "{name}.csv"\n{text[end:]}'), "ect", 1)[1]
        for name in ("one", "two")
    ]
    assert outcomes[0].executions == outcomes[1].executions


@pytest.mark.parametrize(
    ("values", "end_s"),
    [
        # Both arrive at 1 s.  An input of 125 MB takes 1 s at 1 Gbit/s, the second input 1 s more.  5 + 5 GB do not
        # fit into 8 GB, so the second task begins when the first one has ended.
        ({"corun": True, "admission": True}, [12, 22]),
        ({"corun": False, "admission": False}, [12, 22]),
        # The demand is 1.6 while both run.  Alone from 2 to 3 s, the first one does 1 s; its other 9 s take 14.4 s, to
        # 17.4.  The second one has 1 s left then, alone.
        ({"corun": True, "admission": False}, [17.4, 18.4]),
    ],
)
def test_two_subtasks_on_one_accelerator(world, values, end_s):
    _, outcome = run(world(PAIR), "ect", **values)
    assert outcome.end_s == pytest.approx(end_s)


def test_cores_slow_down_when_the_node_swaps(world):
    text = PAIR.replace("{ x = 10 }", "{ cpu = 10 }").replace("cores = 1", "cores = 2")
    _, outcome = run(world(text), "ect", admission=False)
    # From 3 s on, 10 GB of 8 are used, so work takes (10 / 8) ** 2 = 1.5625 times as long: 9 s take 14.0625 s.
    assert outcome.end_s == pytest.approx([17.0625, 18.0625])


def test_task_of_a_failed_node_starts_again_elsewhere(world):
    other = PAIR[PAIR.index("[nodes.only]") : PAIR.index("[subtasks")].replace("only", "late")
    text = PAIR.replace("[subtasks.step]", f"{other}present = false\n[subtasks.step]").replace("tasks = 2", "tasks = 1")
    text = text.replace("[nodes.only]", "[nodes.only]\nrepair_s = 1000")
    events = [(4, "fail", "only"), (6, "join", "late")]
    text += "".join(f'[[events]]\nat_s = {at}\nkind = "{kind}"\nnodes = "{node}"\n' for at, kind, node in events)
    _, outcome = run(world(text), "ect")
    # It runs from 2 to 4 s on the first node.  The second one joins at 6, has the input at 7, and computes for 10 s.
    assert [(e.node, e.begin_s, e.end_s, e.completed) for e in outcome.executions] == [
        (0, 2, 4, False),
        (1, 7, 17, True),
    ]
    assert outcome.placements.tolist() == [2]


@pytest.mark.long
def test_calibration_repairs_wrong_estimates(world):
    text = WORLD.format(law="bottleneck", places=2, together=1, fails_after_s=1e9, tasks=400)
    text = text[: text.index("[[events]]")].replace("error = 0.5", "error = 1.5")
    there, exact = world(text), world(text.replace("error = 1.5", "error = 0"))
    means = []
    for each, calibrate in ((there, False), (there, True), (exact, False)):
        runs = [run(each, "ect_open", seed, calibrate=calibrate)[1] for seed in range(5)]
        means.append(np.mean([(outcome.end_s - outcome.arrival_s).mean() for outcome in runs]))
    wrong, calibrated, right = means
    # Calibration recovers most of the cost of wrong estimates.
    assert calibrated - right < 0.5 * (wrong - right)


@pytest.mark.parametrize("policy", ["ect", "learned"])
def test_times_of_day_are_no_other_times(world, policy):
    """A trace may count from 1970; then times have a resolution of 2e-7 s."""
    text = WORLD.format(law="pressure", places=2, together=1, fails_after_s=1e9, tasks=40)
    text = text[: text.index("[[events]]")].replace("burst_factor = 4\n", "")
    responses = []
    for begin_s in (0, 1.7e9):
        _, outcome = run(world(text.replace("tasks = 40", f"tasks = 40\nbegin_s = {begin_s}")), policy)
        responses.append(outcome.end_s - outcome.arrival_s)
    assert responses[1] == pytest.approx(responses[0], abs=1e-4)


def test_task_that_no_node_can_execute_stays_incomplete(world):
    there = world(PAIR.replace("memory_gb = 5", "memory_gb = 9"))
    workload, outcome = run(there, "ect")
    assert outcome.end_s.tolist() == [np.inf, np.inf]
    assert summary(there, workload, outcome)["completed"] == 0


def test_bounds_of_a_world_that_can_be_worked_out(world):
    there = world(PAIR)
    found = bounds(there, draw(there, 0))
    # A demand of 0.8 for 10 s allows 1 / 8 task per second.  A response takes 1 s for the input and 10 s of computing.
    assert (found.per_minute, found.mean_response_s) == pytest.approx((7.5, 11))


@pytest.mark.parametrize("policy", names(policy_names("cluster"), {"ldwp"}))
@pytest.mark.parametrize("law", ["saturation", "bottleneck", "pressure"])
def test_no_policy_beats_the_bounds(world, policy, law):
    text = WORLD.format(law=law, places=3, together=3, fails_after_s=1e9, tasks=200)
    there = world(text[: text.index("[[events]]")])
    workload, outcome = run(there, policy, 2)
    found = bounds(there, workload)
    assert found.mean_response_s <= (outcome.end_s - outcome.arrival_s).mean()
    assert 60 * 200 / outcome.end_s.max() <= found.per_minute


def test_worlds_of_the_documentation_run():
    for path in sorted((Path(__file__).parents[4] / "doc" / "source" / "user" / "worlds").glob("*.toml")):
        there = read_world(path, make_law)
        workload, outcome = run(there, "ect_open")
        assert summary(there, workload, outcome)["completed"] == len(workload.arrival_s), path
