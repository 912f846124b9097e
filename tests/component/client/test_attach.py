"""Batches that one client leaves and another continues. The second client needs only the uuid of the batch."""

import hashlib
import threading
from dataclasses import replace

import pytest
from oslo_messaging import MessagingTimeout

from fpga_pool.client import Client, RunSettings
from fpga_pool.client.inputs import JobSpec
from fpga_pool.model.exceptions import InvalidInput, NotFound, ServiceUnavailable
from fpga_pool.model.objects.pool import BatchState, JobState

QUICK = RunSettings(fast_poll_s=0.02, slow_poll_s=0.05, first_pause_s=0.01, timeout_s=60.0)
LARGE = b"x" * 200_000


def digest(data):
    return f"{hashlib.sha256(data).hexdigest()}\n"


def jobs_of(*inputs):
    return [JobSpec("sha256", data, "node-1") for data in inputs]


@pytest.fixture
def responder(pool):
    return pool.open_data_port()


@pytest.fixture
def other(client):
    """Return a client on another machine. Only the credentials are shared with the first one."""
    with Client(client._http.endpoint) as other:
        yield other


@pytest.mark.parametrize("data", [b"small", LARGE], ids=["small", "large"])
def test_results_of_a_submitted_batch_are_fetched_by_another_client(client, other, responder, pool, tmp_path, data):
    batch = client.submit(jobs_of(data, data + b"2"), settings=QUICK)
    # Both jobs were computed at once, and no client has fetched the results.
    assert [job.state for job in pool.first_jobs()] == [JobState.RESULT_HELD] * 2
    result = other.fetch(batch.uuid, tmp_path / "out", settings=QUICK)
    assert result.ok
    assert [outcome.result.read_text() for outcome in result.jobs] == [digest(data), digest(data + b"2")]
    assert [outcome.result.name for outcome in result.jobs] == ["input-0.sha256", "input-1.sha256"]


def test_a_pool_that_does_not_answer_for_a_moment_is_asked_again(client, other, responder, pool, tmp_path):
    batch = client.submit(jobs_of(b"1"), settings=QUICK)
    pool.breaks["batch_jobs"] = [ServiceUnavailable("it starts again")] * 2
    assert other.fetch(batch.uuid, tmp_path, settings=QUICK).ok
    assert pool.breaks["batch_jobs"] == []


def test_a_pool_that_does_not_answer_for_long_is_given_up(client, other, responder, pool, tmp_path):
    batch = client.submit(jobs_of(b"1"), settings=QUICK)
    pool.breaks["batch_jobs"] = [ServiceUnavailable("it is away")] * 100
    with pytest.raises(ServiceUnavailable, match="it is away"):
        other.fetch(batch.uuid, tmp_path, settings=replace(QUICK, patience_s=0.2))


def test_submit_returns_while_jobs_wait_for_their_slot(client, responder, pool):
    responder.computes_at_once = False
    batch = client.submit(jobs_of(b"1", b"2"), settings=QUICK)
    assert batch.ended_at is None
    assert [job.state for job in pool.first_jobs()] == [JobState.STAGED] * 2


def test_fetch_takes_what_is_there_and_does_not_wait(client, other, responder, tmp_path):
    responder.computes_at_once = False
    batch = client.submit(jobs_of(b"1"), settings=QUICK)
    early = other.fetch(batch.uuid, tmp_path, settings=QUICK)
    assert [(outcome.state, outcome.result) for outcome in early.jobs] == [(JobState.STAGED, None)]
    responder.compute()
    assert other.fetch(batch.uuid, tmp_path, settings=QUICK).ok


def test_attach_waits_for_the_results(client, other, responder, tmp_path):
    responder.computes_at_once = False
    batch = client.submit(jobs_of(b"1", b"2"), settings=QUICK)
    waited = threading.Timer(0.2, responder.compute)
    waited.start()
    result = other.attach(batch.uuid, output_dir=tmp_path, settings=QUICK)
    waited.join()
    assert [outcome.result.read_text() for outcome in result.jobs] == [digest(b"1"), digest(b"2")]
    assert result.batch.state is BatchState.COMPLETED


def test_attach_sends_the_inputs_that_are_missing(client, other, responder, pool, tmp_path):
    # The batch was created, and its client was killed before it sent an input.
    pool.plans_at_once = False
    runner = client.runner(jobs_of(b"1", LARGE), output_dir=tmp_path)
    runner._create()
    pool.plan(runner.batch_uuid)
    result = other.attach(runner.batch_uuid, jobs_of(b"1", LARGE), output_dir=tmp_path, settings=QUICK)
    assert [outcome.result.read_text() for outcome in result.jobs] == [digest(b"1"), digest(LARGE)]


