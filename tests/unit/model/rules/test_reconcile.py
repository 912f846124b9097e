import pytest

from fpga_pool.model.exceptions import StaleEpoch
from fpga_pool.model.messages.agents import NO_EFFECT, ResultDelivered
from fpga_pool.model.objects.pool import ACTIVE_JOBS, BatchState, Host, JobState, SlotState

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


@pytest.fixture
def job(pool):
    """Return the uuid of a job on the large slot."""
    pool.create("flow")
    pool.plan()
    pool.sent()
    return "b1.0"


def lose(pool, host="h0"):
    pool.now_s += 11
    return [(repair.subject, repair.reason) for repair in pool.tick()]


def test_a_host_is_stored_as_it_describes_itself(pool):
    host = pool.store.get(Host, "h0")
    assert (host.egress_bps, host.data_address, host.data_port, host.boot) == (8e6, "::1", 9, 1)
    assert (host.alive, host.heard_at) == (True, 1000.0)


def test_new_slots_are_taken_into_the_pool(new_pool, catalogue):
    assert new_pool().host_up("h1") == [(f"h1/c/r{i}", "newly discovered") for i in range(3)]


def test_a_host_that_is_as_it_is_stored_needs_no_repair(pool, job):
    assert pool.heard(pool.heartbeat()) == []
    pool.drain(R0)
    assert pool.heard(pool.heartbeat()) == []
    pool.bring(job, JobState.RESULT_HELD)
    assert pool.heard(pool.heartbeat()) == []


def test_a_slot_is_what_its_agent_observes(pool):
    heartbeat = pool.heartbeat(r0={"state": SlotState.READY, "function": "aes"})
    assert pool.heard(heartbeat) == [(R0, "stored as EMPTY , but is READY")]
    assert (pool.slot(R0).state, pool.slot(R0).function) == (SlotState.READY, "aes")


def test_a_faulted_slot_gives_its_jobs_back(pool, job):
    pool.bring(job, JobState.RUNNING)
    pool.heard(pool.heartbeat(r2={"state": SlotState.FAULTED, "reason": "smoke"}))
    assert (pool.job(job).state, pool.job(job).reason) == (JobState.PENDING, f"slot {R2} failed: smoke")


def test_a_card_that_is_gone_faults_its_slots_and_one_that_is_back_repairs_them(pool, job):
    everything = pool.heartbeat()
    rest = tuple(slot for slot in everything.slots if slot.slot != R2)
    assert pool.heard(pool.heartbeat(slots=rest, jobs=())) == [(R2, "its card has disappeared")]
    assert (pool.slot(R2).state, pool.job(job).state) == (SlotState.FAULTED, JobState.PENDING)
    assert pool.heard(pool.heartbeat(slots=rest, jobs=())) == []
    assert pool.heard(pool.heartbeat(r2={"state": SlotState.EMPTY}, jobs=())) == [
        (R2, "stored as FAULTED , but is EMPTY")
    ]
    assert [job.slot for job in pool.plan()] == [R2]


def test_another_card_in_the_place_of_one_is_planned_by_what_it_is(pool):
    repairs = pool.heard(pool.heartbeat(r0={"kind": "large"}))
    assert repairs == [(R0, "differs from the stored one: board fast, kind large, sequence 0")]
    assert pool.slot(R0).kind == "large"


@pytest.mark.parametrize("state", sorted(ACTIVE_JOBS))
def test_a_job_that_its_agent_does_not_know_is_planned_again_and_nobody_is_told(pool, job, state):
    pool.bring(job, state)
    pool.heard(pool.heartbeat())
    assert pool.heard(pool.heartbeat(jobs=())) == [(job, "unknown to its agent")]
    assert (pool.job(job).state, pool.lease(R2), pool.sent()) == (JobState.PENDING, None, [])


def test_an_agent_that_knows_only_an_older_attempt_is_told_to_forget_it(pool, job):
    old = [(job, 0, R2)]
    assert pool.heard(pool.heartbeat(jobs=old)) == [(job, "unknown to its agent")]
    assert pool.heard(pool.heartbeat(jobs=old)) == [(job, "held by h0, though it has ended or moved elsewhere")]
    assert pool.actions() == [(R2, "ReleaseJob", job)]


