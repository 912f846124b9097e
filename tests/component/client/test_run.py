"""Whole batches over real sockets, and recovery from failures."""

import hashlib
import threading
import time
from concurrent.futures import Future
from dataclasses import replace

import pytest

from fpga_pool.client import Client, RunSettings, stream
from fpga_pool.client.inputs import JobSpec
from fpga_pool.client.transfers import Transfer, outcome_of
from fpga_pool.model.exceptions import InvalidAnswer, NotFound, ServiceUnavailable, UnknownFunction
from fpga_pool.model.objects.pool import BatchState, JobState, RateSegment
from fpga_pool.transfer.client import ResultInfo
from fpga_pool.transfer.frames import SMALL_BYTES
from support.servers.server import free_port

WAIT_S = 60.0
QUICK = RunSettings(fast_poll_s=0.02, slow_poll_s=0.05, first_pause_s=0.01, timeout_s=WAIT_S)


def digest(data):
    return f"{hashlib.sha256(data).hexdigest()}\n"


@pytest.fixture
def responder(pool):
    return pool.open_data_port()


@pytest.fixture(params=[0, SMALL_BYTES], ids=["streams", "lanes"])
def small_bytes(request):
    """Return 0 if each job has its own connection, or the size limit of inputs that share one connection per host."""
    return request.param


@pytest.fixture
def start(client, tmp_path, small_bytes):
    """Return a function that runs a batch in a thread and returns the runner and the future of its result."""
    threads = []

    def run(files, *, settings=QUICK, **options):
        settings = replace(settings, small_bytes=small_bytes)
        jobs = [JobSpec("sha256", file, "node-1") for file in files]
        runner = client.runner(jobs, output_dir=tmp_path / "out", settings=settings, **options)
        outcome = Future()

        def work():
            try:
                outcome.set_result(runner.run())
            except BaseException as error:
                outcome.set_exception(error)

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return runner, outcome

    yield run
    for thread in threads:
        thread.join(WAIT_S)


@pytest.fixture
def in_state(pool, eventually):
    def wait(state, jobs=1):
        eventually(lambda: pool.batch_uuids() and [j.state for j in pool.first_jobs()].count(state) == jobs)

    return wait


def texts(result):
    return [outcome.result.read_text() for outcome in result.jobs]


