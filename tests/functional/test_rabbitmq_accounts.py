"""Accounts with the permissions that each role needs: its calls succeed, and messages for others cannot be read."""

import contextlib
import itertools
import queue
import socket
import uuid
from types import SimpleNamespace

import amqp
import kombu
import oslo_messaging as messaging
import pytest
from amqp.exceptions import AccessRefused
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg

from fpga_pool.model.exceptions import ServiceUnavailable
from fpga_pool.model.flavor import GuestTier
from fpga_pool.model.lifecycle.notifications import Notification
from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.pool import Host, Lease
from fpga_pool.rpc import casts
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.casts import CastReader
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.notifier import FAILED, GROUP, SENT, publisher
from fpga_pool.rpc.permissions import permissions
from fpga_pool.rpc.reachable import ReachableServer
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import (
    AGENT_TOPIC,
    EXCHANGE,
    LIFE_SIGNS_TOPIC,
    SCHEDULER_TOPIC,
    TARGET,
    Refusals,
    answers,
    transport,
)
from support.peers import agent_gate, scheduler_gate
from support.waiting import SOON_S, wait_until

ROLES = {
    "scheduler": permissions(Role.SCHEDULER, topics=["told"]),
    "api": permissions(Role.API),
    "nova": permissions(Role.NOVA),
    "one": permissions(Role.AGENT, "one.example"),
    "two": permissions(Role.AGENT, "two.example"),
}
#: Interval at which servers check whether calls reach them, in seconds.
CALLED_EACH_S = 2.0


class SchedulerEndpoint:
    target = TARGET

    def __init__(self):
        self.woken = 0

    @answers
    def hosts(self, context: dict, page: Page) -> list[Host]:
        return []

    @answers
    def instance_leases(self, context: dict, host: str) -> dict[str, list[Lease]]:
        return {host: []}

    @answers
    def wake(self, context: dict) -> None:
        self.woken += 1


class LifeSigns:
    target = TARGET

    def __init__(self):
        self.heard = []

    @answers
    def alive(self, context: dict, host: str, agent_id: str, boot: int, beat: int, counters: dict | None) -> None:
        self.heard.append((host, agent_id, boot, beat, counters))


class AgentEndpoint:
    target = TARGET

    @answers
    def tiers(self, context: dict) -> list[GuestTier]:
        return []


@pytest.fixture(scope="module")
def accounts(rabbitmq):
    rabbitmq.provide_accounts(ROLES, EXCHANGE)
    return rabbitmq


@pytest.fixture(scope="module")
def pool(accounts):
    """A scheduler and two agents, each with its own account; return transports by account, key and scheduler."""
    key = Ed25519PrivateKey.generate()
    transports = {name: transport(cfg.CONF, accounts.account(name)) for name in ROLES}
    scheduler = SchedulerEndpoint()
    gate, refusals = scheduler_gate(key), Refusals()
    servers = [
        ReachableServer(transports["scheduler"], SCHEDULER_TOPIC, "s", [scheduler], gate, refusals, CALLED_EACH_S),
        *(
            ReachableServer(
                transports[name],
                AGENT_TOPIC,
                f"{name}.example",
                [AgentEndpoint()],
                agent_gate(key),
                refusals,
                CALLED_EACH_S,
            )
            for name in ("one", "two")
        ),
    ]
    for one in servers:
        one.start()
    yield transports, key, scheduler
    for one in servers:
        one.stop()
    for one in servers:
        one.wait()
    for one in transports.values():
        one.cleanup()


def test_each_role_can_call_what_it_has_to(pool):
    transports, key, scheduler = pool
    agents = AgentAPI(transports["scheduler"], Identity(Role.SCHEDULER, "s", key), timeout_s=SOON_S)
    assert [agents.tiers(f"{name}.example") for name in ("one", "two")] == [[], []]
    for name in ("one", "two"):
        agent = SchedulerAPI(transports[name], Identity(Role.AGENT, f"{name}.example", key), timeout_s=SOON_S)
        assert agent.instance_leases(f"{name}.example") == {f"{name}.example": []}
    assert SchedulerAPI(transports["api"], Identity(Role.API, "a", key), timeout_s=SOON_S).hosts() == []
    SchedulerAPI(transports["scheduler"], Identity(Role.SCHEDULER, "s", key), timeout_s=SOON_S).wake()
    wait_until(lambda: scheduler.woken, "schedulers wake each other")