def test_a_result_that_is_no_longer_held_has_expired(pool, job):
    pool.bring(job, JobState.RESULT_HELD)
    assert pool.heard(pool.heartbeat(jobs=())) == [(job, "its result is no longer held by its agent")]
    assert pool.job(job).state is JobState.COMPLETED
    assert pool.batch("b1").jobs_completed == 1


@pytest.mark.parametrize("held", [("nobody", 1, R2), ("b1.0", 1, R2)])
def test_an_agent_that_holds_what_is_over_is_told_to_forget_it(pool, job, held):
    pool.fail(job, retryable=False)
    pool.sent()
    assert pool.heard(pool.heartbeat(jobs=[held])) == [(held[0], "held by h0, though it has ended or moved elsewhere")]
    assert pool.actions() == [(R2, "ReleaseJob", held[0])]


def test_an_input_kept_for_a_retry_stays_until_the_job_is_over(pool, job):
    pool.fail(job)
    kept = [(job, 1, R2)]
    assert pool.heard(pool.heartbeat(jobs=kept)) == []
    pool.cancel("b1")
    assert pool.heard(pool.heartbeat(jobs=kept)) == [(job, "held by h0, though it has ended or moved elsewhere")]
    assert pool.actions() == [(R2, "ReleaseJob", job)]


def test_nothing_is_concluded_about_jobs_on_a_slot_whose_commands_are_on_the_way(pool, job):
    behind = {"r2": {"sequence": pool.slot(R2).sequence - 1}}
    assert pool.heard(pool.heartbeat(jobs=[("stray", 1, R2)], **behind)) == []
    assert (pool.job(job).state, pool.sent()) == (JobState.WAITING_INPUT, [])


def test_a_heartbeat_from_before_a_command_that_comes_after_it_changes_nothing(pool):
    before = pool.heartbeat()
    pool.create("flow")
    pool.plan()
    assert pool.heard(before) == []
    assert pool.job("b1.0").state is JobState.WAITING_INPUT


def test_nothing_is_concluded_about_slots_and_jobs_while_reports_are_on_the_way(pool, job):
    pool.bring(job, JobState.RUNNING)
    heartbeat = pool.heartbeat(jobs=(), unreported=1, r2={"state": SlotState.FAULTED})
    assert pool.heard(heartbeat) == []
    assert (pool.slot(R2).state, pool.job(job).state) == (SlotState.BUSY, JobState.RUNNING)


# Silent hosts


def test_a_host_that_is_silent_is_lost_with_its_slots_jobs_and_commands(pool, job):
    pool.create("flow")
    pool.plan()
    assert lose(pool) == [("h0", "no heartbeat for 11.0 s")]
    assert pool.sent() == []
    assert {pool.slot(name).state for name in (R0, R1, R2)} == {SlotState.FAULTED}
    assert (pool.job(job).state, pool.job(job).reason) == (JobState.PENDING, "host h0: no heartbeat for 11.0 s")
    assert lose(pool) == []
    assert pool.plan() == []


def test_jobs_of_a_lost_host_are_planned_elsewhere(pool, job):
    pool.now_s += 11
    pool.host_up("h1")
    pool.tick()
    assert [planned.host for planned in pool.plan()] == ["h1"]
    # The lost host gets no command.
    assert {command.host for command in pool.sent()} == {"h1"}


def test_a_host_that_is_back_forgets_what_is_elsewhere_though_it_missed_commands_and_has_reports_to_make(pool, job):
    told = pool.slot(R2).sequence
    pool.bring(job, JobState.RUNNING)
    pool.cancel("b1")  # its release is dropped when the host is lost
    lose(pool)
    assert pool.job(job).state is JobState.CANCELLED
    back = pool.heartbeat(jobs=[(job, 1, R2)], unreported=3, r2={"sequence": told, "state": SlotState.BUSY})
    assert pool.heard(back) == [(job, "held by h0, though it has ended or moved elsewhere")]
    assert pool.actions() == [(R2, "ReleaseJob", job)]
    assert pool.store.get(Host, "h0").alive
    pool.heard(pool.heartbeat(jobs=(), r0={"state": SlotState.EMPTY}))
    assert pool.slot(R0).state is SlotState.EMPTY


