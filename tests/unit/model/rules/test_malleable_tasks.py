"""Malleable tasks: with fewer slots, a slot computes several shares, one after the other.

Host r has four cards in a ring, with one small slot each.  A share of 1000 bytes computes for 1.001 s as aes; a load
takes 0.5 s.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_bench import Tasks

from fpga_pool.model.exceptions import InvalidInput, NoSlotFits
from fpga_pool.model.objects.pool import JobState, SlotState
from fpga_pool.model.objects.tasks import TaskShape, TaskState


@pytest.fixture
def pool(new_pool, catalogue):
    """A pool without a host."""
    pool = type(new_pool())(catalogue)
    yield pool
    pool.check_invariants()


@pytest.fixture
def tasks(pool):
    tasks = Tasks(pool)
    tasks.ring_up()
    return tasks


def queues(tasks, uuid):
    """Return the indices of the shares on each slot in the order of their computation, sorted by the first index."""
    by_slot = {}
    for share in sorted(tasks.shares(uuid), key=lambda share: share.order):
        by_slot.setdefault(share.slot, []).append(share.index)
    return sorted(by_slot.values())


def test_a_malleable_task_takes_all_slots_where_they_are_free(pool, tasks):
    uuid = tasks.create(4, "line", shapes=[(1, None), (2, None), (4, None)])
    assert tasks.place() == [uuid]
    assert queues(tasks, uuid) == [[0], [1], [2], [3]]
    task = tasks.get(uuid)
    assert (task.slots, task.shares, [shape.slots for shape in task.shapes]) == (4, 4, [1, 2, 4])
    assert task.ends_at - pool.now_s == pytest.approx(0.5 + 1.001)


def test_it_runs_on_fewer_where_no_more_are_in_service_and_each_computes_several_shares(pool, tasks):
    for card in (0, 1):
        pool.drain(f"r/c{card}/s0")
    uuid = tasks.create(5, "line", shapes=[(4, None), (2, None)])
    assert tasks.place() == [uuid]
    # Consecutive shares use one slot: two of the five on one slot, three on the other.
    assert queues(tasks, uuid) == [[0, 1, 2], [3, 4]]
    task = tasks.get(uuid)
    assert task.slots == len(tasks.held()[uuid]) == 2
    # Three shares compute on one slot, one after the other.
    assert task.ends_at - pool.now_s == pytest.approx(0.5 + 3 * 1.001)
    first, second, third = (tasks.shares(uuid)[index] for index in (0, 1, 2))
    assert (first.start_s, second.start_s) == (0.5, pytest.approx(first.end_s))
    assert third.end_s == pytest.approx(0.5 + 3 * 1.001)
    for share in tasks.shares(uuid):
        pool.bring(share.uuid, JobState.COMPLETED)
    assert tasks.get(uuid).state is TaskState.COMPLETED
    assert tasks.held() == {}


def test_how_long_it_takes_is_what_its_tenant_says_of_the_shape(pool, tasks):
    # Alone it gets its fastest shape, which is not its widest.
    uuid = tasks.create(4, "line", shapes=[(4, 9.0), (2, 5.0)])
    tasks.place()
    task = tasks.get(uuid)
    assert (task.slots, task.ends_at - pool.now_s) == (2, pytest.approx(0.5 + 5.0))
    assert queues(tasks, uuid) == [[0, 1], [2, 3]]


def test_the_policy_allots_shapes_to_all_that_wait(pool, tasks):
    # Each could use the ring for 3 s, one after the other; on two slots each, both end after 4 s.
    first, second = (tasks.create(4, "line", shapes=[(4, 3.0), (2, 4.0)]) for _ in range(2))
    assert sorted(tasks.place()) == [first, second]
    assert tasks.get(first).slots == tasks.get(second).slots == 2


def test_one_that_has_waited_long_gets_its_quickest_shape_as_soon_as_it_can(pool, tasks):
    narrow = tasks.create(2, "line")
    tasks.place()
    uuid = tasks.create(4, "ring", shapes=[(4, None), (2, 60.0)])
    pool.now_s += 31.0
    assert tasks.place() == []  # the two free slots are reserved
    assert (
        tasks.detail(uuid).pending_reason
        == "4 or 2 slots for aes with the required links (ring) are not free at the same time"
    )
    for share in tasks.shares(narrow):
        pool.bring(share.uuid, JobState.COMPLETED)
    assert tasks.place() == [uuid]
    assert tasks.get(uuid).slots == 4


def test_a_slot_with_several_shares_that_fails_stops_the_task_which_goes_on_in_another_shape(pool, tasks):
    uuid = tasks.create(4, "line", shapes=[(4, None), (2, 1.0)])
    assert tasks.place() == [uuid]
    first, second, *others = tasks.shares(uuid)
    pool.bring(first.uuid, JobState.COMPLETED)
    lost = second.slot
    pool.report(pool.slot_report(lost, SlotState.FAULTED, reason="smoke"), host="r")
    assert tasks.get(uuid).state is TaskState.QUEUED
    assert tasks.held() == {}
    assert tasks.place() == [uuid]
    task = tasks.get(uuid)
    assert (task.slots, task.attempt, task.failures) == (2, 2, 1)
    assert {share.attempt for share in tasks.shares(uuid)} == {1, 2}
    for share in (second, *others):
        pool.bring(share.uuid, JobState.COMPLETED)
    assert tasks.get(uuid).state is TaskState.COMPLETED


def test_where_the_policy_fails_it_gets_the_quickest_shape_that_there_are_slots_for(pool, tasks):
    pool.drain("r/c0/s0")
    uuid = tasks.create(4, "line", shapes=[(1, None), (2, None), (4, None)])
    tasks.policy.broken = True
    assert tasks.place() == [uuid]
    assert tasks.get(uuid).slots == 2


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(0, None)], r"shapes\[0\].slots: expected 1 to 3, at least one share per slot, found 0"),
        ([(1, None), (4, None)], r"shapes\[1\].slots: expected 1 to 3"),
        ([(2, 0.0)], r"shapes\[0\].seconds: expected a number above 0, 32000000 at most, found 0"),
        ([(2, 1.0), (2, 2.0)], "shapes: expected different numbers of slots"),
    ],
)
def test_shapes_that_cannot_be_right_are_refused(tasks, shapes, complaint):
    with pytest.raises(InvalidInput, match=complaint):
        tasks.create(3, shapes=shapes)


def test_a_task_that_fits_nowhere_in_any_shape_is_refused_and_one_that_fits_in_one_is_not(pool, tasks):
    with pytest.raises(NoSlotFits, match="shapes: no host of the pool has 5 slots for aes; at most 4 exist"):
        tasks.create(6, shapes=[(6, None), (5, None)])
    uuid = tasks.create(6, shapes=[(6, None), (3, None)])
    for card in (0, 1):
        pool.drain(f"r/c{card}/s0")
    assert tasks.place() == []
    assert (
        tasks.detail(uuid).pending_reason == "no host has 6 or 3 slots in service for aes with the required links (any)"
    )
    pool.resume("r/c0/s0")
    assert tasks.place() == [uuid]


def test_a_rigid_task_is_one_with_a_slot_for_each_share(tasks):
    uuid = tasks.create(3, "line")
    task = tasks.get(uuid)
    assert (task.slots, task.shares, task.shapes) == (3, 3, ())
    assert task.alternatives == (TaskShape(3),)
