"""Rows written together are there as if each had been written by itself."""

from dataclasses import replace

import pytest

from fpga_pool.model.objects import JobState, RateSegment
from fpga_pool.store.bulk import upsert
from fpga_pool.store.mapping import to_columns
from fpga_pool.store.models import JobRow, LeaseRow, SlotRow


@pytest.fixture
def write(store):
    def write(*jobs):
        with store.engine.begin() as connection:
            upsert(connection, JobRow.__table__, [to_columns(job) for job in jobs], "uuid")

    return write


def test_new_rows_are_added_and_known_ones_replaced(store, make, saved, write):
    batch, known, untouched = saved(*(batch := make.batch(), *make.jobs(batch, 2)))
    segments = (RateSegment(0.0, 0.5, 1e9),)
    changed = replace(known, state=JobState.STAGED, name="Märchen \N{ROCKET}", transfer=segments, end_s=1 / 3)
    new = make.job(batch, index=2)
    write(changed, new)
    with store.reading() as tx:
        assert list(tx.batch_jobs(batch.uuid)) == [changed, untouched, new]


def test_more_rows_than_one_call_takes_are_all_written(store, make, saved, write):
    batch = saved(make.batch(jobs=2500))
    jobs = make.jobs(batch, 2500)
    write(*jobs)
    write(*(replace(job, order=job.index) for job in jobs))
    with store.reading() as tx:
        assert [job.order for job in tx.batch_jobs(batch.uuid)] == list(range(2500))


def test_no_rows_are_nothing_to_do(store, write):
    write()


@pytest.mark.parametrize(("table", "key"), [(SlotRow, "name"), (LeaseRow, "uuid")])
def test_a_table_with_a_second_unique_column_is_refused(store, table, key):
    with pytest.raises(ValueError, match=f"{key} is not its only unique column"), store.engine.begin() as connection:
        upsert(connection, table.__table__, [{key: "x"}], key)
