"""The load that many requests of `/healthcheck` put on a pool."""

import threading

import oslo_middleware.healthcheck
import pytest
from werkzeug.test import Client

from fpga_pool.api import stack
from fpga_pool.model.exceptions import ServiceUnavailable
from support.personas import keystone_configuration
from support.waiting import wait_until


class Scheduler:
    def __init__(self):
        self.asked = 0
        self.error = None
        self.answers = threading.Event()
        self.answers.set()

    def health(self):
        self.asked += 1
        assert self.answers.wait(30)
        if self.error:
            raise self.error
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
    assert check.healthcheck(0).reason == "a scheduler answers and reads the database"
    scheduler.answers.set()
    other.join(30)
    assert scheduler.asked == 2


@pytest.mark.parametrize("detailed", [False, True])
@pytest.mark.parametrize("form", ["text/plain", "text/html", "application/json"])
@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, 200, "a scheduler answers and reads the database"),
        (ServiceUnavailable("schema 7 on scheduler-1"), 503, "the scheduler reports fpga_pool.unavailable"),
    ],
)
def test_strangers_hear_which_part_is_missing_but_no_names(
    scheduler, tmp_path, monkeypatch, detailed, form, error, status, reason
):
    # To list greenlets, oslo.middleware touches every object of the process, also those left behind by other tests:
    # settings of Django raise and torch warns when they are touched.
    monkeypatch.setattr(oslo_middleware.healthcheck, "_find_objects", lambda kind: [])
    conf = keystone_configuration(tmp_path)
    with (tmp_path / "api.conf").open("a") as file:
        file.write(f"[healthcheck]\ndetailed = {detailed}\n")
    conf.reload_config_files()
    scheduler.error = error
    health = Client(stack.make_application(conf, scheduler, keystone=True))
    answer = health.get("/healthcheck", headers={"Accept": form})
    assert (answer.status_code, reason in answer.text) == (status, True)
    assert ("scheduler-1" in answer.text) is (detailed and form != "text/plain")
