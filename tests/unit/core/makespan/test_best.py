import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan import Ect, Makespan, MakespanParams, plan
from fpga_pool.core.makespan.search import best
from fpga_pool.core.makespan.search.local_search import LocalSearch
from fpga_pool.core.makespan.search.reversed_time import ReversedSearch
from fpga_pool.core.types import BatchProblem, floats

STATELESS_FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
QUICK = MakespanParams(effort=20)
#: `exact` refuses what its programs do not model, and is better if it has enough time.
PORTFOLIO = [load_policy("batch", name) for name in policy_names("batch") if name not in (Makespan.name, "exact")]


def workload(form, responders, seed, jobs=200):
    """Return a batch of makespan paper, 5.2: exponential sizes, 0.001 s/Mb, 5 accelerators each, 20 % deviation."""
    rng = np.random.default_rng(seed)
    accelerators = 5 * responders
    megabits = rng.exponential(200, jobs)
    seconds = 0.001 * megabits[:, None] * rng.uniform(0.8, 1.2, (jobs, accelerators))
    unlimited = form == "compute"
    return BatchProblem(
        seconds=np.zeros_like(seconds) if form == "network" else seconds,
        input_bytes=(megabits * 1e6 / 8).astype(np.int64),
        requester=rng.integers(0, 40, jobs),
        egress_bps=np.full(40, np.inf) if unlimited else 1e9 * rng.uniform(0.8, 1.2, 40),
        responder=np.repeat(np.arange(responders), 5),
        ingress_bps=np.full(responders, np.inf) if unlimited else 5e9 * rng.uniform(0.8, 1.2, responders),
    )


@STATELESS_FIXTURES
@given(data=st.data())
def test_checker_accepts_plans(verdict, problems, data):
    problem = data.draw(problems())
    found = plan(problem, QUICK)
    said = verdict(problem, found)
    assert said["faults"] == []
    assert found.makespan_s == pytest.approx(said["makespan_s"], rel=1e-9)


@STATELESS_FIXTURES
@given(data=st.data())
def test_never_longer_than_any_other_policy(problems, data, request):
    problem = data.draw(problems(max_jobs=14, max_accelerators=6))
    theirs = {rule.name: rule.decide(problem, None, 0.0, np.random.default_rng(0)).completion_s for rule in PORTFOLIO}
    # Whichever limit ends our own search.
    ends = [{"effort": 20}, {"effort": 0, "gap": 0.5}, *([{"effort": 0}] if request.config.getoption("long") else [])]
    for params in ends:
        ours = plan(problem, MakespanParams(**params)).completion_s
        assert ours <= min(theirs.values()) * (1 + 1e-9), (params, theirs)


def test_other_policies_are_looked_at_where_a_larger_batch_stays_far_from_its_bound():
    # 320 jobs of 2 functions on 2 accelerators that take 10 s to load: loads make the bound loose, so the search cannot
    # stop at it, and the best known plan counts.
    rng = np.random.default_rng(4)
    problem = BatchProblem(
        seconds=rng.uniform(0.5, 1.5, (320, 2)), input_bytes=rng.integers(1, 10**8, 320), requester=np.arange(320) % 3,
        egress_bps=[1e9] * 3, responder=[0, 1], ingress_bps=[1e9] * 2, release_s=rng.choice([0.0, 300.0], 320),
        function=rng.integers(0, 2, 320), loaded=[0, 0], load_s=[10.0, 10.0],
    )  # fmt: skip
    ours = plan(problem, MakespanParams(effort=2)).makespan_s
    theirs = {rule.name: rule.decide(problem, None, 0.0, np.random.default_rng(0)).makespan_s for rule in PORTFOLIO}
    assert ours <= min(theirs.values()) * (1 + MakespanParams().gap), theirs


def test_seconds_limit_what_other_policies_may_take():
    # Far from the bound as above, but by the second reading of the clock the time is over.
    looks = iter([0.0] + [5.0] * 1000)
    problem = workload("joint", 5, seed=1, jobs=400)
    params = MakespanParams(time_limit_s=1.0)
    limited = plan(problem, params, clock=lambda: next(looks))
    assert limited.makespan_s == pytest.approx(Ect().decide(problem, None, 0.0, np.random.default_rng(0)).makespan_s)


