"""A call is admitted once, and only if it is signed by a sender that may make it."""

import inspect
import math
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.exceptions import InvalidInput, NotEnrolled, OtherRun, Unauthenticated
from fpga_pool.rpc.agent_api import AgentAPI
from fpga_pool.rpc.identity import (
    AGENT_METHODS,
    REPEATABLE,
    SCHEDULER_METHODS,
    Gate,
    Identity,
    Role,
    Signer,
    key_of_text,
    key_text,
)
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.transport import TOGETHER

TOPIC = "scheduler"
KEYS = {
    (Role.AGENT, "h1"): Ed25519PrivateKey.generate(),
    (Role.AGENT, "h2"): Ed25519PrivateKey.generate(),
    (Role.API, "api"): Ed25519PrivateKey.generate(),
    (Role.NOVA, "nova"): Ed25519PrivateKey.generate(),
}
BEAT = {"heartbeat": {"host": "h1", "beat": 1, "egress_bps": math.inf}}


def known(role, name):
    return [KEYS[role, name].public_key()] if (role, name) in KEYS else []


@pytest.fixture
def gate():
    return Gate(known, SCHEDULER_METHODS)


def signer(role, name, key=None):
    return Signer(Identity(role, name, key or KEYS[role, name]))


H1 = signer(Role.AGENT, "h1")


def call(gate, by, method, arguments, for_run=None, **altered):
    """Sign a call, alter its context and admit it; return the context."""
    context = by.context(TOPIC, gate.run if for_run is None else for_run, method, arguments) | altered
    gate.admit(TOPIC, context, method, arguments)
    return context


def test_a_signed_call_is_let_in_once(gate):
    context = call(gate, H1, "heartbeat", BEAT)
    with pytest.raises(Unauthenticated, match="received before"):
        gate.admit(TOPIC, context, "heartbeat", BEAT)


#: It signs before and after a fork; the output of the child comes first.
FORKS = """
import os
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fpga_pool.rpc.identity import Identity, Role, Signer

signer = Signer(Identity(Role.API, "api", Ed25519PrivateKey.generate()))
signer.number()
if child := os.fork():
    os.waitpid(child, 0)
print(*signer.number(), flush=True)
print(*signer.number(), flush=True)
"""


def test_a_forked_process_is_a_client_of_its_own():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=200, check=True)
    (child, *first), (again, *second), (parent, *third), (_, *fourth) = map(str.split, done.stdout.splitlines())
    assert (first, second, third, fourth) == (["1"], ["2"], ["2"], ["3"])
    assert child == again != parent


def test_calls_may_overtake_each_other(gate):
    contexts = [H1.context(TOPIC, gate.run, "heartbeat", BEAT) for _ in range(1000)]
    for context in reversed(contexts):
        gate.admit(TOPIC, context, "heartbeat", BEAT)
    for context in contexts:
        with pytest.raises(Unauthenticated, match="received before"):
            gate.admit(TOPIC, context, "heartbeat", BEAT)


def test_a_call_that_was_overtaken_by_very_many_is_taken_for_a_repeat(gate):
    late = H1.context(TOPIC, gate.run, "heartbeat", BEAT)
    for _ in range(1024):
        call(gate, H1, "heartbeat", BEAT)
    with pytest.raises(Unauthenticated, match="received before"):
        gate.admit(TOPIC, late, "heartbeat", BEAT)


@pytest.mark.parametrize(
    "altered",
    [
        {"role": "api"}, {"name": "h2"}, {"client": "another"}, {"number": 10**9}, {"number": -1}, {"number": 2**63},
        {"run": ""}, {"signature": ""}, {"signature": "AAAA"}, {"signature": "ä"}, {"signature": None},
        {"role": "operator"}, {"role": 7}, {"more": 1, "number": "1"},
    ],
)  # fmt: skip
def test_nothing_of_the_envelope_can_be_altered(gate, altered):
    with pytest.raises(Unauthenticated):
        call(gate, H1, "heartbeat", BEAT, **altered)


@pytest.mark.parametrize(
    "arguments",
    [
        {"heartbeat": BEAT["heartbeat"] | {"beat": 2}},
        {"heartbeat": BEAT["heartbeat"] | {"egress_bps": None}},  # infinity in plain JSON
        {"heartbeat": BEAT["heartbeat"] | {"beat": "\ud800"}},
        {"heartbeat": BEAT["heartbeat"] | {"beat": 2**70}},
    ],
)
def test_no_argument_can_be_altered(gate, arguments):
    context = H1.context(TOPIC, gate.run, "heartbeat", BEAT)
    with pytest.raises(Unauthenticated):
        gate.admit(TOPIC, context, "heartbeat", arguments)


def test_a_signature_is_for_one_method_and_one_topic(gate):
    arguments = {"host": "h1", "agent_id": "a"}
    context = H1.context(TOPIC, gate.run, "claim", arguments)
    with pytest.raises(NotEnrolled):
        gate.admit(TOPIC, context, "release_slots", arguments)
    with pytest.raises(NotEnrolled):
        gate.admit("agent", context, "claim", arguments)


