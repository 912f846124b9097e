"""What projects have used, added up by the database."""

import pytest

from fpga_pool.model.messages.requests import UsagePage
from fpga_pool.model.objects.pool import CPU, JobState
from fpga_pool.store.quotas import usage


@pytest.fixture
def ran(store, make, saved):
    """Store a job that has computed to its end at a moment."""

    def store_run(project, function, at, seconds, board="vc709", **fields):
        batch = make.batch(project_id=project)
        job = make.job(batch, function=function, state=JobState.COMPLETED, input_bytes=100, result_bytes=7, **fields)
        saved(batch, job)
        with store.transaction(job.shard) as tx:
            tx.record_run(make.run(job, finished_at=at, compute_s=seconds, board=board))
        return job

    return store_run


def found(store, begin_at=0.0, end_at=100.0, **page):
    return [
        (one.project_id, one.function, one.jobs, one.slot_s, one.cpu_s, one.input_bytes, one.result_bytes)
        for one in usage(store, UsagePage(**page), begin_at, end_at)
    ]


def test_usage_is_added_up_by_project_and_function(store, ran):
    ran("a", "aes", 10.0, 0.5)
    ran("a", "aes", 20.0, 0.25)
    ran("a", "aes", 30.0, 4.0, CPU)
    ran("a", "sha256", 40.0, 1.0)
    ran("b", "aes", 50.0, 2.0)
    of_a = [("a", "aes", 3, 0.75, 4.0, 300, 21), ("a", "sha256", 1, 1.0, 0.0, 100, 7)]
    assert found(store, project_id="a") == of_a
    assert found(store) == [*of_a, ("b", "aes", 1, 2.0, 0.0, 100, 7)]
    assert found(store, project_id="c") == []


def test_a_job_counts_in_the_period_in_which_its_computation_ended_and_in_no_other(store, ran):
    ran("a", "aes", 10.0, 0.5)
    ran("a", "aes", 20.0, 0.5)
    periods = [found(store, begin, begin + 10.0) for begin in (0.0, 10.0, 20.0)]
    assert [rows[0][2] if rows else 0 for rows in periods] == [0, 1, 1]


def test_pages_have_each_row_once(store, ran):
    for project in ("a", "b"):
        for function in ("aes", "dnn", "sha256"):
            ran(project, function, 10.0, 0.5)
    rows, after = [], None
    while page := found(store, after=after, limit=2):
        rows += page
        after = page[-1][:2]
    assert [row[:2] for row in rows] == [(project, name) for project in "ab" for name in ("aes", "dnn", "sha256")]
