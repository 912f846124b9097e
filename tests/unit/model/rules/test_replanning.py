"""From the plan under way to a replanning problem, and back."""

from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect
from fpga_pool.model.messages.agents import ObservedJob
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.rules.batch.family import BatchFamily, ReplanTrigger
from fpga_pool.model.rules.shared.flows import shape_flow
from fpga_pool.model.values import changed

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


@pytest.fixture
def queued(pool):
    """Plan twelve jobs of 1 s, four on each of three slots, and start the first one of each slot."""
    pool.create(*["aes"] * 12)
    placed = pool.plan()
    pool.now_s += 0.75  # the lead time and the load
    for job in placed:
        pool.stage(job.uuid)
    for slot in (R0, R1, R2):
        pool.start(queue(pool, slot)[0].uuid)
    pool.sent()
    return pool


def queue(pool, slot):
    with pool.tx() as tx:
        return tx.active_jobs(slot=slot)


def test_what_computes_is_how_long_a_slot_is_taken_and_what_is_next_stays(queued):
    queued.now_s += 0.5
    asked = queued.asked()
    # 1.001 s each: 0.5 s are done, and 0.25 s pass until the plan begins.
    assert asked.underway.problem.ready_s.tolist() == pytest.approx([0.251] * 3)
    # The next job of each queue begins within a second; the two behind it do not.
    begun = {job.uuid for job, begun in zip(asked.jobs, asked.underway.begun, strict=True) if begun}
    assert begun == {queue(queued, slot)[1].uuid for slot in (R0, R1, R2)}
    assert len(asked.jobs) == 9


def test_a_computation_that_is_late_is_expected_to_be_as_late_again(queued):
    queued.now_s += 4.751
    # 5.001 s have passed since the start at time 0 of the plan, so the jobs are 4 s late.
    assert queued.asked().underway.problem.ready_s.tolist() == pytest.approx([4.0] * 3)


def test_jobs_behind_one_that_is_late_move_to_other_slots_on_their_host_with_their_inputs(queued):
    for slot in (R1, R2):
        for job in queue(queued, slot)[:3]:
            queued.bring(job.uuid, JobState.COMPLETED)
    queued.now_s += 4.751
    late = queue(queued, R0)
    changes = queued.replan(late=True)
    assert {job.uuid for job in changes.moved} == {job.uuid for job in late[1:]}
    assert {(job.state, job.attempt) for job in changes.moved} == {(JobState.WAITING_INPUT, 2)}
    # The agent keeps the inputs, so nothing is released.
    assert {name for _, name, _ in queued.actions()} == {"AssignJob"}
    assert [job.uuid for job in queue(queued, R0)] == [late[0].uuid]


def test_a_new_batch_goes_behind_what_is_there_and_nothing_moves_without_need(queued):
    batch = queued.create("aes", "aes")
    changes = queued.replan()
    assert ([job.batch_uuid for job in changes.placed], changes.moved) == ([batch] * 2, [])
    assert all(job.order == 4 for job in changes.placed)
    stored = queued.batch(batch)
    assert stored.state is BatchState.RUNNING
    assert 0 < stored.lower_bound_s <= stored.planned_makespan_s


def test_a_failed_slots_jobs_are_placed_on_the_others(queued):
    queued.report(queued.slot_report(R0, SlotState.FAULTED, reason="smoke"))
    changes = queued.replan()
    assert len(changes.placed) == 4
    assert {job.slot for job in changes.placed} == {R1, R2}


def test_jobs_of_policies_that_do_not_replan_are_left_alone(queued):
    for job in queue(queued, R1):
        queued.bring(job.uuid, JobState.COMPLETED)
    assert queued.asked(movable=False).underway.begun.all()
    assert queued.replan(movable=False).moved == []
    assert len(queued.replan().moved) > 0