@pytest.mark.parametrize("context", [{}, {"role": "api", "name": "api"}])
def test_a_call_without_signature_is_refused(gate, context):
    with pytest.raises(Unauthenticated, match="not signed"):
        gate.admit(TOPIC, context, "hosts", {})


def test_a_call_for_another_run_of_the_server_is_not_let_in(gate):
    before = Gate(known, SCHEDULER_METHODS)
    with pytest.raises(OtherRun):
        call(gate, H1, "heartbeat", BEAT, for_run=before.run)
    with pytest.raises(OtherRun):
        call(gate, H1, "heartbeat", BEAT, for_run="")


def test_what_may_be_repeated_need_not_name_the_run(gate):
    nova = signer(Role.NOVA, "nova")
    context = call(gate, nova, "snapshot", {"seen": None}, for_run="")
    with pytest.raises(Unauthenticated, match="received before"):
        gate.admit(TOPIC, context, "snapshot", {"seen": None})


@pytest.mark.parametrize("method", ["heartbeat", "report", "claim", "claim_slots", "release_slots", "instance_leases"])
def test_an_agent_speaks_for_no_other_host(gate, method):
    arguments = {"heartbeat": {"host": "h1"}} if method == "heartbeat" else {"host": "h1"}
    with pytest.raises(Unauthenticated, match="the agent of host h2 may not"):
        call(gate, signer(Role.AGENT, "h2"), method, arguments)
    with pytest.raises(NotEnrolled, match="not signed by the key of agent h1"):
        call(gate, signer(Role.AGENT, "h1", KEYS[Role.AGENT, "h2"]), method, arguments)


def test_an_unknown_host_is_not_listened_to(gate):
    with pytest.raises(NotEnrolled, match=r"host evil: .*; its key must be approved first"):
        call(gate, signer(Role.AGENT, "evil", KEYS[Role.AGENT, "h1"]), "heartbeat", {"heartbeat": {"host": "evil"}})


@pytest.mark.parametrize("sender", [(Role.AGENT, "h1"), (Role.NOVA, "nova")])
@pytest.mark.parametrize("method", sorted(method for method, roles in SCHEDULER_METHODS.items() if roles == {Role.API}))
def test_only_the_api_calls_what_belongs_to_tenants(gate, sender, method):
    with pytest.raises(Unauthenticated, match=f"role {sender[0]} may not call {method}"):
        call(gate, signer(*sender), method, {"host": "h1"})


def test_a_key_that_is_offered_signs_its_own_offer(gate):
    key = Ed25519PrivateKey.generate()
    offer = {"host": "new", "key": key_text(key.public_key()), "proof": ""}
    call(gate, signer(Role.AGENT, "new", key), "enroll", offer, for_run="")
    with pytest.raises(NotEnrolled):
        call(gate, signer(Role.AGENT, "new", Ed25519PrivateKey.generate()), "enroll", offer, for_run="")
    with pytest.raises(InvalidInput, match="expected the 43 characters"):
        call(gate, signer(Role.AGENT, "new", key), "enroll", offer | {"key": "x"}, for_run="")


def test_two_keys_are_good_while_one_replaces_the_other():
    old, new = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    gate = Gate(lambda _role, _name: [old.public_key(), new.public_key()], AGENT_METHODS)
    for key in (old, new):
        call(gate, signer(Role.SCHEDULER, "s", key), "execute", {"commands": []})


def test_of_a_client_that_is_forgotten_nothing_is_let_in_again(gate, monkeypatch):
    monkeypatch.setattr("fpga_pool.rpc.identity._CLIENTS", 2)
    recorded = call(gate, signer(Role.AGENT, "h1"), "heartbeat", BEAT)
    for _ in range(2):
        call(gate, signer(Role.AGENT, "h1"), "heartbeat", BEAT)
    with pytest.raises(Unauthenticated, match="received before"):
        gate.admit(TOPIC, recorded, "heartbeat", BEAT)


def test_a_key_is_written_and_read():
    key = KEYS[Role.AGENT, "h1"].public_key()
    assert len(key_text(key)) == 43
    assert key_of_text(key_text(key)) == key


@pytest.mark.parametrize("text", ["", "x", "A" * 42, "ä" * 43, "!" * 43])
def test_what_is_no_key_is_refused(text):
    with pytest.raises(InvalidInput, match="expected the 43 characters"):
        key_of_text(text)


@pytest.mark.parametrize(("api", "methods"), [(SchedulerAPI, SCHEDULER_METHODS), (AgentAPI, AGENT_METHODS)])
def test_the_table_lists_what_the_clients_call(api, methods):
    called = {name for name, _ in inspect.getmembers(api, inspect.isfunction) if not name.startswith("_")}
    assert called == set(methods) - {TOGETHER}
    assert set(SCHEDULER_METHODS) >= REPEATABLE
