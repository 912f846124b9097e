"""Dry runs of tasks, gangs and pipelines by a scheduler predict what creating them would do."""

import threading
import uuid
from itertools import count

import pytest
from sqlalchemy import event, func, select

from fpga_pool.model.exceptions import DuplicateId, FpgaPoolError, TooManyRequests
from fpga_pool.model.flavor import Tier, Topology
from fpga_pool.model.messages.agents import ObservedProcessor
from fpga_pool.model.messages.work import (
    GangRequest,
    PipelineRequest,
    ShareRequest,
    SubtaskRequest,
    TaskRequest,
)
from fpga_pool.model.objects.gangs import GangState, processor_name
from fpga_pool.model.objects.quotas import QuotaLimits
from fpga_pool.model.objects.tasks import TaskShape, TaskState
from fpga_pool.model.values import changed
from fpga_pool.services.scheduler.dry_runs.turns import DryRuns
from fpga_pool.store.tables import METADATA

PROCESSORS = 4


def new_uuid():
    return str(uuid.uuid4())


def whose(project):
    return {"uuid": new_uuid(), "project_id": project, "user_id": "u", "name": "n"}


def task(agent, count, topology=Topology.LINE, function="sha256", shapes=(), input_bytes=1000, project="p"):
    shares = tuple(
        ShareRequest(uuid=new_uuid(), name=f"s{index}", requester=agent.name, input_bytes=input_bytes)
        for index in range(count)
    )
    return TaskRequest(**whose(project), function=function, topology=topology, shares=shares, shapes=shapes)


def gang(agent, processes, runtime_s=600.0, usage=1.0, project="p"):
    return GangRequest(**whose(project), processes=processes, runtime_s=runtime_s, cpu_usage=usage)


def pipeline(agent, *edges, function="sha256", input_bytes=1000, project="p"):
    """Return a pipeline of subtasks, each given by its name and those of its predecessors."""
    subtasks = tuple(
        SubtaskRequest(
            uuid=new_uuid(), name=name, function=function, after=tuple(after),
            requester="" if after else agent.name, input_bytes=0 if after else input_bytes,
        )
        for name, *after in edges
    )  # fmt: skip
    return PipelineRequest(**whose(project), subtasks=subtasks)


DIAMOND = ("a",), ("b", "a"), ("c", "a"), ("d", "b", "c")


@pytest.fixture
def agent(running):
    """Return a host with three slots in a line, and with processors for gangs."""
    agent = running.host()
    processors = tuple(
        ObservedProcessor(processor=processor_name(agent.name, number), number=number) for number in range(PROCESSORS)
    )
    running.api.heartbeat(changed(agent.heartbeat(running.clock()), processors=processors))
    return agent


def place(job):
    return job.index, job.host, job.slot, pytest.approx(job.start_s), pytest.approx(job.end_s)


@pytest.mark.parametrize(
    ("count", "options"),
    [
        (3, {}),
        (2, {"topology": Topology.ANY, "function": "wordcount"}),
        (1, {"function": "optical_flow"}),
        (3, {"shapes": (TaskShape(2, 9.0), TaskShape(1, 30.0))}),
    ],
)
def test_the_plan_of_a_task_is_what_its_creation_then_makes_of_it(running, agent, until, count, options):
    request = task(agent, count, **options)
    plan = running.api.plan_task(request)
    created = running.api.create_task(request)
    until(lambda: running.api.task("p", created.uuid).task.state is TaskState.RUNNING)
    found = running.api.task("p", created.uuid)
    assert set(plan.slot_list) == set(found.slot_list)
    assert [place(one) for one in plan.share_list] == [place(one) for one in found.share_list]
    assert plan.slots == plan.loads == found.task.slots == len(found.slot_list)
    assert plan.ends_at - plan.dispatched_at == pytest.approx(found.task.ends_at - found.share_list[0].dispatched_at)
    # All slots are empty: the function is loaded before the first share of each.
    assert sum(one.loads for one in plan.share_list) == plan.slots
    assert (plan.pending_reason, plan.ahead) == ("", 0)
    assert plan.lower_bound_s == pytest.approx(plan.ends_at - plan.expected_at, abs=1e-6)