def test_a_job_that_was_moved_often_stays(queued):
    for job in queue(queued, R1):
        queued.bring(job.uuid, JobState.COMPLETED)
    moved = {job.uuid for job in queued.replan().moved}
    asked = queued.asked()
    # Two of the three attempts are reserved for faults.
    assert all(begun for job, begun in zip(asked.jobs, asked.underway.begun, strict=True) if job.uuid in moved)


def test_an_attempt_that_a_drain_has_ended_does_not_count_as_a_move(queued):
    queued.bring(queue(queued, R0)[0].uuid, JobState.COMPLETED)
    queued.drain(R0)
    placed = {job.uuid for job in queued.replan().placed}
    asked = queued.asked()
    assert {job.attempt for job in asked.jobs if job.uuid in placed} == {2}
    assert placed <= {job.uuid for job, begun in zip(asked.jobs, asked.underway.begun, strict=True) if not begun}


def test_what_changes_meanwhile_is_left_out(queued):
    for job in queue(queued, R1):
        queued.bring(job.uuid, JobState.COMPLETED)
    asked = queued.asked()
    started = {queue(queued, slot)[0].uuid for slot in (R0, R2)}
    for uuid in started:
        queued.bring(uuid, JobState.COMPLETED)
    queued.cancel("b1")
    assert queued.replan(asked).moved == []


def test_a_move_to_another_host_withdraws_the_input_from_the_former_one(queued):
    queued.host_up("h1")
    changes = queued.replan()
    away = {job.uuid for job in changes.moved if job.host == "h1"}
    assert away
    actions = queued.actions()
    for uuid in away:
        kinds = [(slot.split("/")[0], name) for slot, name, job in actions if job == uuid]
        assert kinds == [("h0", "ReleaseJob"), ("h1", "AssignJob")]


def test_a_drain_is_complete_when_the_last_job_has_moved_away(queued):
    queued.bring(queue(queued, R0)[0].uuid, JobState.COMPLETED)
    queued.drain(R0)
    assert queued.slot(R0).state is SlotState.DRAINED
    assert {job.slot for job in queued.replan().placed} == {R1, R2}


def test_transfers_behind_a_late_one_get_other_times_where_they_are(pool):
    # 1 MB each takes 1 s at 8 Mbit/s, one after the other from h0 to the only slot that fits `flow`.
    pool.host_up("h1")
    pool.drain(R2)
    pool.create(*["flow"] * 8, input_bytes=10**6)
    _, *rest = sorted(pool.plan(), key=lambda job: job.order)
    pool.now_s += 2.75
    # When the plan begins, at 1003 s, the first input is 1.75 s late and the second one 0.75 s.  They are expected to
    # use the link for 1 s, the time of a whole input, and then for 0.75 s.
    changes = pool.replan(late=True)
    # The fourth input begins within a second.  The fifth and later ones were to begin at 1004.25 s, 1005.25 s etc.
    assert {job.uuid for job in changes.retimed} == {job.uuid for job in rest[3:]}
    for before in rest[3:]:
        after = pool.job(before.uuid)
        begins = [job.dispatched_at + job.transfer[0].begin_s for job in (before, after)]
        assert begins[1] == pytest.approx(begins[0] + 0.5)
        assert (after.slot, after.attempt) == (before.slot, 1)


@pytest.fixture
def moving(pool):
    """Return a pool and a job whose input of 1 MB moves from h1, which has an egress driver, to h0 in 1 s."""
    pool.heard(changed(pool.heartbeat("h1", slots=(), jobs=()), egress_driver="tc"))
    job = JobRequest(uuid=str(uuid4()), name="", function="aes", requester="h1", input_bytes=1_000_000)
    pool.submit(BatchRequest(uuid="b", project_id="p", user_id="u", name="", policy="", jobs=(job,)))
    (job,) = pool.plan()
    with pool.tx() as tx:
        shape_flow(tx, tx.job(job.uuid), "192.0.2.1:5000")
    pool.now_s = job.dispatched_at + 0.9
    pool.sent()
    return pool, pool.job(job.uuid)


