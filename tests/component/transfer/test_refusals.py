"""Each way in which a stream is refused: the reason, the counter, and no resources left behind."""

import io
import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import frames
from fpga_pool.transfer.connections import Places
from fpga_pool.transfer.handler import JobResult
from fpga_pool.transfer.tokens import sign


def assert_refused(bench, raw, reason, *, parts=()):
    """Check that the client gets the reason, after any KeepAlive, that it is counted, and that nothing is left."""
    answer = raw.hear()
    while isinstance(answer, frames.KeepAlive):
        answer = raw.hear()
    assert isinstance(answer, frames.Refuse), answer
    assert answer.reason == reason
    assert bench.count(reason) == 1
    raw.close()
    bench.assert_nothing_held(parts=parts)


@pytest.mark.parametrize(
    ("make_token", "reason"),
    [
        (lambda bench: "", "missing_token"),
        (lambda bench: "garbage", "bad_signature"),
        (lambda bench: sign([bench.grant()], Ed25519PrivateKey.generate())[0], "bad_signature"),
        (lambda bench: bench.token(host="responder-2"), "wrong_host"),
        (lambda bench: bench.token(deadline_s=1.0), "expired"),
    ],
)
def test_token_that_opens_nothing(bench, make_token, reason):
    raw = bench.raw()
    raw.say(frames.Hello(make_token(bench)))
    assert_refused(bench, raw, reason)
    assert bench.agent.used == set()


def test_token_used_twice(bench, refused):
    token = bench.token(4)
    bench.send(io.BytesIO(b"data"), 4, token=token)
    with refused("reused_token"):
        bench.send(io.BytesIO(b"data"), 4, token=token)
    assert bench.count("reused_token") == 1
    assert bench.count("staged") == 1
    bench.assert_nothing_held()


def test_token_is_used_up_even_when_its_stream_breaks(bench, refused):
    token = bench.token(4)
    raw = bench.raw()
    raw.say(frames.Hello(token))
    assert isinstance(raw.hear(), frames.Accept)
    raw.close()
    bench.wait_counted("short")
    with refused("reused_token"):
        bench.send(io.BytesIO(b"data"), 4, token=token)


def test_handler_that_does_not_admit(bench):
    bench.agent.admit_refusal = TransferRefused("unknown_job", "no such job here")
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(4)))
    assert_refused(bench, raw, "unknown_job")


def test_handler_that_fails_is_not_the_clients_fault(bench, caplog):
    bench.agent.admit_refusal = OSError("the agent's own disk")
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(4)))
    assert_refused(bench, raw, "internal_error")
    assert "the agent's own disk" in caplog.text


def test_second_stream_for_a_job_while_the_first_is_sending(bench):
    first, _ = bench.raw_upload(4)
    second = bench.raw()
    second.say(frames.Hello(bench.token(4)))
    answer = second.hear()
    assert answer.reason == "busy"
    assert bench.count("busy") == 1
    # The first stream is not disturbed.
    first.say_data(b"data")
    first.say(frames.Trailer("3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"))
    assert first.hear() == frames.Staged(4)


def test_no_project_has_all_connections_and_no_job_many(make_bench):
    bench = make_bench(limits={"places": Places(clients=3, per_project=2, per_job=1)})
    first, _ = bench.raw_upload(4)
    again = bench.raw()
    again.say(frames.Hello(bench.token(4)))
    assert again.hear().reason == "busy"  # because of the same job
    second, _ = bench.raw_upload(4, job="job-2")
    third = bench.raw()
    third.say(frames.Hello(bench.token(4, job="job-3")))
    assert third.hear().reason == "busy"  # because of the same project
    assert bench.agent.used.isdisjoint({"job-3"})
    bench.raw_upload(4, job="job-4", project_id="another")
    for raw in (first, second):
        raw.close()
    bench.wait_counted("short", 2)
    bench.raw_upload(4, job="job-5")


def test_no_address_has_all_connections_whatever_projects_its_tokens_are_of(make_bench):
    bench = make_bench(limits={"places": Places(clients=3, clients_per_address=2)})
    first, _ = bench.raw_upload(4)
    bench.raw_upload(4, job="job-2", project_id="another")
    third = bench.raw()
    third.say(frames.Hello(bench.token(4, job="job-3", project_id="third")))
    assert third.hear().reason == "busy"
    first.close()
    bench.wait_counted("short", 1)
    bench.raw_upload(4, job="job-4", project_id="third")


