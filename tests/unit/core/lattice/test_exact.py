"""The exact reference itself, compared with optima found by an exhaustive search."""

from itertools import combinations, permutations, product

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.integer import ExactParams, Limits
from fpga_pool.core.lattice.exact import Exact, Model
from fpga_pool.core.lattice.tasks import TaskProblem
from fpga_pool.core.lattice.topology import Links, Topology, is_linked
from fpga_pool.core.policy import Searching
from support.seeds import seeds

#: An upper limit of the makespan of all schedules here.
HORIZON_S = 200.0


def random_problem(seed, tasks, sizes=(3, 3), *, malleable=False, arrive=False, ready=False, load=False):
    """Return tasks of whole seconds with any required links, on enclosures of any topology."""
    rng = np.random.default_rng(seed)
    shapes = [[(int(rng.integers(1, 4)), float(rng.integers(1, 10)))] for _ in range(tasks)]
    if malleable:
        shapes = [[*own, (1, own[0][1] * own[0][0] + 1.0)] if own[0][0] > 1 else own for own in shapes]
    arrays = {
        "enclosure_fpgas": sizes,
        "enclosure_links": rng.integers(0, len(Topology), len(sizes)),
        "shape_begin": np.cumsum([0, *map(len, shapes)]),
        "shape_fpgas": [width for own in shapes for width, _ in own],
        "shape_seconds": [seconds for own in shapes for _, seconds in own],
        "links": rng.integers(0, 2, tasks),
    }
    if all(width < 3 for own in shapes for width, _ in own) or Topology.LINE not in arrays["enclosure_links"]:
        arrays["links"] = rng.integers(0, len(Links), tasks)
    if arrive:
        arrays["arrival_s"] = rng.integers(0, 9, tasks).astype(float)
    if ready:
        arrays["ready_s"] = rng.integers(0, 9, sum(sizes)).astype(float)
    if load:
        functions = {"function": rng.integers(0, 3, tasks), "loaded": rng.integers(-1, 3, sum(sizes))}
        arrays |= {**functions, "load_s": 2.0}
    return TaskProblem(**arrays)


def decide(policy, problem):
    return policy.decide(problem, None, 0.0, np.random.default_rng(0))


def every_place(problem, task):
    """Return all pairs of shape and FPGAs, numbered across enclosures, on which a task can run."""
    base = np.concatenate(([0], np.cumsum(problem.enclosure_fpgas))).tolist()
    return [
        (shape, [base[box] + member for member in members])
        for shape in range(problem.shape_begin[task], problem.shape_begin[task + 1])
        for box, (size, topology) in enumerate(zip(problem.enclosure_fpgas, problem.enclosure_links, strict=True))
        for members in combinations(range(size), problem.shape_fpgas[shape])
        if is_linked(members, size, topology, problem.links[task])
    ]


def best_s(problem):
    """Return the smallest makespan over all places and orders; tasks begin when their FPGAs are free and loaded."""
    tasks = range(problem.tasks)
    return min(
        ends_s(problem, places, order)
        for places in product(*(every_place(problem, task) for task in tasks))
        for order in permutations(tasks)
    )


def ends_s(problem, places, order):
    free_s, loaded, makespan_s = problem.ready_s.tolist(), problem.loaded.tolist(), 0.0
    for task in order:
        shape, fpgas = places[task]
        begin_s, function = float(problem.arrival_s[task]), problem.function[task]
        for fpga in fpgas:
            loads = function >= 0 and loaded[fpga] not in (-1, function)
            begin_s = max(begin_s, free_s[fpga] + loads * problem.load_s)
        for fpga in fpgas:
            free_s[fpga] = begin_s + float(problem.shape_seconds[shape])
            loaded[fpga] = function if function >= 0 else loaded[fpga]
        makespan_s = max(makespan_s, begin_s + float(problem.shape_seconds[shape]))
    return makespan_s


