"""Calls that are made while others are in progress share a message. Each call gets its own answer."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from oslo_config import cfg
from oslo_context.context import RequestContext
from osprofiler import profiler, web

from fpga_pool.model.exceptions import FpgaPoolError, NotFound, Unauthenticated
from fpga_pool.model.objects.pool import Batch
from fpga_pool.rpc import gathering
from fpga_pool.rpc.gathering import LONG_ANSWER, MOST, UNDER_WAY, Gatherer
from fpga_pool.rpc.identity import SCHEDULER_METHODS, Gate, Identity, Role
from fpga_pool.rpc.scheduler_api import SchedulerAPI
from fpga_pool.rpc.tracing import causing_request
from fpga_pool.rpc.transport import SCHEDULER_TOPIC, TARGET, TOGETHER, answers, server, transport

WAIT_S = 60.0


class Scheduler:
    """A scheduler that `Gatherer` calls. It answers a call with the call's argument, once `may_answer` is set."""

    def __init__(self):
        self.may_answer = threading.Event()
        #: The arguments of the calls in each message.
        self.messages = []

    def ask(self, method, arguments, ids):
        calls = [call["args"] for _, call in arguments["calls"]] if method == TOGETHER else [arguments]
        self.messages.append([call["number"] for call in calls])
        assert self.may_answer.wait(WAIT_S)
        return [{"answer": number} for number in self.messages[-1]] if method == TOGETHER else arguments["number"]


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def callers():
    with ThreadPoolExecutor(100) as callers:
        yield callers


def make(callers, gatherer, numbers):
    return [callers.submit(gatherer.call, "job", {"number": number}, {}) for number in numbers]


def wait_until(condition):
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        threading.Event().wait(0.005)


def test_a_call_that_comes_alone_is_sent_at_once_as_it_is(scheduler):
    scheduler.may_answer.set()
    gatherer = Gatherer(scheduler.ask, WAIT_S)
    assert [gatherer.call("job", {"number": number}, {}) for number in range(3)] == [0, 1, 2]
    assert scheduler.messages == [[0], [1], [2]]


def test_calls_that_come_while_messages_are_under_way_share_the_next_one(scheduler, callers, monkeypatch):
    monkeypatch.setattr(gathering, "PATIENCE_S", 60.0)
    gatherer = Gatherer(scheduler.ask, WAIT_S)
    first = make(callers, gatherer, range(UNDER_WAY))
    wait_until(lambda: len(scheduler.messages) == UNDER_WAY)
    others = make(callers, gatherer, range(10, 10 + MOST + 1))
    wait_until(lambda: len(gatherer._waiting) == MOST + 1)
    scheduler.may_answer.set()
    assert [one.result() for one in [*first, *others]] == [*range(UNDER_WAY), *range(10, 10 + MOST + 1)]
    assert sorted(map(len, scheduler.messages)) == [1] * (UNDER_WAY + 1) + [MOST]


def test_a_call_does_not_wait_for_slow_messages(scheduler, callers):
    gatherer = Gatherer(scheduler.ask, WAIT_S)
    slow = make(callers, gatherer, range(UNDER_WAY))
    wait_until(lambda: len(scheduler.messages) == UNDER_WAY)
    late = make(callers, gatherer, [10])
    wait_until(lambda: len(scheduler.messages) == UNDER_WAY + 1)
    scheduler.may_answer.set()
    assert [one.result() for one in [*slow, *late]] == [*range(UNDER_WAY), 10]


def test_a_message_without_an_answer_fails_all_of_its_calls_and_no_later_one(callers, monkeypatch):
    monkeypatch.setattr(gathering, "UNDER_WAY", 0)
    failing = [True]

    def ask(method, arguments, ids):
        if failing:
            raise FpgaPoolError("no answer")
        return arguments["number"]

    gatherer = Gatherer(ask, WAIT_S)
    assert all(isinstance(one.exception(), FpgaPoolError) for one in make(callers, gatherer, range(5)))
    failing.clear()
    assert gatherer.call("job", {"number": 7}, {}) == 7


def test_calls_that_others_would_wait_for_are_made_alone():
    gatherer = Gatherer(lambda method, arguments, ids: [0] * arguments["length"], WAIT_S)
    assert gatherer.takes("batch_jobs", {"wait_s": 0.0})
    assert not gatherer.takes("batch_jobs", {"wait_s": 1.0})
    assert not gatherer.takes("plan_batch", {})
    assert [gatherer.takes("create_batch", {"request": {"jobs": [{}] * jobs}}) for jobs in (1, 1000)] == [True, False]
    gatherer.call("slots", {"length": LONG_ANSWER - 1}, {})
    assert gatherer.takes("slots", {})
    gatherer.call("slots", {"length": LONG_ANSWER}, {})
    assert not gatherer.takes("slots", {})
    assert gatherer.takes("tasks", {})
    assert not gatherer.takes("jobs", {})  # the expected times of each job have to be computed


