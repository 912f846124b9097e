"""Tasks when what holds them fails: cards that vanish, claims, and schedulers that did not follow their shares.

Host r has two cards with two linked slots each.
"""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_bench import Tasks

from fpga_pool.model.objects import JobState, SlotState
from fpga_pool.model.tasks import TaskState


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
    return replace(heartbeat, slots=tuple(slot for slot in heartbeat.slots if slot.slot not in lost))


def with_them_failed(heartbeat, lost):
    failed = {"state": SlotState.FAULTED, "function": "", "job": "", "reason": "its card is gone"}
    slots = tuple(replace(slot, **failed) if slot.slot in lost else slot for slot in heartbeat.slots)
    return replace(heartbeat, slots=slots)


@pytest.mark.parametrize("told", [without_them, with_them_failed])
def test_a_card_that_vanishes_with_both_slots_of_a_task_costs_the_task_its_slots_and_the_host_nothing(
    pool, tasks, told
):
    """The failure of the first slot has the task leave the second, whose agent is told: it is not as it was read."""
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
