"""The id of a request is recorded in the events that it causes, and in the resulting commands to agents."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from oslo_context.context import RequestContext
from oslo_context.fixture import ClearRequestContext

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.messages.requests import EventPage
from fpga_pool.store import family_reads


@pytest.fixture(autouse=True)
def _no_request():
    """Clear the request context that an earlier test may have left in the thread."""
    cleared = ClearRequestContext()
    cleared.setUp()
    yield
    cleared.cleanUp()


@pytest.fixture
def agent(running):
    return running.host()


@pytest.fixture
def as_request():
    """Return a function that calls as the API on behalf of a request, in a thread, and returns the request's id."""
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


@pytest.fixture
def pool(running, agent):
    """Create work of two projects and drain slots; then stop the service."""
    for project in ("p", "q", "p"):
        batch = running.create(agent, "sha256", "aes", project=project)
        running.api.cancel_batch(project, batch.uuid)
    for slot in running.api.slots():
        running.api.drain_slot(slot.uuid, "dust")
    running.service.stop()  # nothing changes from now on; the API still answers
    return running


def shown(event):
    """Return the time of an event in microseconds, as shown by the API."""
    return datetime.fromtimestamp(event.entry.at, UTC).timestamp()


def pages(running, **wanted):
    found, marker, more = [], None, True
    while more:
        page = running.api.pool_events(EventPage(marker=marker, **wanted))
        found += page.events
        more, marker = bool(page.next), page.next
    return found


@pytest.mark.parametrize("limit", [1, 4, 1000])
def test_events_of_all_objects_are_each_found_once_by_whatever_pages(pool, agent, monkeypatch, limit):
    monkeypatch.setattr(family_reads, "_READ", 2)
    found = pages(pool, limit=limit)
    assert [one.entry.at for one in found] == sorted((one.entry.at for one in found), reverse=True)
    with pool.store.reading() as tx:
        jobs = [job for one in tx.batches() for job in tx.batch_jobs(one.uuid)]
        things = [*tx.batches(), *tx.hosts(), *tx.slots(), *jobs]
    expected = {(one.name, getattr(one, "uuid", ""), entry.number) for one in things for entry in one.history}
    assert len(found) == len(expected)
    assert {(one.name, one.uuid, one.entry.number) for one in found} == expected


def test_events_of_all_objects_are_narrowed_in_the_database(pool, agent):
    mine = pages(pool, project_id="p")
    assert {one.project_id for one in mine} == {"p"}
    assert {one.kind for one in mine} == {"batch", "job"}
    assert len(pages(pool, project_id="q", event=("BatchCancelRequested",))) == 1
    assert pages(pool, project_id="nobody") == []
    assert {one.kind for one in pages(pool, kind=("host", "slot"))} == {"host", "slot"}
    assert {one.host for one in pages(pool, host=(agent.name,))} == {agent.name}
    (slot, *_) = pool.api.slots()
    assert pages(pool, name=(slot.name,)) == pages(pool, name=(slot.uuid,)) != []
    moments = sorted({shown(one) for one in pages(pool)})
    since, until = moments[2], moments[-2]
    between = [one for one in pages(pool) if since <= shown(one) < until]
    assert pages(pool, since=since, until=until, limit=3) == between
    with pytest.raises(InvalidInput, match=r"kind: expected one of batch, .*, found 'lease'"):
        pages(pool, kind=("lease",))


def test_a_page_ends_where_too_many_objects_have_no_event_that_is_wanted(pool, monkeypatch):
    monkeypatch.setattr("fpga_pool.model.rules.shared.events.MOST_READ", 2)
    # The three slots have the newest events.
    first = pool.api.pool_events(EventPage(event=("BatchCancelRequested",)))
    assert first.events == ()
    assert first.next
    assert len(pages(pool, event=("BatchCancelRequested",))) == 3
