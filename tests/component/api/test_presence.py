"""When a process of the API is announced to the schedulers, also if announcements are delayed."""

import threading
import time

import pytest

from fpga_pool.api import presence
from fpga_pool.api.presence import Presence
from support.waiting import wait_until

LIMIT_S = 60


class Scheduler:
    """A scheduler that answers announcements only after `may` is set."""

    def __init__(self):
        self.heard, self.asked, self.may = [], threading.Event(), threading.Event()

    def announce(self, process, *, ending=False):
        self.asked.set()
        assert self.may.wait(LIMIT_S)
        self.heard.append(ending)


@pytest.fixture
def scheduler():
    scheduler = Scheduler()
    yield scheduler
    scheduler.may.set()


def test_the_end_does_not_wait_long_and_comes_after_what_was_said_before(scheduler, monkeypatch):
    monkeypatch.setattr(presence, "ANNOUNCED_S", 0.1)
    announced = Presence(scheduler)
    announced.begin()
    assert scheduler.asked.wait(LIMIT_S)
    stop = presence.Loop.stop
    # If it waited for the announcement in progress, it would wait for a minute.
    monkeypatch.setattr(presence.Loop, "stop", lambda loop: stop(loop, LIMIT_S))
    began_s = time.monotonic()
    announced.end()
    assert time.monotonic() - began_s < LIMIT_S / 2
    assert scheduler.heard == []
    scheduler.may.set()
    wait_until(lambda: len(scheduler.heard) == 2, "both are heard")
    assert scheduler.heard == [False, True]
    assert announced._loop.stopping


def test_the_end_waits_until_it_is_told(scheduler, monkeypatch):
    monkeypatch.setattr(presence, "ANNOUNCED_S", LIMIT_S)
    scheduler.may.set()
    announced = Presence(scheduler)
    announced.end()  # not begun yet
    announced.begin()
    announced.end()
    assert scheduler.heard[-1] is True
    assert announced._loop.stopping


def test_a_process_whose_thread_could_not_start_is_announced_by_the_next_request(scheduler, monkeypatch):
    def fail(loop):
        raise RuntimeError("can't start new thread")

    announced = Presence(scheduler)
    with monkeypatch.context() as patched:
        patched.setattr(presence.Loop, "start", fail)
        with pytest.raises(RuntimeError):
            announced.begin()
    announced.begin()
    assert scheduler.asked.wait(LIMIT_S)


def test_the_start_waits_until_the_pool_knows(scheduler):
    announced = Presence(scheduler)
    threading.Timer(0.2, scheduler.may.set).start()
    announced.begin(LIMIT_S)
    assert scheduler.heard == [False]
    announced.end()
