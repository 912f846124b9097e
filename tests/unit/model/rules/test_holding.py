"""Batches that their owners hold and release, and batches with a priority or a deadline."""

import pytest

from fpga_pool.model.exceptions import Conflict, InvalidInput, InvalidTransition, NotFound, PreconditionFailed
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.objects.pool import BatchState, JobState
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.batch.admission import change_batch
from fpga_pool.model.rules.batch.dry_run import batch_detail
from fpga_pool.model.rules.batch.planning import batch_problem
from fpga_pool.model.rules.pipeline.outlook import job_detail, job_details


def detail(pool, batch):
    with pool.tx() as tx:
        return batch_detail(tx, pool.batch(batch), {"aes"}, pool.catalogue, pool.now_s)


def test_a_batch_that_is_created_held_waits_until_it_is_released(pool):
    batch = pool.create("aes", "sha256", held=True)
    assert pool.snapshot() is None
    assert {pool.job(f"{batch}.{i}").reason for i in range(2)} == {"held by its owner"}
    assert (detail(pool, batch).pending_reason, detail(pool, batch).expected_at) == ("held by its owner", None)
    pool.change(batch, held=False)
    assert pool.job(f"{batch}.0").reason == ""
    assert len(pool.plan()) == 2


def test_others_are_planned_while_a_batch_is_held(pool):
    pool.create("aes", held=True)
    other = pool.create("aes")
    assert [job.batch_uuid for job in pool.plan()] == [other]


def test_a_hold_takes_the_places_of_jobs_whose_inputs_have_not_come_and_leaves_the_rest(pool):
    batch = pool.create("aes", "sha256", "flow")
    pool.plan()
    pool.bring(f"{batch}.0", JobState.STAGED)
    pool.bring(f"{batch}.1", JobState.RUNNING)
    pool.sent()
    pool.change(batch, held=True)
    waiting = pool.job(f"{batch}.2")
    assert (waiting.state, waiting.reason, waiting.counted_attempts) == (JobState.PENDING, "held by its owner", 0)
    assert pool.actions() == [(waiting.slot, "ReleaseJob", waiting.uuid)]
    assert pool.lease(waiting.slot) is None
    assert pool.plan() == []
    pool.bring(f"{batch}.0", JobState.COMPLETED)
    pool.bring(f"{batch}.1", JobState.COMPLETED)
    assert pool.batch(batch).state is BatchState.RUNNING
    pool.change(batch, held=False)
    assert [job.uuid for job in pool.plan()] == [f"{batch}.2"]
    pool.bring(f"{batch}.2", JobState.COMPLETED)
    assert pool.batch(batch).state is BatchState.COMPLETED


def test_a_plan_that_was_being_made_as_its_batch_was_held_is_void(pool):
    batch = pool.create("aes")
    planned = pool.decide()
    pool.change(batch, held=True)
    assert pool.commit(*planned) == []


def test_a_hold_may_be_asked_for_again(pool):
    batch = pool.create("aes")
    for _ in range(2):
        assert pool.change(batch, held=True).held


def test_a_held_batch_can_be_cancelled(pool):
    batch = pool.create("aes", held=True)
    assert pool.cancel(batch).state is BatchState.CANCELLED


def test_a_job_of_a_held_batch_whose_slot_fails_waits_for_the_release(pool):
    batch = pool.create("aes")
    pool.plan()
    pool.bring(f"{batch}.0", JobState.RUNNING)
    pool.change(batch, held=True)
    pool.fail(f"{batch}.0")
    assert pool.plan() == []
    pool.change(batch, held=False)
    assert len(pool.plan()) == 1


@pytest.mark.parametrize("project", ["p", "another"])
def test_only_a_batch_of_the_own_project_that_has_not_ended_can_be_held(pool, project):
    batch = pool.create("aes")
    pool.cancel(batch)
    with pytest.raises(InvalidTransition if project == "p" else NotFound), pool.tx() as tx:
        change_batch(tx, batch, project, BatchChange(held=True), pool.now_s)


def test_a_hold_of_another_version_than_the_one_that_was_seen_is_refused(pool):
    batch = pool.create("aes")
    with pytest.raises(PreconditionFailed), pool.tx() as tx:
        change_batch(tx, batch, "p", BatchChange(held=True), pool.now_s, ("7",))


def test_the_batch_of_a_task_is_not_held(pool):
    batch = pool.create("aes", policy=TASK_POLICY)
    with pytest.raises(Conflict, match="is that of a task"):
        pool.change(batch, held=True)


def test_a_change_of_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing to change: expected held or priority"):
        BatchChange()


