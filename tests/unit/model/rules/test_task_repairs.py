"""Tasks whose slots fail or are claimed: cards that disappear, and claims of instances.

Host r has two cards with two linked slots each.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_bench import Tasks

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.flavor import AcceleratorRequest
from fpga_pool.model.objects.pool import JobState, SlotState
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, not_to_be_had
from fpga_pool.model.rules.shared.audit import audit_contents
from fpga_pool.model.values import changed
from fpga_pool.sim.store import MemoryTransaction


@pytest.fixture
def pool(new_pool, catalogue):
    """A pool without a host."""
    pool = type(new_pool())(catalogue)
    yield pool
    pool.check_invariants()


@pytest.fixture
def tasks(pool):
    tasks = Tasks(pool)
    tasks.ring_up(cards=2, slots=2)
    return tasks


def without_them(heartbeat, lost):
    return changed(heartbeat, slots=tuple(slot for slot in heartbeat.slots if slot.slot not in lost))


def with_them_failed(heartbeat, lost):
    failed = {"state": SlotState.FAULTED, "function": "", "job": "", "reason": "its card has disappeared"}
    slots = tuple(changed(slot, **failed) if slot.slot in lost else slot for slot in heartbeat.slots)
    return changed(heartbeat, slots=slots)


@pytest.mark.parametrize("told", [without_them, with_them_failed])
def test_a_card_that_vanishes_with_both_slots_of_a_task_costs_the_task_its_slots_and_the_host_nothing(
    pool, tasks, told
):
    """When the first slot fails, the task leaves the second one too, so that slot has changed since it was read."""
    uuid = tasks.create(2, "ring")
    assert tasks.place() == [uuid]
    lost = set(tasks.slots(uuid))
    assert len({slot.rpartition("/")[0] for slot in lost}) == 1
    for share in tasks.shares(uuid):
        pool.bring(share.uuid, JobState.RUNNING)
    pool.heard(told(pool.heartbeat("r"), lost))
    assert {pool.slot(slot).state for slot in lost} == {SlotState.FAULTED}
    assert (tasks.get(uuid).state, tasks.get(uuid).failures) == (TaskState.QUEUED, 1)
    assert tasks.place() == [uuid]
    assert lost.isdisjoint(tasks.slots(uuid))


def claim(pool, count):
    """Claim slots for a virtual machine; return their names."""
    wanted = Claim(
        host="r", instance="vm", project_id="p", wanted=AcceleratorRequest(function="aes", count=count), allocated=None
    )
    with pool.tx() as tx:
        return {slot.name for slot in claim_slots(tx, wanted, pool.catalogue, pool.settings, pool.now_s)}


def busy(pool):
    with pool.tx() as tx:
        return not_to_be_had(tx, pool.catalogue, pool.settings, pool.now_s)[1]


def test_a_claim_does_not_stop_a_share_that_cannot_be_stopped_however_soon_it_ends(pool, tasks):
    """It ends in a second, less than a claim may wait, but a claim takes all slots of a task at once."""
    uuid = tasks.create(3, "line")
    tasks.place()
    pool.bring(tasks.shares(uuid)[0].uuid, JobState.RUNNING)
    held = tasks.held()[uuid]
    assert busy(pool) == held
    with pytest.raises(Conflict, match="of the 4 slots that fit 0 are held by virtual machines and 1 are available"):
        claim(pool, 2)
    assert claim(pool, 1).isdisjoint(held)
    assert tasks.get(uuid).state is TaskState.RUNNING
    pool.bring(tasks.shares(uuid)[0].uuid, JobState.COMPLETED)
    assert busy(pool) == set()  # the other shares wait for their inputs


def test_a_claim_does_not_stop_a_task_that_could_not_begin_again(pool, tasks):
    """A share that was planned as often as allowed would fail, and its task with it."""
    uuid = tasks.create(4, "any")
    for _ in range(pool.settings.max_attempts - 1):
        tasks.place()
        pool.fail(tasks.shares(uuid)[0].uuid)
    assert tasks.place() == [uuid]
    assert {share.state for share in tasks.shares(uuid)} == {JobState.WAITING_INPUT}
    assert busy(pool) == set(tasks.slots(uuid))
    with pytest.raises(Conflict, match="0 are available"):
        claim(pool, 1)
    assert tasks.get(uuid).state is TaskState.RUNNING


def test_a_drain_costs_no_share_of_a_task_an_attempt(pool, tasks):
    uuid = tasks.create(2, "line")
    for _ in range(pool.settings.max_attempts + 1):
        assert tasks.place() == [uuid]
        (first, *_) = tasks.shares(uuid)
        pool.drain(first.slot)
        pool.resume(first.slot)
    assert {share.counted_attempts for share in tasks.shares(uuid)} == {0}
    assert tasks.place() == [uuid]


def test_an_audit_finds_a_running_task_none_of_whose_shares_is_on_a_slot(pool, tasks):
    uuid = tasks.create(2, "line")
    tasks.place()
    assert list(audit_contents(pool.contents())) == []
    found = list(audit_contents(replace(pool.contents(), active_jobs=[])))
    assert f"task {uuid}: is RUNNING, but none of its shares is on a slot" in found


def test_a_look_at_the_shard_reads_no_host_by_itself_and_asks_once_what_equal_tasks_need(pool, tasks, monkeypatch):
    for _ in range(5):
        tasks.create(2, "line")
        tasks.create(4, "ring")
    asked = []
    monkeypatch.setattr(MemoryTransaction, "host", lambda tx, name: pytest.fail("read by itself"))
    monkeypatch.setattr(
        "fpga_pool.model.rules.task.decisions.holds", lambda room, topology, count: asked.append(count) or count == 2
    )
    view = tasks.look().view
    assert sorted(asked) == [2, 4]  # the shard has one host
    assert len(view.tasks) == len(view.left_out) == 5