def test_a_task_that_would_wait_is_told_for_what_and_until_when(running, agent, until):
    first = running.api.create_task(task(agent, 3, function="wordcount"))
    until(lambda: running.api.task("p", first.uuid).task.state is TaskState.RUNNING)
    second = running.api.create_task(task(agent, 3, function="wordcount"))
    request = task(agent, 2, project="q")
    plan = running.api.plan_task(request)
    assert (plan.slots, plan.loads, plan.dispatched_at, plan.slot_list) == (None, 0, None, ())
    assert [(one.slot, one.start_s) for one in plan.share_list] == [("", None)] * 2
    assert plan.ahead == 1
    assert plan.pending_reason == "2 slots for sha256 with the required links (line) are not free at the same time"
    # After the task that computes and the one that waits.
    ends_at = running.api.task("p", first.uuid).task.ends_at
    assert plan.expected_at > running.api.task("p", second.uuid).expected_at
    assert plan.ends_at > plan.expected_at + plan.lower_bound_s > ends_at
    created = running.api.create_task(request)
    found = running.api.task("q", created.uuid)
    assert found.pending_reason == plan.pending_reason
    assert found.expected_at == pytest.approx(plan.expected_at, abs=5.0)


def test_a_task_that_cannot_begin_while_a_slot_is_drained_says_so(running, agent):
    (large,) = (slot for slot in running.api.slots() if slot.kind == "large")
    running.api.drain_slot(large.uuid, "")
    plan = running.api.plan_task(task(agent, 3, topology=Topology.ANY))
    assert plan.pending_reason == "no host has 3 slots in service for sha256 with the required links (any)"
    assert (plan.lower_bound_s, plan.expected_at, plan.ends_at) == (None, None, None)


def begun(running, created):
    return running.api.gang(created.project_id, created.uuid)


def test_the_plan_of_a_gang_is_what_its_creation_then_makes_of_it(running, agent, until):
    agent.unavailable = True  # the agent starts no guest
    for processes, tier in ((3, Tier.FOREGROUND), (3, Tier.BACKGROUND)):
        request = gang(agent, processes, usage=0.5)
        plan = running.api.plan_gang(request)
        created = running.api.create_gang(request)
        until(lambda created=created: begun(running, created).gang.state is not GangState.QUEUED)
        found = begun(running, created)
        assert plan.tier is tier
        assert [(one.index, one.host, one.processor, one.tier) for one in plan.process_list] == [
            (one.index, agent.name, one.processor, one.tier) for one in found.process_list
        ]
        assert (plan.lower_bound_s, plan.ahead) == (600.0, 0)
        if tier is Tier.FOREGROUND:
            assert (plan.pending_reason, plan.ends_at) == ("", plan.expected_at + 600.0)
            assert found.gang.ends_at == pytest.approx(plan.ends_at, abs=60.0)
            first = found.gang
        else:
            assert plan.pending_reason == found.pending_reason == "too few processors are idle"
            assert plan.expected_at == found.expected_at == pytest.approx(first.ends_at)
            assert plan.ends_at == plan.expected_at + 600.0


def test_a_gang_that_would_wait_is_told_for_what_and_behind_how_many(running, agent, until):
    agent.unavailable = True
    ahead = [running.api.create_gang(gang(agent, 4)) for _ in range(2)]
    until(lambda: begun(running, ahead[0]).gang.state is not GangState.QUEUED)
    plan = running.api.plan_gang(gang(agent, 4, project="q"))
    assert (plan.tier, plan.trial, plan.process_list) == (None, False, ())
    assert plan.ahead == 1
    assert plan.pending_reason == "too few processors are idle"
    assert plan.expected_at >= begun(running, ahead[1]).expected_at + 600.0
    assert plan.ends_at == plan.expected_at + 600.0


