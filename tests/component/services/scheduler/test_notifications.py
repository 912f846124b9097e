"""Notifications that schedulers publish of committed changes, on a real database."""

import uuid

import pytest

from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.lifecycle.gang import GANG, GangCancelled
from fpga_pool.model.lifecycle.slot import HostLost
from fpga_pool.model.messages.work import PipelineRequest, ShareRequest, SubtaskRequest, TaskRequest
from fpga_pool.model.objects.gangs import Gang
from fpga_pool.model.objects.history import Cause, created
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.shared.changes import change_slot
from fpga_pool.model.rules.shared.reconcile import tick
from fpga_pool.model.values import changed

FAULTED, EMPTY = (SlotState.FAULTED, "", "it smokes"), (SlotState.EMPTY, "", "")
LOADING, READY = (SlotState.LOADING, "sha256", ""), (SlotState.READY, "sha256", "")


@pytest.fixture
def agent(running):
    return running.host()


@pytest.fixture
def told(running):
    """Return a function that lists the notifications since its last call: event types, and a field of the payloads."""

    def told(field="state"):
        found, running.published[:] = list(running.published), []
        return [(one.event_type, one.payload[one.event_type.partition(".")[0]][field]) for one in found]

    return told


@pytest.fixture
def commit(running):
    return running.service.writer("default").run


def request(kind, **more):
    return kind(uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="n", **more)


def test_a_lease_begins_breaks_is_restored_and_ends(running, agent, told, caplog):
    (slot,) = running.api.claim_slots(agent.name, agent.name, "vm", "p", AcceleratorRequest(function="sha256", count=1))
    assert told("holder") == [("lease.begun", "vm")]
    running.observe(agent, slot.name, LOADING, READY)
    running.observe(agent, slot.name, FAULTED)
    assert [kind for kind, _ in told("uuid")] == ["slot.faulted", "lease.broken"]
    assert f"instance vm cannot use slot {slot.name}: it smokes" in caplog.text
    running.observe(agent, slot.name, EMPTY)
    assert told() == [("slot.recovered", "EMPTY")]
    running.observe(agent, slot.name, LOADING, READY)
    assert told("broken") == [("lease.restored", "")]
    [lease] = running.api.instance_leases(agent.name)["vm"]
    running.api.release_slots(agent.name, agent.name, {lease.uuid: lease.generation})
    assert told("holder") == [("lease.ended", "vm")]


def test_what_happens_within_one_transaction_is_told_too(running, agent, told):
    """An agent that could not report for a while reports a fault and its end together."""
    (slot,) = running.api.claim_slots(agent.name, agent.name, "vm", "p", AcceleratorRequest(function="sha256", count=1))
    told("uuid")
    running.observe(agent, slot.name, LOADING, READY, FAULTED, EMPTY, LOADING, READY)
    assert [one.payload["reason"] for one in running.published] == ["it smokes", "", "it smokes", ""]
    kinds = ["slot.faulted", "slot.recovered", "lease.broken", "lease.restored"]
    assert [kind for kind, _ in told("uuid")] == kinds


def test_a_slot_that_is_new_and_faulted_is_told_of_once(running, new_agent, told):
    agent = new_agent()
    for _ in range(2):
        beat = agent.heartbeat(running.clock())
        first, *others = beat.slots
        running.api.heartbeat(changed(beat, slots=(changed(first, state=SlotState.FAULTED), *others)))
    assert told("name") == [("slot.faulted", first.slot)]


def test_a_host_is_lost_with_its_slots_and_returns(running, agent, told, commit):
    settings, now_s = running.service.settings.pool, running.clock()
    commit(lambda tx: tick(tx, settings, now_s, {agent.name: 2 * settings.host_timeout_s}))
    assert running.published[-1].payload["reason"].startswith("no heartbeat for ")
    assert told("name") == [
        *(("slot.faulted", f"{agent.name}/c/r{number}") for number in range(3)),
        ("host.lost", agent.name),
    ]
    running.api.heartbeat(agent.heartbeat(running.clock()))
    assert told("name") == [
        *(("slot.recovered", f"{agent.name}/c/r{number}") for number in range(3)),
        ("host.returned", agent.name),
    ]


def test_a_batch_that_has_ended_is_told_of_once_with_its_outcome(running, agent, told, until):
    done, given_up = running.create(agent, "sha256"), running.create(agent, "sha256")
    until(lambda: running.states(done) == running.states(given_up) == ["WAITING_INPUT"])
    for _ in range(2):
        running.report(running.jobs(done)[0], "staged", "started", "finished")
    running.api.cancel_batch("p", given_up.uuid)
    running.released(running.jobs(given_up)[0])
    assert told() == [("batch.ended", "COMPLETED"), ("batch.ended", "CANCELLED")]


def test_a_task_that_has_ended_is_told_of_and_its_batch_is_not(running, agent, told, until):
    share = ShareRequest(uuid=str(uuid.uuid4()), name="", requester=agent.name, input_bytes=1000)
    task = running.api.create_task(request(TaskRequest, function="sha256", shares=(share,)))
    until(lambda: running.api.task("p", task.uuid).share_list[0].state == "WAITING_INPUT")
    running.report(running.api.task("p", task.uuid).share_list[0], "staged", "started", "finished")
    assert told() == [("task.ended", "COMPLETED")]


def test_a_pipeline_that_has_ended_is_told_of_as_such(running, agent, told, until):
    subtask = SubtaskRequest(
        uuid=str(uuid.uuid4()), name="only", function="sha256", requester=agent.name, input_bytes=1000
    )
    pipeline = running.api.create_pipeline(request(PipelineRequest, subtasks=(subtask,)))
    until(lambda: running.api.pipeline("p", pipeline.uuid).subtask_list[0].state == "WAITING_INPUT")
    running.report(running.api.pipeline("p", pipeline.uuid).subtask_list[0], "staged", "started", "finished")
    assert told() == [("pipeline.ended", "COMPLETED")]


def test_a_gang_that_has_ended_is_told_of(running, told, commit):
    gang = Gang(
        uuid=str(uuid.uuid4()), project_id="p", user_id="u", name="n", processes=1, runtime_s=1.0, cpu_usage=1.0,
        work_s=1.0, created_at=0.0, history=created(0.0, "QUEUED"),
    )  # fmt: skip
    commit(lambda tx: tx.add(gang))
    commit(lambda tx: tx.save(GANG.transition(tx.gang(gang.uuid), GangCancelled(), 1.0)[0]))
    assert told() == [("gang.ended", "CANCELLED")]


def test_what_is_rolled_back_is_not_told(running, agent, told, commit):
    def fail(tx):
        tick(tx, running.service.settings.pool, running.clock(), {agent.name: 1e6})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        commit(fail)
    assert told() == []


def test_an_error_while_telling_does_not_undo_what_is_committed(running, agent, monkeypatch, caplog):
    monkeypatch.setattr(running.service, "_publish", lambda _: 1 / 0)
    slot = agent.heartbeat(running.clock()).slots[0].slot
    running.observe(agent, slot, FAULTED)
    assert next(one for one in running.api.slots() if one.name == slot).state is SlotState.FAULTED
    assert "ZeroDivisionError" in caplog.text


def test_the_request_that_caused_it_is_named(running, agent, told, commit):
    def work(tx):
        tx.cause = Cause("req-1")
        change_slot(tx, tx.slots(agent.name)[0], HostLost(), 1.0)

    commit(work)
    assert [one.payload["request_id"] for one in running.published] == ["req-1"]
