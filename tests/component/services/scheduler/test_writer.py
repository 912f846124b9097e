"""Requests that wait together are executed together."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from fpga_pool.model.exceptions import Conflict, Contended, ServiceUnavailable
from fpga_pool.model.objects.history import NO_CAUSE
from fpga_pool.rpc.identity import Role
from fpga_pool.rpc.tracing import follow
from fpga_pool.services.scheduler.writer import ATTEMPTS, GROUP, ShardWriter


class Changes(list):
    """A transaction: a list of changes, and the request that causes them."""

    cause = NO_CAUSE


class Log:
    """A store that consists of one list, which contains the changes of committed transactions."""

    def __init__(self):
        self.committed = []
        self.transactions = []
        self.failures = []
        #: The first transaction waits for this event before it does anything.
        self.go_on = threading.Event()
        self.go_on.set()

    @contextmanager
    def begin(self):
        self.go_on.wait(60.0)
        if self.failures:
            raise self.failures.pop(0)
        tx = Changes()
        yield tx
        self.transactions.append(list(tx))
        self.committed += tx


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def writer(log):
    return ShardWriter(log.begin)


@pytest.fixture
def at_once(log, writer, until):
    """Return a function that submits several works while a first one is held up, and returns their futures."""
    with ThreadPoolExecutor(32) as threads:

        def ask(*works):
            log.go_on.clear()
            first = threads.submit(writer.run, lambda tx: tx.append("first"))
            until(writer._turn.locked)
            asked = [threads.submit(writer.run, work) for work in works]
            until(lambda: len(writer._waiting) == len(works))
            log.go_on.set()
            first.result(60.0)
            return asked

        yield ask


def test_an_answer_comes_when_the_work_is_committed(log, writer):
    assert writer.run(lambda tx: tx.append("a") or "answer") == "answer"
    assert log.committed == ["a"]


def test_what_waits_shares_a_transaction_and_each_gets_its_own_answer(log, at_once):
    asked = at_once(*(lambda tx, i=i: tx.append(i) or -i for i in range(5)))
    assert [future.result(60.0) for future in asked] == [0, -1, -2, -3, -4]
    assert [sorted(done) for done in log.transactions[1:]] == [[0, 1, 2, 3, 4]]


def test_each_work_in_a_shared_transaction_has_its_own_request(log, writer, until):
    def ask(request_id):
        follow({"request_id": request_id}, Role.API)
        return writer.run(lambda tx: tx.cause.request_id)

    with ThreadPoolExecutor(5) as threads:
        log.go_on.clear()
        asked = [threads.submit(ask, request_id) for request_id in ("req-1", "req-2", "req-3", None)]
        until(writer._turn.locked)
        until(lambda: len(writer._waiting) == 3)
        log.go_on.set()
        # The generated id of a call without a request id is used for log lines only.
        assert [future.result(60.0) for future in asked] == ["req-1", "req-2", "req-3", ""]


def test_a_group_is_bounded(log, writer, until):
    with ThreadPoolExecutor(GROUP + 10) as threads:
        log.go_on.clear()
        asked = [threads.submit(writer.run, lambda tx: tx.append("x")) for _ in range(GROUP + 10)]
        until(lambda: len(writer._waiting) >= GROUP + 5)
        log.go_on.set()
        for future in asked:
            future.result(60.0)
    assert len(log.committed) == GROUP + 10
    assert max(map(len, log.transactions)) <= GROUP


def test_a_request_that_fails_takes_none_of_the_others_with_it(log, at_once):
    def fails(tx):
        tx.append("lost")
        raise Conflict("not now")

    good, bad, other = at_once(lambda tx: tx.append("good"), fails, lambda tx: tx.append("other"))
    with pytest.raises(Conflict, match="not now"):
        bad.result(60.0)
    good.result(60.0)
    other.result(60.0)
    assert sorted(log.committed) == ["first", "good", "other"]


def test_a_request_that_ends_its_thread_takes_none_of_the_others_with_it(log, at_once):
    def exits(tx):
        tx.append("lost")
        raise SystemExit("a worker was told to end")

    good, bad, other = at_once(lambda tx: tx.append("good") or 1, exits, lambda tx: tx.append("other") or 2)
    assert str(bad.exception(60.0)) == "a worker was told to end"
    # A request is answered only after its work is committed.
    assert (good.result(60.0), other.result(10.0)) == (1, 2)
    assert sorted(log.committed) == ["first", "good", "other"]


def test_an_interrupted_commit_is_reported_to_all_and_not_done_again(log, writer, at_once, monkeypatch):
    begin, begun = log.begin, []

    @contextmanager
    def interrupted():
        with begin() as tx:
            begun.append(tx)
            yield tx
            if len(begun) == 2:
                raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_begin", interrupted)
    asked = at_once(*(lambda tx, i=i: tx.append(i) for i in range(3)))
    assert [type(future.exception(60.0)) for future in asked] == [KeyboardInterrupt] * 3
    assert len(begun) == 2


def test_a_store_that_is_away_is_asked_once_for_all(log, writer, until):
    with ThreadPoolExecutor(8) as threads:
        log.go_on.clear()
        # The first work is executed alone. The three that wait behind it share the second failure.
        log.failures = [ServiceUnavailable("away"), ServiceUnavailable("still away")]
        first = threads.submit(writer.run, lambda tx: None)
        until(writer._turn.locked)
        others = [threads.submit(writer.run, lambda tx: None) for _ in range(3)]
        until(lambda: len(writer._waiting) == 3)
        log.go_on.set()
        assert str(first.exception(60.0)) == "away"
        assert [str(future.exception(60.0)) for future in others] == ["still away"] * 3
    assert log.failures == []


def test_who_was_in_the_way_of_other_writers_tries_again(log, writer):
    log.failures = [Contended("deadlock")] * (ATTEMPTS - 1)
    writer.run(lambda tx: tx.append("a"))
    assert log.committed == ["a"]


def test_trying_again_has_an_end(log, writer):
    log.failures = [Contended("deadlock")] * (ATTEMPTS + 1)
    with pytest.raises(Contended):
        writer.run(lambda tx: tx.append("a"))
    assert len(log.failures) == 1