def test_five_lines_of_the_readme(client, responder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(name.encode())
    batch = client.run("sha256", [tmp_path / "a.bin", tmp_path / "b.bin"], requester="node-1")
    assert [(job.name, job.result.read_text()) for job in batch.jobs] == [
        ("a.bin", digest(b"a.bin")),
        ("b.bin", digest(b"b.bin")),
    ]
    assert batch.ok
    assert batch.batch.state is BatchState.COMPLETED
    assert [job.compute_s for job in batch.jobs] == [0.25, 0.25]


def test_each_flow_is_reported_before_its_input_is_sent(start, responder, pool, small_bytes):
    _, outcome = start([b"one", b"two"])
    outcome.result(WAIT_S)
    # Tickets for small inputs come with the batch, because inputs on a lane are not limited individually.
    assert [flow[0] for flow in pool.asked_flows] == ([] if small_bytes else ["send", "send"])
    assert len({flow[3] for flow in pool.asked_flows}) == (0 if small_bytes else 2)


def test_a_ticket_that_came_with_the_batch_long_ago_is_asked_for_again(start, responder, pool, monkeypatch):
    monkeypatch.setattr(stream, "_KEPT_S", 0.0)
    _, outcome = start([b"one"])
    assert texts(outcome.result(WAIT_S)) == [digest(b"one")]
    assert [flow[0] for flow in pool.asked_flows] == ["send"]


def test_progress_ends_with_everything_sent_and_here(client, responder, tmp_path):
    seen = []
    client.run(
        "sha256", [b"12345", b"678"], requester="node-1", output_dir=tmp_path, settings=QUICK, on_progress=seen.append
    )
    assert (seen[0].jobs, seen[0].input_bytes, seen[0].results) == (2, 8, 0)
    assert (seen[-1].sent_bytes, seen[-1].results) == (8, 2)


def test_same_names_get_their_own_results(client, responder, tmp_path):
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_bytes(folder.encode())
    files = [tmp_path / "a" / "x", tmp_path / "b" / "x"]
    result = client.run("sha256", files, requester="node-1", output_dir=tmp_path / "out", settings=QUICK)
    assert texts(result) == [digest(b"a"), digest(b"b")]
    assert [outcome.result.name for outcome in result.jobs] == ["x.0.sha256", "x.1.sha256"]


def test_empty_input_is_an_input(start, responder):
    _, outcome = start([b""])
    assert texts(outcome.result(WAIT_S)) == [digest(b"")]


def test_many_jobs_over_few_streams(start, responder):
    files = [str(i).encode() for i in range(40)]
    _, outcome = start(files, settings=RunSettings(max_streams=3, fast_poll_s=0.02, slow_poll_s=0.05, timeout_s=WAIT_S))
    assert texts(outcome.result(WAIT_S)) == [digest(data) for data in files]


@pytest.mark.parametrize("small_bytes", [0])
def test_jobs_that_wait_for_their_slot_do_not_hold_the_streams_of_others(start, responder, pool, in_state):
    # There are two streams, and the slot computes only after all three inputs have arrived.
    responder.computes_at_once = False
    _, outcome = start(
        [b"0", b"1", b"2"], settings=RunSettings(max_streams=2, fast_poll_s=0.02, slow_poll_s=0.05, timeout_s=WAIT_S)
    )
    in_state(JobState.STAGED, 3)
    responder.compute()
    assert texts(outcome.result(WAIT_S)) == [digest(b"0"), digest(b"1"), digest(b"2")]
    assert "fetch" in [flow[0] for flow in pool.asked_flows]


@pytest.mark.parametrize("input_bytes", [100_000, 50_000])
def test_input_arrives_when_it_is_planned_to_and_not_before(start, responder, pool, in_state, input_bytes):
    # The transfer takes 0.2 s, from 0.3 s after the dispatch. A small input is sent in one burst at its end.
    data = b"x" * input_bytes
    pool.plans_at_once = False
    runner, outcome = start([data])
    in_state(JobState.PENDING)
    pool.plan(runner.batch_uuid, transfer=(RateSegment(0.3, 0.5, 40.0 * input_bytes),))
    result = outcome.result(WAIT_S)
    stored = pool.first_jobs()[0]
    assert stored.staged_at - stored.dispatched_at >= 0.5
    assert texts(result) == [digest(data)]


@pytest.mark.parametrize("small_bytes", [0])
def test_stream_under_way_follows_a_new_plan_from_that_ones_beginning(start, responder, pool, in_state, eventually):
    # The first plan delays the input for ten minutes. The second plan sends it 0.3 s after its own time 0.
    pool.plans_at_once = False
    data = b"x" * 1_000_000
    runner, outcome = start([data])
    in_state(JobState.PENDING)
    pool.plan(runner.batch_uuid, transfer=(RateSegment(0.0, 600.0, 0.0),))
    eventually(lambda: pool.asked_flows)
    time.sleep(0.2)
    assert pool.first_jobs()[0].state is JobState.WAITING_INPUT
    pool.retime(pool.first_jobs()[0].uuid, (RateSegment(0.3, 1.0, 800e6),))
    assert texts(outcome.result(WAIT_S)) == [digest(data)]
    stored = pool.first_jobs()[0]
    assert stored.staged_at - stored.dispatched_at >= 0.3
    assert len(pool.asked_flows) == stored.attempt == 1


def test_stream_is_not_opened_long_before_its_time(start, responder, pool, in_state):
    pool.plans_at_once = False
    runner, outcome = start([b"x"])
    in_state(JobState.PENDING)
    pool.plan(runner.batch_uuid, transfer=(RateSegment(600.0, 601.0, 8e6),))
    time.sleep(0.2)
    assert pool.asked_flows == []
    pool.displace(pool.first_jobs()[0].uuid)
    pool.plan(runner.batch_uuid)
    assert texts(outcome.result(WAIT_S)) == [digest(b"x")]


def test_job_planned_again_gets_a_new_stream(start, responder, pool, in_state):
    responder.computes_at_once = False
    runner, outcome = start([b"x"])
    in_state(JobState.STAGED)
    responder.computes_at_once = True
    pool.displace(pool.first_jobs()[0].uuid)
    pool.plan(runner.batch_uuid)
    result = outcome.result(WAIT_S)
    assert (texts(result), result.jobs[0].job.attempt) == ([digest(b"x")], 2)


def test_a_result_that_is_here_counts_if_the_pool_learns_of_it_after_planning_the_job_again(
    responder, start, pool, tmp_path
):
    _, outcome = start([b"x"])
    outcome.result(WAIT_S)
    (job,) = pool.first_jobs()
    result = ResultInfo(path=tmp_path / "result", size_bytes=1, sha256=job.result_sha256)
    transfer = Transfer(source=None, sink=result.path, job=job, result=result)
    transfer.update(replace(job, attempt=2, state=JobState.PENDING))
    assert transfer.result is None
    transfer.update(replace(job, attempt=2, state=JobState.WAITING_INPUT))
    assert not transfer.here
    transfer.update(replace(job, attempt=2, state=JobState.COMPLETED))
    assert outcome_of(transfer).result == result.path


@pytest.mark.parametrize("completes_first", [False, True])
def test_a_result_counts_if_it_comes_while_the_job_is_seen_as_it_was_before(
    responder, start, pool, tmp_path, completes_first
):
    """A scheduler that was stalled, and has been replaced, returns an outdated state once more."""
    _, outcome = start([b"x"])
    outcome.result(WAIT_S)
    (job,) = pool.first_jobs()
    result = ResultInfo(path=tmp_path / "result", size_bytes=1, sha256=job.result_sha256)
    before = replace(job, attempt=1, state=JobState.WAITING_INPUT)
    complete = replace(job, attempt=2, state=JobState.COMPLETED)
    transfer = Transfer(source=None, sink=result.path, job=replace(before, attempt=2))
    transfer.update(before)
    acts = [lambda: transfer.receive(result, 2), lambda: transfer.update(complete)]
    for act in reversed(acts) if completes_first else acts:
        act()
    assert outcome_of(transfer).result == result.path
    late = Transfer(source=None, sink=result.path, job=replace(complete, attempt=3))
    late.receive(result, 2)  # the pool recorded the result after it had planned the job again
    assert outcome_of(late).result == result.path


def test_job_planned_again_on_another_host_goes_there(start, responder, pool, in_state):
    other = pool.open_data_port("node-2")
    responder.computes_at_once = False
    runner, outcome = start([b"x"])
    in_state(JobState.STAGED)
    pool.displace(pool.first_jobs()[0].uuid)
    pool.plan(runner.batch_uuid, "node-2")
    assert texts(outcome.result(WAIT_S)) == [digest(b"x")]
    assert len(other.streams) == 1


@pytest.mark.parametrize("reason", ["busy", "wrong_attempt", "storage_full"])
def test_refused_stream_is_opened_again(start, responder, reason):
    responder.refusals = [reason] * 3
    _, outcome = start([b"x"])
    assert texts(outcome.result(WAIT_S)) == [digest(b"x")]
    assert len(responder.streams) == 4


def test_waits_for_a_data_port_that_is_not_there_yet(start, pool, eventually):
    # Port 9 of the bench's hosts refuses connections until the agent starts on another port.
    _, outcome = start([b"x"])
    eventually(lambda: pool.batch_uuids())
    time.sleep(0.1)
    pool.open_data_port()
    assert texts(outcome.result(WAIT_S)) == [digest(b"x")]


def test_hosts_are_listed_once_for_several_runs_and_again_where_one_is_not_reached(start, client, pool, monkeypatch):
    listed, hosts = [], client.hosts
    monkeypatch.setattr(client, "hosts", lambda: listed.append("hosts") or hosts())
    # Port 9 of the bench's hosts refuses connections. Then the agent starts on another port.
    client.known_hosts(["node-1"])
    pool.open_data_port()
    for data in (b"x", b"y"):
        assert texts(start([data])[1].result(WAIT_S)) == [digest(data)]
    assert len(listed) == 2


def test_trouble_of_the_api_is_waited_out(start, responder, pool):
    pool.breaks["batch_jobs"] = [ServiceUnavailable("restarting")] * 3
    pool.breaks["tickets"] = [RuntimeError("a bug, once"), ServiceUnavailable("restarting")]
    _, outcome = start([b"x"])
    assert texts(outcome.result(WAIT_S)) == [digest(b"x")]


def test_api_that_restarts_in_the_middle(pool, responder, serve, tmp_path, in_state):
    port = free_port()  # no other process gets the port while the API is away
    url = serve(pool, port=port)
    responder.computes_at_once = False
    outcome = Future()
    with Client(url) as client:
        thread = threading.Thread(
            target=lambda: outcome.set_result(
                client.run("sha256", [b"x"], requester="node-1", output_dir=tmp_path / "out", settings=QUICK)
            )
        )
        thread.start()
        in_state(JobState.STAGED)
        serve.stop()
        responder.compute()
        serve(pool, port=port)
        assert texts(outcome.result(WAIT_S)) == [digest(b"x")]
        thread.join()


@pytest.mark.parametrize(("path", "key", "field"), [("jobs", "jobs", "attempt"), ("tickets", "tickets", "port")])
def test_an_answer_that_is_not_understood_ends_the_run_at_once(start, client, responder, monkeypatch, path, key, field):
    call = client._http.call

    def without(method, url, **options):
        answer = call(method, url, **options)
        if url.endswith(path):
            for one in answer[key]:
                del one[field]
        if (path, url) == ("tickets", "/v1/batches"):
            answer["tickets"] = []  # so that the client asks for tickets
        return answer

    monkeypatch.setattr(client._http, "call", without)
    _, outcome = start([b"x"])  # the patience of the run is longer than the timeout of the test
    with pytest.raises(InvalidAnswer, match=rf"response is invalid: {key}\[0\]: missing: {field}"):
        outcome.result(WAIT_S)


def test_api_that_stays_silent_ends_the_run(start, responder, pool):
    responder.computes_at_once = False
    settings = RunSettings(fast_poll_s=0.02, slow_poll_s=0.02, patience_s=0.1)
    pool.breaks["batch_jobs"] = [ServiceUnavailable("gone")] * 10_000
    _, outcome = start([b"x"], settings=settings)
    with pytest.raises(ServiceUnavailable, match="lost contact with batch"):
        outcome.result(WAIT_S)


def test_batch_that_takes_too_long_ends_the_run_and_not_the_batch(start, responder, pool):
    responder.computes_at_once = False
    _, outcome = start([b"x"], settings=RunSettings(fast_poll_s=0.02, timeout_s=0.2))
    with pytest.raises(ServiceUnavailable, match=r"did not end within 0\.2 s"):
        outcome.result(WAIT_S)
    assert pool.tx.batches()[0].cancel_requested is False


def test_batch_that_is_not_accepted_is_an_error(client, pool, tmp_path):
    with pytest.raises(UnknownFunction):
        client.run("sha3", [b"x"], requester="node-1", output_dir=tmp_path)


def test_failed_job_has_a_reason_and_the_others_their_results(start, responder, pool, in_state):
    pool.plans_at_once = False
    runner, outcome = start([b"good", b"bad"])
    in_state(JobState.PENDING, 2)
    pool.fails[pool.first_jobs()[1].uuid] = "broken"
    pool.plan(runner.batch_uuid)
    result = outcome.result(WAIT_S)
    good, bad = result.jobs
    assert good.result.read_text() == digest(b"good")
    assert (bad.result, bad.state, bad.reason) == (None, JobState.FAILED, "broken")
    assert (result.ok, result.batch.state) == (False, BatchState.FAILED)


def test_batch_cancelled_elsewhere_ends(start, client, responder, in_state):
    responder.computes_at_once = False
    runner, outcome = start([b"x"])
    in_state(JobState.STAGED)
    client.cancel(runner.batch_uuid)
    assert outcome.result(WAIT_S).batch.state is BatchState.CANCELLED


def test_file_that_shrinks_ends_its_job_and_the_rest_is_kept(start, responder, pool, in_state, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"12345")
    pool.plans_at_once = False
    runner, outcome = start([path, b"good"])
    in_state(JobState.PENDING, 2)
    path.write_bytes(b"1")
    pool.plan(runner.batch_uuid)
    short, good = outcome.result(WAIT_S).jobs
    assert "ends 4 bytes before the announced size" in short.reason
    assert short.state is JobState.CANCELLED
    assert good.result.read_text() == digest(b"good")


def test_batch_that_vanished_is_not_waited_for(start, responder, pool, in_state):
    responder.computes_at_once = False
    _, outcome = start([b"x"])
    in_state(JobState.STAGED)
    pool.breaks["batch_jobs"] = [NotFound("another database")]
    with pytest.raises(NotFound):
        outcome.result(WAIT_S)
