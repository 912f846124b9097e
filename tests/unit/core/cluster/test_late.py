import numpy as np
import pytest

from fpga_pool.core.cluster.nodes import SlowdownUnit
from fpga_pool.core.cluster.views import ACCELERATOR, CPU, STRETCH, Deadlines, NodeView, Subtask, Unit

RNG = np.random.default_rng(0)


def subtask(number, type_, *, cpu_s=np.inf, accelerator_s=10.0, memory_gb=1.0, due_s=None):
    return Subtask(
        task=number,
        step=0,
        type=type_,
        estimate_s=(cpu_s, accelerator_s),
        memory_gb=memory_gb,
        accelerator_memory_gb=1.0,
        ready_s=0.0,
        due_s=float(number) if due_s is None else due_s,
    )


def node(running=(), ready=(), memory_gb=16.0, accelerators=1):
    cores = Unit(kind=CPU, places=4, memory_gb=np.inf)
    units = [Unit(kind=ACCELERATOR, places=4, memory_gb=8.0) for _ in range(accelerators)]
    units[0].running = list(running)
    units[0].used_gb = float(len(running))
    units[0].backlog_s = sum(each.estimate_s[ACCELERATOR] for each in running)
    used_gb = sum(each.memory_gb for each in running)
    view = NodeView(
        number=0, kind=0, types=5, resources=(), units=[cores, *units], memory_gb=memory_gb, used_gb=used_gb
    )
    view.ready = list(ready)
    return view


def taught(pairs):
    """Return a policy that has observed each type alone, and each pair at a total rate."""
    policy, view = SlowdownUnit(corun=True, admission=True), node()
    for _ in range(100):
        for (first, second), total in pairs.items():
            for one, other in ((first, second), (second, first)):
                policy.observe(view, ACCELERATOR, subtask(0, one), 10, 10, {(): 10.0})
                policy.observe(view, ACCELERATOR, subtask(0, one), 10, 20 / total, {(other,): 20 / total})
    return policy


def test_chooses_the_companion_that_interferes_least_although_another_one_is_more_urgent():
    policy = taught({(0, 1): 0.8, (0, 2): 1.9})
    ready = [subtask(1, 1), subtask(2, 2)]
    view = node(running=[subtask(0, 0)], ready=ready)
    assert policy.pick(view, view.units[1]) is ready[1]


def test_runs_nothing_beside_a_subtask_if_all_together_would_be_slower():
    policy = taught({(0, 1): 0.8})
    view = node(running=[subtask(0, 0)], ready=[subtask(1, 1)])
    assert policy.pick(view, view.units[1]) is None
    view = node(ready=[subtask(1, 1)])
    assert policy.pick(view, view.units[1]) is view.ready[0]


def test_the_most_urgent_is_chosen_among_equals_and_overtaken_for_a_limited_time_only():
    policy = taught({(0, 1): 0.8, (0, 2): 1.9})
    view = node(ready=[subtask(3, 1, due_s=50), subtask(4, 1, due_s=40)])
    assert policy.pick(view, view.units[1]) is view.ready[1]
    late = subtask(2, 2, due_s=1000)
    view = node(running=[subtask(0, 0)], ready=[subtask(1, 1, due_s=1), late])
    assert policy.pick(view, view.units[1]) is None


def test_smaller_ones_do_not_take_the_memory_that_an_urgent_one_waits_for():
    policy = SlowdownUnit(corun=True, admission=True)
    large, small = subtask(1, 1, memory_gb=10), subtask(2, 2, memory_gb=4)
    # 8 of 16 GB are used, so the large one waits.  Of the 6 GB beside it the small one may have 4, but not 8.
    view = node(running=[subtask(0, 0, memory_gb=8)], ready=[large, small])
    assert policy.pick(view, view.units[1]) is small
    view = node(running=[subtask(0, 0, memory_gb=4), subtask(3, 0, memory_gb=4)], ready=[large, small])
    assert policy.pick(view, view.units[1]) is None


def test_a_core_leaves_to_an_accelerator_what_completes_there_earlier():
    policy = SlowdownUnit(corun=True, admission=True)
    first, second = (subtask(number, 1, cpu_s=15.0) for number in (1, 2))
    view = node(ready=[first, second])
    # On the accelerator the first subtask takes 10 s, and the second one, behind it, 20 s.
    assert policy.pick(view, view.units[CPU]) is second
    view = node(ready=[first, second], accelerators=2)
    assert policy.pick(view, view.units[CPU]) is None


