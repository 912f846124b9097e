"""The data port as a whole: start and stop, rates, many streams, and random bytes."""

import contextlib
import io
import random
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fpga_pool.transfer import frames
from fpga_pool.transfer.port import Spool
from fpga_pool.transfer.server import DataServer


def test_port_that_is_taken_is_reported_by_start(bench):
    second = DataServer(
        bench.agent,
        bench.agent,
        host="responder-1",
        public_keys=[bench.key.public_key()],
        bind_address="127.0.0.1",
        bind_port=bench.address[1],
    )
    with pytest.raises(OSError, match="in use"):
        second.start()
    second.stop()


def test_stop_closes_every_connection_and_ends_the_threads(make_bench):
    bench = make_bench()
    greeted, _ = bench.raw_upload(4)
    silent = bench.raw()
    bench.wait_counted("connections", 2)
    bench.server.stop(60)
    assert greeted.is_closed_by_server()
    assert silent.is_closed_by_server()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("data-")]


def test_stop_closes_a_connection_whose_tls_handshake_has_only_begun(make_bench, tls):
    bench = make_bench(tls=tls)
    raw = bench.raw()
    raw.say(b"\x16")
    bench.server.stop(60)
    assert raw.is_closed_by_server()


def test_counters_name_every_reason_from_the_start(bench):
    counters = bench.server.counters()
    assert set(counters.values()) == {0}
    assert {"busy", "short", "stalled", "oversized", "digest_mismatch", "storage_full"} <= counters.keys()


def test_many_streams_at_once(bench, in_thread):
    rng = random.Random(7)
    inputs = {f"job-{i}": rng.randbytes(100_000 + i) for i in range(20)}
    outcomes = [
        in_thread(bench.send, io.BytesIO(data), len(data), token=bench.token(len(data), job=job))
        for job, data in inputs.items()
    ]
    for outcome in outcomes:
        outcome.result(60)
    assert all(bench.agent.path(job).read_bytes() == data for job, data in inputs.items())
    assert bench.count("staged") == 20
    bench.assert_nothing_held()


def test_streams_that_hash_what_earlier_ones_left_leave_worker_threads_to_others(
    bench, in_thread, monkeypatch, eventually
):
    hashing, go_on = [], threading.Event()
    hash_found = Spool.hash_found

    def slowly(spool):
        hashing.append(spool)
        assert go_on.wait(60)
        hash_found(spool)

    monkeypatch.setattr(Spool, "hash_found", slowly)
    jobs = [f"job-{number}" for number in range(10)]  # there are 8 worker threads
    for job in jobs:
        bench.agent.part(job).write_bytes(b"da")
    outcomes = [in_thread(bench.send, io.BytesIO(b"data"), 4, token=bench.token(4, job=job)) for job in jobs]
    eventually(lambda: len(bench.server._port.receiving) == 10 and len(hashing) >= 2)
    bench.send(io.BytesIO(b"data"), 4, token=bench.token(4, job="another"))
    assert len(hashing) == 2
    go_on.set()
    assert [outcome.result(60).resumed_at_bytes for outcome in outcomes] == [2] * 10


def test_what_an_earlier_stream_left_is_hashed_four_mebibytes_at_a_time(tmp_path):
    (tmp_path / "input.part").write_bytes(bytes(9 * 2**20))
    spool, hashed_mib = Spool(tmp_path / "input", 10 * 2**20), []
    spool.open()
    with contextlib.closing(spool):
        while spool.size_bytes < spool.found_bytes:
            spool.hash_found()
            hashed_mib.append(spool.size_bytes / 2**20)
    assert hashed_mib == [4, 8, 9]


VALID = [
    frames.encode(frames.Hello("x" * 40)),
    frames.encode(frames.KeepAlive()),
    frames.encode(frames.Trailer("0" * 64)),
    frames.encode_data_header(3) + b"abc",
]

#: Random bytes, and valid frames cut and joined anywhere.
NOISE = st.lists(st.one_of(st.binary(max_size=80), st.sampled_from(VALID)), max_size=6).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=NOISE, admitted=st.booleans())
def test_no_bytes_crash_the_server_or_stay_behind(make_bench, shared, noise, admitted):
    if "bench" not in shared:
        shared["bench"] = make_bench(limits={"stall_timeout_s": 5.0, "linger_s": 0.05})
    bench = shared["bench"]
    raw = bench.raw_upload(10)[0] if admitted else bench.raw()
    with contextlib.suppress(ConnectionError):
        raw.say(noise)
    raw.close()
    bench.wait_idle()
    assert bench.count("internal_error") == 0
    assert bench.server._port.receiving == set()
    assert bench.agent.staged_inputs == {}


@pytest.fixture
def shared():
    return {}


def test_an_input_begins_with_the_first_bytes_of_a_frame_that_is_not_complete(bench, eventually):
    raw, _ = bench.raw_upload(4)
    raw.say(frames.encode_data_header(4), b"da")
    eventually(lambda: bench.agent.seen_progress)
    assert bench.agent.seen_progress == [0]
    raw.say(b"ta")
    eventually(lambda: bench.agent.seen_progress == [0, 4])
