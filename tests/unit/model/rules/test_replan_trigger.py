"""The conditions under which a pool replans."""

from dataclasses import replace

import pytest

from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch.family import ReplanTrigger

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


@pytest.fixture
def look(pool):
    replan_trigger = ReplanTrigger(pool.settings)

    def reason():
        with pool.tx() as tx:
            return replan_trigger.reason(tx, pool.now_s)

    return reason


@pytest.fixture
def queued(pool):
    """Plan jobs of 1 s on three slots of one card, which load in turn: the first ones begin after 0.5, 1.0, 1.5 s."""
    pool.create(*["aes"] * 12)
    pool.plan()
    return pool


def test_nothing_is_said_as_long_as_all_goes_as_planned(queued, look):
    assert look() == ""
    queued.now_s += 1.0
    assert look() == ""


def test_what_is_late_is_said_once_and_again_when_it_is_twice_as_late(queued, look):
    # A delay of 1 s is tolerated, so two of the first jobs are late.
    queued.now_s = 1002.25
    assert "2 jobs are late" in look()
    queued.now_s = 1003.25
    # By now the third job and the second jobs of two queues are late as well; the others are not twice as late.
    assert "3 jobs are late" in look()
    queued.now_s = 1003.5
    assert look() == ""  # too soon after the last check


def test_jobs_of_policies_that_do_not_plan_are_no_news(queued):
    batch = queued.create("aes")
    queued.plan()
    with queued.tx() as tx:
        [late] = tx.batch_jobs(batch)
        tx.save(replace(tx.batch(batch), policy="benefit_plus"))
    replan_trigger = ReplanTrigger(queued.settings, lambda name: name != "benefit_plus")

    def reason(now_s):
        with queued.tx() as tx:
            return replan_trigger.reason(tx, now_s)

    # Its slot has a queue of 4 s before it.  At 1010 s all thirteen jobs are late, but this one is not counted.
    assert "12 jobs are late" in reason(1010.0)
    with queued.tx() as tx:
        others = [job for job in tx.active_jobs() if job.uuid != late.uuid]
    for job in others:
        queued.bring(job.uuid, JobState.COMPLETED)
    assert reason(1100.0) == ""


def test_an_idle_slot_beside_a_long_queue_is_said_once(queued, look):
    with queued.tx() as tx:
        jobs = {slot: tx.active_jobs(slot=slot) for slot in (R0, R1, R2)}
    for job in jobs[R1]:
        queued.bring(job.uuid, JobState.COMPLETED)
    assert "1 slots are idle" in look()
    queued.now_s += 1.1
    assert look() == ""


def test_nothing_under_way_is_nothing_to_look_at(pool, look):
    assert look() == ""


def test_looks_of_which_nothing_comes_get_rarer(queued):
    replan_trigger = ReplanTrigger(queued.settings)

    def reason(now_s):
        with queued.tx() as tx:
            return replan_trigger.reason(tx, now_s)

    assert "late" in reason(1002.0)
    replan_trigger.answered(changed=False)
    assert "late" in reason(1005.0)
    assert reason(1006.9) == ""  # less than two seconds later
    replan_trigger.answered(changed=True)
    assert "late" in reason(1010.0)
    assert "late" in reason(1100.0)