def test_projects_that_have_all_connections_make_place_for_one_that_has_fewer(make_bench):
    bench = make_bench(limits={"places": Places(clients=3)})
    first, _ = bench.raw_upload(4)
    second, _ = bench.raw_upload(4, job="job-2")
    second.say_data(b"da")
    bench.wait_counted("received_bytes", 2)
    bench.raw_upload(4, job="job-3", project_id="another")
    third, _ = bench.raw_upload(4, job="job-4", project_id="third")
    assert second.is_closed_by_server()
    fourth = bench.raw()
    fourth.say(frames.Hello(bench.token(4, job="job-5", project_id="fourth")))
    assert fourth.hear().reason == "busy"  # no project has more than one connection
    third.close()
    bench.wait_counted("short", 1)
    _, offset_bytes = bench.raw_upload(4, job="job-2")
    assert offset_bytes == 2  # the dropped stream can be continued
    first.say_data(b"data")
    bench.wait_counted("received_bytes", 6)


def test_strangers_shut_no_client_out_and_the_oldest_of_them_make_place(make_bench, eventually):
    bench = make_bench(limits={"hello_timeout_s": 60.0, "places": Places(strangers=4, per_address=4)})
    slow = []
    while len(slow) < 12:
        slow.append(bench.raw())
        slow[-1].say(frames.encode(frames.Hello(bench.token(4)))[:1])
        # The kernel first passes on connections that have sent data.
        eventually(lambda: bench.count("connections") + bench.count("busy") == len(slow))
    assert bench.count("busy") == 8
    bench.raw_upload(4)
    for raw in slow[:8]:
        assert raw.is_closed_by_server()
    assert bench.count("busy") == 9  # eight made place for each other, and one for the client


def test_one_byte_more_than_granted(bench):
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"data")
    raw.say_data(b"!")
    assert_refused(bench, raw, "oversized")


def test_oversized_frame_is_refused_before_its_bytes_are_read(bench):
    raw, _ = bench.raw_upload(4)
    raw.say(frames.encode_data_header(5))
    assert_refused(bench, raw, "oversized")
    assert bench.count("received_bytes") == 0


def test_trailer_before_all_bytes_came(bench):
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"dat")
    raw.say(frames.Trailer("0" * 64))
    assert_refused(bench, raw, "short", parts=["job-1.part"])


def test_connection_that_ends_early_keeps_its_bytes_for_the_next(bench):
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"da")
    raw.close()
    bench.wait_counted("short")
    bench.assert_nothing_held(parts=["job-1.part"])
    assert bench.agent.part("job-1").read_bytes() == b"da"


@pytest.mark.parametrize("begin", [b"", b"D\0", frames.encode_data_header(4), frames.encode_data_header(4) + b"d"])
def test_stream_that_stalls(make_bench, begin):
    """It may stop between frames, in a header, or before or within the data."""
    bench = make_bench(limits={"stall_timeout_s": 1.0})
    raw, _ = bench.raw_upload(4)
    raw.say(begin)
    assert_refused(bench, raw, "stalled", parts=["job-1.part"])


def test_held_stream_that_says_keepalive_is_not_stalled_until_its_time_is_over(make_bench):
    bench = make_bench(limits={"hold_timeout_s": 0.0})
    raw, _ = bench.raw_upload(4)
    raw.say(frames.KeepAlive())
    assert_refused(bench, raw, "stalled", parts=["job-1.part"])


def test_keepalives_between_data_are_fine(bench):
    raw, _ = bench.raw_upload(4)
    raw.say(frames.KeepAlive())
    raw.say_data(b"da")
    raw.say(frames.KeepAlive())
    raw.say_data(b"ta")
    raw.say(frames.Trailer("3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"))
    assert raw.hear() == frames.Staged(4)


def test_client_that_says_nothing(make_bench):
    bench = make_bench(limits={"hello_timeout_s": 0.1})
    assert_refused(bench, bench.raw(), "no_hello")


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"J\0\0\0\x02{}", b"J\xff\xff\xff\xff", frames.encode(frames.KeepAlive())]
)
def test_first_frame_that_is_none(bench, first):
    raw = bench.raw()
    raw.say(first)
    assert_refused(bench, raw, "bad_frame")