@pytest.mark.parametrize(
    ("form", "responders", "at_most"),
    [("compute", 4, 1.02), ("compute", 20, 1.0 + 1e-9), ("network", 3, 1.001), ("joint", 3, 1.2), ("joint", 20, 1.001)],
)
def test_plans_of_the_papers_workload_are_near_their_bound_and_valid(verdict, form, responders, at_most):
    # The limits are what this effort reaches here, with room; the benchmark has the figures of full size.
    problem = workload(form, responders, seed=3)
    found = plan(problem, QUICK)
    said = verdict(problem, found)
    assert said["faults"] == []
    assert said["over_claimed_bound"] <= at_most
    assert said["proven_bound_s"] <= found.lower_bound_s * (1 + 1e-6)


def test_few_responders_whose_links_and_slots_are_all_busy_end_near_their_bound(verdict):
    # The limit is what this effort reaches, 1.031, with a margin.
    problem = workload("joint", 4, seed=2, jobs=400)
    found = plan(problem, MakespanParams(effort=100))
    said = verdict(problem, found)
    assert said["faults"] == []
    assert said["over_claimed_bound"] <= 1.045


@pytest.mark.parametrize("form", ["compute", "network", "joint"])
def test_same_effort_and_seed_give_the_same_plan(form):
    problem = workload(form, 3, seed=1)
    one, two = (plan(problem, QUICK, np.random.default_rng(5)) for _ in range(2))
    for name in ("accelerator", "start_s", "segment_job", "segment_begin_s", "segment_end_s", "segment_bps"):
        assert np.array_equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("form", ["compute", "joint"])
def test_more_effort_is_not_worse(form):
    problem = workload(form, 3, seed=2)
    lengths = [plan(problem, MakespanParams(effort=effort)).makespan_s for effort in (0, 10, 60)]
    assert lengths == sorted(lengths, reverse=True)


def test_time_limit_ends_the_search_by_the_given_clock():
    # Each reading of the clock adds a second, so a limit of 3 s is over after a handful of readings.
    looks = iter(range(1000))
    params = MakespanParams(time_limit_s=3.0, gap=0.0)
    found = plan(workload("compute", 4, seed=3), params, clock=lambda: float(next(looks)))
    assert found.makespan_s >= found.lower_bound_s
    assert next(looks) < 20


@pytest.fixture
def tried(monkeypatch):
    """Return a list to which each call of local search appends the number of changes that it tries."""
    steps, local_search = [], LocalSearch.local_search
    monkeypatch.setattr(
        LocalSearch, "local_search", lambda self, *args: (steps.append(args[2]), local_search(self, *args))
    )
    return steps


def test_time_limit_ends_the_search_between_changes(tried, verdict):
    # By this clock a change takes 10 ms and everything else no time: 300 changes are 3 s.
    problem = workload("joint", 4, seed=2, jobs=400)
    found = plan(problem, MakespanParams(time_limit_s=3.0), clock=lambda: 0.01 * sum(tried))
    assert verdict(problem, found)["faults"] == []
    assert 200 < sum(tried) <= 300


def test_time_limit_leaves_time_for_the_flows_of_the_last_plan(tried, verdict, monkeypatch):
    # By this clock a change takes 10 ms, a forward plan 0.1 s, and the flows of a reversed plan 0.7 s.
    spent_s, place, evaluate = [], best.place, ReversedSearch._evaluate
    monkeypatch.setattr(best, "place", lambda *args: (spent_s.append(0.1), place(*args))[1])
    monkeypatch.setattr(ReversedSearch, "_evaluate", lambda *args: (evaluate(*args), spent_s.append(0.7))[0])
    problem = workload("joint", 4, seed=2, jobs=400)
    found = plan(problem, MakespanParams(time_limit_s=3.0), clock=lambda: 0.01 * sum(tried) + sum(spent_s))
    assert verdict(problem, found)["faults"] == []
    assert tried
    assert 0.01 * sum(tried) + sum(spent_s) <= 3.0


