"""Counts of work that has not ended, for metrics."""

from dataclasses import replace

from fpga_pool.model.objects.gangs import GangState
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.store.quotas import OpenKind, OpenWork, open_work, undelivered

SHARD = "shard-0"


def open_counts(store, kind, shards=(SHARD,)):
    with store.reading() as tx:
        return sorted(open_work(tx.connection, kind, shards), key=lambda one: (one.project_id, one.state))


def test_jobs_are_counted_by_project_and_state_until_they_end(store, make):
    mine, theirs = make.batch(jobs=6), make.batch(project_id="project-b")
    states = (JobState.PENDING, JobState.PENDING, JobState.RUNNING, JobState.RESULT_HELD, JobState.FAILED)
    with store.admission() as tx:
        tx.add(mine, theirs)
        tx.add(*(make.job(mine, index=at, state=state, created_at=10.0 - at) for at, state in enumerate(states)))
        tx.add(make.job(theirs, state=JobState.STAGED), make.job(mine, index=5, shard="shard-1"))
    assert open_counts(store, OpenKind.JOB) == [
        OpenWork("project-a", "PENDING", 2, 9.0),
        OpenWork("project-a", "RUNNING", 1, 8.0),
        OpenWork("project-b", "STAGED", 1, 1.0),
    ]
    assert open_counts(store, OpenKind.JOB, ["shard-1"]) == [OpenWork("project-a", "PENDING", 1, 1.0)]
    assert open_counts(store, OpenKind.JOB, []) == []


def test_tasks_and_gangs_are_counted_until_they_end(store, make):
    with store.admission() as tx:
        for state in (TaskState.QUEUED, TaskState.QUEUED, TaskState.COMPLETED):
            batch = make.batch()
            tx.add(batch, replace(make.task(batch), state=state))
        tx.add(make.gang(), make.gang(state=GangState.COMPLETED))
    assert open_counts(store, OpenKind.TASK) == [OpenWork("project-a", "QUEUED", 2, 1.0)]
    assert open_counts(store, OpenKind.GANG) == [OpenWork("project-a", make.gang().state.value, 1, 1.0)]


def test_commands_count_until_they_are_acknowledged(store, begin, make):
    with begin() as tx:
        for sequence in (1, 2):
            tx.send(make.command(sequence))
    with store.reading() as tx:
        assert undelivered(tx.connection, [SHARD, "shard-1"]) == [(SHARD, 2)]
        assert undelivered(tx.connection, ["shard-1"]) == []
