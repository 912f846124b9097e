"""Bad messages over RabbitMQ: they are refused, logged and counted, and the pool continues to work."""

import contextlib
import json
import re
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import kombu
import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.gathering import SignedClient
from fpga_pool.rpc.identity import Role, Signer
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import AGENT_TOPIC, EXCHANGE, LIFE_SIGNS_TOPIC, SCHEDULER_TOPIC, transport
from fpga_pool.transfer import frames
from support.deployment import Deployment
from support.waiting import wait_until

SCHEDULER, HOST, IMPOSTOR = "scheduler-1", "node-1", "node-2"
OPTIONS = {"scheduler": {"interval_s": 0.2, "host_timeout_s": 30.0}, "agent": {"heartbeat_s": 0.5}}


class Wire:
    """RabbitMQ as seen by any client that has its password."""

    def __init__(self, url):
        self._connection = kombu.Connection(f"amqp{url.removeprefix('rabbit')}")
        self._exchange = kombu.Exchange(EXCHANGE, type="topic", durable=False, passive=True)

    def close(self):
        self._connection.release()

    def tap(self, key):
        """Return a function that waits for a copy of the next call of a method with this routing key."""
        channel = self._connection.channel()
        queue = kombu.Queue(
            f"tap-{uuid.uuid4()}", self._exchange, key, channel=channel, auto_delete=True, durable=False
        )
        queue.declare()

        def next_call(method, wanted=lambda call: True):
            def look():
                call = _call(queue.get(no_ack=True), method)
                return call if call and wanted(call) else None

            return wait_until(look, f"a call of {method}")

        return next_call

    def send(self, key, body, content_type="application/json"):
        """Publish bytes unchanged."""
        with self._connection.channel() as channel:
            channel.basic_publish(
                channel.prepare_message(body, content_type=content_type, content_encoding="utf-8"), EXCHANGE, key
            )

    def call(self, key, call):
        """Publish a call in oslo.messaging's envelope."""
        envelope = {"oslo.version": "2.0", "oslo.message": json.dumps(call)}
        self.send(key, json.dumps(envelope).encode())


def _call(message, method):
    """Return the call in the envelope of a message if it is of this method, else None."""
    call = json.loads(json.loads(message.body)["oslo.message"]) if message is not None else {}
    return call if call.get("method") == method else None


@dataclass(frozen=True)
class Peer:
    """A process that gets bad messages, and the number of refused messages that it reports."""

    topic: str
    name: str
    #: One of its methods.
    method: str
    refused: Callable[[], int]

    @property
    def key(self):
        return f"{self.topic}.{self.name}"


class Scene:
    """A pool, its reports of refusals to the operator, and ways to send it any message."""

    def __init__(self, pool, url):
        self.pool = pool
        self.client = pool.client()
        self.wire = Wire(url)
        self.transport = transport(cfg.CONF, url)
        self.scheduler = SchedulerAPI(self.transport, pool.identity(Role.SCHEDULER, "test"))
        self.agent = AgentAPI(self.transport, pool.identity(Role.SCHEDULER, "test"))
        self.peers = {
            "scheduler": Peer(SCHEDULER_TOPIC, SCHEDULER, "wake", self._refused_by_scheduler),
            "agent": Peer(AGENT_TOPIC, HOST, "execute", lambda: self.host().refused_commands),
        }

    def close(self):
        self.wire.close()
        self.transport.cleanup()

    def host(self):
        return next(host for host in self.client.hosts() if host.name == HOST)

    def _refused_by_scheduler(self):
        return sum(self.scheduler.describe(SCHEDULER)["refused"].values())

    def log(self, name):
        return self.pool.log_file(name).read_text()

    def said(self, name, pattern):
        """Wait until a process has logged this; refusals are counted before they are logged."""
        wait_until(lambda: re.search(pattern, self.log(name)), f"{pattern} in the log of {name}")

    def works(self, tmp_path):
        """Return whether the pool runs a job successfully."""
        outcome = self.client.run("sha256", [b"abc"], requester=HOST, output_dir=tmp_path / str(uuid.uuid4()))
        return outcome.ok


