"""The exact reference itself, compared with optima found by an exhaustive search."""

import sys
from collections import defaultdict
from itertools import pairwise, permutations, product

import numpy as np
import pulp
import pytest
from scipy.optimize import linprog

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.integer import ExactParams, Limits
from fpga_pool.core.makespan.execution import schedule
from fpga_pool.core.makespan.fluid import transmit
from fpga_pool.core.makespan.search.exact import Exact
from fpga_pool.core.makespan.search.exact_models import balance, sequence
from fpga_pool.core.types import BatchProblem
from support.seeds import seeds

#: An upper limit of the makespan of all plans here; the program gets no better plan and no bound.
HORIZON_S = 300.0


def random_problem(seed, jobs, accelerators, responders=1, requesters=1, **optional):
    """Return a problem of whole seconds and megabits; `optional` selects additional arrays."""
    rng = np.random.default_rng(seed)
    arrays = {
        "seconds": rng.integers(1, 10, (jobs, accelerators)).astype(float),
        "input_bytes": rng.integers(1, 10, jobs) * 125_000,
        "requester": rng.integers(0, requesters, jobs),
        "egress_bps": rng.integers(1, 6, requesters) * 1e6,
        "responder": np.arange(accelerators) % responders,
        "ingress_bps": rng.integers(1, 6, responders) * 1e6,
    }
    if optional.get("still"):
        arrays["input_bytes"] = np.zeros(jobs, np.int64)
    if optional.get("release"):
        arrays["release_s"] = rng.integers(0, 9, jobs).astype(float)
    if optional.get("ready"):
        arrays["ready_s"] = rng.integers(0, 9, accelerators).astype(float)
    if optional.get("local"):
        arrays["local_host"] = rng.integers(-1, responders, requesters)
    if optional.get("load"):
        arrays |= {
            "function": rng.integers(0, 3, jobs),
            "loaded": rng.integers(-1, 3, accelerators),
            "load_s": rng.integers(0, 5, accelerators).astype(float),
        }
    if optional.get("unable"):
        arrays["seconds"][rng.random((jobs, accelerators)) < 0.3] = np.inf
        arrays["seconds"][np.arange(jobs), rng.integers(0, accelerators, jobs)] = 4.0
    return BatchProblem(**arrays)


def decide(policy, problem):
    return policy.decide(problem, None, 0.0, np.random.default_rng(0))


def placements(problem):
    choices = [np.flatnonzero(np.isfinite(seconds)).tolist() for seconds in problem.seconds]
    return product(*choices)


def least_load_s(problem):
    """Return the optimum of compute alone: each slot loads each function once, except the one loaded at first."""
    best_s = np.inf
    for place in placements(problem):
        own = defaultdict(list)
        for job, slot in enumerate(place):
            own[slot].append(job)
        best_s = min(
            best_s,
            max(
                problem.ready_s[slot]
                + problem.seconds[jobs, slot].sum()
                + problem.load_s[slot] * len(set(problem.function[jobs].tolist()) - {int(problem.loaded[slot])})
                for slot, jobs in own.items()
            ),
        )
    return best_s


def best_order_s(problem):
    """Return the optimum if all inputs use one link: inputs are sent in the order of starts."""
    found_s = []
    for place, order in product(map(np.array, placements(problem)), map(np.array, permutations(range(problem.jobs)))):
        found_s.append(schedule(problem, place, order, transmit(problem, place, order)).makespan_s)
    return min(found_s)


def best_rates_s(problem):
    """Return the optimum with several links, by a linear program for each placement and order of starts."""
    return min(
        rates_s(problem, place, order) for place in placements(problem) for order in permutations(range(problem.jobs))
    )


