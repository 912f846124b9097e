"""Calls end in time, whatever happens to the broker."""

import threading
from types import SimpleNamespace

import pytest
from oslo_messaging._drivers.common import deserialize_remote_exception, serialize_remote_exception

from fpga_pool.model.exceptions import OtherRun, ServiceUnavailable, StorageFull
from fpga_pool.rpc import bounded
from fpga_pool.rpc.bounded import STARTS, Caller, signed_again
from fpga_pool.rpc.transport import NO_ANSWER

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(bounded, "GRACE_S", 0.0)


@pytest.fixture
def broker():
    """Yield an event on which calls wait until the test ends."""
    back = threading.Event()
    yield back
    back.set()


def make_stuck(caller, broker, count):
    """Make `count` calls that get stuck. On a busy machine, some calls may time out before a thread starts them."""
    made = []
    while len(made) < count:
        with pytest.raises(NO_ANSWER):
            caller.run(lambda: made.append("stuck") or broker.wait(), 0.05)
    return made


def test_an_answer_or_an_error_is_the_calls_own():
    caller = Caller()
    assert caller.run(lambda: 7, WAIT_S) == 7
    with pytest.raises(ZeroDivisionError):
        caller.run(lambda: 1 / 0, WAIT_S)


def test_a_call_that_is_stuck_is_given_up_and_others_go_on(broker):
    caller = Caller()
    with pytest.raises(NO_ANSWER, match=r"no response within 0.05 s; is the message broker running\?"):
        caller.run(broker.wait, 0.05)
    assert caller.run(lambda: "next", WAIT_S) == "next"


def test_calls_that_find_no_thread_are_given_up_without_having_been_made(broker, monkeypatch):
    monkeypatch.setattr(bounded, "THREADS", 2)
    caller, made = Caller(), []
    make_stuck(caller, broker, 2)
    with pytest.raises(NO_ANSWER):
        caller.run(lambda: made.append("late"), 0.02)
    broker.set()
    assert caller.run(lambda: "back", WAIT_S) == "back"
    assert made == []


def test_while_some_calls_are_stuck_no_further_ones_join_them(broker, monkeypatch):
    monkeypatch.setattr(bounded, "MAX_STUCK", 2)
    caller = Caller()
    made = make_stuck(caller, broker, 2)
    for _ in range(3):
        with pytest.raises(NO_ANSWER):
            caller.run(lambda: made.append("late"), 0.02)
    assert len(made) == 2
    broker.set()
    assert caller.run(lambda: "back", WAIT_S) == "back"
    assert len(made) == 2


def test_a_call_does_not_wait_for_a_thread_that_has_just_taken_another_one():
    caller, made = Caller(), []
    get = caller._calls.get

    def get_slowly(**options):
        call = get(**options)
        if not made:
            made.append("first")
            made.append(caller.run(lambda: "second", WAIT_S))
        return call

    caller._calls = SimpleNamespace(put=caller._calls.put, get=get_slowly)
    caller.run(lambda: None, WAIT_S)
    assert made == ["first", "second"]


def test_an_error_from_the_other_side_says_what_was_said_there_without_its_traceback():
    full = StorageFull("no room")

    def answered():
        failure = serialize_remote_exception((StorageFull, full, None))
        raise deserialize_remote_exception(failure, [StorageFull.__module__])

    with pytest.raises(StorageFull) as raised:
        Caller().run(answered, WAIT_S)
    assert type(raised.value) is StorageFull
    assert str(raised.value) == "no room"


def test_a_thread_serves_one_call_after_another():
    caller = Caller()
    threads = {caller.run(threading.get_ident, WAIT_S) for _ in range(20)}
    assert len(threads) < 10  # a thread that has just answered may not be marked idle yet


@pytest.mark.parametrize(("starts", "answered"), [(0, True), (2, True), (STARTS, True), (STARTS + 1, False)])
def test_a_call_to_a_server_that_is_started_again_and_again_is_repeated_so_often(starts, answered):
    """If the server has restarted too often, the caller is told to try again later."""
    forgotten = []

    def call():
        if len(forgotten) < starts:
            raise OtherRun("another one")
        return "answer"

    if answered:
        assert signed_again(call, lambda: forgotten.append(1)) == "answer"
        assert len(forgotten) == starts
    else:
        with pytest.raises(ServiceUnavailable):
            signed_again(call, lambda: forgotten.append(1))