def test_bad_frame_in_the_middle_of_an_input(bench):
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"da")
    raw.say(b"X\0\0\0\x01")
    assert_refused(bench, raw, "bad_frame")


def test_frame_that_does_not_belong_into_an_input(bench):
    raw, _ = bench.raw_upload(4)
    raw.say(frames.ResultReceived())
    assert_refused(bench, raw, "bad_frame")


def test_altered_byte(bench, sha256):
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"dat\0")
    raw.say(frames.Trailer(sha256(b"data")))
    assert_refused(bench, raw, "digest_mismatch")
    assert list(bench.spool.iterdir()) == []
    assert bench.agent.staged_inputs == {}


def test_full_disk(bench):
    """/dev/full answers each write with "no space left on device"."""
    bench.agent.part("job-1").symlink_to("/dev/full")
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"data")
    assert_refused(bench, raw, "storage_full")
    assert os.path.lexists("/dev/full")


def test_spool_that_cannot_be_written(bench):
    bench.agent.part("job-1").symlink_to(bench.spool / "nowhere" / "file")
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(4)))
    assert_refused(bench, raw, "storage_error")


def test_handler_stops_a_stream_in_the_middle(bench):
    bench.agent.progress_refusal = TransferRefused("cancelled", "the batch was cancelled")
    raw, _ = bench.raw_upload(4)
    raw.say_data(b"da")
    assert_refused(bench, raw, "cancelled")


def test_result_that_does_not_come(make_bench):
    bench = make_bench(limits={"result_timeout_s": 0.05})
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(purpose="fetch")))
    assert_refused(bench, raw, "result_timeout")
    assert all(future.cancelled() for future in bench.agent.waiting)


def test_client_that_speaks_while_it_should_wait(bench, eventually):
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(purpose="fetch")))
    eventually(lambda: bench.agent.waiting)
    raw.say(frames.KeepAlive())
    assert_refused(bench, raw, "bad_frame")


def test_client_that_takes_no_result(make_bench, tmp_path, sha256):
    """64 MB do not fit into socket buffers. The server waits for its client, and then gives up."""
    bench = make_bench(limits={"stall_timeout_s": 0.2})
    path = tmp_path / "result"
    path.write_bytes(bytes(64_000_000))
    bench.agent.end.set_result(JobResult(path, 64_000_000, "0" * 64))
    raw = bench.raw()
    raw.say(frames.Hello(bench.token(purpose="fetch")))
    assert isinstance(raw.hear(), frames.Result)
    bench.wait_counted("stalled")
    bench.assert_nothing_held()
    assert bench.agent.delivered_jobs == []


@pytest.mark.parametrize(
    "spoken",
    [
        [frames.Hello("x")],
        [frames.Order(0, "t", 0, "0" * 64)],
        [frames.Order(7, "t", 0, "0" * 64), frames.Order(7, "t", 0, "0" * 64)],
        [frames.Order(7, "t", 5, "0" * 64), frames.KeepAlive()],
        [frames.Order(7, "t", frames.SMALL_BYTES + 1, "0" * 64)],
        [frames.ResultReceived(9)],
    ],
)
def test_who_breaks_the_rules_loses_the_lane(bench, spoken):
    raw = bench.raw()
    raw.say(frames.Fetch(1, bench.token(purpose="fetch")), *spoken)
    heard = []
    while not (heard and isinstance(heard[-1], frames.Refuse) and heard[-1].number == 0):
        heard.append(raw.hear())
    assert heard[-1].reason in ("bad_frame", "oversized")
    bench.assert_nothing_held()


def test_logs_and_refusals_repeat_no_token(bench, caplog, refused):
    caplog.set_level("DEBUG")
    token = bench.token(4)
    bench.send(io.BytesIO(b"data"), 4, token=token)
    for presented in (token, token[:-8] + "AAAAAAAA", bench.token(4, host="responder-2")):
        with pytest.raises(TransferRefused) as caught:
            bench.send(io.BytesIO(b"data"), 4, token=presented)
        for part in filter(None, presented.split(".")):
            assert part not in str(caught.value)
            assert part not in caplog.text
    assert "input staged, 4 bytes" in caplog.text