def rates_s(problem, place, order):
    """Return the makespan of the best rates, (6a) to (6e); unknowns: makespan, starts, shares of j before start k."""
    jobs = problem.jobs
    megabits, seconds = 8e-6 * problem.input_bytes, problem.seconds[np.arange(jobs), place]
    links = [(problem.requester == u, limit / 1e6) for u, limit in enumerate(problem.egress_bps)]
    links += [(problem.responder[list(place)] == h, limit / 1e6) for h, limit in enumerate(problem.ingress_bps)]
    rows, limits, totals = [], [], []

    def row(*entries):
        line = np.zeros(1 + jobs + jobs * jobs)
        for at, value in entries:
            line[at] += value
        return line

    def start(k):
        return 1 + k

    def sent(job, k):
        return 1 + jobs + jobs * job + k

    for k, job in enumerate(order):
        rows += [row((start(k), 1.0), (0, -1.0))]
        limits += [-seconds[job]]
        before = [q for q in range(k) if place[order[q]] == place[job]]
        rows += [row((start(q), 1.0), (start(k), -1.0)) for q in before]
        limits += [-seconds[order[q]] for q in before]
        begin = [(start(k - 1), 1.0)] if k else []
        rows += [row((start(k), -1.0), *begin)]
        limits += [0.0]
        for own, limit_mbps in links:
            length = [(at, sign * limit_mbps) for at, sign in ((start(k), -1.0), *begin)]
            rows += [row(*length, *((sent(j, k), megabits[j]) for j in np.flatnonzero(own)))]
            limits += [0.0]
        totals += [row(*((sent(job, q), 1.0) for q in range(k + 1)))]
    return linprog(row((0, 1.0)), A_ub=rows, b_ub=limits, A_eq=totals, b_eq=np.ones(jobs)).fun


@pytest.mark.parametrize("seed", range(6))
def test_compute_alone_takes_what_the_best_of_all_placements_takes(seed):
    problem = random_problem(seed, 5, 3, still=True, ready=True, load=True, unable=True)
    found = balance(problem, HORIZON_S, Limits(), 0.0)
    assert found.schedule.makespan_s == pytest.approx(least_load_s(problem), rel=1e-6)
    assert found.bound_s == pytest.approx(least_load_s(problem), rel=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_one_link_takes_what_the_best_of_all_orders_takes(seed):
    problem = random_problem(seed, 4, 2, release=True, ready=True, unable=True)
    found = sequence(problem, HORIZON_S, Limits(), 0.0)
    assert found.schedule.makespan_s == pytest.approx(best_order_s(problem), rel=1e-6)
    assert found.bound_s == pytest.approx(best_order_s(problem), rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_several_links_take_what_the_best_rates_of_all_orders_take(seed):
    problem = random_problem(seed, 3, 2, responders=2, requesters=2)
    found = sequence(problem, HORIZON_S, Limits(), 0.0)
    assert found.schedule.makespan_s == pytest.approx(best_rates_s(problem), rel=1e-6)
    assert found.bound_s == pytest.approx(best_rates_s(problem), rel=1e-5)


def test_testbed_of_the_paper_takes_what_section_5_1_says(network_problem):
    # Makespan paper, section 5.1: 9.6 s.
    problem = network_problem([2400, 2400, 2400, 7200], [0, 1, 2, 3], [1000] * 4, [0, 1], [1000, 500])
    assert balance(problem, HORIZON_S, Limits(), 0.0).schedule.makespan_s == pytest.approx(9.6)


def test_one_job_computes_while_the_input_of_the_other_is_sent():
    # One host, 1 Mb/s.  The long job is sent 0..1 and computes 1..3; the other one is sent 1..4 and computes 4..5.
    problem = BatchProblem(
        seconds=[[1.0], [2.0]], input_bytes=[375_000, 125_000], requester=[0, 0], egress_bps=[1e6], responder=[0],
        ingress_bps=[1e6],
    )  # fmt: skip
    assert sequence(problem, HORIZON_S, Limits(), 0.0).schedule.makespan_s == pytest.approx(5.0)


def test_slot_loads_the_function_of_the_input_that_comes_first_and_then_the_other():
    # 1 Mb/s, 2 s per load.  The slot holds function 1, whose input takes 4 s; that of function 0 takes 1 s.  Function 1
    # first: run 4..5, load 5..7, run 7..8.  Function 0 first: load 0..2, run 2..3, load 3..5, run 5..6.
    problem = BatchProblem(
        seconds=[[1.0], [1.0]], input_bytes=[125_000, 500_000], requester=[0, 0], egress_bps=[1e6], responder=[0],
        ingress_bps=[np.inf], function=[0, 1], loaded=[1], load_s=[2.0],
    )  # fmt: skip
    assert sequence(problem, HORIZON_S, Limits(), 0.0).schedule.makespan_s == pytest.approx(6.0)


@pytest.mark.parametrize("seed", seeds(4, 15))
def test_no_policy_is_better_and_the_checker_accepts_plan_and_bound(seed, verdict):
    rng = np.random.default_rng(seed)
    names = ("still", "release", "ready", "local", "load", "unable")
    problem = random_problem(
        seed, int(rng.integers(1, 6)), int(rng.integers(1, 4)), 2, 2, **{name: rng.random() < 0.4 for name in names}
    )
    best = decide(Exact(), problem)
    assert verdict(problem, best)["faults"] == []
    assert (best.start_s >= problem.release_s).all()
    assert best.lower_bound_s == pytest.approx(best.makespan_s, rel=1e-5)
    for name in set(policy_names("batch")) - {"exact"}:
        found = decide(load_policy("batch", name), problem)
        assert best.makespan_s <= found.makespan_s * (1 + 1e-6), name
        assert found.lower_bound_s <= best.makespan_s * (1 + 1e-6), name


@pytest.fixture
def hard():
    """Return a batch with 15 % between its simple bounds and the plans that are found quickly."""
    return random_problem(2, 6, 2, responders=2, requesters=2, release=True)


@pytest.mark.parametrize("limit", [{"time_limit_s": 0.01}, {"effort": 1}])
def test_at_its_limit_it_returns_the_best_plan_with_what_is_proven(hard, verdict, limit):
    found = decide(Exact(ExactParams(**limit)), hard)
    assert verdict(hard, found)["faults"] == []
    assert found.lower_bound_s < found.makespan_s * (1 - 1e-3)


@pytest.mark.long
def test_same_effort_gives_the_same_plan(hard):
    one, two = (decide(Exact(ExactParams(effort=3)), hard) for _ in range(2))
    assert np.array_equal(one.start_s, two.start_s)
    assert np.array_equal(one.segment_bps, two.segment_bps)
    assert one.lower_bound_s == two.lower_bound_s


def test_a_wide_gap_ends_the_search_with_a_bound_within_it(hard):
    found = decide(Exact().proving(0.5, None), hard)
    assert found.makespan_s * 0.5 <= found.lower_bound_s < found.makespan_s * (1 - 1e-3)


@pytest.mark.long
def test_reports_incumbent_and_bound_and_these_get_nearer(hard):
    said = []
    best = decide(Exact(ExactParams(effort=3)).proving(None, said.append), hard)
    assert said[0].bound < said[0].incumbent
    assert all(each.bound <= best.makespan_s * (1 + 1e-9) for each in said)
    assert all(later.bound >= earlier.bound for earlier, later in pairwise(said))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"group": [0, 1]}, "group: more than one"),
        ({"output_bytes": [0, 1]}, "output_bytes: the model does not include"),
    ],
)
def test_refuses_what_is_not_in_its_models(changed, complaint):
    problem = BatchProblem(
        seconds=[[1.0], [2.0]], input_bytes=[1, 1], requester=[0, 0], egress_bps=[1e6], responder=[0],
        ingress_bps=[1e6], **changed,
    )  # fmt: skip
    with pytest.raises(ValueError, match=complaint):
        decide(Exact(), problem)


