"""The contract of all implementations of model.transaction.Transaction for tasks."""

from dataclasses import replace

import pytest

from fpga_pool.model.exceptions import Conflict, DuplicateId, NotFound
from fpga_pool.model.flavor import Topology
from fpga_pool.model.objects.history import HistoryEntry
from fpga_pool.model.objects.tasks import TaskShape, TaskState


@pytest.fixture
def task(make, saved):
    """Return a function that stores a task, and the batch with the same uuid."""

    def store(**fields):
        batch = saved(make.batch())
        return saved(make.task(batch, **fields))

    return store


def test_a_task_reads_back_equal_and_stands_beside_its_batch(begin, make):
    history = (HistoryEntry(1.5, "TaskPlaced", "QUEUED", "RUNNING"),)
    batch = make.batch(policy="task")
    task = make.task(
        batch, name="Märchen", topology=Topology.RING, input_bytes=2**40, state=TaskState.RUNNING, attempt=2,
        shares=5, shapes=(TaskShape(2, 1.5), TaskShape(1)),
        cancel_requested=True, ends_at=1_790_000_000.123456, started_at=1.5, reason="r", history=history,
    )  # fmt: skip
    with begin() as tx:
        tx.add(task, batch)  # in any order
    with begin() as tx:
        assert tx.task(task.uuid) == task
        assert tx.batch(task.uuid) == batch
        with pytest.raises(DuplicateId):
            tx.add(task)
        with pytest.raises(NotFound, match="no task nowhere"):
            tx.task("nowhere")


def test_open_tasks_are_listed_in_order_of_arrival_those_of_the_shard_alone(begin, task):
    late, early = task(created_at=2.0), task(created_at=1.0, state=TaskState.RUNNING)
    for state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED):
        task(state=state)
    task(shard="another")
    with begin() as tx:
        assert list(tx.open_tasks()) == [early, late]


def test_a_task_that_has_changed_meanwhile_is_not_overwritten(begin, task):
    stored = task()
    with begin() as tx:
        tx.save(replace(stored, state=TaskState.RUNNING))
        assert [one.state for one in tx.open_tasks()] == [TaskState.RUNNING]
    with begin() as tx, pytest.raises(Conflict):
        tx.save(replace(stored, reason="late"))
