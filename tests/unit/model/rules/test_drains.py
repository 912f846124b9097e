"""A drain moves jobs off a slot without counting an attempt: only its own failures count against a job."""

from fpga_pool.model.objects.pool import JobState


def drained(pool, uuid):
    """Plan a job, drain the slot that it got, and resume the slot."""
    pool.plan()
    slot = pool.job(uuid).slot
    assert slot
    pool.drain(slot)
    pool.resume(slot)


def test_a_job_that_is_drained_more_often_than_it_may_be_tried_is_still_planned(pool):
    (uuid,) = [f"{pool.create('sha256')}.0"]
    for _ in range(pool.settings.max_attempts + 2):
        drained(pool, uuid)
    assert pool.tick() == []
    pool.plan()
    job = pool.job(uuid)
    assert (job.state, job.attempt, job.counted_attempts) == (JobState.WAITING_INPUT, 6, 1)


def test_failures_count_whatever_was_drained_between_them(pool):
    uuid = f"{pool.create('sha256')}.0"
    for _ in range(pool.settings.max_attempts):
        drained(pool, uuid)
        pool.plan()
        pool.fail(uuid)
    (repair,) = pool.tick()
    assert pool.job(uuid).state is JobState.FAILED
    assert "given up after 3 attempts" in repair.reason
