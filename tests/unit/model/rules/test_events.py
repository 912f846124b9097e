"""The events of an object, as users read them."""

import pytest

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.objects.history import EVENTFUL
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.shared.events import events_of


@pytest.fixture
def told(pool):
    def steps(noun, name, project_id="p"):
        with pool.tx() as tx:
            return [(one.event, one.before, one.after, one.reason) for one in events_of(tx, noun, name, project_id)]

    return steps


@pytest.fixture
def job(pool):
    pool.create("aes")
    pool.plan()
    return "b1.0"


def test_the_creation_of_a_job_is_that_of_its_batch_though_it_is_not_stored_with_it(pool, told, job):
    assert pool.job(job).history[0].event == "Planned"
    assert told("job", job) == [("Created", "", "PENDING", ""), ("Planned", "PENDING", "WAITING_INPUT", "")]
    assert told("batch", "b1")[0] == ("Created", "", "PENDING", "")


def test_a_failure_says_why(pool, told, job):
    pool.bring(job, JobState.RUNNING)
    pool.fail(job)
    assert told("job", job)[-1] == ("JobFailed", "RUNNING", "PENDING", "smoke")


def test_a_slot_and_its_jobs_say_why_it_was_drained(pool, told, job):
    slot = pool.job(job).slot
    pool.drain(slot, "loud fan")
    assert told("slot", slot)[0] == ("Created", "", "EMPTY", "")
    assert ("DrainRequested", "EMPTY", "EMPTY", "loud fan") in told("slot", slot)
    assert told("job", job)[-1] == ("Displaced", "WAITING_INPUT", "PENDING", f"slot {slot} is being drained")


def test_a_host_is_lost_and_returns(pool, told):
    pool.now_s += 11
    pool.tick()
    pool.heard(pool.heartbeat())
    assert told("host", "h0") == [
        ("Created", "", "UP", ""),
        ("HostLost", "UP", "LOST", "no heartbeat for 11.0 s"),
        ("HostReturned", "LOST", "UP", ""),
    ]


@pytest.mark.parametrize(("noun", "name"), [("batch", "b1"), ("job", "b1.0")])
def test_what_belongs_to_another_project_has_no_events(told, job, noun, name):
    with pytest.raises(NotFound):
        told(noun, name, "q")


@pytest.mark.parametrize("noun", sorted(EVENTFUL.keys() - {"function", "quota"}))
def test_what_does_not_exist_has_no_events(told, noun):
    with pytest.raises(NotFound):
        told(noun, "x")


def test_what_has_no_events_is_refused_by_name(told):
    with pytest.raises(InvalidInput, match=r"expected one of batch, .*, found 'lease'"):
        told("lease", "x")
