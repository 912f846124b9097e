"""A scheduler assigns slots to tasks, on a real database. Each host has three linked slots."""

import uuid
from dataclasses import replace

import pytest

from fpga_pool.conf.policies import load_policy
from fpga_pool.model.exceptions import InvalidTransition, NotFound, PreconditionFailed, ServiceUnavailable
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.messages.work import ShareRequest, TaskRequest
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.model.preconditions import version_of
from fpga_pool.model.rules.task.family import TaskFamily
from fpga_pool.services.scheduler.planner import quick
from support.waiting import wait_until

from .conftest import StoppedPlanner


class Broken:
    name = "broken"

    def decide(self, problem, state, now_s, rng):
        raise ZeroDivisionError


def request(agent, count, topology=Topology.LINE):
    shares = tuple(
        ShareRequest(uuid=str(uuid.uuid4()), name="", requester=agent.name, input_bytes=1000) for _ in range(count)
    )
    return TaskRequest(
        uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="n", function="sha256", topology=topology,
        shares=shares,
    )  # fmt: skip


def state(bench, task):
    return bench.api.task("p", task.uuid).task.state


def test_a_task_gets_its_slots_at_once_and_ends_when_all_its_shares_have(running):
    agent = running.host()
    task = running.api.create_task(request(agent, 3))
    wait_until(lambda: state(running, task) is TaskState.RUNNING, "slots")
    detail = running.api.task("p", task.uuid)
    assert len(set(detail.slot_list)) == 3
    assert {share.slot for share in detail.share_list} == set(detail.slot_list)
    uuids = {slot.name: slot.uuid for slot in running.api.slots()}
    held = [running.api.slot(uuids[name]) for name in detail.slot_list]
    assert [(one.held_by, one.holder, one.holder_project_id) for one in held] == [("task", task.uuid, "p")] * 3
    for share in detail.share_list:
        running.report(share, "staged", "started", "finished")
    assert state(running, task) is TaskState.COMPLETED
    assert [one.uuid for one in running.api.tasks(Page(project_id="p"))] == [task.uuid]
    with pytest.raises(InvalidTransition):
        running.api.cancel_task("p", task.uuid)


def test_a_task_that_waits_goes_on_when_the_one_before_it_is_cancelled(running):
    agent = running.host()
    first = running.api.create_task(request(agent, 3))
    wait_until(lambda: state(running, first) is TaskState.RUNNING, "slots")
    second = running.api.create_task(request(agent, 2))
    assert running.api.task("p", second.uuid).pending_reason.startswith("2 slots for sha256")
    running.api.cancel_task("p", first.uuid)
    for share in running.api.task("p", first.uuid).share_list:
        running.released(share)
    wait_until(lambda: state(running, second) is TaskState.RUNNING, "slots")
    assert state(running, first) is TaskState.CANCELLED


def test_a_task_that_is_cancelled_as_the_batch_of_its_shares_is_cancelled_whole_or_not_at_all(running, monkeypatch):
    agent = running.host()
    task = running.api.create_task(request(agent, 3))
    wait_until(lambda: state(running, task) is TaskState.RUNNING, "slots")

    def refuse(shard):
        raise ServiceUnavailable("the owner of the shard does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(running.service, "writer", refuse)
        with pytest.raises(ServiceUnavailable):
            running.api.cancel_batch("p", task.uuid)
    assert not running.api.batch_detail("p", task.uuid).batch.cancel_requested
    with pytest.raises(PreconditionFailed, match="the batch has changed"):
        running.api.cancel_batch("p", task.uuid, ("999",))
    seen = version_of(running.api.batch_detail("p", task.uuid))
    assert running.api.cancel_batch("p", task.uuid, (seen,)).cancel_requested
    detail = running.api.task("p", task.uuid)
    assert detail.task.cancel_requested
    assert all(share.cancel_requested for share in detail.share_list)
    with pytest.raises(NotFound):
        running.api.cancel_batch("another", task.uuid)
    for share in detail.share_list:
        running.released(share)
    assert state(running, task) is TaskState.CANCELLED


@pytest.fixture
def new_planner(bench):
    """Return a function that makes a planner of tasks, which makes a step only when a test says so."""
    bench.start()
    bench.service.ownership._owned["default"].planning["task"].stop()

    def build(policy):
        settings = replace(bench.service.settings.pool, task_patience_s=3600.0)
        return StoppedPlanner(bench, TaskFamily(bench.catalogue, settings, quick(policy)))

    return build


def contended(bench):
    """Create three tasks of two slots on one host with three slots, so that only one can begin."""
    agent = bench.host()
    return [bench.api.create_task(request(agent, 2)) for _ in range(3)]


@pytest.mark.parametrize("name", ["lattice_plus", "lattice", "fifo", "mfit"])
def test_where_not_all_can_begin_the_policy_says_who_does(bench, new_planner, name):
    planner = new_planner(load_policy("task", name))
    tasks = contended(bench)
    assert planner.step()
    assert sorted(state(bench, task) for task in tasks) == ["QUEUED", "QUEUED", "RUNNING"]
    assert planner.family.waits
    assert not planner.step()


def test_a_policy_that_fails_leaves_tasks_to_begin_in_order_of_arrival(bench, new_planner, caplog):
    planner = new_planner(Broken())
    tasks = contended(bench)
    assert planner.step()
    assert [state(bench, task) for task in tasks] == ["RUNNING", "QUEUED", "QUEUED"]
    assert "task policy broken failed" in caplog.text