def test_the_first_subtasks_of_a_plan_get_the_places_that_their_creation_then_gives_them(running, agent, until):
    request = pipeline(agent, ("a",), ("b",), ("c", "a", "b"), input_bytes=10**8)
    plan = running.api.plan_pipeline(request)
    created = running.api.create_pipeline(request)
    found = lambda: running.api.pipeline("p", created.uuid).subtask_list  # noqa: E731
    until(lambda: [job.state.value for job in found()[:2]] == ["WAITING_INPUT"] * 2)
    assert [place(one) for one in plan.subtask_list[:2]] == [place(one) for one in found()[:2]]
    assert [one.name for one in plan.subtask_list] == [one.name for one in found()]
    for job in found()[:2]:
        running.report(job, "staged", "started", "finished")
    until(lambda: found()[2].state.value == "WAITING_INPUT")
    last = plan.subtask_list[2]
    assert last.start_s >= max(one.end_s for one in plan.subtask_list[:2])
    assert last.loads is (last.slot not in {one.slot for one in plan.subtask_list[:2]})


def test_a_pipeline_is_planned_to_its_end_and_each_subtask_after_those_that_it_reads(running, agent):
    plan = running.api.plan_pipeline(pipeline(agent, *DIAMOND, function="wordcount"))
    a, b, c, d = plan.subtask_list
    assert (a.start_s, a.loads) == (pytest.approx(a.end_s - 300.0, abs=1e-5), True)
    assert min(b.start_s, c.start_s) == a.end_s
    assert b.slot != c.slot  # they run concurrently
    assert d.start_s == max(b.end_s, c.end_s)
    assert not d.loads
    assert plan.planned_makespan_s == d.end_s
    assert plan.ends_at == plan.dispatched_at + d.end_s
    assert plan.expected_at == plan.dispatched_at + a.start_s
    # Three subtasks in sequence, each of at least 300 s.
    assert 900 <= plan.lower_bound_s <= plan.planned_makespan_s
    assert (plan.subtasks, plan.input_bytes, plan.pending_reason) == (4, 1000, "")


def test_a_course_that_takes_long_is_planned_in_part(running, agent):
    running.service.dry_runs = DryRuns(count().__next__)  # each decision takes a second
    chain = [(f"s{number}", *([f"s{number - 1}"] if number else [])) for number in range(5)]
    plan = running.api.plan_pipeline(pipeline(agent, *chain))
    assert [bool(one.slot) for one in plan.subtask_list] == [True] * 3 + [False] * 2
    assert plan.pending_reason == "only its first subtasks are planned: a plan of all would take too long"
    assert (plan.planned_makespan_s, plan.ends_at) == (None, None)
    assert plan.expected_at == plan.dispatched_at + plan.subtask_list[0].start_s


def test_a_pipeline_waits_for_what_is_there_already(running, agent, until):
    batch = running.create(agent, *["wordcount"] * 3)
    until(lambda: len(running.service.store.undelivered("default", 10)) == 0 and len(agent.held) == 3)
    plan = running.api.plan_pipeline(pipeline(agent, ("a",), ("b", "a")))
    free_at = min(job.dispatched_at + job.end_s for job in running.jobs(batch))
    assert plan.expected_at == plan.dispatched_at + plan.subtask_list[0].start_s
    assert plan.expected_at == pytest.approx(free_at, abs=1e-3)
    assert plan.subtask_list[1].start_s >= plan.subtask_list[0].end_s


def test_subtasks_without_a_slot_in_service_would_wait(running, agent):
    for slot in running.api.slots():
        running.api.drain_slot(slot.uuid, "")
    plan = running.api.plan_pipeline(pipeline(agent, *DIAMOND))
    assert plan.pending_reason == "no slot in service can hold sha256"
    assert (plan.dispatched_at, plan.planned_makespan_s, plan.ends_at, plan.expected_at) == (None,) * 4
    assert {(one.slot, one.start_s) for one in plan.subtask_list} == {("", None)}


def rows(running):
    """Return the number of rows of each table and the generations, except for tables of liveness."""
    with running.store.reading() as tx:
        tables = [table for table in METADATA.sorted_tables if table.name not in ("shards", "schedulers")]
        generation = tx.generations()
        counts = {
            table.name: tx.connection.execute(select(func.count()).select_from(table)).scalar() for table in tables
        }
        return counts, generation


