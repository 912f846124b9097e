"""A flood of calls waits in RabbitMQ, not in the memory of the receiving process; a long call is waited for."""

import threading
import time

import oslo_messaging as messaging
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kombu import Connection
from oslo_config import cfg

from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.pool import Host
from fpga_pool.rpc import scheduler_api
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import EXCHANGE, SCHEDULER_TOPIC, TARGET, VERSION, Refusals, answers, server, transport
from support.waiting import wait_until

CALLS = 1000
#: Calls in 64 threads, in the queue for threads, the one that is taken next, and those prefetched from RabbitMQ.
TAKEN = 64 + 256 + 1 + 256
#: In seconds.  A server that processes a call sends two heartbeats in this time, which may be late by half of it.
SILENCE_S = 10


class Endpoint:
    target = TARGET

    @answers
    def hosts(self, context: dict, page: Page) -> list[Host]:
        return []

    @answers
    def benefits(self, context: dict) -> dict[str, float]:
        time.sleep(1.5 * SILENCE_S)
        return {"sha256": 1.0}


class Slow(Gate):
    """Refuses calls only after `go_on` is set."""

    def __init__(self, key):
        super().__init__(lambda _role, _name: [key.public_key()], SCHEDULER_METHODS)
        self.go_on = threading.Event()

    def admit(self, *call):
        assert self.go_on.wait(120)
        super().admit(*call)


@pytest.fixture
def transports(rabbitmq):
    made = [transport(cfg.CONF, rabbitmq.url) for _ in range(2)]
    yield made
    for one in made:
        one.cleanup()


def test_a_flood_of_calls_waits_in_rabbitmq_and_calls_are_answered_after_it(rabbitmq, transports):
    key, refusals = Ed25519PrivateKey.generate(), Refusals()
    gate = Slow(key)
    listening = server(transports[0], SCHEDULER_TOPIC, "flooded", [Endpoint()], gate, refusals)
    listening.start()
    try:
        target = messaging.Target(exchange=EXCHANGE, topic=SCHEDULER_TOPIC, server="flooded", version=VERSION)
        flood = messaging.get_rpc_client(transports[1], target)
        for _ in range(CALLS):
            flood.cast({}, "hosts")
        with Connection(f"amqp{rabbitmq.url.removeprefix('rabbit')}") as connection:

            def left():
                return connection.default_channel.queue_declare(
                    f"{SCHEDULER_TOPIC}.flooded", passive=True
                ).message_count

            wait_until(lambda: left() <= CALLS - TAKEN, "the server takes what it has room for")
            # One more every 2 s.
            assert left() > CALLS - TAKEN - 50
        gate.go_on.set()
        wait_until(lambda: sum(refusals.counts().values()) == CALLS, "all of them are refused")
        assert SchedulerAPI(transports[1], Identity(Role.API, "a", key), timeout_s=60.0).hosts() == []
    finally:
        gate.go_on.set()
        listening.stop()
        listening.wait()


def test_a_call_that_takes_long_is_waited_for_while_its_server_says_that_it_is_at_work(transports, monkeypatch):
    monkeypatch.setattr(scheduler_api, "SIGN_OF_LIFE_S", SILENCE_S)
    monkeypatch.setattr(scheduler_api, "_TIMEOUTS_S", {"benefits": 120.0})
    key = Ed25519PrivateKey.generate()
    gate = Gate(lambda _role, _name: [key.public_key()], SCHEDULER_METHODS)
    listening = server(transports[0], SCHEDULER_TOPIC, "slow", [Endpoint()], gate)
    listening.start()
    try:
        assert SchedulerAPI(transports[1], Identity(Role.API, "a", key)).benefits() == {"sha256": 1.0}
    finally:
        listening.stop()
        listening.wait()
