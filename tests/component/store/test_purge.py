"""A purge removes work that ended long ago, and nothing else."""

from dataclasses import replace

import pytest

from fpga_pool.model.messages.requests import Page
from fpga_pool.model.objects.gangs import Gang, GangState, MigrationState, ProcessState
from fpga_pool.model.objects.hosts import Enrolment
from fpga_pool.model.objects.pool import BatchState, JobState, LeaseState
from fpga_pool.model.objects.tasks import TaskState
from fpga_pool.store import purge as purging
from fpga_pool.store.purge import purge

LONG_AGO, NOW = 10.0, 100.0
ENDED = {"state": BatchState.COMPLETED, "ended_at": LONG_AGO}


def nothing_but(**counts):
    return dict.fromkeys(purging.KINDS, 0) | counts


@pytest.fixture
def add(store):
    def add(*things):
        with store.admission() as tx:
            tx.add(*things)

    return add


def batches(store):
    with store.reading() as tx:
        return {batch.uuid for batch in tx.batches()}


def with_jobs(make, count=2, *, state=JobState.COMPLETED, host="", **fields):
    batch = make.batch(jobs=count, **{**ENDED, **fields})
    return batch, *(replace(job, state=state, host=host) for job in make.jobs(batch, count))


def test_batches_that_ended_long_ago_are_removed_with_their_jobs_and_runs(store, make, add):
    old, *jobs = with_jobs(make)
    young, *others = with_jobs(make, ended_at=NOW)
    running, *more = with_jobs(make, state=JobState.PENDING, ended_at=None)
    running = replace(running, state=BatchState.RUNNING)
    add(old, young, running, *jobs, *others, *more)
    with store.admission() as tx:
        tx.record_run(make.run(jobs[0]))
    assert purge(store, 50.0, dry_run=True) == nothing_but(batches=1, jobs=2)
    assert batches(store) == {old.uuid, young.uuid, running.uuid}
    assert purge(store, 50.0) == nothing_but(batches=1, jobs=2)
    assert batches(store) == {young.uuid, running.uuid}
    with store.reading() as tx:
        assert tx.completions(old.uuid) == {}
        assert len(tx.batch_jobs(young.uuid)) == 2
    assert purge(store, 50.0) == nothing_but()


def test_only_one_project_is_purged_where_one_is_named(store, make, add):
    mine, theirs = make.batch(jobs=0, **ENDED), make.batch(jobs=0, project_id="project-b", **ENDED)
    add(mine, theirs)
    assert purge(store, 50.0, "project-b", dry_run=True)["batches"] == 1
    assert purge(store, 50.0, "project-b")["batches"] == 1
    assert batches(store) == {mine.uuid}


@pytest.mark.parametrize(("host", "removed"), [("host-0", 0), ("gone", 1)])
def test_a_batch_stays_while_a_host_of_the_pool_holds_a_result_of_it(store, make, add, host, removed):
    add(make.host(), *with_jobs(make, 1, state=JobState.RESULT_HELD, host=host))
    assert purge(store, 50.0, dry_run=True)["batches"] == removed
    assert purge(store, 50.0)["batches"] == removed


def test_a_batch_stays_while_another_one_waits_for_it(store, make, add):
    awaited, other = make.batch(**ENDED), make.batch(**ENDED)
    waiting = make.batch(waits_for=(str(awaited.uuid), "another"))
    add(awaited, other, waiting, make.batch(state=BatchState.CANCELLED, waits_for=(other.uuid,)))
    assert purge(store, 50.0, dry_run=True)["batches"] == purge(store, 50.0)["batches"] == 1
    assert awaited.uuid in batches(store)
    with store.admission() as tx:
        tx.save(replace(tx.batch(waiting.uuid), waits_for=()))
    assert purge(store, 50.0)["batches"] == 1


def test_tasks_go_with_their_batches_when_both_have_ended(store, make, add):
    kept, gone = make.batch(**ENDED), make.batch(**ENDED)
    add(kept, gone, make.task(kept), replace(make.task(gone), state=TaskState.COMPLETED, ended_at=LONG_AGO))
    counts = purge(store, 50.0)
    assert (counts["batches"], counts["tasks"]) == (1, 1)
    assert batches(store) == {kept.uuid}


