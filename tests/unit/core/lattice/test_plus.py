import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.lattice.paper import Heft
from fpga_pool.core.lattice.plus import BASELINES, LatticePlus, LatticePlusParams
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology
from fpga_pool.sim.lattice.workloads import Wanted, generate

#: The first test waits for the loops to be compiled, which takes long when other programs are running.
pytestmark = pytest.mark.timeout(1200)

#: Short runs of every kind of search, even without compilation: they check their limit after 500 tasks, not 5,000.
FEW = """
import sys
{block}
import numpy as np
from fpga_pool.core.lattice import search
from fpga_pool.core.lattice.plus import LatticePlus, LatticePlusParams
from fpga_pool.core.lattice.tasks import TaskProblem
search._CHUNK = 500
rng = np.random.default_rng(5)
fpgas, seconds = rng.integers(1, 7, 14), rng.integers(1, 30, 14) / 4
for more in ({{}}, {{"arrival_s": seconds / 2}}, {{"function": fpgas % 3, "load_s": 0.5}}):
    problem = TaskProblem(enclosure_fpgas=[8, 6], enclosure_links=[1, 0], shape_begin=range(15), shape_fpgas=fpgas,
                          shape_seconds=seconds, links=[1] * 14, **more)
    policy = LatticePlus(LatticePlusParams(effort=1))
    found = policy.decide(problem, None, 0.0, np.random.default_rng(1))
    print(found.begin_s.tolist(), found.enclosure.tolist(), found.members.tolist())
"""


@pytest.fixture(scope="module", autouse=True)
def _prepared():
    LatticePlus().prepare()


def schedule(problem, effort=20, seed=0):
    policy = LatticePlus(LatticePlusParams(effort=effort))
    return policy.decide(problem, None, 0.0, np.random.default_rng(seed))


def best_baseline_s(problem):
    return min(policy().decide(problem, None, 0.0, np.random.default_rng(0)).wct_s for policy in BASELINES)


def shortest_s(problem):
    """Return the smallest makespan of rigid tasks on adjacent FPGAs, by an exhaustive search.

    A shortest schedule in which no task can begin sooner results from placing the tasks in the order of their begins,
    each on its FPGAs as soon as these are free.  All such orders and places are tried.
    """
    base = np.concatenate(([0], np.cumsum(problem.enclosure_fpgas))).tolist()
    places = {}
    for width in set(problem.shape_fpgas.tolist()):
        places[width] = [
            tuple(base[e] + (first + step) % size for step in range(width))
            for e, (size, links) in enumerate(zip(problem.enclosure_fpgas, problem.enclosure_links, strict=True))
            if width <= size
            for first in range(size if links == Topology.RING and width < size else size - width + 1)
        ]
    tasks = list(zip(problem.shape_fpgas.tolist(), problem.shape_seconds.tolist(), problem.arrival_s, strict=True))
    best = [np.inf]

    def extend(left, free_s, last_s, end_s):
        if not left:
            best[0] = end_s
            return
        for task in left:
            width, seconds, arrival_s = tasks[task]
            tried = set()
            for place in places[width]:
                begin_s = max(arrival_s, *(free_s[fpga] for fpga in place))
                if begin_s < last_s or begin_s + seconds >= best[0]:
                    continue
                after = list(free_s)
                for fpga in place:
                    after[fpga] = begin_s + seconds
                if tuple(after) not in tried:
                    tried.add(tuple(after))
                    extend(left - {task}, after, begin_s, max(end_s, begin_s + seconds))

    extend(frozenset(range(len(tasks))), problem.ready_s.tolist(), 0.0, 0.0)
    return best[0]


@given(data=st.data())
def test_every_schedule_is_valid_and_no_policy_of_the_paper_has_a_shorter_one(data, problems, checked):
    problem = data.draw(problems())
    found = schedule(problem, effort=data.draw(st.sampled_from([0, 3])), seed=data.draw(st.integers(0, 5)))
    said = checked(problem, found)
    assert said["wct_s"] == found.wct_s
    assert found.bound_paper_s <= found.bound_tight_s <= found.wct_s
    if problem.tasks:
        assert found.wct_s <= best_baseline_s(problem)


