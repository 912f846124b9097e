"""Dry runs of batches by a scheduler: they predict what creating the batch would do, and store nothing."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from fpga_pool.conf.policies import load_policy
from fpga_pool.core.makespan import Ect
from fpga_pool.model.exceptions import DuplicateId, FpgaPoolError, InvalidInput, QuotaExceeded, TooManyRequests
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.quotas import QuotaLimits
from fpga_pool.model.rules.shared.sharding import ShardRule
from fpga_pool.model.values import changed
from fpga_pool.services.scheduler.dry_runs.turns import DryRuns
from fpga_pool.store.tables import METADATA

EVERYTHING = Page(limit=100)


@pytest.fixture
def agent(running):
    return running.host()


def created(running, until, request):
    """Create a batch; return it and its jobs once all are planned."""
    batch = running.api.create_batch(request).batch
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * len(request.jobs))
    return running.api.batch_detail(request.project_id, batch.uuid).batch, running.jobs(batch)


@pytest.mark.parametrize("policy", ["", "ect", "ljf"])
def test_what_a_dry_run_of_an_idle_pool_says_is_what_the_creation_then_plans(running, agent, until, policy):
    # The inputs are large, so that transfers are planned and there is a lead. 7 jobs share 3 slots.
    functions = ["wordcount"] * 5 + ["sha256", "optical_flow"]
    request = running.request(agent, *functions, policy=policy, input_bytes=10**8)
    plan = running.api.plan_batch(request)
    batch, jobs = created(running, until, request)
    assert (plan.policy, plan.jobs, plan.input_bytes) == (policy or "makespan", 7, 7 * 10**8)
    assert plan.planned_makespan_s == batch.planned_makespan_s > 300
    assert plan.lower_bound_s == batch.lower_bound_s > 300
    assert (plan.planned_completion_s, plan.completion_bound_s) == (
        batch.planned_completion_s,
        batch.completion_bound_s,
    )
    assert plan.ends_at == pytest.approx(plan.dispatched_at + plan.planned_makespan_s)
    assert [(one.index, one.function, one.host, one.slot, one.start_s, one.end_s) for one in plan.job_list] == [
        (job.index, job.function, job.host, job.slot, job.start_s, job.end_s) for job in jobs
    ]
    assert (plan.pending_reason, plan.expected_at) == ("", None)


def rows(running):
    """Return the number of rows of each table."""
    with running.store.reading() as tx:
        tables = METADATA.sorted_tables
        return {table.name: tx.connection.execute(select(func.count()).select_from(table)).scalar() for table in tables}


def test_a_dry_run_stores_loads_and_sends_nothing(running, agent):
    before = rows(running)
    for policy in ("", "ect", "benefit_plus"):
        running.api.plan_batch(running.request(agent, "sha256", "wordcount", project="new", policy=policy))
    assert rows(running) == before
    assert [slot.function for slot in running.api.slots()] == [""] * 3
    assert agent.commands == agent.ahead == running.waiting() == []


def test_a_dry_run_plans_around_the_work_under_way_and_shows_nothing_of_it(running, agent, until):
    created(running, until, running.request(agent, *["wordcount"] * 4, project="other"))
    plan = running.api.plan_batch(running.request(agent, "wordcount", "sha256"))
    assert [(job.index, job.function) for job in plan.job_list] == [(0, "wordcount"), (1, "sha256")]
    assert plan.jobs == 2
    # Four jobs of 300 s run on three slots. One more ends after 600 s at the earliest, minus the time since then.
    assert plan.planned_makespan_s == pytest.approx(600, abs=100)
    # The work in progress may end at once.
    assert plan.lower_bound_s == pytest.approx(300, abs=10)
    assert {one.job.uuid for one in running.api.jobs(EVERYTHING)} == {
        one.job.uuid for one in running.api.jobs(Page(project_id="other", limit=100))
    }


def refusal(method, request):
    with pytest.raises(FpgaPoolError) as caught:
        method(request)
    return type(caught.value), str(caught.value.args[0])


@pytest.mark.parametrize(
    ("functions", "options"),
    [
        ((), {}),
        (("sha3",), {}),
        (("sha256",), {"policy": "psychic"}),
        (("sha256",), {"policy": "exact"}),
        (("sha256",), {"input_bytes": 1 << 50}),
        (("sha256", "sha256"), {}),  # exceeds the quota
    ],
)
def test_a_dry_run_refuses_what_the_creation_refuses_with_the_same_words(running, agent, functions, options):
    running.api.set_quota("p", QuotaLimits(jobs=1))
    request = running.request(agent, *functions, **options)
    assert refusal(running.api.plan_batch, request) == refusal(running.api.create_batch, request)


def grouped(request, groups):
    return changed(request, jobs=tuple(changed(job, group=g) for job, g in zip(request.jobs, groups, strict=True)))


def test_jobs_of_a_lower_group_come_first_in_a_dry_run_and_in_the_plan_of_what_is_created(running, agent, until):
    groups = (1, 0, 0, 1, 1, 0)  # there is one slot for optical_flow
    request = grouped(running.request(agent, *["optical_flow"] * 6), groups)
    plan = running.api.plan_batch(request)
    _, jobs = created(running, until, request)
    assert [job.group for job in jobs] == list(groups)
    for found in (plan.job_list, jobs):
        in_order = sorted(found, key=lambda one: one.start_s)
        assert [groups[one.index] for one in in_order] == [0, 0, 0, 1, 1, 1]


def test_groups_are_refused_where_the_policy_serves_all_jobs_alike(running, agent):
    request = grouped(running.request(agent, "sha256", "sha256", policy="benefit_plus"), (0, 1))
    kind, says = refusal(running.api.plan_batch, request)
    assert refusal(running.api.create_batch, request) == (kind, says)
    assert kind is InvalidInput
    assert says.startswith("jobs: several groups, but policy 'benefit_plus' serves all jobs of a batch alike; ")


def test_a_dry_run_of_what_exists_is_refused_as_its_repeat(running, agent):
    request = running.request(agent, "sha256")
    running.api.create_batch(request)
    with pytest.raises(DuplicateId):
        running.api.plan_batch(request)
    with pytest.raises(DuplicateId):  # one of its jobs exists
        running.api.plan_batch(changed(request, uuid=str(uuid.uuid4())))


def test_use_counts_in_a_dry_run(running, agent):
    running.api.set_quota("p", QuotaLimits(jobs=2))
    running.create(agent, "wordcount", "wordcount")
    with pytest.raises(QuotaExceeded, match="jobs: 1 requested, 2 of 2 used"):
        running.api.plan_batch(running.request(agent, "sha256"))
    running.api.plan_batch(running.request(agent, "sha256", project="other"))


def test_jobs_without_a_slot_in_service_would_wait(running, agent):
    (large,) = (slot for slot in running.api.slots() if slot.kind == "large")
    running.api.drain_slot(large.uuid, "")
    plan = running.api.plan_batch(running.request(agent, "optical_flow", "sha256"))
    assert plan.pending_reason == "no slot in service can hold optical_flow"
    waits, placed = plan.job_list
    assert (waits.slot, waits.host, waits.start_s, waits.end_s) == ("", "", None, None)
    assert placed.slot in {f"{agent.name}/c/r0", f"{agent.name}/c/r1"}


def test_an_online_policy_plans_nothing(running, agent):
    plan = running.api.plan_batch(running.request(agent, "sha256", policy="benefit_plus"))
    assert plan.planned_makespan_s is plan.lower_bound_s is plan.ends_at is None
    assert "benefit_plus plans nothing" in plan.pending_reason
    assert plan.expected_at is not None


def test_there_is_no_dry_run_with_a_policy_that_has_to_prove_its_plan(running, agent):
    running.service.settings = replace(running.service.settings, default_policy="exact")
    with pytest.raises(InvalidInput, match="no dry run"):
        running.api.plan_batch(running.request(agent, "sha256"))


def test_a_policy_that_fails_is_named(bench):
    class Broken:
        name = "broken"

        def decide(self, problem, state, now_s, rng):
            raise ZeroDivisionError

    bench.start(bench.new_service(policies=lambda name: Broken()))
    plan = bench.api.plan_batch(bench.request(bench.host(), "sha256"))
    assert (plan.planned_makespan_s, plan.job_list[0].slot) == (None, "")
    assert "policy makespan failed" in plan.pending_reason


def test_the_shard_that_would_take_the_batch_is_planned(bench, until):
    bench.start(bench.new_service(shards=ShardRule(number=2)))
    busy = bench.host()
    until(lambda: len(bench.service.ownership.shards()) == 2)
    created(bench, until, bench.request(busy, *["wordcount"] * 3))
    idle = bench.host()
    request = bench.request(busy, "wordcount", "wordcount")
    plan = bench.api.plan_batch(request)
    assert {job.host for job in plan.job_list} == {idle.name}
    batch, jobs = created(bench, until, request)
    assert {job.host for job in jobs} == {idle.name}
    assert plan.planned_makespan_s == batch.planned_makespan_s


def test_a_batch_that_is_divided_is_planned_in_each_shard(bench, until):
    bench.start(bench.new_service(shards=ShardRule(number=2, split_batches=True)))
    hosts = [bench.host(), bench.host()]
    until(lambda: len(bench.service.ownership.shards()) == 2)
    request = bench.request(hosts[0], *["wordcount"] * 6)
    plan = bench.api.plan_batch(request)
    assert {job.host for job in plan.job_list} == {host.name for host in hosts}
    # Six jobs of 300 s run on six slots.
    assert plan.planned_makespan_s == pytest.approx(300, abs=1)
    batch, _ = created(bench, until, request)
    assert plan.lower_bound_s == batch.lower_bound_s


def test_one_dry_run_takes_place_at_a_time_and_holds_up_no_planning(bench, until):
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(Ect):
        def decide(self, *arguments):
            begun.set()
            assert goes_on.wait(60)
            return super().decide(*arguments)

    bench.start(bench.new_service(policies=lambda name: Slow() if name == "sjf" else load_policy("batch", name)))
    agent = bench.host()
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(bench.api.plan_batch, bench.request(agent, "sha256", policy="sjf"))
        assert begun.wait(60)
        for project in ("p", "other"):
            with pytest.raises(TooManyRequests, match="one at a time"):
                bench.api.plan_batch(bench.request(agent, "sha256", project=project))
        created(bench, until, bench.request(agent, "wordcount"))  # its plan is committed in the meantime
        goes_on.set()
        assert waiting.result(60).planned_makespan_s > 0


def test_a_project_leaves_as_much_time_as_its_last_dry_run_took():
    now, pauses = [100.0], []

    def sleep(seconds):
        pauses.append(seconds)
        now[0] += seconds

    runs = DryRuns(lambda: now[0], patience_s=1.0, sleep=sleep)

    def take(project, seconds):
        with runs.turn(project):
            now[0] += seconds

    take("p", 5.0)  # until 105; the next one may run at 110
    now[0] = 108.0
    with pytest.raises(TooManyRequests, match=r"project p took a while: the next one is possible in 2\.00 s"):
        take("p", 1.0)
    take("other", 0.5)
    assert pauses == []
    now[0] = 109.25
    take("p", 0.5)  # a short pause is waited for
    take("p", 0.03)
    take("p", 0.03)  # short ones may follow one another
    assert pauses == [0.75, 0.5]


def test_a_dry_run_waits_a_moment_for_that_of_another_project():
    runs, waiting = DryRuns(lambda: 0.0, patience_s=60.0), threading.Event()

    def take():
        waiting.set()
        with runs.turn("other"):
            return "taken"

    with ThreadPoolExecutor(1) as executor:
        with runs.turn("p"):
            taken = executor.submit(take)
            assert waiting.wait(60)
            # A second dry run of the same project would occupy another thread that answers calls.
            with pytest.raises(TooManyRequests, match="one at a time"), runs.turn("p"):
                pass
            assert not taken.done()
        assert taken.result(60) == "taken"
    impatient = DryRuns(lambda: 0.0, patience_s=0.0)
    with impatient.turn("p"), pytest.raises(TooManyRequests, match="one at a time"), impatient.turn("other"):
        pass


def test_a_dry_run_that_fails_leaves_the_way_free():
    runs = DryRuns()
    with pytest.raises(ZeroDivisionError), runs.turn("p"):
        raise ZeroDivisionError
    with runs.turn("other"):
        pass
