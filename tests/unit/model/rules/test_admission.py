import pytest

from fpga_pool.model.exceptions import (
    DuplicateId,
    InvalidInput,
    InvalidTransition,
    NoSlotFits,
    NotFound,
    UnknownFunction,
    UnknownRequester,
)
from fpga_pool.model.messages.agents import SlotChanged
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.rules.batch.admission import cancel_batch, owned_batch
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.values import changed

JOB = JobRequest(uuid="j0", name="", function="aes", requester="h0", input_bytes=5)


def request(*jobs, uuid="b"):
    return BatchRequest(uuid=uuid, project_id="p", user_id="u", name="n", policy="", jobs=jobs)


BAD = {
    "no job": ((), InvalidInput, "jobs: a batch needs at least one job"),
    "too many": (
        tuple(changed(JOB, uuid=f"j{i}") for i in range(21)),
        InvalidInput,
        "jobs: 21 jobs in one batch, at most 20 are accepted; split the batch",
    ),
    "negative size": (
        (JOB, changed(JOB, uuid="j1", input_bytes=-1)),
        InvalidInput,
        r"jobs\[1\].input_bytes: -1 is not between 0 and 1000000",
    ),
    "absurd size": (
        (changed(JOB, input_bytes=2**80),),
        InvalidInput,
        r"jobs\[0\].input_bytes: \d+ is not between 0 and 1000000",
    ),
    "unknown function": (
        (changed(JOB, function="md5"),),
        UnknownFunction,
        r"jobs\[0\].function: 'md5' is not in the catalogue; known: aes, flow, sha256, unmeasured",
    ),
    "unknown requester": (
        (changed(JOB, requester="h9"),),
        UnknownRequester,
        r"jobs\[0\].requester: no host 'h9' in the pool; known: h0",
    ),
    "twice": ((JOB, JOB), InvalidInput, r"jobs\[1\].uuid: j0 is given twice in this batch"),
    "never measured": (
        (changed(JOB, function="unmeasured"),),
        NoSlotFits,
        r"jobs\[0\].function: no slot of the pool can hold unmeasured \(.* a slot of kind small on board none\)",
    ),
}


@pytest.mark.parametrize(("jobs", "error", "message"), BAD.values(), ids=BAD)
def test_a_bad_batch_is_refused_by_name_and_nothing_of_it_is_stored(pool, jobs, error, message):
    with pytest.raises(error, match=message):
        pool.submit(request(*jobs))
    assert (pool.batch("b"), pool.job("j0")) == (None, None)


def test_a_function_that_no_slot_of_the_pool_can_hold_is_refused(pool):
    pool.heard(pool.heartbeat(r2={"kind": "small"}))
    with pytest.raises(NoSlotFits, match=r"can hold flow \(it requires a slot of kind large on board fast\)"):
        pool.submit(request(changed(JOB, function="flow")))


def test_a_board_that_the_catalogue_does_not_know_takes_nothing_and_harms_nobody(pool):
    pool.heard(pool.heartbeat(r0={"board": "mystery"}, r1={"board": "mystery"}))
    batch = pool.create("aes", "aes")
    assert {job.slot for job in pool.plan()} == {"h0/c/r2"}
    assert pool.batch(batch).state is BatchState.RUNNING


def test_a_known_batch_or_job_is_not_stored_again(pool):
    pool.submit(request(JOB))
    with pytest.raises(DuplicateId):
        pool.submit(request(changed(JOB, uuid="j1")))
    with pytest.raises(DuplicateId):
        pool.submit(request(JOB, uuid="c"))
    assert (pool.batch("c"), pool.job("j1")) == (None, None)


def test_limits_that_cannot_be_meant_are_refused():
    with pytest.raises(ValueError, match="host_timeout_s must not be negative, found -1"):
        PoolSettings(host_timeout_s=-1)
    with pytest.raises(ValueError, match="max_attempts and max_batch_jobs must be at least 1"):
        PoolSettings(max_attempts=0)


def test_a_batch_of_another_project_looks_as_if_it_did_not_exist(pool):
    uuid = pool.create("aes")
    for use in (lambda tx: owned_batch(tx, uuid, "q"), lambda tx: cancel_batch(tx, uuid, "q", 1.0)):
        with pool.tx() as tx, pytest.raises(NotFound, match=f"no batch {uuid}"):
            use(tx)
    assert not pool.batch(uuid).cancel_requested


# Cancellation


def test_a_batch_that_waits_is_cancelled_at_once(pool):
    uuid = pool.create("aes", "aes")
    assert pool.cancel(uuid).state is BatchState.CANCELLED
    assert pool.job("b1.0").state is JobState.CANCELLED
    assert pool.plan() == []
    assert pool.sent() == []


@pytest.mark.parametrize("state", [JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING])
def test_a_planned_job_is_cancelled_when_its_agent_has_let_go_of_it(pool, state):
    uuid = pool.create("aes")
    pool.plan()
    pool.bring("b1.0", state)
    pool.sent()
    assert pool.cancel(uuid).state is BatchState.RUNNING
    assert pool.actions() == [(pool.job("b1.0").slot, "ReleaseJob", "b1.0")]
    pool.cancel(uuid)
    assert pool.sent() == []
    pool.released("b1.0")
    assert (pool.job("b1.0").state, pool.batch(uuid).state) == (JobState.CANCELLED, BatchState.CANCELLED)
    assert pool.lease(pool.job("b1.0").slot) is None


def test_what_is_complete_is_kept(pool):
    uuid = pool.create("aes", "aes")
    pool.plan()
    pool.bring("b1.0", JobState.RESULT_HELD)
    pool.cancel(uuid)
    pool.released("b1.1")
    assert (pool.job("b1.0").state, pool.job("b1.0").cancel_requested) == (JobState.RESULT_HELD, False)
    assert pool.batch(uuid).state is BatchState.CANCELLED
    assert pool.delivered("b1.0") == []


def test_a_job_that_completes_while_its_release_is_on_the_way_counts_as_complete_once(pool):
    uuid = pool.create("aes")
    pool.plan()
    pool.bring("b1.0", JobState.RUNNING)
    pool.cancel(uuid)
    assert pool.finish("b1.0") == []
    assert pool.released("b1.0") == []
    assert pool.job("b1.0").state is JobState.COMPLETED
    assert (pool.batch(uuid).state, pool.batch(uuid).jobs_completed) == (BatchState.COMPLETED, 1)


def test_a_batch_that_has_ended_is_not_cancelled(pool):
    uuid = pool.create("aes")
    pool.plan()
    pool.bring("b1.0", JobState.COMPLETED)
    with pytest.raises(InvalidTransition, match=f"batch {uuid}: BatchCancelRequested is not possible"):
        pool.cancel(uuid)


def test_a_job_to_be_cancelled_is_cancelled_by_the_fault_of_its_slot(pool):
    uuid = pool.create("aes")
    pool.plan()
    slot = pool.job("b1.0").slot
    pool.cancel(uuid)
    pool.report(SlotChanged(slot=slot, at=1.0, state=SlotState.FAULTED, reason="smoke"))
    assert pool.batch(uuid).state is BatchState.CANCELLED
