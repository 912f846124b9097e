"""Whole transfers between the real client and a real data port."""

import io
import math
import random
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fpga_pool.model.exceptions import InvalidInput, TransferRefused
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.transfer import client, frames, stream
from fpga_pool.transfer.client import JobFailed, TransferBroken, TransferCancelled
from fpga_pool.transfer.handler import Admission, JobFailure, JobResult
from fpga_pool.transfer.schedule import Pacer, RateSchedule

WAIT_S = 60.0


class Rates(list):
    """A limiter that only records its rates."""

    set_rate = list.append


@pytest.fixture
def result(tmp_path, sha256):
    path = tmp_path / "result.bin"
    path.write_bytes(random.Random(1).randbytes(300_001))
    return JobResult(path, 300_001, sha256(path.read_bytes()))


@pytest.mark.parametrize("secure", [False, True])
def test_input_arrives_and_the_result_comes_back_on_the_same_connection(
    make_bench, tls, secure, input_file, result, tmp_path, sha256
):
    bench = make_bench(tls=tls if secure else None)
    done, sink = [], tmp_path / "out.bin"
    with bench.connect() as connection:
        ack = connection.send(bench.token(700_001), input_file, 700_001, on_progress=done.append)
        bench.agent.end.set_result(result)
        info = connection.receive_result(sink, 10)
    assert (ack.received_bytes, ack.resumed_at_bytes) == (700_001, 0)
    assert done[0] == 0
    assert done[-1] == 700_001
    assert bench.agent.path("job-1").read_bytes() == input_file.read_bytes()
    assert bench.agent.staged_inputs == {"job-1": (sha256(input_file.read_bytes()), 700_001)}
    assert bench.agent.seen_progress[-1] == 700_001
    assert sink.read_bytes() == result.path.read_bytes()
    assert (info.size_bytes, info.sha256) == (result.size_bytes, result.sha256)
    bench.wait_counted("delivered")
    assert bench.agent.delivered_jobs == ["job-1"]
    bench.assert_nothing_held()
    counters = bench.server.counters()
    assert (counters["staged"], counters["received_bytes"], counters["sent_bytes"]) == (1, 700_001, 300_001)


def test_empty_input_and_empty_result(bench, tmp_path, sha256):
    (tmp_path / "empty").touch()
    bench.agent.end.set_result(JobResult(tmp_path / "empty", 0, sha256(b"")))
    with bench.connect() as connection:
        assert connection.send(bench.token(0), io.BytesIO(), 0).received_bytes == 0
        assert connection.receive_result(tmp_path / "out", 10).path.read_bytes() == b""


def test_source_address_is_known_before_anything_is_sent(bench):
    with bench.connect() as connection:
        assert connection.source_address == "127.0.0.1"
        assert connection.source_port == connection.socket.getsockname()[1]
        assert (connection.destination_address, connection.destination_port) == bench.address


def test_broken_stream_is_continued_where_it_ended(bench, input_file, sha256):
    data = input_file.read_bytes()
    raw, offset = bench.raw_upload(700_001)
    assert offset == 0
    raw.say_data(data[:200_000])
    raw.close()
    bench.wait_counted("short")
    bench.assert_nothing_held(parts=["job-1.part"])
    ack = bench.send(input_file, 700_001)
    assert ack.resumed_at_bytes == 200_000
    assert bench.agent.staged_inputs["job-1"] == (sha256(data), 700_001)
    # The second stream carried only the missing bytes: 200,000 + 500,001.
    assert bench.count("received_bytes") == 700_001
    bench.assert_nothing_held()


def test_input_that_changed_between_two_streams_is_refused_and_sent_again(bench, input_file, refused):
    raw, _ = bench.raw_upload(700_001)
    raw.say_data(b"\0" * 1000)
    raw.close()
    bench.wait_counted("short")
    with refused("digest_mismatch"):
        bench.send(input_file, 700_001)
    bench.assert_nothing_held()
    assert bench.send(input_file, 700_001).resumed_at_bytes == 0


def test_partial_input_larger_than_granted_is_dropped(bench):
    bench.agent.part("job-1").write_bytes(b"x" * 11)
    assert bench.send(io.BytesIO(b"0123456789"), 10).resumed_at_bytes == 0
    assert bench.agent.path("job-1").read_bytes() == b"0123456789"