def test_attach_keeps_results_that_a_killed_client_has_left(client, other, responder, pool, tmp_path):
    first = client.run("sha256", [b"1", b"2"], requester="node-1", output_dir=tmp_path, settings=QUICK)
    before = {outcome.result: outcome.result.stat().st_ino for outcome in first.jobs}
    fetched = len(pool.asked_flows)
    again = other.attach(first.batch.uuid, output_dir=tmp_path, settings=QUICK)
    assert again.ok
    assert {outcome.result: outcome.result.stat().st_ino for outcome in again.jobs} == before
    assert len(pool.asked_flows) == fetched


def test_results_whose_receipt_was_lost_are_released_when_the_client_says_so_again(
    client, other, responder, pool, tmp_path
):
    # The responder is killed before it has recorded the receipts.
    responder.delivered = lambda grants: None
    # The answer to the repeated receipts is lost, too.
    pool.breaks["confirm_results answer"] = MessagingTimeout("committed, and nobody heard of it")
    data = [b"small", LARGE]
    first = client.run("sha256", data, requester="node-1", output_dir=tmp_path, settings=QUICK)
    assert first.ok
    assert [job.state for job in pool.first_jobs()] == [JobState.COMPLETED] * 2
    assert pool.breaks == {}
    again = other.attach(first.batch.uuid, output_dir=tmp_path, settings=QUICK)
    assert [outcome.result.read_text() for outcome in again.jobs] == [digest(one) for one in data]


def test_results_that_a_killed_client_has_left_are_released_by_the_next_one(client, other, responder, pool, tmp_path):
    batch = client.submit(jobs_of(b"1"), settings=QUICK)
    (tmp_path / "input-0.sha256").write_text(digest(b"1"))
    assert [job.state for job in pool.first_jobs()] == [JobState.RESULT_HELD]
    assert other.fetch(batch.uuid, tmp_path, settings=QUICK).ok
    assert [job.state for job in pool.first_jobs()] == [JobState.COMPLETED]
    assert [flow[0] for flow in pool.asked_flows] == ["send"]


def test_results_that_went_elsewhere_are_named_as_missing(client, other, responder, tmp_path):
    first = client.run("sha256", [b"1"], requester="node-1", output_dir=tmp_path / "first", settings=QUICK)
    again = other.fetch(first.batch.uuid, tmp_path / "second", settings=QUICK)
    assert not again.ok
    assert "fetched to another directory" in again.jobs[0].reason


def test_a_damaged_result_file_does_not_count(client, other, responder, tmp_path):
    first = client.run("sha256", [b"1"], requester="node-1", output_dir=tmp_path, settings=QUICK)
    text = first.jobs[0].result.read_text()
    first.jobs[0].result.write_text("0" + text[1:] if text[0] != "0" else "1" + text[1:])
    assert not other.attach(first.batch.uuid, output_dir=tmp_path, settings=QUICK).ok


def test_attach_without_files_says_which_input_is_missing(client, other, pool, tmp_path):
    pool.plans_at_once = False
    runner = client.runner(jobs_of(b"1", b"2"), output_dir=tmp_path)
    runner._create()
    with pytest.raises(InvalidInput, match=r"2 of 2 inputs yet \(input-0\); attach with the files"):
        other.attach(runner.batch_uuid, output_dir=tmp_path, settings=QUICK)
    assert not pool.tx.batch(runner.batch_uuid).cancel_requested


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([b"1"], "expected 2, one for each job"),
        ([b"1", b"22"], r"files\[1\]: expected input-1 of 1 bytes, .* found input-1 of 2 bytes"),
    ],
)
def test_attach_refuses_files_of_another_batch(client, other, pool, tmp_path, given, says):
    pool.plans_at_once = False
    runner = client.runner(jobs_of(b"1", b"2"), output_dir=tmp_path)
    runner._create()
    with pytest.raises(InvalidInput, match=says):
        other.attach(runner.batch_uuid, jobs_of(*given), output_dir=tmp_path, settings=QUICK)


def test_another_project_cannot_take_it_up(client, responder, tmp_path):
    batch = client.submit(jobs_of(b"1"), settings=QUICK)
    with Client(client._http.endpoint, project_id="other") as stranger, pytest.raises(NotFound):
        stranger.fetch(batch.uuid, tmp_path)


def test_submit_fails_where_an_input_is_gone_and_the_batch_does_not_stay(client, responder, pool, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"1")
    pool.plans_at_once = False
    runner = client.runner([JobSpec("sha256", path, "node-1")], settings=QUICK, output_dir=tmp_path / "out")
    path.unlink()
    planned = threading.Timer(0.2, lambda: pool.plan(runner.batch_uuid))
    planned.start()
    with pytest.raises(InvalidInput, match=r"was cancelled: .*No such file"):
        runner.submit()
    planned.join()
    assert pool.tx.batch(runner.batch_uuid).cancel_requested
