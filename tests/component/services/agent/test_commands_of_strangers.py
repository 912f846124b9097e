"""An agent accepts commands from the pool's schedulers only, even if other peers reach its queue."""

import uuid

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg

from fpga_pool.model.exceptions import Unauthenticated
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import Identity, Role
from fpga_pool.rpc.transport import AGENT_TOPIC, server, transport
from fpga_pool.services.agent.endpoint import AgentEndpoint
from fpga_pool.services.configured import agent_gate

HOST = "h"


@pytest.fixture
def served(bench, key, monkeypatch):
    """Serve the agent of the bench; return a function that calls it with a given key."""
    exchange = uuid.uuid4().hex
    for place in ("transport", "gathering"):
        monkeypatch.setattr(f"fpga_pool.rpc.{place}.EXCHANGE", exchange)
    messages = transport(cfg.CONF, "fake://")
    gate = agent_gate([Ed25519PrivateKey.generate().public_key(), key.public_key()])
    listening = server(messages, AGENT_TOPIC, HOST, [AgentEndpoint(bench.agent)], gate)
    listening.start()
    yield lambda role, by: AgentAPI(messages, Identity(role, "caller", by))
    listening.stop()
    listening.wait()


def test_an_epoch_that_no_scheduler_has_signed_does_not_disable_an_agent(served, bench, key):
    stranger = Ed25519PrivateKey.generate()
    for role, by in ((Role.SCHEDULER, stranger), (Role.AGENT, stranger), (Role.AGENT, key), (Role.API, key)):
        with pytest.raises(Unauthenticated):
            served(role, by).execute(HOST, "default", 2**62, [])
    assert served(Role.SCHEDULER, key).execute(HOST, "default", 1, []) == []
    assert bench.jobs.machine.state.epochs == {"default": 1}


def test_a_command_that_no_scheduler_has_signed_is_not_executed(served, bench, key):
    job = str(uuid.uuid4())
    command = bench.commands.assign(job)
    with pytest.raises(Unauthenticated):
        served(Role.SCHEDULER, Ed25519PrivateKey.generate()).execute(HOST, "default", 1, [command])
    assert bench.jobs.get(job) is None
    (outcome,) = served(Role.SCHEDULER, key).execute(HOST, "default", 1, [command])
    assert outcome.outcome == "accepted"
