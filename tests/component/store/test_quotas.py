"""Quotas in the database: usage, limits, and concurrent admissions."""

import threading
from dataclasses import replace

import pytest

from fpga_pool.model.objects.gangs import GangState
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.objects.quotas import QuotaLimits, Resource
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.store.quotas import lock_limits, quota, set_limits, unset_limits, used

WAIT_S = 30.0


def usage(store, project="project-a"):
    return {str(resource): amount for resource, amount in quota(store, project)[1].items() if amount}


def test_a_project_without_work_uses_nothing(store):
    counted = ("jobs", "input_bytes", "task_slots", "gang_processors", "design_bytes")
    assert quota(store, "project-a") == (QuotaLimits(), dict.fromkeys(counted, 0))


def test_what_has_not_ended_counts(store, make):
    open_batch = make.batch(jobs=10, jobs_completed=3, jobs_failed=1, jobs_cancelled=2, input_bytes=500)
    with store.admission() as tx:
        tx.add(open_batch, make.batch(jobs=7, input_bytes=9, state=BatchState.RUNNING))
        tx.add(make.batch(jobs=5, jobs_completed=5, input_bytes=100, state=BatchState.COMPLETED))
        tx.add(make.batch(jobs=5, input_bytes=100, project_id="project-b"))
    # 10 - 6 jobs of the first batch have not ended. Its input counts until the batch ends.
    assert usage(store) == {"jobs": 4 + 7, "input_bytes": 509}
    assert usage(store, "project-b") == {"jobs": 5, "input_bytes": 100}


def test_tasks_and_gangs_count_until_they_end(store, make):
    with store.admission() as tx:
        for state in (TaskState.QUEUED, TaskState.RUNNING, TaskState.FAILED):
            batch = make.batch(state=BatchState.COMPLETED)
            tx.add(batch, replace(make.task(batch), slots=3, state=state))
        tx.add(make.gang(processes=5), make.gang(processes=9, state=GangState.COMPLETED))
    assert usage(store) == {"task_slots": 6, "gang_processors": 5}


def test_limits_of_a_project_are_changed_one_by_one_and_forgotten_together(store):
    set_limits(store, "project-a", QuotaLimits(jobs=5), 1.0)
    set_limits(store, "project-a", QuotaLimits(task_slots=0, jobs=-1), 1.0)
    assert quota(store, "project-a")[0] == QuotaLimits(jobs=-1, task_slots=0)
    assert quota(store, "project-b")[0] == QuotaLimits()
    unset_limits(store, "project-a", 2.0)
    unset_limits(store, "project-a", 2.0)
    assert quota(store, "project-a")[0] == QuotaLimits()


@pytest.mark.parametrize("known", [False, True])
def test_two_of_a_project_are_admitted_one_after_the_other(store, make, known):
    """The second sees what the first has stored. Otherwise both could get the rest of a quota."""
    if known:
        set_limits(store, "project-a", QuotaLimits(jobs=10), 1.0)
    seen = []
    locked = threading.Event()

    def admit_second():
        locked.wait(WAIT_S)
        with store.admission() as tx:
            lock_limits(tx.connection, "project-a")
            seen.append(used(tx.connection, "project-a", [Resource.JOBS])[Resource.JOBS])

    second = threading.Thread(target=admit_second)
    second.start()
    with store.admission() as tx:
        lock_limits(tx.connection, "project-a")
        locked.set()
        second.join(0.2)
        assert not seen
        tx.add(make.batch(jobs=10))
    second.join(WAIT_S)
    assert seen == [10]
