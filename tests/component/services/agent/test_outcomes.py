"""The log of an agent contains the ids of the requests that caused its commands."""

import logging

import pytest
from oslo_context.context import RequestContext, get_current
from oslo_context.fixture import ClearRequestContext

from fpga_pool.model.messages.agents import Outcome
from fpga_pool.model.values import changed
from fpga_pool.rpc.transport import Refusals
from fpga_pool.services.agent.endpoint import note_outcomes


@pytest.fixture
def lines():
    """Yield the log lines, each with the request id that oslo.log puts before it."""
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append((get_current().request_id, record.levelname, record.getMessage()))
    logger = logging.getLogger("fpga_pool.services.agent.endpoint")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    yield found
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.fixture
def call():
    """Yield the context of the scheduler's call, in the thread that answers it."""
    cleared = ClearRequestContext()
    cleared.setUp()
    yield RequestContext()
    cleared.cleanUp()


def test_what_a_request_caused_is_one_line_with_its_id_and_what_is_refused_another(commands, lines, call):
    given = [commands.release("a"), commands.release("b"), commands.evict("c"), commands.assign("d")]
    given = [changed(command, request_id="req-1") for command in given[:3]] + given[3:]
    outcomes = [Outcome(command=command.id, outcome="accepted") for command in given]
    outcomes[1] = Outcome(command=given[1].id, outcome="refused", reason="too late")
    refusals = Refusals()
    note_outcomes("h0", given, outcomes, refusals)
    assert lines == [
        ("req-1", "WARNING", f"refused command {given[1].id}: too late"),
        ("req-1", "INFO", "host h0: accepted 1 ReleaseJob, 1 EvictJob"),
    ]
    assert refusals.counts() == {"fpga_pool.command_refused": 1}
    assert get_current() is call


def test_what_the_pool_decided_by_itself_is_logged_under_the_call(commands, lines, call):
    command = commands.release("a")
    note_outcomes("h0", [command], [Outcome(command=command.id, outcome="repeated")], Refusals())
    assert lines == [(call.request_id, "WARNING", f"repeated command {command.id}: already done")]
