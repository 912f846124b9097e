"""Rows that are written together are stored as if each had been written separately."""

from dataclasses import replace

import pytest
from sqlalchemy import event

from fpga_pool.model.exceptions import DuplicateId
from fpga_pool.model.objects.pool import Job, JobState, Lease, RateSegment, Slot
from fpga_pool.store.transaction import bulk_change


def test_what_each_of_many_rows_was_changed_in_is_written_and_nothing_else(store, make, saved):
    """The statement names each column that differs in any of the rows. The other rows keep their own values there."""
    batch, *jobs = saved(*(batch := make.batch(jobs=4), *make.jobs(batch, 4)))
    segments = (RateSegment(0.0, 0.5, 1e9),)
    changed = [
        replace(jobs[0], state=JobState.STAGED, name="Märchen: \N{ROCKET} %s :name", transfer=segments, end_s=1 / 3),
        replace(jobs[1], cancel_requested=True, attempt=2),
        replace(jobs[2], moved_bytes=0, moved_at=0.0),
    ]
    with store.transaction("shard-0") as tx:
        for job in changed:
            tx.save(job)
    with store.reading() as tx:
        stored = list(tx.batch_jobs(batch.uuid))
    assert stored == [*(replace(job, generation=1) for job in changed), jobs[3]]


def test_batches_are_read_by_one_statement_and_written_by_another(store, make, saved):
    batches = saved(*(make.batch(name=name) for name in "abc"))
    changed = [replace(batches[0], jobs_completed=1), batches[1], replace(batches[2], name="d")]
    statements = []
    with store.transaction("shard-0") as tx:
        event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        tx.take_batches([batch.uuid for batch in batches])
        for before, after in zip(batches, changed, strict=True):
            assert tx.batch(before.uuid) == before
            if after != before:
                tx.save(after)
    assert len(statements) == 2
    with store.reading() as tx:
        stored = [tx.batch(batch.uuid) for batch in batches]
    assert stored == [replace(changed[0], generation=1), batches[1], replace(changed[2], generation=1)]


def test_what_was_given_up_again_is_blank_again(store, make, saved):
    batch = saved(make.batch())
    job = saved(make.job(batch, moved_bytes=7, transfer=(RateSegment(0.0, 0.5, 1e9),), cancel_requested=True))
    blank = replace(job, moved_bytes=None, transfer=(), cancel_requested=False)
    with store.transaction("shard-0") as tx:
        tx.save(blank)
    with store.reading() as tx:
        assert tx.job(job.uuid) == replace(blank, generation=1)


@pytest.mark.parametrize("dialect", ["sqlite", "mysql", "postgresql"])
def test_a_change_of_many_is_nothing_but_parameters_that_are_needed(dialect):
    """PyMySQL sends them in one statement only in this case. `compute_s` may be NULL and is not mentioned."""
    names, statement = bulk_change(dialect, Job, ("end_s", "order"))
    values = str(statement).partition("VALUES (")[2].partition(") ON")[0].split(", ")
    assert values == [f":{name}" for name in names]
    assert {"end_s", "state"} <= set(names)
    assert "compute_s" not in names
    assert str(statement).partition(" ON ")[2].count(" = ") == 2


def test_more_rows_than_one_call_takes_are_all_written(store, make, saved):
    batch = saved(make.batch(jobs=2500))
    jobs = saved(*make.jobs(batch, 2500))
    with store.transaction("shard-0") as tx:
        for job in jobs:
            tx.save(replace(job, order=job.index))
    with store.reading() as tx:
        assert [job.order for job in tx.batch_jobs(batch.uuid)] == list(range(2500))


def test_adding_nothing_writes_nothing_early(store, make, saved):
    """Saved objects are written in bulk at the end or before a query. Adding nothing causes neither."""
    job = saved(batch := make.batch(), make.job(batch))[1]
    statements = []
    with store.transaction("shard-0") as tx:
        event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        tx.save(replace(job, attempt=1))
        tx.add()
        assert [statement for statement in statements if not statement.startswith("SELECT")] == []
    with store.reading() as tx:
        assert tx.job(job.uuid).attempt == 1


@pytest.mark.parametrize("cls", [Slot, Lease])
@pytest.mark.parametrize("dialect", ["sqlite", "mysql", "postgresql"])
def test_a_table_with_a_second_unique_column_is_refused(cls, dialect):
    with pytest.raises(ValueError, match="is not its only unique column"):
        bulk_change(dialect, cls, ("generation",))


def test_a_look_at_one_moment_begins_with_one_statement(store):
    """MariaDB needs two, the first of which sets the mode of the next transaction. They are sent as one."""
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    with store.reading() as tx:
        tx.shards()
    assert len(statements) == 2


def test_jobs_that_wait_are_read_by_one_statement_batch_by_batch(store, make, saved):
    first, second = saved(make.batch(name="a", jobs=2), make.batch(name="b"))
    jobs = saved(make.job(first, index=1), make.job(first, index=0), make.job(second))
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    with store.reading("shard-0") as tx:
        assert tx.pending_jobs([second.uuid, first.uuid]) == [jobs[2], jobs[1], jobs[0]]
        assert tx.pending_jobs([]) == []
    assert len(statements) == 2  # the first begins the transaction


def test_what_is_admitted_together_is_written_by_a_statement_for_each_table(store, make):
    batches = [make.batch(name=name) for name in "ab"]
    jobs = [make.job(batch) for batch in batches]
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2].split(" (")[0]))
    with store.admission() as tx:
        for batch, job in zip(batches, jobs, strict=True):
            tx.add(batch, job)
        assert tx.batch(batches[0].uuid) == batches[0]
        tx.save(replace(batches[0], name="c"))
        assert [*tx.batch_jobs(batches[0].uuid), *tx.batch_jobs(batches[1].uuid)] == jobs
    assert [said for said in statements if said.startswith("INSERT")] == ["INSERT INTO batches", "INSERT INTO jobs"]
    with store.reading() as tx:
        assert [tx.batch(batch.uuid).name for batch in batches] == ["c", "b"]
    with pytest.raises(DuplicateId), store.admission() as tx:
        tx.add(make.batch(name="d"), batches[1])
    with store.reading() as tx:
        assert len(tx.batches()) == 2
