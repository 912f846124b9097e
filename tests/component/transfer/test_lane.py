"""Many small jobs on one connection."""

import hashlib
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from fpga_pool.model.exceptions import TransferRefused
from fpga_pool.transfer import client, frames, lane_client, server
from fpga_pool.transfer import lane as lane_server
from fpga_pool.transfer.connections import Places
from fpga_pool.transfer.handler import JobFailure, JobResult
from fpga_pool.transfer.stream import TransferBroken

WAIT_S = 60.0
DATA = b"a small input"


class Lane:
    """A lane whose orders have tickets of one bench. Tests set the ends of jobs by number."""

    def __init__(self, bench):
        self.bench = bench
        self.connection = client.connect_lane(bench.address, WAIT_S, ssl_context=bench.client_tls)
        self.ends = {}
        bench.agent.result = self._end

    def _end(self, grant):
        return self.ends.setdefault(grant.job, Future())

    def order(self, number, data=DATA, *, token=None, sha256=None, **grant):
        token = token or self.bench.token(len(data), **{"job": f"job-{number}"} | grant)
        self.connection.put(frames.Order(number, token, len(data), sha256 or digest(data)), data)

    def end(self, number, end):
        self.ends.setdefault(f"job-{number}", Future()).set_result(end)

    def hear(self, answers=1, within_s=WAIT_S):
        heard, end_s = [], time.monotonic() + within_s
        while len(heard) < answers:
            assert time.monotonic() < end_s, f"heard only {heard}"
            heard += self.connection.pump(0.05)
        return heard


def digest(data):
    return hashlib.sha256(data).hexdigest()


def result(data, path="/none"):
    return JobResult(path, len(data), digest(data), data)


@pytest.fixture
def lane(bench):
    lane = Lane(bench)
    with lane.connection:
        yield lane


@pytest.fixture
def tls_lane(make_bench, tls):
    lane = Lane(make_bench(tls=tls))
    with lane.connection:
        yield lane


@pytest.mark.parametrize("kind", ["lane", "tls_lane"])
def test_orders_are_answered_as_their_jobs_end_and_confirmed(kind, request, eventually):
    lane = request.getfixturevalue(kind)
    inputs = {number: b"%d" % number * 20_000 for number in range(1, 6)}
    for number, data in inputs.items():
        lane.order(number, data)
    # The third job ends before the others.
    lane.end(3, result(b"three"))
    assert lane.hear() == [(frames.Result(5, digest(b"three"), 3), b"three")]
    for number in (1, 2, 4, 5):
        lane.end(number, result(b""))
    assert sorted(frame.number for frame, _ in lane.hear(4)) == [1, 2, 4, 5]
    assert lane.bench.agent.staged_inputs == {f"job-{number}": data for number, data in inputs.items()}
    for number in (3, 4):
        lane.connection.put(frames.ResultReceived(number))
    lane.connection.pump(0.0)
    eventually(lambda: lane.bench.agent.delivered_jobs == ["job-3", "job-4"])


def test_an_input_of_no_bytes_has_no_data_frame(lane):
    lane.order(1, b"")
    lane.end(1, result(b"x"))
    assert lane.hear() == [(frames.Result(1, digest(b"x"), 1), b"x")]
    assert lane.bench.agent.staged_inputs == {"job-1": b""}


def test_a_result_is_fetched_without_an_input(lane):
    lane.connection.put(frames.Fetch(1, lane.bench.token(20, job="job-1", purpose="fetch")))
    lane.end(1, result(b"late"))
    assert lane.hear() == [(frames.Result(4, digest(b"late"), 1), b"late")]
    assert lane.bench.agent.staged_inputs == {}