@pytest.mark.parametrize(
    "kind", [{}, {"malleable": True}, {"arrive": True}, {"ready": True}, {"load": True}], ids=lambda kind: "".join(kind)
)
@pytest.mark.parametrize("seed", range(3))
def test_takes_what_the_best_of_all_schedules_takes(seed, kind):
    problem = random_problem(seed, 3, **kind)
    placed, bound_s = Model(problem, HORIZON_S, HORIZON_S, 0.0).solve(Limits())
    assert placed.wct_s == pytest.approx(best_s(problem), rel=1e-6)
    assert bound_s == pytest.approx(best_s(problem), rel=1e-5)


@pytest.mark.parametrize("seed", seeds(10, 50))
def test_no_policy_is_better_and_the_checker_accepts_the_schedule(seed, checked):
    rng = np.random.default_rng(seed)
    kind = {name: bool(rng.random() < 0.4) for name in ("malleable", "arrive", "ready", "load")}
    problem = random_problem(seed, int(rng.integers(1, 6)), (3, 4), **kind)
    best = decide(Exact(), problem)
    checked(problem, best)
    assert best.bound_tight_s == pytest.approx(best.wct_s, rel=1e-5)
    for name in set(policy_names("task")) - {"exact"}:
        policy = load_policy("task", name)
        if isinstance(policy, Searching):
            policy = policy.searching(10, None, lambda: 0.0)
        found = decide(policy, problem)
        assert best.wct_s <= found.wct_s * (1 + 1e-6), name
        assert found.bound_tight_s <= best.wct_s * (1 + 1e-6), name


def test_ring_task_takes_the_whole_ring_and_waits_for_all_of_it():
    # A ring of 3 and a line of 2.  The task of 3 needs the ring, where it runs from 0 to 8.  The four single tasks of 4
    # s run on the line beside it, two after the other on each FPGA: 8 s.
    problem = TaskProblem(
        enclosure_fpgas=[3, 2], enclosure_links=[Topology.RING, Topology.LINE], shape_begin=range(6),
        shape_fpgas=[1, 1, 1, 1, 3], shape_seconds=[4.0, 4.0, 4.0, 4.0, 8.0], links=[0, 0, 0, 0, Links.RING],
    )  # fmt: skip
    best = decide(Exact(), problem)
    assert (best.wct_s, best.enclosure.tolist()) == (8.0, [1, 1, 1, 1, 0])


@pytest.fixture
def hard():
    """Return ten tasks whose simple bounds are far below the best schedule."""
    return random_problem(4, 10, (3, 4), load=True)


@pytest.mark.parametrize("limit", [{"time_limit_s": 0.01}, {"effort": 1}])
def test_at_its_limit_it_returns_the_best_schedule_with_what_is_proven(hard, checked, limit):
    found = decide(Exact(ExactParams(**limit)), hard)
    checked(hard, found)
    assert found.bound_tight_s < found.wct_s * (1 - 1e-3)


def test_reports_incumbent_and_bound_and_these_get_nearer(hard):
    said = []
    best = decide(Exact(ExactParams(effort=1)).proving(0.01, said.append), hard)
    assert said[0].bound < said[0].incumbent
    assert all(each.bound <= best.wct_s * (1 + 1e-9) for each in said)
    assert best.bound_tight_s >= max(each.bound for each in said) * (1 - 1e-6)


def test_refuses_tasks_without_a_function_beside_others_where_loads_take_time():
    problem = TaskProblem(
        enclosure_fpgas=[1], enclosure_links=[0], shape_begin=range(3), shape_fpgas=[1, 1], shape_seconds=[1.0, 1.0],
        links=[0, 0], function=[0, -1], load_s=1.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match="function: with load_s either all tasks need one or none does"):
        decide(Exact(), problem)


def test_refuses_large_problems_and_says_the_limit():
    with pytest.raises(ValueError, match=r"too large: \d+ integer variables, the limit is 5000"):
        decide(Exact(), random_problem(0, 80, (3, 4), load=True))