def test_gangs_go_with_their_processes_and_migrations(store, make, add):
    gang = make.gang(state=GangState.COMPLETED, ended_at=LONG_AGO)
    processor = make.processor()
    process = replace(make.process(gang, processor), state=ProcessState.ENDED)
    migration = replace(make.migration(gang), state=MigrationState.COMPLETED)
    add(make.host(), processor, gang, make.gang(), process, migration)
    assert purge(store, 50.0, dry_run=True)["gangs"] == 1
    assert purge(store, 50.0)["gangs"] == 1
    with store.reading() as tx:
        assert len(tx.page(Gang, Page(project_id="project-a", limit=9))) == 1


def test_a_gang_with_a_process_that_has_not_ended_stays(store, make, add):
    gang, processor = make.gang(state=GangState.FAILED, ended_at=LONG_AGO), make.processor()
    add(make.host(), processor, gang, make.process(gang, processor))
    assert purge(store, 50.0)["gangs"] == 0


def test_leases_that_were_released_long_ago_are_removed_and_those_in_force_stay(store, make, add):
    slot = make.slot()
    released = make.lease(slot, state=LeaseState.RELEASED, released_at=LONG_AGO)
    add(make.host(), slot, released, make.lease(slot))
    assert purge(store, 50.0)["leases"] == 1
    with store.reading() as tx:
        assert len(tx.leases()) == 1


def test_hosts_without_slots_that_have_been_silent_for_long_are_removed(store, shard, make, add):
    silent = {"alive": False, "heard_at": LONG_AGO, "shard": "shard-0"}
    add(
        make.host("gone", **silent),
        make.host("with-slots", **silent),
        make.host("silent-since-now", **silent | {"heard_at": NOW}),
        make.host("alive", heard_at=LONG_AGO, shard="shard-0"),
        make.slot("with-slots"),
    )
    assert purge(store, 50.0, "project-a")["hosts"] == 0
    assert purge(store, 50.0, dry_run=True)["hosts"] == 1
    assert purge(store, 50.0)["hosts"] == 1
    with store.reading() as tx:
        assert [host.name for host in tx.hosts()] == ["alive", "silent-since-now", "with-slots"]


def test_keys_that_were_offered_long_ago_are_forgotten_and_enrolled_ones_are_not(store):
    offer = Enrolment(host="offers", offered="k", changed_at=LONG_AGO)
    for one in (offer, replace(offer, host="enrolled", key="k"), replace(offer, host="young", changed_at=NOW)):
        store.change_enrolment(one.host, lambda _known, _pending, one=one: one)
    assert purge(store, 50.0)["offers"] == 1
    assert [one.host for one in store.enrolments()] == ["enrolled", "young"]


def test_a_purge_that_is_over_goes_on_where_it_was_and_leaves_no_job_without_its_batch(store, make, add, monkeypatch):
    monkeypatch.setattr(purging, "ROWS", 3)
    monkeypatch.setattr(purging, "BATCHES_AT_ONCE", 1)
    for _ in range(2):
        add(*with_jobs(make, 4))
    removed = []
    while not removed or any(removed[-1].values()):
        removed.append(purge(store, 50.0, is_over=lambda: True))
        with store.reading() as tx:
            assert {job.batch_uuid for batch in tx.batches() for job in tx.batch_jobs(batch.uuid)} <= batches(store)
    assert [(one["jobs"], one["batches"]) for one in removed] == [(3, 0), (1, 0), (0, 1)] * 2 + [(0, 0)]


def test_each_transaction_removes_a_limited_number_of_rows(store, make, add, monkeypatch):
    monkeypatch.setattr(purging, "ROWS", 3)
    monkeypatch.setattr(purging, "BATCHES_AT_ONCE", 2)
    for _ in range(5):
        add(*with_jobs(make, 4))
    removed = []
    inner = purging._remove
    monkeypatch.setattr(purging, "_remove", lambda *given, **kept: removed.append(inner(*given, **kept)) or removed[-1])
    assert purge(store, 50.0) == nothing_but(batches=5, jobs=20)
    assert max(removed) == 3
