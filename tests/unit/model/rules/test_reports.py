import pytest

from fpga_pool.model.messages.agents import InputStaged, JobFinished, JobStarted
from fpga_pool.model.objects.pool import BatchState, JobState, Run, SlotState


@pytest.fixture
def job(pool):
    """Return the uuid of a job that was planned."""
    pool.create("aes")
    return pool.plan()[0].uuid


def test_reports_in_their_order_complete_a_job_once(pool, job):
    pool.bring(job, JobState.COMPLETED)
    assert (pool.batch("b1").state, pool.batch("b1").jobs_completed) == (BatchState.COMPLETED, 1)
    (run,) = pool.store.all(Run)
    assert (run.job, run.function, run.board, run.input_bytes, run.compute_s) == (job, "aes", "fast", 1000, 1.5)


@pytest.mark.parametrize("at", [1e11, 253402300799.0])
def test_a_report_of_the_future_is_of_now(pool, job, at):
    finished = JobFinished(
        **pool.about(job) | {"at": at}, compute_s=1.0, result_bytes=1, result_sha256="", transfer_began_at=at,
        staged_at=0.5, started_at=at,
    )  # fmt: skip
    assert pool.report(InputStaged(**pool.about(job)), finished) == []
    found = pool.job(job)
    assert found.staged_at == 0.5
    assert found.transfer_began_at == found.started_at == found.finished_at == pool.now_s


def test_reports_that_are_repeated_change_nothing(pool, job):
    about = pool.about(job)
    history = [
        InputStaged(**about),
        JobStarted(**about),
        JobFinished(**about, compute_s=1.0, result_bytes=1, result_sha256=""),
    ]
    assert pool.report(*history) == []
    before = pool.job(job)
    void = pool.report(*history)
    assert void == [f"{type(item).__name__}: job {job} is RESULT_HELD" for item in history]
    assert pool.job(job) == before
    assert len(pool.store.all(Run)) == 1


def test_a_report_of_an_attempt_that_is_over_is_void(pool, job):
    stale = pool.about(job)
    pool.fail(job)
    assert pool.stage(job) == [f"InputStaged: job {job} is PENDING"]
    pool.plan()
    assert pool.report(InputStaged(**stale)) == [
        f"InputStaged: job {job} is at attempt 2 on h0, not 1 on h0",
    ]
    assert pool.job(job).state is JobState.WAITING_INPUT


def test_a_report_of_a_host_that_does_not_have_the_job_or_slot_is_void(pool, job):
    pool.host_up("h1")
    assert pool.report(InputStaged(**pool.about(job)), host="h1") == [
        f"InputStaged: job {job} is at attempt 1 on h0, not 1 on h1"
    ]
    assert pool.report(pool.slot_report("h0/c/r0", SlotState.FAULTED), host="h1") == [
        "SlotChanged: slot h0/c/r0 is on host h0, not on h1"
    ]
    assert pool.slot("h0/c/r0").state is SlotState.EMPTY


def test_a_report_about_what_does_not_exist_is_void(pool):
    about = {"job": "nobody", "attempt": 1, "at": 1.0}
    assert pool.report(JobStarted(**about), pool.slot_report("h0/c/r9", SlotState.READY)) == [
        "JobStarted: no job nobody",
        "SlotChanged: no slot h0/c/r9; the next heartbeat will add it",
    ]


def test_a_void_report_does_not_keep_the_next_ones_from_being_applied(pool, job):
    void = pool.report(InputStaged(job="nobody", attempt=1, at=1.0), InputStaged(**pool.about(job)))
    assert len(void) == 1
    assert pool.job(job).state is JobState.STAGED


def test_a_job_that_starts_again_after_a_restart_of_its_agent_completes_once(pool, job):
    pool.bring(job, JobState.RUNNING)
    assert pool.start(job) == []
    assert pool.finish(job) == []
    assert pool.batch("b1").jobs_completed == 1


def test_a_failure_for_good_ends_the_job_and_frees_its_slot(pool, job):
    pool.sent()
    pool.fail(job, retryable=False)
    assert (pool.job(job).state, pool.job(job).error_code) == (JobState.FAILED, "fpga_pool.slot_fault")
    assert pool.batch("b1").state is BatchState.FAILED
    assert pool.actions() == [(pool.job(job).slot, "ReleaseJob", job)]


def test_a_slot_that_fails_gives_its_jobs_back(pool):
    pool.create("flow", "flow")
    first, second = (job.uuid for job in pool.plan())
    pool.bring(first, JobState.RUNNING)
    pool.sent()
    pool.report(pool.slot_report("h0/c/r2", SlotState.FAULTED, reason="smoke"))
    assert pool.job(first).reason == "slot h0/c/r2 failed: smoke"
    assert [pool.job(uuid).state for uuid in (first, second)] == [JobState.PENDING] * 2
    assert {action[1:] for action in pool.actions()} == {("ReleaseJob", first), ("ReleaseJob", second)}
    assert pool.plan() == []


def test_leases_are_granted_with_the_first_job_and_released_with_the_last_under_growing_epochs(pool):
    epochs = []
    for _ in range(3):
        pool.create("flow", "flow")
        jobs = [job.uuid for job in pool.plan()]
        lease = pool.lease("h0/c/r2")
        epochs.append(lease.epoch)
        assert (lease.holder, lease.revocable, lease.granted_at) == ("s", True, pool.now_s)
        pool.bring(jobs[0], JobState.COMPLETED)
        assert pool.lease("h0/c/r2") == lease
        pool.bring(jobs[1], JobState.COMPLETED)
        assert pool.lease("h0/c/r2") is None
    assert epochs == [1, 2, 3]
