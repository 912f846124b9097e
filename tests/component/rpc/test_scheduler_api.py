"""The choice of the scheduler that a caller calls."""

import time
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg

from fpga_pool.model.messages.requests import Service
from fpga_pool.rpc import scheduler_api
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import FIND_S, SchedulerAPI
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, TARGET, answers, server, transport


class Endpoint:
    """An endpoint that counts its calls."""

    target = TARGET

    def __init__(self):
        self.calls = 0

    @answers
    def services(self, context: dict) -> list[Service]:
        self.calls += 1
        return []


@pytest.fixture
def schedulers():
    """Yield the endpoints and servers of two schedulers by name, and a function that makes a caller of them."""
    messages, key = transport(cfg.CONF, "inprocess://"), Ed25519PrivateKey.generate()
    made = {}
    for name in ("one", "two"):
        endpoint = Endpoint()
        gate = Gate(lambda _role, _name: [key.public_key()], {**SCHEDULER_METHODS, "services": frozenset(Role)})
        listening = server(messages, SCHEDULER_TOPIC, name, [endpoint], gate)
        listening.start()
        made[name] = endpoint, listening
    yield made, lambda role: SchedulerAPI(messages, Identity(role, "one", key))
    for _, listening in made.values():
        listening.stop()
        listening.wait()
    messages.cleanup()


def test_a_scheduler_that_was_silent_and_has_died_is_left_before_a_call_of_it_times_out(schedulers, monkeypatch):
    made, make_caller = schedulers
    now_s = [0.0]  # the time advances only when the test changes it
    monkeypatch.setattr(scheduler_api, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    caller = make_caller(Role.API)
    caller.services()
    caller.services()
    (asked,) = [name for name, (endpoint, _) in made.items() if endpoint.calls == 2]  # it keeps its scheduler
    dead = made[asked][1]
    dead.stop()
    dead.wait()
    now_s[0] += 2 * FIND_S
    assert caller.services() == []
    assert sorted(endpoint.calls for endpoint, _ in made.values()) == [1, 2]


def test_who_is_no_api_does_not_ask_whether_a_scheduler_lives_before_each_call(schedulers, monkeypatch):
    _, make_caller = schedulers
    caller = make_caller(Role.SCHEDULER)
    greeted = []
    greet = caller._client.greet
    monkeypatch.setattr(caller._client, "greet", lambda *asked: greeted.append(asked) or greet(*asked))
    for silence_s in (0.0, 2 * FIND_S, 4 * FIND_S):
        later = SimpleNamespace(monotonic=lambda silence_s=silence_s: time.monotonic() + silence_s)
        monkeypatch.setattr(scheduler_api, "time", later)
        assert caller.services() == []
    assert len(greeted) == 1
