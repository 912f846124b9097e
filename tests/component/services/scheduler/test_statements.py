"""What the scheduler asks of its database: each statement costs it, and the database, a part of a millisecond."""

import threading

import pytest
from sqlalchemy import event

from fpga_pool.model.objects.pool import JobState

#: Those that answer calls, and plan batches; commands are handed over, and removed, for many batches together.
THREADS = ("ThreadPoolExecutor", "plan-batch")
#: Of a batch with one job, from its creation to its end, with the transactions and looks around them.
OF_A_BATCH, WRITING = 31, 4
#: A look at the shard that finds nothing to plan: those at intervals are not counted.
EMPTY_LOOK = 4


@pytest.fixture
def running(bench):
    """A scheduler that does not look whether work under way is late: on a slow machine it would find some."""
    return bench.start(bench.new_service(replan_late_s=3600.0))


@pytest.fixture
def statements(running):
    """What the scheduler asks from now on, in transactions: lists of statements."""
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
    """Have one batch of one job completed, as a client asks for it and an agent reports it."""
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
    for _ in range(2):  # hosts and slots are known then
        complete(running, agent, until)
    statements.clear()
    complete(running, agent, until)
    asked = [one for one in statements if one[0] == "BEGIN IMMEDIATE" or len(one) > EMPTY_LOOK]
    everything = "\n".join(statement for one in asked for statement in one)
    assert sum(len(one) for one in asked) <= OF_A_BATCH, everything
    assert sum(one[0] == "BEGIN IMMEDIATE" for one in asked) <= WRITING, everything


def test_a_pool_at_rest_changes_no_generation_and_commits_no_look(running, until):
    """So that nobody else reads it again, and nothing is written to disk for it."""
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
    until(lambda: sum(statement.startswith("UPDATE shards") for statement in ticks) >= 2)
    assert "COMMIT" not in ticks
    with running.store.reading("default") as tx:
        assert tx.shard.pool_generation == before