@pytest.fixture(scope="module")
def scene(tmp_path_factory, rabbitmq, mariadb):
    directory = tmp_path_factory.mktemp("bad-messages")
    own = {IMPOSTOR: {"agent": {"host": HOST}}}
    pool = Deployment(directory, rabbitmq.url, mariadb.new_database(), agents=2, options=OPTIONS, own=own, forked=True)
    with contextlib.closing(pool):
        pool.prepare()
        for name in pool.names:
            if name != IMPOSTOR:
                pool.restart(name)
        pool.wait_for_hosts([HOST])
        scene = Scene(pool, rabbitmq.url)
        yield scene
        scene.close()
        assert pool.unforeseen() == []
        for name in pool.names:
            print(f"--- {name}\n{pool.last_lines(name)}")


@pytest.fixture(autouse=True)
def _works_on(scene, tmp_path):
    yield
    assert scene.works(tmp_path)
    assert [host.alive for host in scene.client.hosts()] == [True]


# To scheduler and agent ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["scheduler", "agent"])
def peer(request, scene):
    return scene.peers[request.param]


@pytest.mark.parametrize(
    ("version", "method", "arguments", "code"),
    [
        ("2.0", "", {}, "unsupported_version"),
        ("1.9", "", {}, "unsupported_version"),
        ("1.0", "reboot", {}, "unauthenticated"),
        ("1.0", "_service", {}, "unauthenticated"),
        ("1.0", "", {"force": True}, "invalid_input"),
    ],
)
def test_a_call_of_another_version_method_or_form_is_refused(scene, peer, version, method, arguments, code):
    before, method = peer.refused(), method or peer.method
    target = messaging.Target(topic=peer.topic, version=version)
    caller = messaging.get_rpc_client(scene.transport, target, timeout=60)
    identity = scene.pool.identity(Role.SCHEDULER, "test")
    _, run = SignedClient(scene.transport, peer.topic, identity, 60).greet(peer.name, 60)
    context = Signer(identity).context(peer.topic, run, method, arguments)
    with pytest.raises(Exception, match=r"RPC version|may not call|unknown: "):
        caller.prepare(server=peer.name).call(context, method, **arguments)
    wait_until(lambda: peer.refused() > before, "the refusal is counted")
    scene.said(peer.name, rf"refused {method}: .* \(fpga_pool.{code}: \d+ so far\)")


@pytest.mark.parametrize(
    "call",
    [
        {},
        {"method": 7, "args": {}, "version": "1.0"},
        {"method": ["describe"], "args": {}, "version": "1.0"},
        {"method": "describe", "args": [], "version": "1.0"},
        {"method": "describe", "args": {}, "version": None},
        {"method": "greet", "args": {}, "version": "zzz"},
        {"method": "greet", "args": {"context": 1}, "version": "1.0"},
        {"method": "greet", "args": {}, "version": "1.0", "_msg_id": "1", "_reply_q": ["a"]},
        {"method": "greet", "args": {}, "version": "1.0", "_msg_id": "1", "_reply_q": 256 * "q"},
    ],
)
def test_what_is_no_call_is_refused(scene, peer, call):
    before = peer.refused()
    scene.wire.call(peer.key, call)
    wait_until(lambda: peer.refused() > before, "the refusal is counted")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"oslo.version": "2.0", "oslo.mess', "application/json"),
        (b'{"oslo.version": "2.0", "oslo.message": "{\\"method\\": "}', "application/json"),
        (b'{"oslo.version": "9.0", "oslo.message": "{}"}', "application/json"),
        (b"[1, 2]", "application/json"),
        (b"", "application/json"),
        (b"\x80\xff\x00garbage", "application/json"),
        (b"\x80\x04K\x01.", "application/x-python-serialize"),
        (b"\x00" * 100_000, "application/octet-stream"),
    ],
)
def test_a_body_that_is_cut_off_or_garbage_is_skipped(scene, peer, body, content_type):
    before = peer.refused()
    scene.wire.send(peer.key, body, content_type)
    wait_until(lambda: peer.refused() > before, "the refusal is counted")
    scene.said(peer.name, "Failed to process message")


# Commands and heartbeats ---------------------------------------------------------------------------------------------


def again(call):
    """Return a copy of a call with another message id."""
    return call | {"_unique_id": uuid.uuid4().hex}


