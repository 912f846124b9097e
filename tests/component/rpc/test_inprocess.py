"""Messages within a process: answers without polling, timeouts, and the end of calls with their server."""

import threading
import time
from types import SimpleNamespace
from uuid import uuid4

import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging._drivers import impl_fake

from fpga_pool.rpc.transport import TARGET, answers, server, transport


class OpenGate:
    """A gate that accepts every caller, because authentication is not tested here."""

    run = "one"

    def admit(self, topic, context, method, arguments):
        pass


class Endpoint:
    target = TARGET

    def __init__(self):
        self.told = threading.Event()

    @answers
    def double(self, context: dict, number: int) -> int:
        return 2 * number

    @answers
    def note(self, context: dict) -> None:
        self.told.set()


@pytest.fixture
def no_polling(monkeypatch):
    slept = []
    monkeypatch.setattr(impl_fake, "time", SimpleNamespace(time=time.time, sleep=slept.append))
    yield
    assert slept == []


@pytest.fixture
def bus():
    messages, topic = transport(cfg.CONF, "inprocess://"), uuid4().hex
    endpoints = {name: Endpoint() for name in ("one", "two")}
    servers = [server(messages, topic, name, [endpoint], OpenGate()) for name, endpoint in endpoints.items()]
    for listening in servers:
        listening.start()

    def client(timeout=60, **target):
        return messaging.get_rpc_client(
            messages, messaging.Target(topic=topic, version="1.0", **target), timeout=timeout
        )

    yield client, endpoints, servers
    for listening in servers:
        listening.stop()
        listening.wait()


def test_calls_are_answered_without_polling(no_polling, bus):
    client, _, _ = bus
    assert [client().call({}, "double", number=number) for number in range(50)] == list(range(0, 100, 2))


def test_a_server_has_its_own_queue_and_a_fanout_reaches_all(bus):
    client, endpoints, _ = bus
    client(server="two").call({}, "note")
    assert [endpoint.told.is_set() for endpoint in endpoints.values()] == [False, True]
    client(fanout=True).cast({}, "note")
    assert endpoints["one"].told.wait(60)


def test_a_call_that_no_server_answers_times_out(bus):
    client, _, _ = bus
    with pytest.raises(messaging.MessagingTimeout):
        client(timeout=0.05, server="none").call({}, "double", number=1)


def test_a_stopped_server_answers_no_more(bus):
    client, _, servers = bus
    servers[1].stop()
    servers[1].wait()
    with pytest.raises(messaging.MessagingTimeout):
        client(timeout=0.05, server="two").call({}, "double", number=1)
    assert client(server="one").call({}, "double", number=4) == 8


def test_the_end_of_one_transport_leaves_the_servers_of_others_reachable(bus):
    client, _, _ = bus
    for _ in range(20):
        transport(cfg.CONF, "inprocess://").cleanup()
        assert client().call({}, "double", number=21) == 42