@pytest.mark.parametrize("seed", range(8))
def test_few_tasks_end_when_they_do_in_the_shortest_of_all_schedules(seed, checked):
    rng = np.random.default_rng(seed)
    problem = TaskProblem(
        enclosure_fpgas=[4, 3] if seed % 2 else [5],
        enclosure_links=[Topology.RING, Topology.LINE][: 1 + seed % 2],
        shape_begin=range(6),
        shape_fpgas=rng.integers(1, 4, 5),
        shape_seconds=rng.integers(1, 40, 5) / 4,
        links=np.full(5, Links.LINE),
        arrival_s=rng.integers(0, 20, 5) / 4 if seed >= 4 else np.zeros(5),
        ready_s=rng.integers(0, 8, 7 if seed % 2 else 5) / 4,
    )
    found = schedule(problem, effort=100)
    checked(problem, found)
    assert found.wct_s <= shortest_s(problem) * 1.001


@pytest.mark.parametrize("model", ["rtm", "rtmw", "f11"])
@pytest.mark.parametrize(("workloads", "tasks"), [(10, (1, 1)), (30, (1, 1)), (10, (2, 20))])
def test_few_workloads_end_sooner_than_with_the_longest_first(model, workloads, tasks, checked):
    """Figure 4: with few workloads HEFT is better than the paper's ranking."""
    wanted = Wanted(workloads=workloads, tasks=tasks, irregularity=0.6)
    problem = generate(model, wanted, np.random.default_rng(workloads)).problem
    found = schedule(problem, effort=100)
    checked(problem, found)
    heft_s = Heft().decide(problem, None, 0.0, np.random.default_rng(0)).wct_s
    assert found.wct_s < heft_s or heft_s <= found.bound_tight_s * (1 + 1e-9)


@pytest.mark.parametrize("model", ["rtm", "rtmw", "f11"])
def test_many_workloads_end_near_the_bound(model, checked):
    wanted = Wanted(workloads=30, irregularity=0.5)
    problem = generate(model, wanted, np.random.default_rng(11)).problem
    found = schedule(problem, effort=300)
    checked(problem, found)
    assert found.bound_tight_s >= 0.975 * found.wct_s


@pytest.mark.long
def test_weights_found_with_a_sample_serve_very_many_tasks():
    problem = generate("rtmw", Wanted(workloads=2100, tasks=(10, 10), enclosures=12), np.random.default_rng(3)).problem
    found = schedule(problem, effort=400)
    assert found.bound_tight_s >= 0.99 * found.wct_s
    assert found.wct_s < best_baseline_s(problem)


def test_functions_are_put_together(rings):
    # One FPGA, functions 0 1 0 1: three loads of 5 s in this order, one if functions are put together: 4 * 1 + 5.
    problem = TaskProblem(
        enclosure_fpgas=[1], enclosure_links=[0], shape_begin=range(5), shape_fpgas=[1] * 4, shape_seconds=[1.0] * 4,
        links=[0] * 4, function=[0, 1, 0, 1], load_s=5.0,
    )  # fmt: skip
    assert best_baseline_s(problem) == 19.0
    assert schedule(problem).wct_s == 9.0


def test_one_of_three_equal_tasks_takes_both_fpgas():
    # Each on one FPGA: two rounds of 2 s.  One on both FPGAs first, 1.25 s, then the two others side by side, 2 s.
    problem = TaskProblem(
        enclosure_fpgas=[2], enclosure_links=[0], shape_begin=[0, 2, 4, 6], shape_fpgas=[1, 2] * 3,
        shape_seconds=[2.0, 1.25] * 3, links=[1] * 3,
    )  # fmt: skip
    assert best_baseline_s(problem) > 3.25
    assert schedule(problem).wct_s == 3.25


