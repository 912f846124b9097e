"""The id of a request is found in the events that it causes, and in the commands that agents get because of it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from oslo_context.context import RequestContext
from oslo_context.fixture import ClearRequestContext

from fpga_pool.model.exceptions import NotFound


@pytest.fixture(autouse=True)
def _no_request():
    """Whatever a test before this one has left in the thread."""
    cleared = ClearRequestContext()
    cleared.setUp()
    yield
    cleared.cleanUp()


@pytest.fixture
def agent(running):
    return running.host()


@pytest.fixture
def as_request():
    """Call as the API does for a request, in a thread that works on it; returns the id of the request."""
    with ThreadPoolExecutor(1) as thread:

        def call(method, *arguments):
            def work():
                context = RequestContext()
                method(*arguments)
                return context.request_id

            return thread.submit(work).result(60.0)

        yield call


def told(running, noun, name, project_id="p"):
    return [(event.event, event.request_id) for event in running.api.events(noun, project_id, name)]


def test_a_request_is_the_cause_of_what_it_changes_and_the_pool_of_what_it_decides(running, agent, as_request, until):
    wanted = running.request(agent, "sha256")
    creating = as_request(running.api.create_batch, wanted)
    (job,) = (one.uuid for one in wanted.jobs)
    until(lambda: job in agent.held)
    cancelling = as_request(running.api.cancel_batch, "p", wanted.uuid)
    until(lambda: job not in agent.held)
    assert told(running, "batch", wanted.uuid)[0] == ("Created", creating)
    assert told(running, "batch", wanted.uuid)[-1] == ("BatchCancelRequested", cancelling)
    assert told(running, "job", job) == [("Created", creating), ("Planned", ""), ("CancelRequested", cancelling)]
    assert [(type(one.action).__name__, one.request_id) for one in agent.commands] == [
        ("AssignJob", ""),
        ("ReleaseJob", cancelling),
    ]


def test_the_drain_of_a_slot_has_its_request_and_the_discovery_of_it_none(running, agent, as_request):
    slot = next(one for one in running.api.slots() if one.host == agent.name)
    draining = as_request(running.api.drain_slot, slot.uuid, "loud fan")
    # Nothing computes there, so it is drained at once, by the same request.
    expected = [("Created", ""), ("DrainRequested", draining), ("DrainCompleted", draining)]
    assert told(running, "slot", slot.uuid) == expected
    assert told(running, "host", agent.name) == [("Created", "")]


def test_a_caller_that_names_no_request_causes_events_without_one(running, agent):
    batch = running.create(agent, "sha256")
    assert told(running, "batch", batch.uuid)[0] == ("Created", "")


def test_events_of_another_project_are_not_found(running, agent):
    batch = running.create(agent, "sha256")
    for noun, name in (("batch", batch.uuid), ("job", running.jobs(batch)[0].uuid)):
        with pytest.raises(NotFound):
            running.api.events(noun, "q", name)