ASK = {
    "task": lambda agent, **more: task(agent, 2, **more),
    "gang": lambda agent, **more: gang(agent, 2, **more),
    "pipeline": lambda agent, **more: pipeline(agent, *DIAMOND, **more),
}


@pytest.mark.parametrize("kind", ASK)
def test_a_dry_run_stores_loads_and_sends_nothing(running, agent, kind):
    before = rows(running)
    plan = getattr(running.api, f"plan_{kind}")(ASK[kind](agent, project="new"))
    assert plan.expected_at is not None
    assert rows(running) == before
    assert [slot.function for slot in running.api.slots()] == [""] * 3
    assert agent.commands == agent.ahead == running.waiting() == []


@pytest.mark.parametrize(("kind", "most"), [("task", 24), ("gang", 14), ("pipeline", 18)])
def test_a_dry_run_only_reads_and_asks_the_database_little_whatever_its_size(running, agent, kind, most):
    asked = []

    def note(*call):
        if threading.current_thread().name.startswith("ThreadPoolExecutor"):  # threads that answer calls
            asked.append(call[2])

    event.listen(running.store.engine, "before_cursor_execute", note)
    chain = [(f"s{number}", *([f"s{number - 1}"] if number else [])) for number in range(50)]
    request = pipeline(agent, *chain) if kind == "pipeline" else ASK[kind](agent)
    assert getattr(running.api, f"plan_{kind}")(request).ends_at is not None
    everything = "\n".join(asked)
    assert 0 < len(asked) <= most, everything
    assert {statement.split()[0] for statement in asked} <= {"BEGIN", "SELECT", "COMMIT", "ROLLBACK", "WITH"}, (
        everything
    )
    assert "BEGIN IMMEDIATE" not in everything


def refusal(method, request):
    with pytest.raises(FpgaPoolError) as caught:
        method(request)
    return type(caught.value), str(caught.value.args[0])


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("task", lambda agent: task(agent, 4)),  # on a host with three slots
        ("task", lambda agent: task(agent, 2, function="optical_flow")),  # there is only one slot for it
        ("task", lambda agent: task(agent, 2, function="sha3")),
        ("task", lambda agent: task(agent, 2, input_bytes=1 << 50)),
        ("task", lambda agent: task(agent, 2, project="poor")),
        ("gang", lambda agent: gang(agent, PROCESSORS + 1)),
        ("gang", lambda agent: changed(gang(agent, 1), image="-")),
        ("gang", lambda agent: gang(agent, 2, project="poor")),
        ("pipeline", lambda agent: pipeline(agent, ("a",), ("b", "c"))),
        ("pipeline", lambda agent: pipeline(agent, ("a", "b"), ("b", "a"))),
        ("pipeline", lambda agent: pipeline(agent, ("a",), function="sha3")),
        ("pipeline", lambda agent: pipeline(agent, ("a",), ("b", "a"), project="poor")),
    ],
)
def test_a_dry_run_refuses_what_the_creation_refuses_with_the_same_words(running, agent, kind, make):
    running.api.set_quota("poor", QuotaLimits(jobs=1, gang_processors=1))
    request = make(agent)
    planned, created = (getattr(running.api, f"{verb}_{kind}") for verb in ("plan", "create"))
    assert refusal(planned, request) == refusal(created, request)


@pytest.mark.parametrize("kind", ASK)
def test_a_dry_run_of_what_exists_is_refused_as_its_repeat(running, agent, kind):
    agent.unavailable = True
    request = ASK[kind](agent)
    getattr(running.api, f"create_{kind}")(request)
    with pytest.raises(DuplicateId):
        getattr(running.api, f"plan_{kind}")(request)


@pytest.mark.parametrize("kind", ASK)
def test_dry_runs_of_all_kinds_take_turns(running, agent, kind):
    with running.service.dry_runs.turn("other"), pytest.raises(TooManyRequests, match="one at a time"):
        getattr(running.api, f"plan_{kind}")(ASK[kind](agent))