@pytest.mark.long
@pytest.mark.parametrize("malleable", [False, True])
def test_enclosures_of_a_hundred_are_searched_too(malleable, checked):
    rng = np.random.default_rng(2)
    fpgas, seconds = rng.integers(2, 60, 60), rng.uniform(1, 9, 60)
    if malleable:  # half the FPGAs, 1.8 times as long
        fpgas, seconds = np.stack((fpgas, fpgas // 2), 1).ravel(), np.stack((seconds, 1.8 * seconds), 1).ravel()
    problem = TaskProblem(
        enclosure_fpgas=[100], enclosure_links=[1], shape_begin=np.arange(61) * (1 + malleable), shape_fpgas=fpgas,
        shape_seconds=seconds, links=rng.integers(0, 2, 60),
    )  # fmt: skip
    found = schedule(problem)
    checked(problem, found)
    assert found.wct_s < best_baseline_s(problem)


def test_functions_of_many_tasks_are_put_together(checked):
    """If a load takes as long as a task, an order that mixes functions wastes more than a third of the time."""
    rng = np.random.default_rng(1)
    problem = TaskProblem(
        enclosure_fpgas=[8] * 4, enclosure_links=[1] * 4, shape_begin=range(301), shape_fpgas=rng.integers(1, 9, 300),
        shape_seconds=rng.uniform(0.5, 1.5, 300), links=[1] * 300, function=rng.integers(0, 4, 300), load_s=1.0,
    )  # fmt: skip
    found = schedule(problem, effort=200)
    checked(problem, found)
    assert found.wct_s < 0.9 * best_baseline_s(problem)


@pytest.mark.parametrize("more", [{}, {"interval_s": 3.0}])
def test_the_same_effort_and_seed_give_the_same_schedule(more):
    problem = generate("f11", Wanted(workloads=12, **more), np.random.default_rng(4)).problem
    first, again = schedule(problem, seed=3), schedule(problem, seed=3)
    for name in ("enclosure", "shape", "begin_s", "end_s", "member_begin", "members"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def test_more_effort_never_makes_it_longer():
    problem = generate("f11", Wanted(workloads=12), np.random.default_rng(6)).problem
    none, some = schedule(problem, effort=0).wct_s, schedule(problem, effort=60).wct_s
    assert some < none


def test_search_ends_with_the_seconds_it_is_given():
    problem = generate("f11", Wanted(workloads=12), np.random.default_rng(4)).problem
    looks = []

    def clock():
        looks.append(len(looks) * 0.01)
        return looks[-1]

    policy = LatticePlus().searching(None, 0.5, clock)
    found = policy.decide(problem, None, 0.0, np.random.default_rng(0))
    assert found.wct_s <= best_baseline_s(problem)
    # 50 readings of the clock are half a second; parts of the search end with a reading of their own.
    assert looks[-1] < 1.5


def test_an_effort_takes_the_place_of_seconds():
    policy = LatticePlus(LatticePlusParams(time_limit_s=9.0)).searching(7, None, lambda: 0.0)
    assert policy._params == LatticePlusParams(effort=7)


def test_tasks_that_fit_nowhere_are_refused(rings):
    problem = rings(1, [(3, 1.0)], links=Links.RING)
    with pytest.raises(ValueError, match="fit"):
        schedule(problem)


def test_nothing_to_schedule_takes_no_time(rings):
    assert schedule(rings(1, [])).wct_s == 0.0


@pytest.mark.parametrize(("name", "value"), [("effort", -1), ("effort", 0.5), ("time_limit_s", -1.0)])
def test_parameters_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        LatticePlusParams(**{name: value})


@pytest.mark.long
def test_without_numba_the_schedules_are_the_same():
    code = FEW.format(block=""), FEW.format(block="sys.modules['numba'] = None")
    compiled, plain = (
        subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout for text in code
    )
    assert compiled == plain
    assert len(compiled.splitlines()) == 3


def test_ready_times_of_fpgas_are_kept_where_tasks_arrive(checked):
    problem = generate("rtmw", Wanted(workloads=20, interval_s=1.0, enclosures=2), np.random.default_rng(9)).problem
    problem = replace(problem, ready_s=np.arange(16) / 2)
    found = schedule(problem, effort=60)
    checked(problem, found)
    assert found.wct_s <= best_baseline_s(problem)