def test_a_job_that_failed_and_one_with_a_large_result_are_told_so(lane, tmp_path):
    lane.order(1)
    lane.order(2)
    lane.end(1, JobFailure("fpga_pool.slot_fault", "smoke"))
    lane.end(2, JobResult(tmp_path / "large", 10**6, "0" * 64))
    answers = {frame.number: frame for frame, _ in lane.hear(2)}
    assert answers == {1: frames.Failed("fpga_pool.slot_fault", "smoke", 1), 2: frames.Held(2)}


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("bad_signature", {"token": "forged"}),
        ("wrong_host", {"host": "another"}),
        ("expired", {"deadline_s": 1.0}),
        ("wrong_purpose", {"purpose": "fetch"}),
        ("oversized", {"input_bytes": len(DATA) - 1}),
        ("short", {"input_bytes": len(DATA) + 1}),
        ("digest_mismatch", {"sha256": "0" * 64}),
        ("reused_token", {"token_id": "used"}),
    ],
)
def test_an_order_that_is_refused_does_no_harm_to_the_others(lane, reason, changes):
    lane.bench.agent.use([("used", 0.0)])
    token = changes.pop("token", None)
    sha256 = changes.pop("sha256", None)
    granted = lane.bench.token(**{"input_bytes": len(DATA), "job": "job-1", **changes})
    lane.order(1, token=token or granted, sha256=sha256)
    lane.order(2)
    lane.end(2, result(b"x"))
    answers = {frame.number: frame for frame, _ in lane.hear(2)}
    assert answers[1].reason == reason
    assert answers[2] == frames.Result(1, digest(b"x"), 2)
    assert lane.bench.agent.staged_inputs == {"job-2": DATA}
    assert lane.bench.count(reason) == 1


def ends_with(raw):
    """Return the last answer before the server closes the lane."""
    while not (isinstance(answer := raw.hear(), frames.Refuse) and answer.number == 0):
        pass
    assert raw.is_closed_by_server()
    return answer


def test_a_lane_ends_after_three_forged_tokens(bench):
    raw = bench.raw()
    raw.say(*[frames.Fetch(number, "forged") for number in range(1, 10)])
    assert ends_with(raw).reason == "bad_signature"
    assert bench.agent.used == set()
    bench.assert_nothing_held()


def test_a_lane_without_a_good_token_is_not_held_by_signs_of_life(make_bench):
    bench = make_bench()
    raw = bench.raw()
    raw.say(frames.Fetch(1, "forged"), frames.KeepAlive())
    bench.wait_counted("bad_signature")
    leap(bench.server._serving.get_loop(), WAIT_S + 1.0)
    assert ends_with(raw).reason == "missing_token"
    bench.assert_nothing_held()


def leap(loop, seconds):
    """Let time pass for the timers of a loop."""
    now_s, leapt = loop.time, threading.Event()
    loop.call_soon_threadsafe(setattr, loop, "time", lambda: now_s() + seconds)
    loop.call_soon_threadsafe(lambda: loop.call_later(0.0, leapt.set))
    assert leapt.wait(WAIT_S)


def test_a_lane_with_a_good_token_outlasts_the_time_of_the_first(make_bench, eventually):
    bench = make_bench(limits={"hello_timeout_s": 20.0})
    lane = Lane(bench)
    with lane.connection:
        lane.order(1)
        eventually(lambda: lane.connection.pump(0.01) == [] and "job-1" in lane.ends)
        leap(bench.agent.loop, 21.0)
        lane.order(2)
        eventually(lambda: lane.connection.pump(0.01) == [] and "job-2" in lane.ends)
        lane.end(1, result(b"x"))
        assert lane.hear() == [(frames.Result(1, digest(b"x"), 1), b"x")]


def test_where_lanes_are_too_many_the_one_without_open_orders_makes_place(make_bench, eventually):
    bench = make_bench(limits={"places": Places(clients=2)})
    busy, idle = Lane(bench), Lane(bench)
    with busy.connection, idle.connection:
        busy.order(1)
        eventually(lambda: busy.connection.pump(0.01) == [] and "job-1" in idle.ends)
        idle.order(2)
        idle.end(2, result(b"x"))
        idle.hear()
        new = Lane(bench)
        with new.connection:
            new.order(3)
            new.end(3, result(b"y"))
            assert new.hear() == [(frames.Result(1, digest(b"y"), 3), b"y")]
            with pytest.raises(TransferBroken):
                idle.hear()
            new.order(4)
            eventually(lambda: new.connection.pump(0.01) == [] and "job-4" in new.ends)
            idle.ends["job-1"].set_result(result(b"z"))
            assert busy.hear() == [(frames.Result(1, digest(b"z"), 1), b"z")]


