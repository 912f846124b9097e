"""Calls that end in time, whatever becomes of the broker."""

import threading

import pytest
from oslo_messaging._drivers.common import deserialize_remote_exception, serialize_remote_exception

from fpga_pool.model.exceptions import StorageFull
from fpga_pool.rpc import bounded
from fpga_pool.rpc.bounded import Caller
from fpga_pool.rpc.transport import NO_ANSWER


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(bounded, "GRACE_S", 0.0)


@pytest.fixture
def broker():
    """Calls to `broker.wait` are stuck until the test ends."""
    back = threading.Event()
    yield back
    back.set()


def test_an_answer_or_an_error_is_the_calls_own():
    caller = Caller()
    assert caller.run(lambda: 7, 1.0) == 7
    with pytest.raises(ZeroDivisionError):
        caller.run(lambda: 1 / 0, 1.0)


def test_a_call_that_is_stuck_is_given_up_and_others_go_on(broker):
    caller = Caller()
    with pytest.raises(NO_ANSWER, match=r"no response within 0.05 s; is the message broker running\?"):
        caller.run(broker.wait, 0.05)
    assert caller.run(lambda: "next", 1.0) == "next"


def test_calls_that_find_no_thread_are_given_up_without_having_been_made(broker, monkeypatch):
    monkeypatch.setattr(bounded, "THREADS", 2)
    caller, made = Caller(), []
    for _ in range(2):
        with pytest.raises(NO_ANSWER):
            caller.run(broker.wait, 0.02)
    with pytest.raises(NO_ANSWER):
        caller.run(lambda: made.append("late"), 0.02)
    broker.set()
    assert caller.run(lambda: "back", 5.0) == "back"
    assert made == []


def test_while_some_calls_are_stuck_no_further_ones_join_them(broker, monkeypatch):
    monkeypatch.setattr(bounded, "MAX_STUCK", 2)
    caller, made = Caller(), []

    def call():
        made.append(1)
        broker.wait()

    for _ in range(5):
        with pytest.raises(NO_ANSWER):
            caller.run(call, 0.02)
    assert len(made) == 2
    broker.set()
    assert caller.run(lambda: "back", 5.0) == "back"
    assert len(made) == 2


def test_an_error_from_the_other_side_says_what_was_said_there_without_its_traceback():
    full = StorageFull("no room")

    def answered():
        failure = serialize_remote_exception((StorageFull, full, None))
        raise deserialize_remote_exception(failure, [StorageFull.__module__])

    with pytest.raises(StorageFull) as raised:
        Caller().run(answered, 1.0)
    assert type(raised.value) is StorageFull
    assert str(raised.value) == "no room"


def test_a_thread_serves_one_call_after_another():
    caller = Caller()
    threads = {caller.run(threading.get_ident, 1.0) for _ in range(20)}
    assert len(threads) <= 2
