"""The database statements of the scheduler. Each costs the scheduler and the database a fraction of a millisecond."""

import threading

import pytest
from sqlalchemy import event

from fpga_pool.model.objects.pool import JobState

#: The threads that answer calls and plan batches. Commands are delivered and removed for many batches together.
THREADS = ("ThreadPoolExecutor", "plan-batch")
#: Largest number of statements and of writing transactions for a batch with one job, from its creation to its end.
OF_A_BATCH, WRITING = 31, 4
#: Statements of a planning cycle that finds nothing to plan. Such cycles are not counted.
EMPTY_LOOK = 4


@pytest.fixture
def running(bench):
    """Return a scheduler that does not check whether work is late, because it would be on a slow machine."""
    return bench.start(bench.new_service(replan_late_s=3600.0))


@pytest.fixture
def statements(running):
    """Return a list to which the statements of each new transaction are appended, as a list."""
    said, last = [], {}

    def note(*call):
        name, statement = threading.current_thread().name, call[2]
        if not name.startswith(THREADS):
            return
        if statement.startswith("BEGIN") or name not in last:
            last[name] = []
            said.append(last[name])
        last[name].append(statement)

    event.listen(running.store.engine, "before_cursor_execute", note)
    return said


def complete(running, agent, until):
    """Complete a batch of one job, with the calls of a client and the reports of an agent."""
    made = running.api.create_batch(running.request(agent, "sha256"), wait_s=30.0)
    batch, (job,) = made.batch, made.jobs
    assert job.state is JobState.WAITING_INPUT
    running.report(job, "staged", "started")
    running.report(job, "finished", "delivered")
    ended = [JobState.COMPLETED, JobState.FAILED]
    changes = running.api.batch_jobs("p", batch.uuid, ended, made.seen, 30.0, with_batch=True)
    assert [one.state for one in changes.jobs] == [JobState.COMPLETED]
    until(lambda: running.waiting() == [])


def test_a_batch_of_one_takes_few_statements(running, statements, until):
    agent = running.host()
    for _ in range(2):  # so that hosts and slots are known
        complete(running, agent, until)
    statements.clear()
    complete(running, agent, until)
    asked = [one for one in statements if one[0] == "BEGIN IMMEDIATE" or len(one) > EMPTY_LOOK]
    everything = "\n".join(statement for one in asked for statement in one)
    assert sum(len(one) for one in asked) <= OF_A_BATCH, everything
    assert sum(one[0] == "BEGIN IMMEDIATE" for one in asked) <= WRITING, everything


def test_a_pool_at_rest_changes_no_generation_and_commits_no_look(running, until):
    """So other processes do not read it again, and nothing is written to disk."""
    running.host()
    until(lambda: running.waiting() == [])
    ticks = []

    def note(*call):
        if threading.current_thread().name.startswith("tick-"):
            ticks.append(call[2])

    with running.store.reading("default") as tx:
        before = tx.shard.pool_generation
    event.listen(running.store.engine, "before_cursor_execute", note)
    event.listen(running.store.engine, "commit", lambda _: note(None, None, "COMMIT"))
    until(lambda: sum(statement.startswith("BEGIN") for statement in ticks) >= 3)
    assert {statement.split()[0] for statement in ticks} == {"BEGIN", "SELECT"}
    with running.store.reading("default") as tx:
        assert tx.shard.pool_generation == before
