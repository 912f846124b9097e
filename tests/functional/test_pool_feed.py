"""The pool as a scheduler of virtual machines follows it, over RabbitMQ: told of changes, asking where it must."""

import time

import pytest
from oslo_config import cfg

from fpga_pool.rpc.feed import RENEW_S, PoolFeed
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import NO_ANSWER, transport

SOON_S = 60.0


class Clock:
    """Stands still: nothing is ever too old, so that a change can be seen only because it was told."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def messages(rabbitmq):
    made = transport(cfg.CONF, rabbitmq.url)
    yield made
    made.cleanup()


def states(pool):
    return {pool.slot_name(row): pool.words[number] for row, number in enumerate(pool.slots["state"])}


def drain(api, number):
    slot = api.slots()[number]
    api.drain_slot(slot.uuid, "repair")
    return slot.name


def wait_for_drain(feed, slot):
    until_s = time.monotonic() + SOON_S
    while states(feed.now())[slot] != "DRAINED":
        assert time.monotonic() < until_s, f"{slot} is not known to be drained within {SOON_S:g} s"
        time.sleep(0.05)


def test_changes_are_told_and_who_missed_the_scheduler_asks(deployment, rabbitmq, mariadb_url, messages):
    pool = deployment(rabbitmq.url, mariadb_url, agents=1)
    pool.wait_for_hosts(["node-1"])
    api, clock = SchedulerAPI(messages, timeout_s=30.0), Clock()
    feed = PoolFeed(messages, api, clock)
    feed.start()
    try:
        feed.now()
        wait_for_drain(feed, drain(api, 0))

        pool.kill("scheduler-1")
        known = states(feed.now())
        pool.restart("scheduler-1")
        slot = _when_it_answers(lambda: drain(api, 1))
        assert states(feed.now()) == known  # the new process has not heard of anybody who follows
        clock.now_s += RENEW_S
        wait_for_drain(feed, slot)
        wait_for_drain(feed, drain(api, 2))
    finally:
        feed.stop()


def _when_it_answers(call):
    until_s = time.monotonic() + SOON_S
    while True:
        try:
            return call()
        except NO_ANSWER:
            assert time.monotonic() < until_s