def hear(pool, job, moved_bytes):
    seen = ObservedJob(job=job.uuid, attempt=job.attempt, slot=job.slot, moved_bytes=moved_bytes)
    pool.heard(changed(pool.heartbeat(job.host), jobs=(seen,)))


def test_what_is_told_of_an_input_decides_how_late_it_is(moving):
    pool, job = moving
    replan_trigger = ReplanTrigger(replace(pool.settings, replan_late_s=0.6))
    with pool.tx() as tx:
        assert "late" not in replan_trigger.reason(tx, pool.now_s)
    # A quarter has arrived after 0.9 s, so the transfer is 0.65 s late.
    hear(pool, job, 250_000)
    pool.now_s += 0.7
    with pool.tx() as tx:
        assert [job.moved_bytes for job in tx.astray()] == [250_000]
        assert f"job {job.uuid} by 0.6" in replan_trigger.reason(tx, pool.now_s)
    hear(pool, job, None)
    with pool.tx() as tx:
        assert tx.astray() == []


def test_both_ends_of_a_transfer_under_way_are_told_of_its_new_rates(moving):
    pool, job = moving
    hear(pool, job, 250_000)
    pool.sent()
    changes = pool.replan(late=True)
    assert [one.uuid for one in changes.retimed] == [job.uuid]
    commands = {type(command.action).__name__: command for command in pool.sent()}
    assert set(commands) == {"RetimeJob", "ShapeFlow"}
    assert (commands["RetimeJob"].host, commands["ShapeFlow"].host) == ("h0", "h1")
    told = commands["ShapeFlow"].action
    assert (told.attempt, told.source_port) == (job.attempt, 5000)
    # At time 0 of the plan it will be 0.65 s late.  It moves until then, for 0.5 s in total, and half of it is left.
    pieces = [(piece.begin_s, piece.end_s, piece.bps) for piece in told.transfer]
    assert pieces == [pytest.approx((-pool.settings.dispatch_lead_s, 0.0, 8e6)), pytest.approx((0.0, 0.5, 8e6))]
    assert commands["RetimeJob"].action.transfer == told.transfer


def test_promised_bound_holds_where_what_is_late_ends_at_once(queued):
    """Three slots compute jobs that are 4 s late: they are expected to take another 4 s, but may end at once."""
    queued.now_s += 4.751
    batch = queued.create("aes")
    changes = queued.replan()
    assert [job.batch_uuid for job in changes.placed] == [batch]
    # One job of 1.001 s, on any of three slots.
    assert queued.batch(batch).lower_bound_s == pytest.approx(1.001)


def test_promised_bound_among_others_counts_what_inputs_take_to_move(queued):
    """Six inputs of 1 MB from one host take 6 s at 8 Mbit/s; the last one to arrive still computes for 2 s."""
    queued.heard(queued.heartbeat("h1", slots=(), jobs=()))
    batch = queued.create(*["aes"] * 6, requester="h1", input_bytes=1_000_000)
    queued.replan()
    stored = queued.batch(batch)
    assert stored.lower_bound_s == stored.completion_bound_s == pytest.approx(6.0 + 2.0)
    assert stored.planned_makespan_s >= stored.lower_bound_s


class Learned(Ect):
    """A policy that records the learned state with which it replans."""

    def replan(self, underway, state, rng):
        self.remembered = state


def test_a_policy_plans_around_what_is_under_way_by_what_it_remembers(queued):
    policy = Learned()
    family = BatchFamily(queued.catalogue, queued.settings, lambda _: policy, "learned", lambda _: True)
    queued.create("aes")
    with queued.tx() as tx:
        look = family.snapshot(tx, queued.now_s)
    family.decide(look, {"runs": 3}, np.random.default_rng(0))
    assert policy.remembered == {"runs": 3}
