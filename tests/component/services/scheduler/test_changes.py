"""Requests that wait for a batch to change."""

import threading

import pytest

from fpga_pool.model.objects.pool import JobState, Shard
from fpga_pool.services.scheduler.changes import WAITING, Changes

WAIT_S = 30.0


@pytest.fixture
def running(bench):
    return bench.start()


@pytest.fixture
def slow_looks(monkeypatch):
    """Disable periodic checks, so that a request that sees a change in time was woken by it."""
    monkeypatch.setattr("fpga_pool.services.scheduler.endpoint.POLL_S", 60.0)


@pytest.fixture
def planned(running, until):
    agent = running.host()
    batch = running.create(agent, "sha256", "sha256")
    until(lambda: running.states(batch) == ["WAITING_INPUT"] * 2)
    return batch


def ask(running, batch, **options):
    return running.api.batch_jobs(batch.project_id, batch.uuid, **options)


def test_those_that_changed_after_what_was_seen_are_told(running, planned):
    _, second = ask(running, planned, changed_after={}).jobs
    seen = ask(running, planned).seen
    assert ask(running, planned, changed_after=seen).jobs == ()
    running.report(second, "staged")
    changed = ask(running, planned, changed_after=seen)
    assert [(job.uuid, job.state) for job in changed.jobs] == [(second.uuid, JobState.STAGED)]
    assert ask(running, planned, changed_after=changed.seen).jobs == ()


def test_who_waits_is_told_as_soon_as_a_job_of_the_batch_changes(running, planned, slow_looks):
    first, _ = running.jobs(planned)
    seen = ask(running, planned).seen
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(running, planned, changed_after=seen, wait_s=WAIT_S)))
    asking.start()
    running.report(first, "staged")
    asking.join(2 * WAIT_S)
    assert [job.uuid for job in answers[0].jobs] == [first.uuid]


def test_what_all_jobs_have_become_is_told_without_a_look_and_as_a_look_would(running, until, slow_looks):
    agent = running.host()
    batch = running.create(agent, "sha256")
    until(lambda: running.states(batch) == ["WAITING_INPUT"])
    (job,) = running.jobs(batch)
    seen, answers, looks = ask(running, batch).seen, [], []
    look = running.service.store.changed_jobs
    running.service.store.changed_jobs = lambda *args, **options: looks.append(args) or look(*args, **options)
    options = {"changed_after": seen, "states": [JobState.COMPLETED], "with_batch": True}
    asking = threading.Thread(target=lambda: answers.append(ask(running, batch, wait_s=WAIT_S, **options)))
    asking.start()
    until(lambda: running.service.changes._watches)
    running.report(job, "staged", "started", "finished", "delivered")
    asking.join(2 * WAIT_S)
    assert not looks
    found = ask(running, batch, **options)
    told = answers[0]
    assert (told.jobs, told.seen, told.batch) == (found.jobs, found.seen, found.batch)
    assert [one.state for one in told.jobs] == [JobState.COMPLETED]


def test_who_waits_in_vain_is_told_so_in_time(running, planned):
    seen = ask(running, planned).seen
    assert ask(running, planned, changed_after=seen, wait_s=0.05).jobs == ()


def test_a_new_batch_is_waited_for_by_the_states_that_it_is_not_in(running, until, slow_looks):
    agent = running.host()
    batch = running.create(agent, "sha256")
    found = ask(running, batch, states=[JobState.WAITING_INPUT], changed_after={}, wait_s=WAIT_S)
    assert [job.state for job in found.jobs] == [JobState.WAITING_INPUT]


class Transaction:
    def __init__(self, *batches, generation=0, changed=()):
        self.changed_batches = set(batches)
        self.shard = Shard(name="default", owner="", epoch=0, renewed_at=0.0, pool_generation=generation)
        self._changed = changed
        self.has_written = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def changes(self, kind):
        return [(None, one) for one in self._changed if isinstance(one, kind)]


def is_sent(watch):
    return watch._event.is_set()


def test_only_those_who_wait_for_a_changed_batch_are_woken():
    watched = Changes()
    with watched.watching("a") as first, watched.watching("a") as second, watched.watching("b") as other:
        with watched.noted(lambda: Transaction("a", "c"))():
            assert not is_sent(first)  # not before the commit
        assert [is_sent(watch) for watch in (first, second, other)] == [True, True, False]


def test_what_a_transaction_left_is_not_told_where_a_later_one_was_noted_before(running, planned):
    watched, left = Changes(), [planned, *running.jobs(planned)]

    def note(generation):
        with watched.noted(lambda: Transaction(planned.uuid, generation=generation, changed=left))():
            pass

    note(6)
    assert watched.last(planned.uuid).seen == {"default": 7}
    with watched.watching(planned.uuid) as watch:
        note(5)
        assert watch.wait(0.0) is None
    assert watched.last(planned.uuid) is None
    note(7)
    assert watched.last(planned.uuid).seen == {"default": 8}


def test_nobody_is_woken_by_what_was_rolled_back():
    watched = Changes()
    with watched.watching("a") as watch:
        with pytest.raises(ValueError, match="no"), watched.noted(lambda: Transaction("a"))():
            raise ValueError("no")
        assert not is_sent(watch)


def test_too_many_do_not_wait_and_a_place_that_is_left_is_given_again():
    watched = Changes()
    places = [watched.watching("a") for _ in range(WAITING)]
    for place in places:
        assert place.__enter__() is not None
    with watched.watching("a") as none_left:
        assert none_left is None
    places[0].__exit__(None, None, None)
    with watched.watching("b") as free:
        assert free is not None
    for place in places[1:]:
        place.__exit__(None, None, None)
    assert watched._watches == {}
