"""What `/healthcheck` costs a pool when many ask."""

import threading

import pytest

from fpga_pool.api import stack
from support.waiting import wait_until


class Scheduler:
    def __init__(self):
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def health(self):
        self.asked += 1
        assert self.answers.wait(30)
        return "scheduler-1"


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def check(scheduler):
    return stack.PoolCheck(None, {"scheduler": scheduler})


def test_many_who_ask_are_told_what_one_has_found(check, scheduler, monkeypatch):
    assert {check.healthcheck(0).available for _ in range(100)} == {True}
    assert scheduler.asked == 1
    monkeypatch.setattr(stack, "_AGE_S", -1.0)
    check.healthcheck(0)
    assert scheduler.asked == 2


def test_nobody_waits_for_an_answer_that_another_one_waits_for(check, scheduler, monkeypatch):
    monkeypatch.setattr(stack, "_AGE_S", -1.0)
    check.healthcheck(0)
    scheduler.answers.clear()
    other = threading.Thread(target=check.healthcheck, args=(0,))
    other.start()
    wait_until(lambda: scheduler.asked == 2, "the other one asks")
    assert check.healthcheck(0).reason == "scheduler scheduler-1 answers and reads the database"
    scheduler.answers.set()
    other.join(30)
    assert scheduler.asked == 2
