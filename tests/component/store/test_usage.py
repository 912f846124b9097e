"""The usage of projects, which the database sums up."""

import itertools

import pytest

from fpga_pool.model.messages.usage import UsagePage
from fpga_pool.model.objects.loads import ChargedLoad
from fpga_pool.model.objects.pool import CPU, BatchState, JobState, LeaseKind, LeaseState
from fpga_pool.store.purge import purge, remove_slots
from fpga_pool.store.quotas import usage

DAY = 86_400.0
NOW = 10 * DAY


@pytest.fixture
def ran(store, make, saved):
    """Return a function that stores a job whose computation ended at a given time."""

    def store_run(project, function, at, seconds, board="vc709", **fields):
        batch = make.batch(project_id=project, state=BatchState.COMPLETED, ended_at=at)
        job = make.job(batch, function=function, state=JobState.COMPLETED, input_bytes=100, result_bytes=7, **fields)
        saved(batch, job)
        with store.transaction(job.shard) as tx:
            tx.record_run(make.run(job, finished_at=at, compute_s=seconds, board=board))
        return job

    return store_run


def found(store, begin_at=0.0, end_at=100.0, **page):
    return [
        (one.project_id, one.function, one.jobs, one.slot_s, one.cpu_s, one.input_bytes, one.result_bytes)
        for one in usage(store, UsagePage(**page), begin_at, end_at, NOW, {})
    ]


def test_usage_is_added_up_by_project_and_function(store, ran):
    ran("a", "aes", 10.0, 0.5)
    ran("a", "aes", 20.0, 0.25)
    ran("a", "aes", 30.0, 4.0, CPU)
    ran("a", "sha256", 40.0, 1.0)
    ran("b", "aes", 50.0, 2.0)
    of_a = [("a", "aes", 3, 0.75, 4.0, 300, 21), ("a", "sha256", 1, 1.0, 0.0, 100, 7)]
    assert found(store, project_id="a") == of_a
    assert found(store) == [*of_a, ("b", "aes", 1, 2.0, 0.0, 100, 7)]
    assert found(store, project_id="c") == []


def test_a_job_counts_in_the_period_in_which_its_computation_ended_and_in_no_other(store, ran):
    ran("a", "aes", 10.0, 0.5)
    ran("a", "aes", 20.0, 0.5)
    periods = [found(store, begin, begin + 10.0) for begin in (0.0, 10.0, 20.0)]
    assert [rows[0][2] if rows else 0 for rows in periods] == [0, 1, 1]


@pytest.mark.parametrize("descending", [False, True])
def test_pages_have_each_row_once(store, ran, descending):
    for project in ("a", "b"):
        for function in ("aes", "dnn", "sha256"):
            ran(project, function, 10.0, 0.5)
    rows, after = [], None
    while page := found(store, after=after, limit=2, descending=descending):
        rows += page
        after = page[-1][:2]
    all_of = [(project, name) for project in "ab" for name in ("aes", "dnn", "sha256")]
    assert [row[:2] for row in rows] == (all_of[::-1] if descending else all_of)


def test_seconds_on_slots_are_worth_the_speedup_of_their_function(store, ran):
    ran("a", "aes", 10.0, 0.5)
    ran("a", "aes", 20.0, 4.0, CPU)
    ran("a", "gone", 30.0, 1.0)
    rows = usage(store, UsagePage(), 0.0, 100.0, NOW, {"aes": 12.0})
    # 0.5 s on a slot does the work of 6 s on a vCPU. The value of a function that is not in the catalogue is unknown.
    assert [(one.function, one.vcpu_s) for one in rows] == [("aes", 6.0 + 4.0), ("gone", None)]


@pytest.fixture
def leased(store, shard, make):
    """Return a function that lets an instance hold a new slot and returns the slot."""

    def lease(project, begin_at, end_at=None, kind=LeaseKind.INSTANCE, function="aes"):
        held = {"state": LeaseState.HELD if end_at is None else LeaseState.RELEASED, "function": function}
        held |= {"granted_at": begin_at, "released_at": end_at, "kind": kind, "project_id": project}
        with store.transaction(shard.name) as tx:
            slot = make.slot(region=str(len(tx.slots())))
            tx.add(*([] if tx.hosts() else [make.host()]), slot, make.lease(slot, **held))
        return slot

    return lease


