"""Small jobs of one host on one connection, in an order that keeps nothing waiting that can move."""

import contextlib
import ssl
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from fpga_pool.client import lane as lane_module
from fpga_pool.client.lane import Lane, Parcel
from fpga_pool.client.stream import StreamContext, tls_for
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.requests import Ticket
from fpga_pool.model.objects.pool import Host, Job, JobState, RateSegment

#: Orders on the lane at once, and those of results beside them.
OPEN, RESULTS = 3, 2


class Connection:
    """A connection to a host that takes everything and answers nothing."""

    source_address, source_port = "127.0.0.1", 1

    def __init__(self):
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
    """Grants every ticket; inputs are to arrive in ten minutes."""

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
    monkeypatch.setattr(lane_module, "connect_lane", lambda *_, **__: contextlib.nullcontext(connection))
    return connection


@pytest.fixture
def start(connection):
    """Open a lane with parcels of jobs in these states."""
    host = Host(name="h", egress_bps=1.0, ingress_bps=1.0, data_address="here", data_port=7, heard_at=0.0)
    context = StreamContext(desk=Desk(), egress=None)
    with contextlib.ExitStack() as stack:

        def start(*states):
            lane = Lane(context, host, [parcel(number, state) for number, state in enumerate(states)], lambda _: None)
            stack.callback(lane.close)

        yield start


def parcel(number, state):
    job = Job(
        uuid=f"j{number}", batch_uuid="b", project_id="p", user_id="u", index=number, name="", function="f",
        requester="h", input_bytes=1, created_at=0.0, state=state, attempt=1,
    )  # fmt: skip
    return Parcel(job, None, None)


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