def test_a_replayed_command_is_not_executed_again(scene, tmp_path):
    agent = scene.peers["agent"]
    sent = scene.wire.tap(agent.key)
    assert scene.works(tmp_path)
    replayed = sent("execute", lambda call: call["args"]["commands"])
    (command, *_) = replayed["args"]["commands"]
    slots = scene.client.slots()

    before = agent.refused()
    scene.wire.call(agent.key, replayed)
    wait_until(lambda: agent.refused() > before, "the same message is counted")
    scene.said(HOST, "ignoring duplicate message")

    before = agent.refused()
    scene.wire.call(agent.key, again(replayed))
    wait_until(lambda: agent.refused() > before, "the repeat is counted")
    scene.said(HOST, r"refused execute: call \d+ of this client was received before")

    before = agent.refused()
    changed = {"args": replayed["args"] | {"commands": [command | {"id": "another"}]}}
    scene.wire.call(agent.key, again(replayed) | changed)
    wait_until(lambda: agent.refused() > before, "the forged command is counted")
    scene.said(HOST, "refused execute: the call of execute is not signed by the key of scheduler")

    before = agent.refused()
    with pytest.raises(StaleEpoch, match=f"host {HOST} accepts commands of epoch 1 of shard default: epoch 0 is over"):
        scene.agent.execute(HOST, "default", 0, [])
    wait_until(lambda: agent.refused() > before, "the command of a former owner is counted")
    assert scene.client.slots() == slots


def test_a_replayed_heartbeat_is_not_believed(scene, tmp_path):
    scheduler, before = scene.peers["scheduler"], scene.host()
    heartbeat_of = scene.wire.tap(scheduler.key)
    assert scene.works(tmp_path)  # a host at rest sends life signs
    heartbeat = heartbeat_of("heartbeat")
    wait_until(lambda: scene.host().heard_at > before.heard_at, "a later heartbeat was heard")
    refused = scheduler.refused()
    scene.wire.call(scheduler.key, again(heartbeat))
    wait_until(lambda: scheduler.refused() > refused, "the refusal is counted")
    scene.said(SCHEDULER, r"refused heartbeat: call \d+ of this client was received before")


def test_a_replayed_life_sign_is_not_believed_and_an_unreadable_one_is_skipped(scene):
    scheduler = scene.peers["scheduler"]
    life_sign = scene.wire.tap(LIFE_SIGNS_TOPIC)("alive")
    before, refused = scene.host(), scheduler.refused()
    scene.wire.send(LIFE_SIGNS_TOPIC, b"no JSON")
    scene.wire.call(LIFE_SIGNS_TOPIC, life_sign)
    wait_until(lambda: scheduler.refused() >= refused + 2, "both are counted")
    scene.said(SCHEDULER, r"refused alive: call \d+ of this client was received before")
    scene.said(SCHEDULER, f"skipped a cast to {LIFE_SIGNS_TOPIC}")
    wait_until(lambda: scene.host().heard_at > before.heard_at, "later life signs are heard")


def test_of_two_agents_with_one_name_the_second_is_not_listened_to_and_gets_no_commands(scene, tmp_path):
    before = scene.host()
    scene.pool.restart(IMPOSTOR)
    try:
        wait_until(lambda: "its key must be approved first" in scene.log(IMPOSTOR), "the impostor is told")
        assert all(scene.works(tmp_path) for _ in range(5))
        assert (scene.host().data_port, scene.host().boot) == (before.data_port, before.boot)
        scene.said(SCHEDULER, f"refused claim: host {HOST}: the call of claim is not signed by the key")
    finally:
        scene.pool.kill(IMPOSTOR)


# The data port -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [frames.encode(frames.Fetch(1, "token"))[:-3], frames.encode_data_header(1000) + b"x", b"GET / HTTP/1.1\r\n\r\n"],
    ids=["frame cut off", "data cut off", "another protocol"],
)
def test_a_stream_that_breaks_off_within_a_frame_is_refused(scene, data):
    host = scene.host()
    with socket.create_connection((host.data_address, host.data_port), 10) as stream:
        stream.sendall(data)
    wait_until(lambda: scene.host().refused_streams > host.refused_streams, "the refusal is counted")
    scene.said(HOST, "refused")


# Many of them, last, as the log shows few refusals from then on ------------------------------------------------------


def test_answers_that_nobody_waits_for_hold_up_no_call(scene, peer):
    before = peer.refused()
    for number in range(400):  # far more than a process has threads for calls
        asked = {
            "method": "x",
            "args": {},
            "version": "1.0",
            "_msg_id": uuid.uuid4().hex,
            "_unique_id": uuid.uuid4().hex,
        }
        scene.wire.call(peer.key, asked | {"_reply_q": f"reply_{number:032x}"})
    wait_until(lambda: peer.refused() >= before + 400, "all of them are refused")
