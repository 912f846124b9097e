import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fpga_pool.client.stream import TicketDesk
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.messages.requests import Ticket, TicketRequest


class Api:
    """An API that grants tickets, except for the jobs in `refused`. Calls block until `let_through` is set."""

    def __init__(self, refused=()):
        self.refused = refused
        self.calls = []
        self.called = threading.Event()
        self.let_through = threading.Event()
        self.error = None

    def tickets(self, batch_uuid, requests):
        self.calls.append([request.job for request in requests])
        self.called.set()
        assert self.let_through.wait(60)
        if self.error:
            raise self.error
        if any(request.job in self.refused for request in requests):
            raise Conflict("not now")
        return [ticket(request.job) for request in requests]


def ticket(job):
    return Ticket(
        job=job, attempt=1, purpose="send", address="a", port=1, token="t", input_bytes=0, transfer=(), elapsed_s=0.0
    )  # fmt: skip


def request(job):
    return TicketRequest(job=job, purpose="send", source_address="127.0.0.1", source_port=1)


@pytest.fixture
def ask(eventually):
    """Return a function that asks for tickets in threads: for the first job, and for the others during that call."""

    def outcomes(api, *jobs):
        desk = TicketDesk(api, "batch")
        with ThreadPoolExecutor(len(jobs)) as workers:
            futures = [workers.submit(desk.get, request(jobs[0]))]
            assert api.called.wait(60)
            futures += [workers.submit(desk.get, request(job)) for job in jobs[1:]]
            eventually(lambda: len(desk._queue) == len(jobs) - 1)
            api.let_through.set()
        return [future.exception() or future.result().job for future in futures]

    return outcomes


def test_streams_that_wait_share_the_next_call(ask):
    api = Api()
    assert ask(api, "a", "b", "c", "d") == ["a", "b", "c", "d"]
    assert [sorted(call) for call in api.calls] == [["a"], ["b", "c", "d"]]


def test_one_refusal_is_not_that_of_the_others(ask):
    first, *others, last = ask(Api(refused={"c"}), "a", "b", "d", "c")
    assert (first, others) == ("a", ["b", "d"])
    assert isinstance(last, Conflict)


def test_silent_pool_is_told_to_all(ask):
    api = Api()
    api.error = ServiceUnavailable("restarting")
    assert [type(outcome) for outcome in ask(api, "a", "b", "c")] == [ServiceUnavailable] * 3
    assert len(api.calls) == 2