def test_of_batches_that_wait_the_highest_priority_is_planned_first_and_of_equal_ones_the_oldest(pool):
    old, low, young = pool.create("aes"), pool.create("aes", priority=-1), pool.create("aes")
    high = pool.create("aes", priority=5)
    ranked = [high, old, young, low]
    assert [pool.plan()[0].batch_uuid for _ in ranked] == ranked


def test_a_priority_that_is_changed_counts_from_the_next_plan_on(pool):
    old, young = pool.create("aes"), pool.create("aes")
    assert pool.change(young, priority=7).priority == 7
    assert [pool.plan()[0].batch_uuid for _ in range(2)] == [young, old]
    assert pool.change(young, priority=-7).state is BatchState.RUNNING


def test_small_batches_that_are_planned_together_are_groups_in_the_order_of_their_priorities(pool):
    uuids = [pool.create("aes", priority=priority) for priority in (0, 2, 1)]
    snap = pool.snapshot(may_join=lambda _: True)
    assert [job.batch_uuid for job in snap.jobs] == [uuids[1], uuids[2], uuids[0]]
    assert batch_problem(snap).problem.group.tolist() == [0, 1, 2]


def test_batches_that_are_planned_again_come_in_the_order_of_their_priorities(pool):
    low, high = pool.create("aes"), pool.create("aes", priority=1)
    asked = pool.asked(late=False)
    assert [job.batch_uuid for job in asked.jobs] == [high]
    pool.plan()
    asked = pool.asked()
    group = dict(zip([job.batch_uuid for job in asked.jobs], asked.underway.problem.group.tolist(), strict=True))
    assert group == {high: 0, low: 1}


def test_of_equal_priorities_the_earliest_deadline_is_planned_first(pool):
    without, late = pool.create("aes"), pool.create("aes", deadline_at=pool.now_s + 60.0)
    soon, urgent = pool.create("aes", deadline_at=pool.now_s + 30.0), pool.create("aes", priority=1)
    ranked = [urgent, soon, late, without]
    assert [pool.plan()[0].batch_uuid for _ in ranked] == ranked


def test_a_batch_says_by_how_much_its_plan_misses_the_deadline(pool):
    # It computes for 1.001 s, after a lead time of 0.25 s and a load of 0.5 s.
    batch = pool.create("aes", deadline_at=pool.now_s + 1.0)
    assert (detail(pool, batch).ends_at, detail(pool, batch).late_s) == (None, None)
    pool.plan()
    found = detail(pool, batch)
    job = pool.job(f"{batch}.0")
    assert found.ends_at == job.dispatched_at + job.end_s
    assert found.late_s == pytest.approx(found.ends_at - pool.now_s - 1.0)
    assert found.late_s > 0.0


def test_a_batch_that_waits_is_late_once_its_deadline_is_over_and_goes_on(pool):
    batch = pool.create("aes", deadline_at=pool.now_s + 10.0, held=True)
    pool.now_s += 12.0
    assert detail(pool, batch).late_s == pytest.approx(2.0)
    pool.change(batch, held=False)
    pool.plan()
    pool.bring(f"{batch}.0", JobState.COMPLETED)
    ended = pool.batch(batch).ended_at
    pool.now_s += 100.0
    assert detail(pool, batch).late_s == pytest.approx(ended - pool.batch(batch).deadline_at)


def test_a_batch_in_time_is_not_late(pool):
    batch = pool.create("aes", deadline_at=pool.now_s + 1000.0)
    pool.plan()
    assert detail(pool, batch).late_s is None


@pytest.mark.parametrize("deadline_at", [1000.0, -1.0, 1e301])
def test_a_deadline_that_is_over_is_refused(pool, deadline_at):
    with pytest.raises(InvalidInput, match="deadline_at: expected a point in time that is yet to come"):
        pool.create("aes", deadline_at=deadline_at)


def test_what_the_jobs_of_a_list_wait_for_is_worked_out_once_for_each_batch(pool):
    """The slots of the pool are read once, however many jobs and batches the list has."""
    pool.create(*["aes"] * 15, "sha256")
    pool.create(*["aes"] * 5)
    pool.create("aes")
    pool.change("b3", held=True)
    asked = []

    class Noting:
        def __getattr__(self, name):
            def ask(*arguments):
                asked.append(name)
                return getattr(tx, name)(*arguments)

            return ask

    with pool.tx() as tx:
        jobs = [job for uuid in ("b1", "b2", "b3") for job in tx.batch_jobs(uuid)]
        alone = [job_detail(tx, job, pool.catalogue, pool.now_s) for job in jobs]
        assert job_details(Noting(), jobs, pool.catalogue, pool.now_s) == alone
    assert [asked.count(name) for name in ("slots", "leases", "hosts", "backlogs")] == [1, 1, 1, 1]
    assert asked.count("batch") == 3