@pytest.fixture
def reader(pool):
    """Return a scheduler's reader of life signs, and what it has heard."""
    transports, key, _ = pool
    heard = LifeSigns()
    made = CastReader(transports["scheduler"], LIFE_SIGNS_TOPIC, [heard], scheduler_gate(key), Refusals())
    yield made, heard
    made.close()


def send_life_sign(pool, name, beat):
    transports, key, _ = pool
    agent = SchedulerAPI(transports[name], Identity(Role.AGENT, f"{name}.example", key), timeout_s=SOON_S)
    agent.alive(SimpleNamespace(host=f"{name}.example", agent_id="secret", boot=1, beat=beat, counters=None))


def hears(reader, name, beat):
    """Return whether this life sign has arrived."""
    reading, signs = reader
    with contextlib.suppress(ServiceUnavailable):  # its connection is broken; the next step opens another one
        reading.read()
    return (f"{name}.example", "secret", 1, beat, None) in signs.heard


def test_life_signs_of_agents_reach_a_scheduler_whichever_reads_them(pool, reader):
    hears(reader, "one", 0)  # declares the queue
    for name in ("one", "two"):
        for beat in (1, 2):
            send_life_sign(pool, name, beat)
        wait_until(lambda name=name: hears(reader, name, 2), f"the life sign of {name} is heard")
    assert sorted(reader[1].heard) == [
        (f"{name}.example", "secret", 1, beat, None) for name in ("one", "two") for beat in (1, 2)
    ]


def test_a_reader_of_life_signs_declares_what_a_peer_has_deleted(pool, reader, accounts, monkeypatch):
    monkeypatch.setattr(casts, "CONNECTION_S", 1.0)
    hears(reader, "one", 0)
    with kombu.Connection(f"amqp{accounts.url.removeprefix('rabbit')}") as connection:
        connection.default_channel.queue_unbind(LIFE_SIGNS_TOPIC, EXCHANGE, LIFE_SIGNS_TOPIC)
    beats = itertools.count(1)

    def is_heard_again():
        beat = next(beats)
        send_life_sign(pool, "one", beat)
        return hears(reader, "one", beat)

    wait_until(is_heard_again, "the queue is bound again")
    with kombu.Connection(f"amqp{accounts.url.removeprefix('rabbit')}") as connection:
        connection.default_channel.queue_delete(LIFE_SIGNS_TOPIC)
    wait_until(is_heard_again, "the queue is declared again")


def test_a_reader_of_life_signs_connects_again(pool, reader):
    reading, _ = reader
    reading.read()
    reading._amqp.transport.sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ServiceUnavailable, match=f"casts to {LIFE_SIGNS_TOPIC} cannot be read"):
        reading.read()
    send_life_sign(pool, "one", 1)
    wait_until(lambda: hears(reader, "one", 1), "it reads again")


@pytest.mark.long
def test_servers_listen_again_where_a_peer_has_deleted_their_exchange(pool, accounts, caplog):
    transports, key, _ = pool
    agents = AgentAPI(transports["scheduler"], Identity(Role.SCHEDULER, "s", key), timeout_s=1.0)
    agent = SchedulerAPI(transports["one"], Identity(Role.AGENT, "one.example", key), timeout_s=1.0)

    def is_answered(call, *arguments):
        with contextlib.suppress(messaging.MessagingTimeout, messaging.MessageDeliveryFailure):
            call(*arguments)
            return True
        return False

    def assert_listen_again():
        for name in ("one", "two"):
            wait_until(lambda name=name: is_answered(agents.tiers, f"{name}.example"), f"agent {name} listens again")
        wait_until(lambda: is_answered(agent.instance_leases, "one.example"), "the scheduler listens again")

    with kombu.Connection(f"amqp{accounts.account('two').removeprefix('rabbit')}") as connection:
        connection.default_channel.exchange_delete(EXCHANGE)
    for name in ("one.example", "two.example", "s"):
        wait_until(lambda name=name: f"no call reaches server {name}" in caplog.text, f"{name} is not reached")
    assert_listen_again()

    # Worse: the peer has created another exchange with that name, which an operator has to delete.
    with kombu.Connection(f"amqp{accounts.account('two').removeprefix('rabbit')}") as connection:
        connection.default_channel.exchange_delete(EXCHANGE)
        connection.default_channel.exchange_declare(EXCHANGE, "fanout", durable=True, auto_delete=False)
    for name in ("one.example", "two.example", "s"):
        wait_until(lambda name=name: f"server {name} cannot listen" in caplog.text, f"{name} cannot listen")
    with kombu.Connection(f"amqp{accounts.account('two').removeprefix('rabbit')}") as connection:
        connection.default_channel.exchange_delete(EXCHANGE)
    assert_listen_again()