def test_where_all_lanes_have_open_orders_another_one_is_refused(make_bench, eventually):
    bench = make_bench(limits={"places": Places(clients=1)})
    lane, other = Lane(bench), Lane(bench)
    with lane.connection, other.connection:
        lane.order(1)
        eventually(lambda: lane.connection.pump(0.01) == [] and "job-1" in other.ends)
        other.order(2)
        with pytest.raises(TransferRefused, match="1 of all projects"):
            other.hear()


def test_a_lane_with_a_used_token_and_an_input_that_does_not_come_holds_no_place(make_bench, eventually):
    bench = make_bench(limits={"places": Places(clients=1)})
    bench.agent.use([("used", 0.0)])
    raw = bench.raw()
    raw.say(frames.Order(1, bench.token(len(DATA), token_id="used"), len(DATA), digest(DATA)))
    eventually(lambda: "p" in bench.server._port.connections._of_project)
    lane = Lane(bench)
    with lane.connection:
        lane.order(2)
        lane.end(2, result(b"x"))
        assert lane.hear() == [(frames.Result(1, digest(b"x"), 2), b"x")]
    assert raw.is_closed_by_server()


def test_orders_that_are_refused_take_nothing_of_the_shared_rate(make_bench):
    # At 1 kbit/s, the three inputs of 64 KiB would occupy the port for 26 minutes.
    bench = make_bench(ingress_bps=1000.0)
    raw = bench.raw()
    data = bytes(frames.SMALL_BYTES)
    for number in (1, 2, 3):
        raw.say(frames.Order(number, "forged", len(data), digest(data)))
        raw.say_data(data)
    assert ends_with(raw).reason == "bad_signature"


def test_orders_of_unknown_jobs_occupy_no_worker_and_hold_up_no_other_order(make_bench):
    """More orders wait than there are workers. An order of a known job on the same lane is answered before them."""
    bench = make_bench(limits={"announcement_s": 600.0})
    lane = Lane(bench)
    with lane.connection:
        bench.agent.announcements = {f"job-{number}": Future() for number in range(1, 21)}
        for number in range(1, 22):
            lane.order(number)
        lane.end(21, result(b"x"))
        assert lane.hear() == [(frames.Result(1, digest(b"x"), 21), b"x")]
        assert bench.agent.staged_inputs.keys() == {"job-21"}
        for number in (7, 8):
            lane.end(number, result(b"y"))
            bench.agent.announcements[f"job-{number}"].set_result(None)
        assert {frame.number for frame, _ in lane.hear(2)} == {7, 8}


def test_an_order_whose_job_is_not_announced_in_time_is_put_to_the_agent_and_gives_up_waiting(make_bench, eventually):
    bench = make_bench(limits={"announcement_s": 0.05})
    lane = Lane(bench)
    with lane.connection:
        bench.agent.announcements["job-1"] = waiting = Future()
        bench.agent.admit_refusal = TransferRefused("unknown_job", "not here")
        lane.order(1)
        assert lane.hear() == [(frames.Refuse("unknown_job", "not here", 1), b"")]
        eventually(waiting.cancelled)


def test_inputs_of_unknown_jobs_beyond_half_a_mebibyte_are_not_read(make_bench, eventually):
    bench = make_bench(limits={"announcement_s": 600.0})
    lane = Lane(bench)
    data = bytes(frames.SMALL_BYTES)
    with lane.connection:
        for number in range(1, 31):
            bench.agent.announcements[f"job-{number}"] = Future()
            lane.order(number, data)
        lane.order(31)
        with pytest.raises(AssertionError, match="heard only"):
            lane.hear(within_s=0.5)
        assert bench.agent.staged_inputs == {}
        lane.end(31, result(b"x"))
        for number in range(1, 31):
            bench.agent.announcements[f"job-{number}"].set_result(None)
        assert lane.hear() == [(frames.Result(1, digest(b"x"), 31), b"x")]
        eventually(lambda: len(bench.agent.staged_inputs) == 31)


