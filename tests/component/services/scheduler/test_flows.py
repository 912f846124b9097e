"""Streams between tenants' clients and responders: the scheduler limits none based on a client's claim alone."""

import pytest

from fpga_pool.model.messages.agents import FlowSeen, ShapeFlow
from fpga_pool.model.values import changed
from fpga_pool.transfer.tokens import Verifier


@pytest.fixture
def requester(running, new_agent, clock):
    """Return a host without slots that limits its egress."""
    agent = new_agent()
    running.api.heartbeat(changed(agent.heartbeat(clock()), slots=(), egress_driver="tc"))
    return agent


@pytest.fixture
def waiting(running, requester, until):
    """Return a batch, and its job that waits for an input of one megabyte to be sent to another host."""
    running.host()
    batch = running.create(requester, "sha256", input_bytes=1_000_000)
    until(lambda: running.states(batch) == ["WAITING_INPUT"])
    return batch, running.jobs(batch)[0]


def shaped(running, requester):
    """Return the streams in commands that the requester's host got or will get."""
    commands = [*requester.commands, *running.waiting()]
    return {
        (command.action.job, command.action.source_address, command.action.source_port)
        for command in commands
        if isinstance(command.action, ShapeFlow)
    }


def test_a_source_that_a_client_claims_is_not_limited_until_the_responder_has_seen_it(
    running, requester, waiting, until, clock
):
    batch, job = waiting
    (ticket,) = running.tickets(batch, job.uuid)
    # Another tenant may send from that source.
    assert shaped(running, requester) == set()
    assert ticket.shaped
    grant = Verifier([running.key.public_key()], job.host).verify(ticket.token, clock())
    assert grant.source == "192.0.2.9:5"
    report = FlowSeen(job=job.uuid, attempt=1, at=clock(), source_address="192.0.2.9", source_port=5)
    running.api.report(job.host, job.host, [(next(running.numbers), report)])
    until(lambda: requester.commands)
    assert shaped(running, requester) == {(job.uuid, "192.0.2.9", 5)}


def test_a_fetch_names_no_source(running, waiting, clock):
    batch, job = waiting
    running.report(job, "staged")
    (ticket,) = running.tickets(batch, job.uuid, purpose="fetch")
    assert not ticket.shaped
    assert Verifier([running.key.public_key()], job.host).verify(ticket.token, clock()).source == ""