def test_search_ends_once_local_search_gets_to_the_bound_by_however_little(tried):
    # The placement is first 0.46 % above the bound, so no change shortens it by 0.5 %, and then at the bound.  That
    # takes less effort than 60, and the rest is not used.
    rng = np.random.default_rng(101)
    megabits = rng.exponential(200, 400)
    problem = BatchProblem(
        seconds=0.0018 * megabits[:, None] * rng.uniform(0.8, 1.2, (400, 16)),
        input_bytes=(125_000 * megabits).astype(np.int64), requester=rng.integers(0, 16, 400),
        egress_bps=rng.uniform(0.8e9, 1.2e9, 16), responder=np.arange(16) % 4, ingress_bps=[6e9] * 4,
    )  # fmt: skip
    changes = []
    for effort in (60, 240):
        tried.clear()
        found = plan(problem, MakespanParams(effort=effort))
        assert found.makespan_s == pytest.approx(found.lower_bound_s, rel=1e-9)
        changes.append(sum(tried))
    assert changes[0] == changes[1] > 0


def test_time_limit_without_a_clock_is_refused():
    with pytest.raises(ValueError, match="time_limit_s: requires a clock"):
        plan(workload("compute", 4, seed=3), MakespanParams(time_limit_s=1.0))


def test_searching_changes_the_budget_only():
    policy = Makespan(MakespanParams(gap=0.5)).searching(7, None, lambda: 0.0)
    assert policy._params == MakespanParams(effort=7, gap=0.5)


def test_network_bound_inputs_all_end_together(network_problem):
    # 3 jobs of 400 Mb over ingress of 800 and 400 Mbps: 2 + 1, 1 s each.  The egress of 2000 Mbps does not matter.
    problem = network_problem([400, 400, 400], [0, 0, 0], [2000], [0, 1], [800, 400])
    found = plan(problem)
    assert found.makespan_s == pytest.approx(1.0)
    assert found.lower_bound_s == pytest.approx(1.0)
    assert found.segment_end_s.tolist() == pytest.approx([1.0] * 3)


def test_jobs_of_one_function_follow_each_other_where_loads_take_time(compute_problem):
    # One accelerator, two functions with two jobs each, 10 s per load: 4 s of work and one load.
    problem = compute_problem(np.ones((4, 1)), function=[0, 1, 0, 1], loaded=[0], load_s=[10.0])
    assert plan(problem).makespan_s == 14.0


@pytest.mark.parametrize(
    ("seconds", "size", "egress", "length"),
    [
        ([[0.0]], 0, np.inf, 0.0),  # neither work nor input
        ([[0.0, np.inf]], 0, np.inf, 0.0),
        ([[2.0]], 10**12, np.inf, 2.0),  # infinite bandwidth
        ([[2.0]], 10**12, 1e9, 8002.0),  # 8e12 bits at 1 Gbps
        ([[1.0]] * 5, 0, 1e9, 5.0),  # duplicates
        ([[1e-9, 1e6]] * 2, 0, 1e9, 2e-9),
    ],
)
def test_degenerate_batches(verdict, seconds, size, egress, length):
    jobs, accelerators = np.shape(seconds)
    problem = BatchProblem(
        seconds=seconds, input_bytes=[size] * jobs, requester=[0] * jobs, egress_bps=[egress],
        responder=[0] * accelerators, ingress_bps=[np.inf],
    )  # fmt: skip
    found = plan(problem)
    assert found.makespan_s == pytest.approx(length)
    assert verdict(problem, found)["faults"] == []


def test_ready_times_far_apart_leave_the_late_accelerator_idle(compute_problem):
    # 3 jobs of 1 s on the ready accelerator; the other one is ready after a million seconds.
    found = plan(compute_problem(np.ones((3, 2)), ready_s=[0.0, 1e6]))
    assert found.makespan_s == found.lower_bound_s == 3.0


def test_job_that_runs_nowhere_is_named():
    with pytest.raises(ValueError, match=r"seconds\[1\]: this job cannot run on any accelerator"):
        BatchProblem(
            seconds=[[1.0], [np.inf]], input_bytes=[0, 0], requester=[0, 0], egress_bps=[np.inf], responder=[0],
            ingress_bps=[np.inf],
        )  # fmt: skip


@pytest.mark.parametrize("wrong", [{"effort": -1}, {"effort": 0.5}, {"time_limit_s": -1.0}, {"gap": np.inf}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MakespanParams(**wrong)


def test_large_read_only_arrays_are_shared_with_the_problem():
    seconds = np.ones((3, 2))
    seconds.setflags(write=False)
    assert floats(seconds) is seconds
    assert floats(np.ones(2)[:1]).base is None