def test_complete_input_that_the_agent_forgot_needs_no_byte_again(bench):
    bench.agent.path("job-1").write_bytes(b"0123456789")
    assert bench.send(io.BytesIO(b"0123456789"), 10).resumed_at_bytes == 10
    assert bench.count("received_bytes") == 0


def test_result_is_fetched_later_after_a_disconnect(bench, input_file, result, tmp_path, eventually):
    bench.send(input_file, 700_001)
    bench.wait_idle()
    # The server cancelled the future that it waited on.
    eventually(lambda: all(future.cancelled() for future in bench.agent.waiting))
    assert bench.count("disconnected") == 1
    bench.agent.end.set_result(result)
    assert bench.agent.delivered_jobs == []
    with bench.connect() as connection:
        connection.fetch(bench.token(purpose="fetch"), tmp_path / "out", 10)
    assert (tmp_path / "out").read_bytes() == result.path.read_bytes()
    bench.wait_counted("delivered")


def test_altered_result_is_not_kept_and_not_acknowledged(bench, result, tmp_path):
    bench.agent.end.set_result(JobResult(result.path, result.size_bytes, "0" * 64))
    out = tmp_path / "out"
    out.mkdir()
    with bench.connect() as connection, pytest.raises(TransferBroken, match="corrupted in transit"):
        connection.fetch(bench.token(purpose="fetch"), out / "result", 10)
    assert list(out.iterdir()) == []
    bench.wait_counted("disconnected")
    assert bench.agent.delivered_jobs == []


def test_failed_job_raises_its_code(bench, tmp_path):
    bench.agent.end.set_result(JobFailure("fpga_pool.slot_fault", "the job hung"))
    with bench.connect() as connection, pytest.raises(JobFailed, match="the job hung") as caught:
        connection.fetch(bench.token(purpose="fetch"), tmp_path / "out", 10)
    assert caught.value.failure == "fpga_pool.slot_fault"
    assert not (tmp_path / "out").exists()


def test_keepalives_hold_the_connection_while_the_job_computes(
    make_bench, result, tmp_path, in_thread, eventually, monkeypatch
):
    """The client tolerates a silence of 60 s. The job takes longer, but the server sends keepalives."""
    bench = make_bench(limits={"keepalive_s": 0.02})
    ahead_s, heard, receive = [0.0], [], stream.Wire.receive
    monkeypatch.setattr(stream, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0]))
    monkeypatch.setattr(stream.Wire, "receive", lambda *args: heard.append(receive(*args)) or heard[-1])
    with bench.connect(silence_s=60.0) as connection:
        out = in_thread(connection.fetch, bench.token(purpose="fetch"), tmp_path / "out", 1000.0)
        for _ in range(4):
            before = len(heard)
            eventually(lambda before=before: len(heard) > before)
            ahead_s[0] += 40.0
        bench.agent.end.set_result(result)
        assert out.result(WAIT_S).size_bytes == result.size_bytes


def test_result_that_does_not_come_in_time_breaks_off_at_the_client(make_bench, tmp_path):
    bench = make_bench(limits={"keepalive_s": 0.02})
    with bench.connect() as connection, pytest.raises(TransferBroken, match="before the timeout"):
        connection.fetch(bench.token(purpose="fetch"), tmp_path / "out", 0.1)


def test_silent_server_breaks_the_transfer(bench, tmp_path):
    """The server sends its first keepalive after 10 s, but the client waits only 0.1 s."""
    with bench.connect(silence_s=0.1) as connection, pytest.raises(TransferBroken, match="sent nothing"):
        connection.fetch(bench.token(purpose="fetch"), tmp_path / "out", 10)


def test_nobody_listens():
    with pytest.raises(TransferBroken, match="cannot connect to 127"):
        client.connect(("127.0.0.1", 1), 1)


def test_client_that_expects_tls_does_not_talk_to_a_plain_port(bench, tls):
    with pytest.raises(TransferBroken, match="TLS failed"):
        client.connect(bench.address, 10, ssl_context=tls[1])
    bench.wait_counted("bad_frame")
    bench.assert_nothing_held()


def test_plain_client_gets_nothing_from_a_tls_port(make_bench, tls):
    bench = make_bench(tls=tls)
    raw = bench.raw()
    raw.say(frames.Hello("x"))
    bench.wait_counted("no_tls")
    bench.assert_nothing_held()