@pytest.fixture
def configured():
    publisher(cfg.CONF, "s", lambda _: None)  # registers the options
    changed = {"driver": ["messagingv2"], "topics": ["told"], "retry": 0}

    def configure(url):
        for name, value in {**changed, "transport_url": url}.items():
            cfg.CONF.set_override(name, value, GROUP)

    yield configure
    for name in (*changed, "transport_url"):
        cfg.CONF.clear_override(name, GROUP)


def test_a_scheduler_sends_notifications_by_its_account_and_an_agent_does_not(accounts, configured):
    """It declares and binds their queue, as the library does, and others read it."""
    heard, outcomes = queue.Queue(), queue.Queue()

    class Endpoint:
        def info(self, context, publisher_id, event_type, payload, metadata):
            heard.put((publisher_id, event_type, payload))

    def send(name):
        configured(accounts.account(name))
        sending = publisher(cfg.CONF, "s", outcomes.put)
        sending.start()
        sending.publish([Notification(priority="info", event_type="slot.ready", payload={"version": "1.0"})])
        outcome = outcomes.get(timeout=60)
        sending.stop()
        return outcome

    assert send("scheduler") == SENT
    own = messaging.get_notification_transport(cfg.CONF, accounts.url)
    target = messaging.Target(exchange=EXCHANGE, topic="told")
    listening = messaging.get_notification_listener(own, [target], [Endpoint()], "threading")
    listening.start()
    try:
        assert heard.get(timeout=60) == ("fpga-pool-scheduler:s", "slot.ready", {"version": "1.0"})
    finally:
        listening.stop()
        listening.wait()
        own.cleanup()
    assert send("one") == FAILED


def reads_queue(channel):
    channel.basic_consume(f"{AGENT_TOPIC}.two.example")


def reads_queue_of_scheduler(channel):
    channel.basic_consume(SCHEDULER_TOPIC)


def taps_calls_of_another_agent(channel):
    _tap(channel, f"{AGENT_TOPIC}.two.example")


def taps_calls_of_schedulers(channel):
    _tap(channel, SCHEDULER_TOPIC)


def taps_everything(channel):
    _tap(channel, "#")


def _tap(channel, key):
    queue = f"reply_{uuid.uuid4().hex}"  # a permitted name
    channel.queue_declare(queue, auto_delete=True)
    channel.queue_bind(queue, EXCHANGE, key)


def purges_queue(channel):
    channel.queue_purge(f"{AGENT_TOPIC}.two.example")


def deletes_queue(channel):
    channel.queue_delete(f"{AGENT_TOPIC}.two.example")


def calls_another_agent(channel):
    _publish(channel, EXCHANGE, f"{AGENT_TOPIC}.two.example")


def wakes_schedulers(channel):
    _publish(channel, f"{SCHEDULER_TOPIC}_fanout", "")


def writes_into_a_queue_directly(channel):
    _publish(channel, "", f"{AGENT_TOPIC}.two.example")


def _publish(channel, exchange, key):
    channel.confirm_select()
    channel.basic_publish_confirm(amqp.Message("{}"), exchange, key)


def reads_notifications(channel):
    channel.basic_consume("told.info")


FORBIDDEN = {
    "scheduler": [reads_notifications],
    "one": [
        reads_queue, reads_queue_of_scheduler, taps_calls_of_another_agent, taps_calls_of_schedulers, taps_everything,
        purges_queue, deletes_queue, calls_another_agent, wakes_schedulers,
    ],
    "api": [
        reads_queue, reads_queue_of_scheduler, taps_calls_of_schedulers, purges_queue, deletes_queue,
        calls_another_agent, wakes_schedulers, writes_into_a_queue_directly,
    ],
    "nova": [reads_queue, taps_everything, deletes_queue, calls_another_agent, writes_into_a_queue_directly],
}  # fmt: skip


@pytest.mark.parametrize(("user", "act"), [(user, act) for user, acts in FORBIDDEN.items() for act in acts])
def test_what_a_role_has_no_need_for_is_refused(pool, accounts, user, act):
    with kombu.Connection(f"amqp{accounts.account(user).removeprefix('rabbit')}") as connection:
        channel = connection.channel()
        with pytest.raises(AccessRefused):
            act(channel)
