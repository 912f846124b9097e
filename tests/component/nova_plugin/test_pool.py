"""The picture of the pool in a Nova process: how old it may be, and which request updates it."""

import threading
from concurrent.futures import ThreadPoolExecutor

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from fpga_pool.conf.catalogue import installed_catalogue, load_catalogue
from fpga_pool.model.rules.instance.observations import Observations, RunTime
from fpga_pool.model.rules.shared.columns import PoolColumns
from fpga_pool.nova_plugin.conf import register_opts
from fpga_pool.nova_plugin.pool import Breaker, Limits, Pool, PoolUnknown, forget
from fpga_pool.nova_plugin.pool import pool as pool_of


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Asked:
    """A callable that returns a pool that changes with each call, or times out if `silent`."""

    def __init__(self):
        self.times, self.silent = 0, False

    def __call__(self):
        self.times += 1
        if self.silent:
            raise messaging.MessagingTimeout("no answer")
        return PoolColumns.of({"default": self.times}, [], [], (0, 0))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def pool(clock, asked):
    limits = Limits(timeout_s=5.0, snapshot_age_s=1.0, stale_age_s=60.0)
    return Pool(asked, lambda: load_catalogue(installed_catalogue()), limits, Breaker(2, 30.0, clock), clock)


def test_a_young_picture_serves_without_a_question(pool, clock, asked):
    first = pool.now()
    clock.now_s = 0.9
    assert pool.now() is first
    assert asked.times == 1


def test_an_old_picture_is_brought_up_to_date(pool, clock, asked):
    first = pool.now()
    clock.now_s = 1.0
    assert pool.now() is not first
    assert asked.times == 2


def test_what_was_known_serves_while_there_is_no_answer_until_it_is_too_old(pool, clock, asked):
    first = pool.now()
    asked.silent = True
    clock.now_s = 59.0
    assert pool.now() is first
    clock.now_s = 60.0
    with pytest.raises(PoolUnknown, match="no answer"):
        pool.now()


def test_a_pool_that_does_not_answer_is_not_asked_for_a_while(pool, clock, asked):
    asked.silent = True
    for _ in range(4):
        with pytest.raises(PoolUnknown):
            pool.now()
    assert asked.times == 2
    asked.silent = False
    clock.now_s = 30.0
    pool.now()
    assert asked.times == 3


def held_up(asked, timeout_s):
    """Return a pool, an event that its request sets, and an event that the request waits for before it answers."""
    began, answer = threading.Event(), threading.Event()

    def ask():
        began.set()
        assert answer.wait(30.0)
        return asked()

    limits = Limits(timeout_s=timeout_s, snapshot_age_s=1.0, stale_age_s=60.0)
    clock = Clock()
    pool = Pool(ask, lambda: load_catalogue(installed_catalogue()), limits, Breaker(2, 30.0, clock), clock)
    return pool, began, answer


def test_requests_that_come_while_one_asks_wait_for_its_answer(asked):
    pool, began, answer = held_up(asked, timeout_s=30.0)
    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(pool.now)
        assert began.wait(30.0)
        others = [threads.submit(pool.now) for _ in range(3)]
        answer.set()
        assert {id(waiting.result(30.0)) for waiting in (first, *others)} == {id(first.result())}
    assert asked.times == 1


def test_who_waits_too_long_for_the_question_of_another_is_told_so(asked):
    pool, began, answer = held_up(asked, timeout_s=0.05)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(pool.now)
        assert began.wait(30.0)
        with pytest.raises(PoolUnknown, match="another request"):
            pool.now()
        answer.set()
        first.result(30.0)


class HeldByAnother:
    """The lock of a pool, which another request holds for a number of seconds of the clock."""

    def __init__(self, pool, clock, seconds, picture):
        self._pool, self._clock, self._seconds, self._picture = pool, clock, seconds, picture

    def acquire(self, timeout):
        self._clock.now_s += min(self._seconds, timeout)
        if self._seconds > timeout:
            return False
        if self._picture is not None:
            self._pool._known = self._clock.now_s, self._picture
        return True

    def release(self):
        pass


@pytest.fixture
def waiting(pool, clock):
    """Return a function that lets a request wait for another one. It returns the old picture and the received one."""

    def wait(seconds, answered):
        first = pool.now()
        clock.now_s = 60.0  # the picture is too old
        pool._asking = HeldByAnother(pool, clock, seconds, first if answered else None)
        return first, pool.now()

    return wait


def test_an_answer_that_another_request_receives_late_serves_those_that_wait(waiting, asked):
    answer, received = waiting(7.0, answered=True)
    assert received is answer
    assert asked.times == 1


def test_who_has_waited_for_an_early_failure_asks_again(waiting, asked):
    waiting(4.0, answered=False)
    assert asked.times == 2


@pytest.mark.parametrize("seconds", [7.0, 11.0], ids=["for a failure", "for nothing"])
def test_who_has_waited_longer_than_the_timeout_does_not_ask_again(waiting, asked, seconds):
    with pytest.raises(PoolUnknown, match="other request"):
        waiting(seconds, answered=False)
    assert asked.times == 1


def test_observations_are_asked_for_once_a_minute_and_kept_while_there_is_no_answer(clock, asked):
    answers = [observed(30.0), messaging.MessagingTimeout("no answer"), observed(90.0)]

    def observe():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    limits = Limits(timeout_s=5.0, snapshot_age_s=1.0, stale_age_s=60.0)
    catalogue = load_catalogue(installed_catalogue())
    pool = Pool(asked, lambda: catalogue, limits, Breaker(2, 30.0, clock), clock, observe)
    seen = []
    for clock.now_s in (0.0, 59.0, 61.0, 122.0):
        seen.append(pool.now().run_time_s("p", "aes"))
    assert seen == [30.0, 30.0, 30.0, 90.0]
    assert answers == []


def observed(seconds):
    return Observations(run_times=(RunTime(project_id="p", function="aes", median_s=seconds),))


def test_a_misspelt_option_in_nova_conf_is_a_warning_and_other_groups_are_novas(tmp_path, caplog):
    file = tmp_path / "nova.conf"
    file.write_text("[compute]\nanything = 1\n[fpga_pool]\ntimeot = 1\nenabled = true\n")
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([f"--config-file={file}"])
    forget()
    made = pool_of(conf)
    said = f"{file}: [fpga_pool] timeot: no such option; did you mean timeout?"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [said]
    assert pool_of(conf) is made
    forget()
