"""Messages that a server refuses are counted."""

import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from uuid import uuid4

import oslo_messaging as messaging
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg
from oslo_messaging._drivers import amqpdriver

from fpga_pool.rpc.identity import Gate, Identity, Role, Signer
from fpga_pool.rpc.tracing import causing_request, current_ids
from fpga_pool.rpc.transport import (
    LOOK_AGAIN_S,
    TARGET,
    Dispatcher,
    Refusals,
    _Greeter,
    answers,
    limit_unreadable,
    server,
    transport,
)


class Endpoint:
    target = TARGET

    @answers
    def double(self, context: dict, number: int) -> int:
        return 2 * number

    @answers
    def ids(self, context: dict, host: str = "") -> dict[str, str]:
        return current_ids() | {"cause": causing_request().request_id}


@pytest.fixture
def refusals():
    return Refusals()


@pytest.fixture(scope="module")
def ending():
    """Yield an executor that stops servers, each of which takes a second."""
    with ThreadPoolExecutor() as ending:
        yield ending


@pytest.fixture
def call(refusals, ending):
    """Return a function that calls a separate endpoint as an authorized peer."""
    messages, topic = transport(cfg.CONF, "inprocess://"), uuid4().hex
    key = Ed25519PrivateKey.generate()
    methods = dict.fromkeys(["double", "triple", "ids"], frozenset(Role))
    gate = Gate(lambda _role, _name: [key.public_key()], methods)
    listening = server(messages, topic, "one", [Endpoint()], gate, refusals)
    listening.start()

    def ask(method, version="1.0", ids=(), role=Role.NOVA, **arguments):
        target = messaging.Target(topic=topic, version=version)
        context = Signer(Identity(role, "one", key)).context(topic, gate.run, method, arguments) | dict(ids)
        return messaging.get_rpc_client(messages, target, timeout=60).call(context, method, **arguments)

    yield ask
    ending.submit(lambda: (listening.stop(), listening.wait(), messages.cleanup()))


def test_what_is_right_is_answered_and_not_counted(call, refusals):
    assert call("double", number=4) == 8
    assert refusals.counts() == {}


def test_a_call_carries_the_ids_of_its_request(call):
    ids = {"request_id": f"req-{uuid4()}", "global_request_id": f"req-{uuid4()}"}
    assert call("ids", ids=ids) == ids | {"cause": ids["request_id"]}


@pytest.mark.parametrize("role", [Role.AGENT, Role.SCHEDULER])
def test_only_who_is_asked_by_people_names_the_cause_of_events(call, role):
    ids = {"request_id": f"req-{uuid4()}", "global_request_id": f"req-{uuid4()}"}
    host = {"host": "one"} if role is Role.AGENT else {}
    assert call("ids", ids=ids, role=role, **host) == ids | {"cause": ""}


def test_a_call_without_a_good_id_gets_one_of_its_own(call):
    first, second = call("ids", ids={"request_id": "req-1\nforged line"}), call("ids")
    assert first["request_id"].startswith("req-")
    assert "\n" not in first["request_id"]
    assert first != second
    assert first["cause"] == second["cause"] == ""


@pytest.mark.parametrize(
    ("method", "version", "arguments", "code"),
    [
        ("double", "2.0", {"number": 4}, "fpga_pool.unsupported_version"),
        ("triple", "1.0", {"number": 4}, "fpga_pool.no_such_method"),
        ("double", "1.0", {"number": "4"}, "fpga_pool.invalid_input"),
        (7, "1.0", {}, "fpga_pool.invalid_input"),
    ],
)
def test_what_is_wrong_is_counted_by_its_code(call, refusals, method, version, arguments, code):
    for count in (1, 2):
        with pytest.raises(Exception, match=r"RPC|expected"):
            call(method, version, **arguments)
        assert refusals.counts() == {code: count}


def test_a_mistake_of_a_tenant_is_neither_counted_nor_a_warning(call, refusals, caplog):
    """The API sends it on behalf of a request and logs it itself. No action of an operator is required."""
    with pytest.raises(Exception, match="expected"):
        call("double", role=Role.API, number="4")
    assert refusals.counts() == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.fixture
def below(refusals):
    """Yield the loggers of oslo.messaging that log messages, with the filters of a process of the pool."""
    names = "oslo.messaging._drivers.impl_rabbit", "oslo_messaging._drivers.amqpdriver"
    loggers = [logging.getLogger(name) for name in names]
    before = [list(logger.filters) for logger in loggers]
    limit_unreadable(refusals)
    yield loggers
    for logger, filters in zip(loggers, before, strict=True):
        logger.filters = filters


def test_what_oslo_messaging_refuses_by_itself_is_counted(below, refusals):
    rabbit, driver = below
    rabbit.error("Failed to process message ... skipping it.")
    rabbit.error("Something else")
    driver.error("ignoring duplicate message %s", "4711")
    assert refusals.counts() == {"fpga_pool.unreadable_message": 1, "fpga_pool.duplicate_message": 1}


