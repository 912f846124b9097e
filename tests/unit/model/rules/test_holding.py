"""Batches that their owners hold back."""

import pytest

from fpga_pool.model.exceptions import Conflict, InvalidTransition, NotFound, PreconditionFailed
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.objects.pool import BatchState, JobState
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.batch.holding import change_batch
from fpga_pool.model.rules.batch.outlook import batch_detail


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
    with pytest.raises(ValueError, match="nothing to change: expected held"):
        BatchChange()