def test_refuses_large_problems_and_says_the_limit():
    # A joint batch has an integer variable per job, accelerator and position in the order: 30 * 10 * 30.
    with pytest.raises(ValueError, match="9000 integer variables, the limit is 5000"):
        decide(Exact(), random_problem(1, 30, 10))


def test_without_pulp_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pulp", None)
    with pytest.raises(ValueError, match=r"requires PuLP and a solver.*pip install 'fpga_pool\[exact\]'"):
        decide(Exact(), random_problem(1, 5, 3))


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated:DeprecationWarning")
def test_cbc_finds_the_same_where_highs_is_missing(monkeypatch):
    problem = random_problem(3, 4, 2, release=True)
    best = decide(Exact(), problem)
    monkeypatch.setattr(pulp.HiGHS, "available", lambda self: False)
    found = decide(Exact(), problem)
    assert found.makespan_s == pytest.approx(best.makespan_s, rel=1e-6)
    assert found.lower_bound_s == pytest.approx(best.makespan_s, rel=1e-5)


def test_bound_is_none_that_a_pool_beats_by_loading_before_time_0():
    # A pool loads for 0.5 s before time 0, and then computes for 1 s after 0.5 s.
    loads = {"function": [1, 1], "loaded": [-1, -1], "load_s": [1.0, 1.0]}
    problem = BatchProblem(
        seconds=[[1.0, 1.0]] * 2, input_bytes=[0, 0], requester=[0, 0], egress_bps=[np.inf], responder=[0, 0],
        ingress_bps=[np.inf], head_start_s=0.5, **loads,
    )  # fmt: skip
    found = Exact().decide(problem, None, 0.0, np.random.default_rng(0))
    assert found.lower_bound_s <= 1.5 + 1e-9