def test_messages_that_cannot_be_read_do_not_fill_the_log(below, refusals, caplog):
    error = ValueError("no such version: 9\n2026-11-27 INFO forged" + 1_000_000 * "x")
    for _ in range(30):
        below[0].error("Failed to process message ... skipping it.", exc_info=error)
    below[0].error("Something else")
    *lines, last = caplog.records
    assert last.getMessage() == "Something else"
    # The first ten are logged at once, then one per ten seconds.
    assert 10 <= len(lines) < 30
    texts = [logging.Formatter().format(line) for line in lines]  # includes the traceback, if there is one
    assert max(map(len, texts)) < 1000
    assert all("\n" not in text and "no such version: 9" in text for text in texts)
    assert "(fpga_pool.unreadable_message: 10 so far)" in texts[9]
    assert refusals.counts() == {"fpga_pool.unreadable_message": 30}


def test_a_thread_that_listens_looks_again_no_sooner_than_we_want(call):  # set by `transport`
    listening = amqpdriver.AMQPListener(SimpleNamespace(prefetch_size=0), conn=None)
    assert listening._current_timeout == LOOK_AGAIN_S


def test_refused_calls_do_not_fill_the_log(refusals, caplog):
    """An agent that waits for approval repeats its heartbeat every second."""
    dispatcher = Dispatcher([Endpoint()], "topic", Gate(lambda _role, _name: (), {}), refusals)
    for _ in range(30):
        with pytest.raises(messaging.ExpectedException):
            dispatcher.dispatch(SimpleNamespace(message={"method": 7}, ctxt={}, client_timeout=None))
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    # The first ten are logged at once, then one per ten seconds.
    assert 10 <= len(lines) < 30
    assert refusals.counts() == {"fpga_pool.invalid_input": 30}


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": "zzz"},
        {"version": "1"},
        {"version": "1.0" + 1_000_000 * "0"},
        {"args": {"context": 1}},
        {"args": []},
        {"method": "greet()"},
    ],
    ids=lambda wrong: f"{next(iter(wrong.items()))!r:.30}",
)
def test_an_unsigned_call_that_is_none_is_refused_in_a_line(refusals, caplog, wrong):
    gate = Gate(lambda _role, _name: (), {})
    dispatcher = Dispatcher([_Greeter("one", gate)], "topic", gate, refusals)
    call = {"method": "greet", "args": {}, "version": "1.0"}
    assert dispatcher.dispatch(SimpleNamespace(message=call, ctxt={}, client_timeout="zz")) == {
        "name": "one",
        "run": gate.run,
    }
    with pytest.raises(messaging.ExpectedException):
        dispatcher.dispatch(SimpleNamespace(message=call | wrong, ctxt={}, client_timeout=None))
    [record] = caplog.records
    assert len(record.getMessage()) < 1000
    assert refusals.counts() == {"fpga_pool.invalid_input": 1}


@pytest.mark.parametrize("queue", [["a"], 7, "q" * 256], ids=["list", "number", "long"])
def test_a_call_whose_answer_has_no_queue_is_refused_and_not_answered(refusals, queue):
    dispatcher = Dispatcher([Endpoint()], "topic", Gate(lambda _role, _name: (), {}), refusals)
    call = {"method": "greet", "args": {}, "version": "1.0"}
    incoming = SimpleNamespace(message=call, ctxt={}, reply_q=queue, orig_msg_id="1", client_timeout=None)
    with pytest.raises(messaging.ExpectedException):
        dispatcher.dispatch(incoming)
    assert incoming.orig_msg_id is None
    assert refusals.counts() == {"fpga_pool.invalid_input": 1}


@pytest.mark.parametrize(
    ("method", "envelope"),
    [
        ("report\n2026-11-27 INFO forged", {}),
        ("r" * 1_000_000, {}),
        ("report", {"name": "node-1\n2026-11-27 INFO forged"}),
        ("report", {"name": "n" * 1_000_000}),
        ("report", {"client": "\x1b[2J"}),
        ("report", {"signature": "s" * 1_000_000}),
    ],
    ids=["lines in a method", "long method", "lines in a name", "long name", "escape", "long signature"],
)
def test_who_has_no_key_writes_no_line_of_his_own_into_the_log_and_not_a_long_one(refusals, caplog, method, envelope):
    dispatcher = Dispatcher([Endpoint()], "topic", Gate(lambda _role, _name: (), {}), refusals)
    context = {"role": "agent", "name": "node-1", "client": "c", "number": 1, "run": "", "signature": ""} | envelope
    message = {"method": method, "args": {"host": context["name"]}, "version": "1.0"}
    with pytest.raises(messaging.ExpectedException):
        dispatcher.dispatch(SimpleNamespace(message=message, ctxt=context, client_timeout=None))
    [record] = caplog.records
    assert len(record.getMessage()) < 1000
    assert record.getMessage().isprintable()
