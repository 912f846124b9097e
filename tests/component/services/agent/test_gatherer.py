"""Inputs that consist of results: of the same agent's jobs, and of another agent's over its data port."""

import hashlib
import ssl
from functools import partial

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.messages.agents import InputSource, InputStaged
from fpga_pool.model.messages.requests import SourceTicket
from fpga_pool.model.values import changed
from fpga_pool.services.agent import gatherer as gatherer_module
from fpga_pool.services.agent.gatherer import Gatherer
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.streams import Streams
from fpga_pool.transfer.handler import JobResult
from fpga_pool.transfer.server import DataServer
from fpga_pool.transfer.tokens import TransferGrant, sign
from support.waiting import wait_until

from .held import Jobs, give

LARGE = b"many bytes " * 10_000


def hold(jobs, commands, uuid, data):
    """Let an agent hold a result, a small one in its journal and a large one in a file; return it as a source."""
    running = give(jobs, commands, uuid, Phase.RUNNING)
    digest = hashlib.sha256(data).hexdigest()
    if len(data) > 1000:
        jobs.files.sink_path(uuid, 1).write_bytes(data)
    result = JobResult(jobs.files.result_path(uuid), len(data), digest, None if len(data) > 1000 else data)
    jobs.finished(running, 0.5, result)
    return InputSource(job=uuid, attempt=1, host="h0", result_bytes=len(data), result_sha256=digest)


@pytest.fixture
def gather(jobs, monkeypatch):
    """Return a function that starts a gatherer of the agent, with a function that issues its tickets."""
    monkeypatch.setattr(gatherer_module, "FIRST_PAUSE_S", 0.01)
    started = []

    def start(tickets=None, peer_tls=None):
        started.append(Gatherer("h0", jobs, tickets, peer_tls))
        jobs.gather = started[-1].gather

    yield start
    for gatherer in started:
        gatherer.stop()


def reader(commands, *sources):
    return commands.assign("reader", sources=sources, input_bytes=sum(source.result_bytes for source in sources))


def staged(jobs):
    wait_until(lambda: jobs.get("reader").phase is Phase.STAGED, "the input")
    return jobs.files.input_path("reader").read_bytes()


def arrival(journal):
    """Return the report of the complete input."""
    (report,) = (one for _, one in journal.reports(100) if isinstance(one, InputStaged) and one.job == "reader")
    return report


def test_one_large_result_of_the_same_host_is_used_in_place(jobs, commands, gather, journal):
    source = hold(jobs, commands, "a", LARGE)
    gather()
    jobs.order(reader(commands, source))
    assert staged(jobs) == LARGE
    assert jobs.files.input_path("reader").samefile(jobs.files.result_path("a"))
    assert arrival(journal).transfer_began_at is None
    jobs.order(commands.release("a"))
    assert jobs.files.input_path("reader").read_bytes() == LARGE


def test_several_results_follow_each_other_in_their_order(jobs, commands, gather, tmp_path):
    sources = hold(jobs, commands, "a", LARGE), hold(jobs, commands, "b", b"few")
    gather()
    jobs.order(reader(commands, sources[1], sources[0]))
    assert staged(jobs) == b"few" + LARGE
    assert [path.name for path in (tmp_path / "inputs").iterdir() if path.suffix == ".part"] == []


@pytest.fixture
def other(tmp_path, clock, commands):
    """Yield another agent with a data port, and a function that issues tickets for its results."""
    journal = Journal(tmp_path / "other.sqlite")
    held = Jobs(journal, tmp_path / "other", clock)
    held.restore()
    key = Ed25519PrivateKey.generate()
    server = DataServer(Streams(held), journal, host="h1", public_keys=[key.public_key()], bind_address="127.0.0.1")
    address, port = server.start()
    numbers = iter(range(1000))

    def ticket(source, job, attempt):
        grant = TransferGrant(
            job=source.job, attempt=source.attempt, project_id="p", host="h1", purpose="copy", input_bytes=0,
            token_id=f"t{next(numbers)}", deadline_s=1e12,
        )  # fmt: skip
        (token,) = sign([grant], key)
        return [SourceTicket(job=source.job, host="h1", address=address, port=port, tls=False, token=token)]

    yield held, ticket
    server.stop()
    journal.close()


def test_a_result_of_another_host_is_copied_and_stays_there(jobs, commands, gather, other, new_commands, journal):
    held, ticket = other
    source = hold(held, new_commands(), "a", LARGE)
    source = InputSource(job="a", attempt=1, host="h1", result_bytes=len(LARGE), result_sha256=source.result_sha256)
    gather(partial(ticket, source))
    jobs.order(reader(commands, source))
    assert staged(jobs) == LARGE
    assert held.get("a").phase is Phase.HELD
    assert arrival(journal).transfer_began_at < arrival(journal).at


def test_tls_settings_that_are_given_mean_tls_or_an_error(jobs, commands, gather, other, new_commands, caplog):
    held, ticket = other
    source = changed(hold(held, new_commands(), "a", LARGE), host="h1")
    gather(partial(ticket, source), ssl.create_default_context())
    jobs.order(reader(commands, source))
    wait_until(lambda: "host h1: its data port offers no TLS" in caplog.text, "the refusal")
    assert not jobs.files.input_path("reader").exists()


@pytest.fixture
def new_commands(commands):
    return type(commands)


def test_a_result_that_is_another_than_the_pool_named_fails_the_attempt(
    jobs, commands, gather, other, new_commands, journal
):
    held, ticket = other
    hold(held, new_commands(), "a", LARGE)
    source = InputSource(job="a", attempt=1, host="h1", result_bytes=len(LARGE), result_sha256="0" * 64)
    gather(partial(ticket, source))
    jobs.order(reader(commands, source))
    wait_until(lambda: jobs.get("reader").phase is Phase.FAILED, "the failure")
    _, failed = journal.reports(100)[-1]
    assert (failed.code, failed.retryable) == ("fpga_pool.input_unavailable", True)


def test_a_result_that_is_lost_fails_the_attempt_and_one_that_cannot_be_had_yet_is_tried_again(jobs, commands, gather):
    source = InputSource(job="a", attempt=1, host="h1", result_bytes=5, result_sha256="ab")
    asked = []

    def tickets(job, attempt):
        asked.append((job, attempt))
        raise OSError("no answer") if len(asked) < 3 else Conflict("the result is not held any more")

    gather(tickets)
    jobs.order(reader(commands, source))
    wait_until(lambda: jobs.get("reader").phase is Phase.FAILED, "the failure")
    assert asked == [("reader", 1)] * 3


def test_a_result_that_other_jobs_read_stays_when_a_client_has_it(jobs, commands):
    give(jobs, commands, "a", Phase.HELD, kept=True)
    jobs.delivered([("a", 1)])
    assert jobs.get("a").phase is Phase.HELD
    jobs.order(commands.release("a"))
    assert jobs.get("a") is None


def test_what_was_being_gathered_is_gathered_after_a_restart(jobs, new_jobs, commands, gather):
    source = hold(jobs, commands, "a", LARGE)
    jobs.order(reader(commands, source))  # no gatherer is running
    restarted = new_jobs()
    gathered = []
    restarted.gather = gathered.append
    restarted.restore()
    assert [(job.uuid, job.attempt) for job in gathered] == [("reader", 1)]
