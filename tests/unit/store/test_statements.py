"""Rows written together are there as if each had been written by itself."""

from dataclasses import replace

import pytest

from fpga_pool.model.objects import Job, JobState, Lease, RateSegment, Slot
from fpga_pool.store.mapping import to_columns
from fpga_pool.store.statements import upsertion


@pytest.fixture
def write(store):
    def write(*jobs):
        rows = [to_columns(job) for job in jobs]
        with store.engine.begin() as connection:
            connection.execute(upsertion(connection.dialect.name, Job, tuple(rows[0])), rows)

    return write


def test_new_rows_are_added_and_known_ones_replaced(store, make, saved, write):
    batch, known, untouched = saved(*(batch := make.batch(), *make.jobs(batch, 2)))
    segments = (RateSegment(0.0, 0.5, 1e9),)
    changed = replace(known, state=JobState.STAGED, name="Märchen: \N{ROCKET} %s :name", transfer=segments, end_s=1 / 3)
    new = make.job(batch, index=2)
    write(changed, new)
    with store.reading() as tx:
        assert list(tx.batch_jobs(batch.uuid)) == [changed, untouched, new]


def test_more_rows_than_one_call_takes_are_all_written(store, make, saved):
    batch = saved(make.batch(jobs=2500))
    jobs = saved(*make.jobs(batch, 2500))
    with store.transaction("shard-0") as tx:
        for job in jobs:
            tx.save(replace(job, order=job.index))
    with store.reading() as tx:
        assert [job.order for job in tx.batch_jobs(batch.uuid)] == list(range(2500))


@pytest.mark.parametrize("cls", [Slot, Lease])
@pytest.mark.parametrize("dialect", ["sqlite", "mysql", "postgresql"])
def test_a_table_with_a_second_unique_column_is_refused(cls, dialect):
    with pytest.raises(ValueError, match="is not its only unique column"):
        upsertion(dialect, cls, ("uuid",))