@pytest.mark.parametrize(("length", "message"), [(9, "ends 1 byte before"), (11, "larger than the announced 10 bytes")])
def test_source_of_another_size_than_announced(bench, length, message):
    with bench.connect() as connection, pytest.raises(InvalidInput, match=message):
        connection.send(bench.token(10), io.BytesIO(b"x" * length), 10)
    bench.wait_counted("short")
    assert bench.agent.staged_inputs == {}


def test_refusal_in_the_middle_reaches_a_client_that_is_sending(bench, refused):
    """The server stops reading at the first piece. The client has 64 MB to send, and still receives the reason."""

    bench.agent.progress_refusal = TransferRefused("cancelled", "the batch was cancelled")
    with refused("cancelled"):
        bench.send(io.BytesIO(bytes(64_000_000)), 64_000_000)
    assert bench.count("cancelled") == 1
    bench.assert_nothing_held()


def test_sender_waits_while_the_schedule_holds_and_follows_its_replacement(bench, in_thread, eventually):
    rates = Rates()
    pacer = Pacer(RateSchedule([RateSegment(0.0, 1e9, 0.0)]), rates, 1000, anchor_s=time.monotonic())
    sent = in_thread(bench.send, io.BytesIO(b"x" * 1000), 1000, pacer=pacer)
    eventually(lambda: rates == [0.0])
    assert bench.count("received_bytes") == 0
    pacer.replace(RateSchedule([RateSegment(0.0, 0.001, 8e6)]))
    assert sent.result(WAIT_S).received_bytes == 1000
    assert rates == [0.0, 16e6]


def test_cancel_ends_a_held_sender(bench, in_thread, eventually):
    rates, cancel = Rates(), threading.Event()
    pacer = Pacer(RateSchedule([RateSegment(0.0, 1e9, 0.0)]), rates, 1000, anchor_s=time.monotonic())
    with bench.connect(cancel=cancel) as connection:
        sent = in_thread(connection.send, bench.token(1000), io.BytesIO(b"x" * 1000), 1000, pacer)
        eventually(lambda: rates)
        cancel.set()
        with pytest.raises(TransferCancelled):
            sent.result(WAIT_S)
    bench.wait_counted("short")


def test_cancel_ends_the_wait_for_a_result(bench, in_thread, eventually, tmp_path):
    cancel = threading.Event()
    with bench.connect(cancel=cancel) as connection:
        fetched = in_thread(connection.fetch, bench.token(purpose="fetch"), tmp_path / "out", 60)
        eventually(lambda: bench.agent.waiting)
        cancel.set()
        with pytest.raises(TransferCancelled):
            fetched.result(WAIT_S)


@pytest.mark.parametrize(("port_bps", "stream_bps"), [(8e6, math.inf), (math.inf, 8e6)])
def test_stop_of_the_server_breaks_a_slow_stream_and_keeps_what_came(
    make_bench, in_thread, eventually, port_bps, stream_bps
):
    """At 8 Mbit/s, the limit of the port or of this stream, 10 MB take 10 s. The port is stopped in between."""
    bench = make_bench(ingress_bps=port_bps)
    bench.agent.admissions["job-1"] = Admission(bench.agent.path("job-1"), rate_bps=stream_bps)
    sent = in_thread(bench.send, io.BytesIO(bytes(10_000_000)), 10_000_000)
    eventually(lambda: bench.count("received_bytes") > 0)
    bench.server.stop(60)
    with pytest.raises(TransferBroken):
        sent.result(WAIT_S)
    assert 0 < bench.agent.part("job-1").stat().st_size < 10_000_000


def test_a_result_is_never_ahead_of_its_planned_rates(bench, result, tmp_path):
    # 1 MB/s from 0.1 s after the end of the computation, then a pause, and then the rest.
    rates = (RateSegment(0.1, 0.2, 8e6), RateSegment(0.3, 0.500001, 8e6))
    ended_at = time.time()
    bench.agent.end.set_result(replace(result, transfer=rates, ended_at=ended_at))
    received = []
    with bench.connect() as connection:
        connection.fetch(
            bench.token(purpose="fetch"),
            tmp_path / "out",
            10,
            on_progress=lambda count: received.append((time.time() - ended_at, count)),
        )
    assert (tmp_path / "out").read_bytes() == result.path.read_bytes()
    schedule = RateSchedule(rates)
    assert all(count <= schedule.carried_bytes(at_s) + 1 for at_s, count in received)