class Endpoint:
    """An endpoint without jobs and batches. It records the requests on whose behalf it is called."""

    target = TARGET

    def __init__(self):
        self.requests = []

    @answers
    def job(self, context: dict, project_id: str | None, uuid: str) -> None:
        self.requests.append(causing_request().request_id)
        raise NotFound(f"no job {uuid}")

    @answers
    def batch_detail(self, context: dict, project_id: str | None, uuid: str) -> Batch:
        raise KeyError(uuid)

    @answers
    def batches(self, context: dict, page: dict) -> list[Batch]:
        self.requests.append(causing_request().request_id)
        return []


@pytest.fixture
def pool(monkeypatch):
    """Yield an endpoint, an API that sends calls of the same moment in one message, and the list of sent messages."""
    monkeypatch.setattr(gathering, "UNDER_WAY", 0)
    monkeypatch.setattr(gathering, "PATIENCE_S", 0.3)
    messages, key, endpoint = transport(cfg.CONF, "inprocess://"), Ed25519PrivateKey.generate(), Endpoint()
    gate = Gate(lambda _role, _name: [key.public_key()], SCHEDULER_METHODS)
    listening = server(messages, SCHEDULER_TOPIC, "one", [endpoint], gate)
    listening.start()
    caller, sent = SchedulerAPI(messages, Identity(Role.API, "one", key)), []
    call = caller._client.call
    monkeypatch.setattr(caller._client, "call", lambda *asked, **named: sent.append(asked[2]) or call(*asked, **named))
    yield endpoint, caller, sent
    listening.stop()
    listening.wait()
    messages.cleanup()


def test_calls_of_one_message_have_their_own_answers_errors_and_requests(pool, callers):
    endpoint, caller, sent = pool

    def ask(number):
        RequestContext(request_id=f"req-{number}")
        return caller.job("p", "j") if number % 2 else caller.batches({})

    asked = [callers.submit(ask, number) for number in range(4)]
    assert [one.result() for one in asked[::2]] == [[], []]
    for failed in asked[1::2]:
        with pytest.raises(NotFound, match=r"^no job j$"):
            failed.result()
    assert sent == [TOGETHER]
    assert sorted(endpoint.requests) == [f"req-{number}" for number in range(4)]


def test_calls_of_traced_requests_share_a_message(pool, callers):
    _, caller, sent = pool

    def ask(number):
        profiler.init("key", base_id=f"trace-{number}")
        try:
            return caller.batches({})
        finally:
            profiler.clean()

    web.enable("key")
    try:
        assert list(callers.map(ask, range(2))) == [[], []]
    finally:
        web.disable()
    assert sent == [TOGETHER]


def test_a_call_that_cannot_be_signed_fails_alone(pool, callers):
    _, caller, sent = pool
    broken, *good = callers.submit(caller.job, "p", "\ud800"), *(callers.submit(caller.batches, {}) for _ in range(3))
    assert [one.result() for one in good] == [[], [], []]
    assert isinstance(broken.exception(), UnicodeEncodeError)
    assert sent[0] == TOGETHER
    assert sorted(sent[1:]) == ["batches", "batches", "batches", "job"]


def test_a_defect_in_one_call_of_a_message_says_nothing_and_leaves_others_alone(pool, callers):
    _, caller, sent = pool
    broken, good = callers.submit(caller.batch_detail, "p", "secret"), callers.submit(caller.batches, {})
    assert good.result() == []
    with pytest.raises(FpgaPoolError, match=r"^internal error in the pool; the log of its scheduler has the details$"):
        broken.result()
    assert sent == [TOGETHER]


@pytest.mark.parametrize("method", ["report", "greet", "no_such"])
def test_what_a_sender_may_not_call_it_may_not_call_together_with_others_either(pool, method):
    _, caller, _ = pool
    server_name, run = caller._client.greet(None, WAIT_S)
    (part,) = caller._client.call(server_name, run, TOGETHER, {"calls": [({}, {"method": method, "args": {}})]}, {})
    assert part == {"error": Unauthenticated.__name__, "message": f"role api may not call {method}"}


@pytest.mark.parametrize("calls", [None, 7, [7], [[{}, 7]]])
def test_what_are_no_calls_is_refused(pool, calls):
    _, caller, _ = pool
    server_name, run = caller._client.greet(None, WAIT_S)
    with pytest.raises(FpgaPoolError) as refused:
        caller._client.call(server_name, run, TOGETHER, {"calls": calls}, {})
    assert refused.value.code == "fpga_pool.invalid_input"