def test_a_core_takes_what_an_accelerator_would_speed_up_least():
    policy = SlowdownUnit(corun=True, admission=True)
    urgent, similar, slower, late = (
        subtask(number, 1, cpu_s=cpu_s, accelerator_s=10.0, due_s=due_s)
        for number, cpu_s, due_s in ((1, 80.0, 1), (2, 29.0, 2), (3, 20.0, 3), (4, 10.0, 90))
    )
    view = node(running=[subtask(0, 0, accelerator_s=500.0)], ready=[urgent, slower, similar, late])
    assert policy.pick(view, view.units[CPU]) is similar
    view.ready.remove(similar)
    assert policy.pick(view, view.units[CPU]) is slower
    view.ready.remove(slower)
    assert policy.pick(view, view.units[CPU]) is urgent
    view.ready[:] = [urgent, subtask(5, 1, cpu_s=200.0, accelerator_s=np.inf)]
    assert policy.pick(view, view.units[CPU]) is view.ready[1]


def test_long_tasks_are_due_as_early_as_usual_ones():
    deadlines = Deadlines()
    assert deadlines.due_s(5.0, 10.0) == 5 + STRETCH * 10
    # The usual chain follows slowly.
    assert deadlines.due_s(5.0, 30.0) == 5 + STRETCH * 11
    assert deadlines.due_s(5.0, 4.0) == 5 + STRETCH * 4
    assert max(deadlines.due_s(0.0, 30.0) for _ in range(200)) == pytest.approx(STRETCH * 30, rel=0.01)


def test_an_accelerator_in_use_leaves_to_an_idle_core_what_completes_there_earlier():
    policy = taught({(0, 1): 1.6})
    # Beside the running one it takes 10 s / 0.8 = 12.5 s.
    for cpu_s, core_is_busy, starts in ((12.0, False, False), (13.0, False, True), (12.0, True, True)):
        view = node(running=[subtask(0, 0)], ready=[subtask(1, 1, cpu_s=cpu_s), subtask(2, 2)])
        view.units[CPU].running = [subtask(9, 2)] * (view.units[CPU].places if core_is_busy else 0)
        assert (policy.pick(view, view.units[1]) is view.ready[0]) == starts


def test_one_that_waits_alone_needs_more_gain_than_one_of_several():
    policy = taught({(0, 1): 1.28})
    view = node(running=[subtask(0, 0)], ready=[subtask(1, 1)])
    assert policy.pick(view, view.units[1]) is None
    view = node(running=[subtask(0, 0)], ready=[subtask(1, 1), subtask(2, 1)])
    assert policy.pick(view, view.units[1]) is view.ready[0]


def test_wrong_estimates_of_some_nodes_are_no_interference():
    policy, kinds = SlowdownUnit(corun=True, admission=True), (node(), node())
    kinds[1].kind = 1
    for _ in range(100):  # both alone and beside others: three times the estimate on one kind, a third on the other
        for view, factor in zip(kinds, (3.0, 1 / 3), strict=True):
            policy.observe(view, ACCELERATOR, subtask(0, 0), 10, 10 * factor, {(): 10 * factor})
            policy.observe(view, ACCELERATOR, subtask(0, 0), 10, 12 * factor, {(0,): 12 * factor})
    # 10 / 12 of the rate of a lone run.
    assert policy.model.rate(0, (0,)) == pytest.approx(0.83, abs=0.04)


def test_tells_how_long_a_run_would_have_taken_alone():
    policy, view = taught({(0, 1): 1.0}), node()
    assert policy.observe(view, ACCELERATOR, subtask(0, 0), 10, 20, {(1,): 20.0}) == pytest.approx(10, rel=0.1)
    assert policy.observe(view, CPU, subtask(0, 0), 10, 20, {(1,): 20.0}) == 20


def test_each_run_has_a_model_of_its_own():
    policy = taught({(0, 1): 0.8})
    assert policy.learner(RNG).model.rate(0, (1,)) > policy.model.rate(0, (1,))
