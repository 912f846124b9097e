"""The paper's node policy: order by speedup, queue, similarity, and free memory of an accelerator."""

import numpy as np
import pytest

from fpga_pool.core.cluster.iawp import IawpParams, cosine
from fpga_pool.core.cluster.policies import node_policy
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, NodeView, Subtask, Unit

#: Metrics: share of cores and memory, two resources, speedup.
RESOURCES = ("dram", "sm")


def subtask(step, speedup, *, dram=0.2, sm=0.2, input_mb=100.0):
    measured = ((2, dram), (3, sm), (4, speedup))
    return Subtask(
        task=0, step=step, type=step, estimate_s=(10.0 * speedup, 10.0), memory_gb=1, accelerator_memory_gb=1,
        ready_s=0, input_mb=input_mb, measured=measured,
    )  # fmt: skip


def node(ready, *, cores=1, running=(), busy_cores=0):
    units = [
        Unit(kind=CPU, places=cores, memory_gb=np.inf, running=[subtask(9, 1.0)] * busy_cores),
        Unit(kind=ACCELERATOR, places=4, memory_gb=8, running=list(running), used_gb=len(running)),
    ]
    return NodeView(number=0, kind=0, types=10, resources=RESOURCES, units=units, memory_gb=32, ready=list(ready))


def policy(parameters=""):
    return node_policy(f"iawp:predictor=gaussian{parameters}", corun=True, admission=True)


def test_idle_core_takes_the_least_speedup_and_the_accelerator_the_greatest():
    low, mid, high = (subtask(i, speedup) for i, speedup in enumerate((2.0, 4.0, 8.0)))
    there = node([mid, high, low])
    own = policy()
    assert own.pick(there, there.units[1]) is high
    assert own.pick(there, there.units[0]) is low


def test_core_that_becomes_idle_does_not_take_what_is_in_the_queue():
    first, then = subtask(0, 2.0), subtask(1, 8.0)
    there = node([first, then], busy_cores=1, running=[subtask(5, 4.0, sm=0.9)])
    own = policy()
    assert own.pick(there, there.units[1]) is None  # above the threshold: both are queued
    there.units[0].running.clear()
    assert own.pick(there, there.units[0]) is None


def test_guard_keeps_a_core_from_what_the_accelerator_ends_sooner():
    there = node([subtask(0, 8.0)])
    assert policy().pick(there, there.units[0]) is there.ready[0]
    assert policy(",guard=true").pick(there, there.units[0]) is None


def test_subtask_that_is_least_like_what_runs_is_chosen_beside_it():
    running = subtask(5, 4.0, dram=0.05, sm=0.6)
    alike, other = subtask(0, 9.0, dram=0.05, sm=0.6), subtask(1, 3.0, dram=0.6, sm=0.05)
    there = node([alike, other], busy_cores=1, running=[running])
    assert policy(",similarity=without_size").pick(there, there.units[1]) is other


def test_size_of_the_input_hides_all_other_metrics_in_the_cosine_as_printed():
    running = subtask(5, 4.0, dram=0.05, sm=0.6)
    alike, other = subtask(0, 9.0, dram=0.05, sm=0.6), subtask(1, 3.0, dram=0.6, sm=0.05)
    there = node([alike, other], busy_cores=1, running=[running])
    own = policy()
    vectors = [own._vector(there, each) for each in (running, alike, other)]
    assert cosine(vectors[0], vectors[1]) == pytest.approx(1)
    assert cosine(vectors[0], vectors[2]) > 0.9999


def test_accelerator_takes_nothing_more_at_the_threshold_and_at_most_four():
    light = [subtask(i, 2.0, dram=0.01, sm=0.01) for i in range(5)]
    there = node([light[4]], busy_cores=1, running=light[:4])
    assert policy().pick(there, there.units[1]) is None
    there.units[1].running.pop()
    assert policy().pick(there, there.units[1]) is light[4]
    assert policy(",threshold=0.02").pick(there, there.units[1]) is None


def test_metric_that_was_not_measured_is_predicted_from_other_subtasks_of_the_type():
    own = policy()
    there = node([])
    for _ in range(50):
        own.bind(there, subtask(3, 8.0, sm=0.9), np.random.default_rng(0))
    bare = subtask(3, 8.0)
    bare.measured = ()
    assert own._resources(there, bare) == pytest.approx([0.2, 0.9], abs=0.03)
    assert own._speedup(there, bare) == pytest.approx(8, abs=0.3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("iawp:like=x", "no such parameter"),
        ("iawp:most=many", "expected a value of type int"),
        ("iawp:predictor=x", "predictor: expected one of"),
        ("ect:most=2", "available: none"),
        ("other", "expected one of"),
    ],
)
def test_text_that_names_no_node_policy_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        node_policy(text, corun=True, admission=True)


def test_parameters_out_of_range_are_refused():
    for values in ({"profile_s": -1.0}, {"queue": 0}, {"threshold": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            IawpParams(**values)