def test_a_lane_waits_for_inputs_that_are_being_staged(make_bench, monkeypatch, eventually):
    """Their jobs are known, so that they wait only for the disk."""
    monkeypatch.setattr(server, "_WORKERS", 16)  # the inputs may arrive one by one, and each waits for the disk
    bench = make_bench(limits={"announcement_s": 600.0})
    staging, disk = [], threading.Event()
    stage = bench.agent.stage_small

    def slowly(inputs):
        jobs = {one.grant.job for one in inputs}
        if jobs != {"job-1"}:
            staging.extend(jobs)
            assert disk.wait(WAIT_S)
        return stage(inputs)

    monkeypatch.setattr(bench.agent, "stage_small", slowly)
    lane = Lane(bench)

    def put(number, data):
        lane.order(number, data)
        eventually(lambda: lane.connection.pump(0.01) == [] and f"job-{number}" in bench.agent.asked)

    with lane.connection:
        bench.agent.announcements = {f"job-{number}": Future() for number in range(1, 11)}
        put(1, DATA)
        put(2, DATA)
        for number in range(3, 11):  # half a mebibyte, and the lane has two more orders
            lane.order(number, bytes(frames.SMALL_BYTES))
        eventually(lambda: lane.connection.pump(0.01) == [] and len(bench.agent.asked) == 10)
        bench.agent.announce([f"job-{number}" for number in range(2, 11)])
        eventually(lambda: len(staging) == 9)
        lane.end(1, result(b"x"))
        bench.agent.announce(["job-1"])
        assert lane.hear() == [(frames.Result(1, digest(b"x"), 1), b"x")]
        disk.set()
        eventually(lambda: len(bench.agent.staged_inputs) == 10)
        lane.order(11)
        lane.end(11, result(b"y"))
        assert lane.hear() == [(frames.Result(1, digest(b"y"), 11), b"y")]


def test_the_agent_may_refuse_an_order(lane):
    lane.bench.agent.admit_refusal = TransferRefused("unknown_job", "not here")
    lane.order(1)
    assert lane.hear() == [(frames.Refuse("unknown_job", "not here", 1), b"")]


def test_a_token_is_good_for_one_order_even_within_a_burst(lane):
    token = lane.bench.token(len(DATA), job="job-1")
    lane.order(1, token=token)
    lane.order(2, token=token)
    (frame, _), *_ = lane.hear()
    assert (frame.number, frame.reason) == (2, "reused_token")


def test_a_client_that_hangs_up_is_waited_for_no_longer(lane, eventually):
    lane.order(1)
    eventually(lambda: lane.connection.pump(0.01) == [] and "job-1" in lane.ends)
    lane.connection._sock.close()
    eventually(lambda: lane.ends["job-1"].cancelled())
    lane.bench.wait_idle()


def test_both_sides_say_that_they_are_there_while_nothing_ends(make_bench, eventually, monkeypatch):
    """Each side gives up after 60 s of silence, and both wait longer than that."""
    lane, ahead_s, heard = Lane(make_bench(limits={"stall_timeout_s": 60.0, "keepalive_s": 0.1})), [0.0], []
    note = lane_server.Lane._note
    monkeypatch.setattr(lane_server.Lane, "_note", lambda self, *said: heard.append(said) or note(self, *said))
    monkeypatch.setattr(lane_client, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s[0]))

    def both_heard():
        assert lane.connection.pump(0.05) == []
        return lane.connection._moved_s > before_s and len(heard) > before

    with lane.connection:
        lane.connection._silence_s = 60.0
        lane.order(1)
        eventually(lambda: lane.connection.pump(0.05) == [] and "job-1" in lane.ends)
        for _ in range(4):
            before_s, before = lane_client.time.monotonic(), len(heard)
            lane.connection.put(frames.KeepAlive())
            eventually(both_heard)
            leap(lane.bench.agent.loop, 40.0)
            ahead_s[0] += 40.0
        lane.end(1, result(b"x"))
        assert lane.hear()[0][1] == b"x"


def test_a_server_that_is_silent_is_given_up(bench):
    lane = Lane(bench)
    with lane.connection:
        lane.connection._silence_s = 0.2
        lane.order(1)
        with pytest.raises(TransferBroken, match="sent nothing"):
            lane.hear()


def test_the_last_words_of_a_server_are_heard(bench):
    lane = Lane(bench)
    with lane.connection:
        lane.connection.put(frames.Order(1, "t", frames.SMALL_BYTES + 1, "0" * 64))
        with pytest.raises(TransferRefused, match="at most 65536"):
            lane.hear()
