"""The streams that a requester's host is told to shape by their plans, and how their sources become known."""

from uuid import uuid4

import pytest

from fpga_pool.model.messages.agents import FlowSeen, ReleaseFlow, ShapeFlow
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.values import changed


@pytest.fixture
def large(pool):
    """Return a function that plans an input of 1 MB from h1, by default with an egress driver, to h0."""

    def make(project="p", egress_driver="tc", input_bytes=1_000_000):
        pool.heard(changed(pool.heartbeat("h1", slots=(), jobs=()), egress_driver=egress_driver))
        job = JobRequest(uuid=str(uuid4()), name="", function="aes", requester="h1", input_bytes=input_bytes)
        pool.submit(BatchRequest(uuid=str(uuid4()), project_id=project, user_id="u", name="", policy="", jobs=(job,)))
        (planned,) = pool.plan()
        pool.sent()
        return planned

    return make


def seen(pool, job, port=5000, host=None):
    report = FlowSeen(**pool.about(job.uuid), source_address="192.0.2.1", source_port=port)
    return pool.report(report, host=host or job.host)


def flows(pool):
    """Return the flow commands sent since the last call: host, action, job and source port."""
    return [
        (command.host, type(command.action), command.action.job, getattr(command.action, "source_port", None))
        for command in pool.sent()
        if isinstance(command.action, ShapeFlow | ReleaseFlow)
    ]


def test_a_stream_is_held_when_its_responder_has_seen_it_and_released_when_it_is_through(pool, large):
    job = large()
    assert flows(pool) == []
    assert seen(pool, job) == []
    assert flows(pool) == [("h1", ShapeFlow, job.uuid, 5000)]
    pool.bring(job.uuid, JobState.STAGED)
    assert flows(pool) == [("h1", ReleaseFlow, job.uuid, None)]


def test_a_stream_that_comes_again_by_another_connection_is_held_there(pool, large):
    job = large()
    seen(pool, job)
    seen(pool, job)
    seen(pool, job, port=5001)
    assert flows(pool) == [("h1", ShapeFlow, job.uuid, port) for port in (5000, 5001)]


def test_a_source_is_of_one_job_at_a_time_the_one_that_was_seen_last(pool, large):
    first, second = large("p"), large("q")
    seen(pool, first)
    seen(pool, second)
    assert flows(pool) == [
        ("h1", ShapeFlow, first.uuid, 5000),
        ("h1", ReleaseFlow, first.uuid, None),
        ("h1", ShapeFlow, second.uuid, 5000),
    ]
    assert [pool.job(job.uuid).flow for job in (first, second)] == ["", "192.0.2.1:5000"]
    pool.bring(first.uuid, JobState.STAGED)
    assert flows(pool) == []


def test_a_source_that_comes_and_goes_between_jobs_is_followed_under_new_ids(pool, large):
    first, second = large("p"), large("q")
    sent = []
    for job in (first, second, first, second):
        seen(pool, job)
        sent += pool.sent()
    assert len({command.id for command in sent}) == len(sent) == 4 + 3
    assert [type(command.action) for command in sent] == [ShapeFlow, *[ReleaseFlow, ShapeFlow] * 3]


def test_a_host_that_does_not_have_the_job_has_seen_nothing_of_it(pool, large):
    job = large()
    pool.host_up("h2")
    assert seen(pool, job, host="h2") == [f"FlowSeen: job {job.uuid} is at attempt 1 on h0, not 1 on h2"]
    assert flows(pool) == []


@pytest.mark.parametrize("what", [{"egress_driver": ""}, {"input_bytes": 1000}])
def test_what_is_not_to_be_limited_is_not(pool, large, what):
    job = large(**what)
    assert len(seen(pool, job)) == 1
    assert flows(pool) == []


def test_a_stream_that_is_through_is_not_held_any_more(pool, large):
    job = large()
    pool.bring(job.uuid, JobState.STAGED)
    assert seen(pool, job) == [f"FlowSeen: job {job.uuid} is STAGED, or its stream is not to be limited"]
    assert flows(pool) == []
