"""Small jobs of one host share a connection. A job that cannot proceed yet does not hold up another that can."""

import contextlib
import ssl
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from fpga_pool.client import lane as lane_module
from fpga_pool.client.lane import Lane, Lanes, Parcel
from fpga_pool.client.stream import StreamContext, tls_for
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import Ticket
from fpga_pool.model.objects.pool import Host, Job, JobState, RateSegment

HOST = Host(name="h", egress_bps=1.0, ingress_bps=1.0, data_address="here", data_port=7, heard_at=0.0)
#: Maximum number of open orders on the lane, and of additional orders for results.
OPEN, RESULTS = 3, 2


class Connection:
    """A connection to a host that accepts everything and answers nothing."""

    source_address, source_port = "127.0.0.1", 1

    def __init__(self):
        self.opened = 0
        self.sent = []
        self._woken = threading.Event()

    def put(self, frame, data=b""):
        self.sent.append(frame)

    def pump(self, timeout_s):
        self._woken.wait(timeout_s)
        self._woken.clear()
        return []

    def wake(self):
        self._woken.set()


class Desk:
    """A ticket desk that grants every ticket. Inputs take ten minutes to arrive."""

    def get_all(self, requests):
        granted = []
        for request in requests:
            granted.append(Future())
            granted[-1].set_result(
                Ticket(
                    job=request.job, attempt=1, purpose=request.purpose, address="here", port=7, token=request.job,
                    input_bytes=1, transfer=(RateSegment(0.0, 600.0, 1.0),), elapsed_s=0.0,
                )
            )  # fmt: skip
        return granted


@pytest.fixture
def connection(monkeypatch):
    monkeypatch.setattr(lane_module, "_OPEN", OPEN)
    monkeypatch.setattr(lane_module, "_OPEN_RESULTS", RESULTS, raising=False)
    connection = Connection()

    def connect(*_, **__):
        connection.opened += 1
        return contextlib.nullcontext(connection)

    monkeypatch.setattr(lane_module, "connect_lane", connect)
    return connection


@pytest.fixture
def start(connection):
    """Return a function that opens a lane with parcels of jobs in the given states."""
    with contextlib.ExitStack() as stack:

        def start(*states):
            lane = Lane(HOST, None, [parcel(number, state) for number, state in enumerate(states)])
            stack.callback(lane.close)
            return lane

        yield start


def parcel(number, state, ended=lambda _: None):
    job = Job(
        uuid=f"j{number}", batch_uuid="b", project_id="p", user_id="u", index=number, name="", function="f",
        requester="h", input_bytes=1, created_at=0.0, state=state, attempt=1,
    )  # fmt: skip
    return Parcel(job, None, None, StreamContext(desk=Desk(), egress=None), ended)


def test_tls_settings_that_are_given_mean_tls_or_an_error():
    host = Host(name="h", egress_bps=1.0, ingress_bps=1.0, data_address="here", data_port=7, heard_at=0.0)
    given = ssl.create_default_context()
    assert tls_for(host, None) is None
    assert tls_for(replace(host, data_tls=True), given) is given
    assert tls_for(replace(host, data_tls=True), None) is not None
    with pytest.raises(InvalidInput, match="host h: its data port offers no TLS"):
        tls_for(host, given)


def test_inputs_that_leave_later_do_not_hold_up_results(start, connection, eventually):
    start(*[JobState.WAITING_INPUT] * (OPEN + 1), *[JobState.RESULT_HELD] * (RESULTS + 1))
    eventually(lambda: len(connection.sent) == RESULTS)
    assert [frame.token for frame in connection.sent] == [f"j{OPEN + 1 + number}" for number in range(RESULTS)]


def test_results_have_the_room_that_inputs_leave(start, connection, eventually):
    start(JobState.WAITING_INPUT, *[JobState.RESULT_HELD] * (OPEN + RESULTS))
    eventually(lambda: len(connection.sent) == OPEN + RESULTS - 1)


@pytest.fixture
def lanes():
    lanes = Lanes()
    yield lanes
    lanes.close()


def test_the_next_batch_has_the_connection_of_the_one_before(lanes, connection, eventually):
    """The host record may have changed, and the earlier batch may have left inputs that were never sent."""
    ended = []
    first, second = (parcel(number, JobState.WAITING_INPUT, ended.append) for number in range(2))
    lane = lanes.add(HOST, [first])
    eventually(lambda: lane._held)
    first.cancel()
    lane.settle()
    eventually(lambda: [one for [(one, _)] in ended] == [first])
    assert lanes.add(replace(HOST, heard_at=9.0), [second]) is lane
    assert connection.opened == 1


def test_a_lane_with_orders_that_nobody_waits_for_is_not_kept(lanes, connection, eventually):
    """The host would continue to count the abandoned orders, so that new ones would have to wait."""
    given_up, other = (parcel(number, JobState.RESULT_HELD) for number in range(2))
    lane = lanes.add(HOST, [given_up])
    eventually(lambda: connection.sent)
    given_up.cancel()
    lane.settle()
    eventually(lambda: lane.has_ended)
    assert lanes.add(HOST, [other]) is not lane
    eventually(lambda: connection.opened == 2)


def test_a_lane_without_jobs_ends_after_a_while(lanes, connection, monkeypatch, eventually):
    monkeypatch.setattr(lane_module, "_KEPT_S", 0.0)
    monkeypatch.setattr(lane_module, "_TICK_S", 0.01)
    one = parcel(0, JobState.WAITING_INPUT)
    lane = lanes.add(HOST, [one])
    eventually(lambda: lane._held)
    one.cancel()
    lane.settle()
    eventually(lambda: lane.has_ended)