def test_a_host_that_is_back_does_not_run_a_job_that_waits_for_another_place(pool, job):
    lose(pool)
    assert pool.job(job).state is JobState.PENDING
    # Its agent does not know that, and would begin the attempt that was given up.
    back = pool.heartbeat(jobs=[(job, 1, R2)])
    assert (job, "held by h0, though it has ended or moved elsewhere") in pool.heard(back)
    assert pool.actions() == [(R2, "ReleaseJob", job)]


def test_a_result_on_a_host_that_was_lost_can_be_delivered_when_it_is_back(pool, job):
    pool.bring(job, JobState.RESULT_HELD)
    lose(pool)
    assert pool.job(job).state is JobState.RESULT_HELD
    pool.heard(pool.heartbeat(jobs=(), unreported=1))
    assert pool.report(ResultDelivered(**pool.about(job))) == []
    assert pool.job(job).reason == ""


def test_a_slot_that_has_missed_commands_while_its_host_was_lost_is_not_waited_for(pool, job):
    """The jobs of its agent are compared again, although the slot gets no more work."""
    pool.bring(job, JobState.RESULT_HELD)
    told = pool.slot(R2).sequence
    pool.create("flow")
    pool.plan()  # the next job of this slot; its command is dropped when the host is lost
    lose(pool)
    pool.cancel("b2")
    missed = pool.heartbeat(jobs=[(job, 1, R2)], r2={"sequence": told})
    assert (R2, "missed commands that will not be delivered any more") in pool.heard(missed)
    (command,) = [command for command in pool.sent() if command.slot == R2]
    assert (command.action, command.sequence) == (NO_EFFECT, pool.slot(R2).sequence)
    # After this command the agent no longer holds the result.
    assert pool.heard(pool.heartbeat(jobs=())) == [(job, "its result is no longer held by its agent")]


def test_a_slot_whose_commands_were_refused_while_its_card_was_gone_is_not_waited_for(pool, job):
    told = pool.slot(R2).sequence
    pool.cancel("b1")
    others = tuple(slot for slot in pool.heartbeat().slots if slot.slot != R2)
    pool.heard(pool.heartbeat(jobs=(), slots=others))
    pool.sent()  # refused: the agent has no such slot
    back = pool.heartbeat(jobs=(), r2={"sequence": told, "state": SlotState.EMPTY})
    assert (R2, "missed commands that will not be delivered any more") in pool.heard(back)
    assert pool.actions() == [(R2, "ReleaseJob", "")]


# Time


def test_an_input_that_never_comes_fails_the_job(pool, job):
    pool.now_s += 3599.9  # the transfer of a small local input ends at the commit
    pool.heard(pool.heartbeat())
    assert pool.tick() == []
    pool.now_s += 0.2
    assert [repair.subject for repair in pool.tick()] == [job]
    assert (pool.job(job).state, pool.job(job).error_code) == (JobState.FAILED, "fpga_pool.input_timeout")
    assert pool.job(job).reason == "no complete input within 3600 s after its planned transfer"
    assert pool.actions() == [(R2, "ReleaseJob", job)]
    assert pool.batch("b1").state is BatchState.FAILED


def test_a_job_whose_input_has_come_is_waited_for(pool, job):
    pool.bring(job, JobState.STAGED)
    pool.now_s += 1e6
    pool.heard(pool.heartbeat())
    assert pool.tick() == []


# A database that differs from the one that the agents knew


def test_a_new_database_counts_on_from_where_the_agents_are(new_pool):
    pool, old = new_pool(), new_pool()
    slots = tuple(
        slot.__class__(**{name: getattr(slot, name) for name in ("slot", "card", "region", "board", "kind", "state")},
                       sequence=200, epoch=1)
        for slot in old.heartbeat().slots
    )  # fmt: skip
    pool.heard(pool.heartbeat("h0", slots=slots))
    pool.create("flow")
    pool.plan()
    assert [command.fence for command in pool.sent()] == [(1, 201)]


def test_an_agent_that_obeyed_a_later_epoch_is_refused_with_what_to_do(pool):
    with pytest.raises(StaleEpoch) as refusal:
        pool.heard(pool.heartbeat(r0={"epoch": 5}))
    told = str(refusal.value)
    assert told.startswith(
        "host h0 has executed commands of epoch 5 of a shard, but this database is at epoch 1 of s: another scheduler"
    )
    assert "the database was restored or recreated" in told
    assert told.endswith("in that case stop the agent and remove its state directory")