def held(store, begin_at, end_at, **page):
    """Return the slot hours of instances, by project and function."""
    rows = usage(store, UsagePage(**page), begin_at, end_at, NOW, {})
    return {(one.project_id, one.function): one.instance_slot_s / 3600 for one in rows}


def test_instances_count_as_long_as_they_held_slots_in_the_period(store, leased):
    leased("a", 1 * DAY, 2 * DAY)
    leased("a", 1.5 * DAY, 1.75 * DAY)
    leased("b", 1.5 * DAY, None, function="")
    leased("b", 1.5 * DAY, 2 * DAY, LeaseKind.POOL)
    assert held(store, 1 * DAY, 2 * DAY) == {("a", "aes"): 24 + 6, ("b", ""): 12}
    assert held(store, 1.25 * DAY, 1.5 * DAY, project_id="a") == {("a", "aes"): 6}
    assert held(store, 2 * DAY, 3 * DAY) == {("b", ""): 24}
    # Slots that are still held are counted until now, and no longer.
    assert held(store, 9 * DAY, 11 * DAY) == {("b", ""): 24}


@pytest.fixture
def loaded(store, shard, make):
    """Return a function that charges the next load of a slot to a project."""
    number = itertools.count(1)

    def load(project, function, at):
        slot = make.slot(function=function, reconfigurations=next(number))
        with store.transaction(shard.name) as tx:
            tx.add(ChargedLoad.of(slot, project, at))

    return load


def test_loads_count_when_they_begin(store, loaded):
    loaded("a", "aes", 1 * DAY)
    loaded("a", "aes", 1.5 * DAY)
    loaded("a", "dnn", 2 * DAY)
    loaded("b", "aes", 1.5 * DAY)

    def loads(begin_at, end_at, **page):
        found = usage(store, UsagePage(**page), begin_at, end_at, NOW, {})
        return {(one.project_id, one.function): one.loads for one in found}

    assert loads(1 * DAY, 2 * DAY) == {("a", "aes"): 2, ("b", "aes"): 1}
    assert loads(1.25 * DAY, 3 * DAY, project_id="a") == {("a", "aes"): 1, ("a", "dnn"): 1}


def whole(store):
    """Return the usage of each of ten days."""
    return [usage(store, UsagePage(), day * DAY, (day + 1) * DAY, NOW, {}) for day in range(10)]


def test_a_purge_changes_the_usage_of_no_day(store, ran, leased, loaded):
    ran("a", "aes", 1.25 * DAY, 0.5)
    ran("a", "aes", 1.75 * DAY, 4.0, CPU)
    ran("b", "dnn", 2.5 * DAY, 1.0)
    ran("b", "dnn", 8.0 * DAY, 1.0)
    leased("a", 1.5 * DAY, 3.25 * DAY)
    leased("a", 1.5 * DAY, 2.25 * DAY)
    leased("b", 4.5 * DAY, None)
    loaded("a", "aes", 1.75 * DAY)
    loaded("b", "dnn", 2.5 * DAY)
    loaded("b", "dnn", 8.0 * DAY)
    before = whole(store)
    for purged_before, removed in ((2 * DAY, (2, 0, 1)), (3 * DAY, (1, 1, 1)), (5 * DAY, (0, 1, 0))):
        counts = purge(store, purged_before)
        assert (counts["jobs"], counts["leases"], counts["loads"]) == removed
        assert whole(store) == before
    assert [(one.project_id, one.jobs) for one in before[8]] == [("b", 0), ("b", 1)]


def test_what_was_purged_counts_when_its_day_begins(store, ran):
    ran("a", "aes", 1.75 * DAY, 0.5)
    purge(store, 3 * DAY)
    assert found(store, 1.5 * DAY, 2.5 * DAY) == []
    assert found(store, 0.5 * DAY, 1.5 * DAY) == [("a", "aes", 1, 0.5, 0.0, 100, 7)]


def test_the_usage_of_slots_that_left_the_pool_stays(store, leased):
    slot = leased("a", 1 * DAY, 2 * DAY)
    before = whole(store)
    remove_slots(store, slot.shard, [slot.name])
    assert whole(store) == before
