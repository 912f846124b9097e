import pytest

from fpga_pool.model.lifecycle.job import (
    CancelRequested,
    Displaced,
    EvictRequested,
    GaveUp,
    HoldChanged,
    Moved,
    Planned,
    ResultLost,
    Retimed,
    Skipped,
)
from fpga_pool.model.messages.agents import (
    InputStaged,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    ResultDelivered,
    ResultExpired,
)
from fpga_pool.model.objects.pool import Batch, Job, Lease, LeaseKind, RateSegment, Slot

ABOUT = {"job": "j", "attempt": 1, "at": 5.0}

JOB_EVENTS = {
    "Planned": Planned(
        host="h0",
        slot="h0/c/0",
        order=3,
        dispatched_at=100.0,
        start_s=2.0,
        end_s=5.0,
        transfer=(RateSegment(0.0, 2.0, 8e6),),
    ),
    "Moved": Moved(
        place=Planned(host="h0", slot="h0/c/0", order=4, dispatched_at=100.0, start_s=2.0, end_s=5.0, transfer=())
    ),
    "Retimed": Retimed(dispatched_at=110.0, start_s=3.0, end_s=6.0, transfer=(RateSegment(1.0, 3.0, 4e6),)),
    "Displaced": Displaced(reason="drained"),
    "EvictRequested": EvictRequested(keep_progress=True),
    "CancelRequested": CancelRequested(),
    "GaveUp": GaveUp(code="fpga_pool.too_many_attempts", reason="enough"),
    "HoldChanged": HoldChanged(reason="held by its owner"),
    "Skipped": Skipped(reason="its predecessor failed"),
    "ResultLost": ResultLost(reason="its host is lost"),
    "InputStaged": InputStaged(**ABOUT),
    "JobStarted": JobStarted(**ABOUT),
    "JobFinished": JobFinished(**ABOUT, compute_s=3.0, result_bytes=64, result_sha256="ab"),
    "JobFailed": JobFailed(**ABOUT, code="fpga_pool.slot_fault", message="it smokes", retryable=True),
    "JobFailed for good": JobFailed(**ABOUT, code="fpga_pool.invalid_input", message="too long", retryable=False),
    "JobEvicted": JobEvicted(**ABOUT, done=0.25),
    "JobReleased": JobReleased(**ABOUT),
    "ResultDelivered": ResultDelivered(**ABOUT),
    "ResultExpired": ResultExpired(**ABOUT),
}


@pytest.fixture(scope="session")
def job_events():
    """One event of every kind, by name."""
    return JOB_EVENTS


@pytest.fixture
def new_job():
    known = {"batch_uuid": "b", "project_id": "p", "user_id": "u", "index": 0, "name": "", "function": "aes"}
    known |= {"uuid": "j", "requester": "h0", "input_bytes": 10, "created_at": 1.0}
    return lambda **fields: Job(**known | fields)


@pytest.fixture
def new_batch():
    known = {"uuid": "b", "project_id": "p", "user_id": "u", "name": "", "policy": "", "created_at": 1.0, "jobs": 3}
    return lambda **fields: Batch(**known | fields)


@pytest.fixture
def new_slot():
    known = {"name": "h0/c/0", "host": "h0", "card": "c", "region": "0", "board": "fast", "kind": "small"}
    return lambda **fields: Slot(**known | fields)


@pytest.fixture
def lease():
    return Lease(
        uuid="l", slot="h0/c/0", kind=LeaseKind.POOL, holder="s", project_id="", epoch=4, revocable=True, granted_at=1.0
    )
