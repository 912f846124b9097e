"""The jobs an agent holds, without slots."""

import sqlite3

import pytest

from fpga_pool.core.dispatch import Load, Run, Wait
from fpga_pool.dataplane.handler import JobFailure, JobResult
from fpga_pool.model.exceptions import StorageFull
from fpga_pool.model.messages import JobEvicted, RetimeJob, SlotChanged
from fpga_pool.model.objects import RateSegment, SlotState
from fpga_pool.services.agent.journal import Phase

SLOT, OTHER = "h0/sim0/slot0", "h0/sim0/slot1"


def busy(slot=SLOT):
    return SlotChanged(slot=slot, at=1.0, state=SlotState.BUSY, function="sha256")


def ready(slot=SLOT):
    return SlotChanged(slot=slot, at=1.0, state=SlotState.READY, function="sha256")


def give(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Bring a job to a phase."""
    assert jobs.execute(commands.assign(uuid, **fields)).outcome == "accepted"
    if phase is Phase.WAITING:
        return None
    jobs.files.input_path(uuid).write_bytes(b"input")
    jobs.staged(uuid)
    if phase is Phase.STAGED:
        return None
    running = jobs.started(uuid, busy(fields.get("slot", SLOT)))
    if phase is Phase.FAILED:
        jobs.failed(running, "c", "m", retryable=True)
    if phase is Phase.HELD:
        finish(jobs, running)
    return running


def finish(jobs, running):
    jobs.files.sink_path(running).write_bytes(b"output")
    jobs.finished(running, 0.5, JobResult(jobs.files.result_path(running.uuid), 6, "ab"), ready(running.slot))


def files(tmp_path):
    return sorted(f"{name}/{p.name}" for name in ("inputs", "results") for p in (tmp_path / name).iterdir())


# Commands


def test_a_command_is_executed_once_and_a_repeat_is_answered(jobs, commands, reported):
    command = commands.assign("j")
    assert jobs.execute(command).outcome == "accepted"
    jobs.files.input_path("j").write_bytes(b"input")
    jobs.staged("j")
    assert jobs.execute(command).outcome == "repeated"
    assert jobs.get("j").phase is Phase.STAGED
    assert reported() == [("InputStaged", "j", 1)]


def test_a_command_that_is_late_is_refused_and_says_why(jobs, commands):
    late, newer = commands.assign("late"), commands.assign("newer")
    jobs.execute(newer)
    outcome = jobs.execute(late)
    assert (outcome.outcome, outcome.command) == ("refused", late.id)
    assert outcome.reason == (
        f"{SLOT} has executed command 2 of epoch 1: 1 of epoch 1 is late, or from a scheduler that was replaced"
    )
    assert jobs.get("late") is None


def test_an_older_epoch_is_refused_whatever_its_sequence_and_a_newer_one_begins_anew(jobs, commands):
    jobs.execute(commands.assign("a", epoch=3))
    assert jobs.execute(commands.assign("b", epoch=2)).outcome == "refused"
    commands.sequences.clear()
    assert jobs.execute(commands.assign("c", epoch=4)).outcome == "accepted"


def test_slots_have_fences_of_their_own(jobs, commands):
    jobs.execute(commands.assign("a", epoch=5))
    assert jobs.execute(commands.assign("b", slot=OTHER, epoch=1)).outcome == "accepted"


def test_of_an_input_is_told_what_is_here_while_that_is_not_as_planned(jobs, commands, tmp_path, clock):
    # 5 MB in 5 s; nothing was to be told before the first of them is due.
    plan = {"input_bytes": 5_000_000, "transfer": (RateSegment(0.0, 5.0, 8e6),)}
    now_s = clock()
    give(jobs, commands, "punctual", Phase.WAITING, **plan, dispatched_at=now_s + 100.0)
    give(jobs, commands, "late", Phase.WAITING, **plan, dispatched_at=now_s - 3.0)
    (tmp_path / "inputs" / "late.part").write_bytes(bytes(1_000_000))
    assert {job.job: job.moved_bytes for job in jobs.observed()} == {"punctual": None, "late": 1_000_000}
    # By another plan, that is what was to be here.
    other = RetimeJob(job="late", attempt=1, dispatched_at=now_s, transfer=(RateSegment(0.0, 400.0, 8e4),))
    assert jobs.execute(commands.command(other)).outcome == "accepted"
    assert {job.moved_bytes for job in jobs.observed()} == {None}


@pytest.mark.parametrize(("job", "attempt"), [("j", 2), ("nobody", 1)])
def test_other_times_for_what_is_not_waited_for_change_nothing(jobs, commands, job, attempt):
    give(jobs, commands, phase=Phase.WAITING)
    before = jobs.all()
    jobs.execute(commands.command(RetimeJob(job=job, attempt=attempt, dispatched_at=9.0, transfer=())))
    assert jobs.all() == before


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.STAGED, Phase.FAILED, Phase.HELD])
def test_a_released_job_leaves_no_file_and_is_reported(jobs, commands, tmp_path, reported, phase):
    give(jobs, commands, phase=phase)
    (tmp_path / "inputs" / "j.part").write_bytes(b"half")
    jobs.execute(commands.release("j"))
    assert files(tmp_path) == []
    assert reported()[-1] == ("JobReleased", "j", 1)
    assert jobs.all() == []


def test_the_files_of_a_released_running_job_stay_until_its_slot_is_done_with_them(jobs, commands, tmp_path):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.files.sink_path(running).write_bytes(b"half")
    jobs.execute(commands.release("j"))
    assert files(tmp_path) == ["inputs/j", "results/j.1"]
    jobs.clean_up(running)
    assert files(tmp_path) == []


def test_the_release_of_a_job_that_is_not_held_is_noted_and_not_reported(jobs, commands, journal, reported):
    assert jobs.execute(commands.release("nobody")).outcome == "accepted"
    assert (journal.fence(SLOT), reported()) == ((1, 1), [])


def test_an_input_that_was_kept_is_used_by_the_next_attempt(jobs, commands, reported):
    give(jobs, commands, phase=Phase.FAILED)
    jobs.execute(commands.assign("j", attempt=2, slot=OTHER))
    assert (jobs.get("j").phase, jobs.get("j").slot) == (Phase.STAGED, OTHER)
    assert reported()[-1] == ("InputStaged", "j", 2)


# Attempts that overlap: the pool gave a job a new place while the old attempt still computes


def test_an_older_attempt_that_ends_late_does_not_touch_the_newer_one(jobs, commands, tmp_path, reported):
    old = give(jobs, commands, phase=Phase.RUNNING)
    jobs.execute(commands.assign("j", attempt=2, slot=OTHER))
    jobs.failed(old, "c", "m", retryable=True)
    finish(jobs, old)
    jobs.clean_up(old)
    assert (jobs.get("j").assignment.attempt, jobs.get("j").phase) == (2, Phase.STAGED)
    assert files(tmp_path) == ["inputs/j"]
    new = jobs.started("j", busy(OTHER))
    finish(jobs, new)
    assert files(tmp_path) == ["results/j"]
    told = [entry for entry in reported() if len(entry) == 3]
    assert told == [
        ("InputStaged", "j", 1),
        ("JobStarted", "j", 1),
        ("InputStaged", "j", 2),
        ("JobStarted", "j", 2),
        ("JobFinished", "j", 2),
    ]


def test_a_job_that_was_moved_to_another_slot_between_choice_and_start_does_not_start(jobs, commands):
    give(jobs, commands)
    assert isinstance(jobs.next_action(SLOT, "sha256"), Run)
    jobs.execute(commands.assign("j", attempt=2, slot=OTHER))
    assert jobs.started("j", busy(SLOT)) is None
    assert jobs.started("j", busy(OTHER)).assignment.attempt == 2


def test_a_job_that_was_released_between_choice_and_start_does_not_start(jobs, commands, reported):
    give(jobs, commands)
    jobs.execute(commands.release("j"))
    assert jobs.started("j", busy()) is None
    assert ("BUSY", "sha256") not in reported()


def test_a_job_that_was_released_before_it_ended_does_not_finish(jobs, commands, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.execute(commands.release("j"))
    finish(jobs, running)
    jobs.failed(running, "c", "m", retryable=True)
    assert reported()[-2:] == [("JobReleased", "j", 1), ("READY", "sha256")]


def test_a_job_fails_once_and_a_result_that_is_held_does_not_fail(jobs, commands, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    finish(jobs, running)
    jobs.failed(running, "c", "m", retryable=True)
    assert jobs.get("j").phase is Phase.HELD
    failed = give(jobs, commands, "k", Phase.FAILED)
    jobs.failed(failed, "c", "m", retryable=True)
    assert reported().count(("JobFailed", "k", 1)) == 1


# The queue


def test_the_slot_gets_the_staged_job_of_lowest_order(jobs, commands):
    assert isinstance(jobs.next_action(SLOT, ""), Wait)
    give(jobs, commands, "a", Phase.WAITING, order=0)
    assert jobs.next_action(SLOT, "") == Load("sha256")
    give(jobs, commands, "b", order=2)
    give(jobs, commands, "c", order=1)
    give(jobs, commands, "d", order=0, slot=OTHER)
    assert jobs.next_action(SLOT, "sha256").entry.key == "c"


# Results and those who wait for them


def test_whoever_waits_for_a_job_is_told_its_end(jobs, commands):
    running = give(jobs, commands, phase=Phase.RUNNING)
    waiting, cancelled = jobs.end_of("j"), jobs.end_of("j")
    cancelled.cancel()
    assert not waiting.done()
    finish(jobs, running)
    expected = JobResult(jobs.files.result_path("j"), 6, "ab")
    assert waiting.result(0) == expected == jobs.end_of("j").result(0)
    assert jobs._waiters == {}


@pytest.mark.parametrize("end", ["failed", "released"])
def test_whoever_waits_for_a_job_without_result_is_told_why(jobs, commands, end):
    running = give(jobs, commands, phase=Phase.RUNNING)
    waiting = jobs.end_of("j")
    if end == "failed":
        jobs.failed(running, "fpga_pool.slot_fault", "smoke", retryable=False)
        assert waiting.result(0) == JobFailure("fpga_pool.slot_fault", "smoke")
    else:
        jobs.execute(commands.release("j"))
        assert waiting.result(0).code == "fpga_pool.released"
    assert jobs.end_of("j").result(0).code == "fpga_pool.released"


def test_a_delivered_result_is_deleted_and_reported_once(jobs, commands, tmp_path, reported):
    give(jobs, commands, phase=Phase.HELD)
    assert files(tmp_path) == ["results/j"]
    jobs.delivered([("j", 1)])
    jobs.delivered([("j", 1)])
    assert files(tmp_path) == []
    assert reported().count(("ResultDelivered", "j", 1)) == 1


def test_who_waits_for_an_attempt_does_not_get_the_result_of_the_next_and_cannot_end_its_retention(jobs, commands):
    give(jobs, commands, phase=Phase.RUNNING)
    waiting = jobs.end_of("j")
    give(jobs, commands, phase=Phase.HELD, attempt=2)
    assert waiting.result(0).code == "fpga_pool.released"
    jobs.delivered([("j", 1)])
    assert jobs.get("j").phase is Phase.HELD


def test_delivery_and_cancellation_at_the_same_moment_end_the_job_once(jobs, commands, reported):
    give(jobs, commands, phase=Phase.HELD)
    jobs.execute(commands.release("j"))
    jobs.delivered([("j", 1)])
    assert [entry[0] for entry in reported()[-2:]] == ["READY", "JobReleased"]


def test_a_result_that_is_not_fetched_in_time_expires(jobs, commands, tmp_path, clock, reported):
    give(jobs, commands, phase=Phase.HELD)
    jobs.expire(clock() - 100)
    assert files(tmp_path) == ["results/j"]
    jobs.expire(clock() + 1)
    assert files(tmp_path) == []
    assert reported()[-1] == ("ResultExpired", "j", 1)


# Small inputs and results


def give_small(jobs, commands, uuid="j", phase=Phase.STAGED, **fields):
    """Bring a job to a phase whose input and result are in the journal."""
    jobs.execute(commands.assign(uuid, **fields))
    jobs.staged_small([(uuid, b"input")])
    if phase is Phase.STAGED:
        return None
    running = jobs.started(uuid, busy())
    if phase is Phase.HELD:
        finish_small(jobs, running)
    return running


def finish_small(jobs, running):
    result = JobResult(jobs.files.result_path(running.uuid), 6, "ab", b"output")
    jobs.finished(running, 0.5, result, ready(running.slot))


def test_a_small_job_needs_no_files(jobs, commands, tmp_path, reported):
    running = give_small(jobs, commands, phase=Phase.RUNNING)
    waiting = jobs.end_of("j")
    assert (jobs.files.small_input("j"), jobs.files.small_input("k")) == (b"input", None)
    finish_small(jobs, running)
    assert waiting.result(0).data == jobs.end_of("j").result(0).data == b"output"
    assert jobs.files.small_input("j") is None
    jobs.delivered([("j", 1)])
    assert jobs.get("j") is None
    assert files(tmp_path) == []
    assert [entry[0] for entry in reported()] == [
        "InputStaged", "BUSY", "JobStarted", "JobFinished", "READY", "ResultDelivered",
    ]  # fmt: skip


def test_a_small_input_that_is_here_already_is_not_staged_again(jobs, commands, reported):
    give_small(jobs, commands)
    jobs.staged_small([("j", b"other"), ("unknown", b"x")])
    assert jobs.files.small_input("j") == b"input"
    assert reported() == [("InputStaged", "j", 1)]


@pytest.mark.parametrize(("phase", "after"), [(Phase.STAGED, Phase.STAGED), (Phase.RUNNING, Phase.STAGED)])
def test_a_small_input_outlives_a_restart(jobs, new_jobs, commands, phase, after, reported):
    give_small(jobs, commands, phase=phase)
    before = reported()
    restarted = new_jobs()
    assert (restarted.get("j").phase, restarted.files.small_input("j")) == (after, b"input")
    assert reported() == before


def test_a_small_result_outlives_a_restart(jobs, new_jobs, commands):
    give_small(jobs, commands, phase=Phase.HELD)
    assert new_jobs().end_of("j").result(0).data == b"output"


def test_a_released_job_leaves_nothing_in_the_journal(jobs, commands, journal):
    give_small(jobs, commands, "a")
    give_small(jobs, commands, "b", Phase.HELD)
    for uuid in "ab":
        jobs.execute(commands.release(uuid))
    assert (journal.input("a"), journal.result("b")) == (None, None)


def test_ends_are_told_when_they_are_recorded_and_those_that_wait_are_recorded_together(
    jobs, commands, journal, monkeypatch
):
    running = [give_small(jobs, commands, uuid, Phase.RUNNING) for uuid in "abc"]
    waiting = jobs.end_of("a")
    together, transactions = journal.together, []
    monkeypatch.setattr(journal, "together", lambda **options: transactions.append(1) or together(**options))
    jobs.on_end = lambda: None  # somebody else records them
    for job in running:
        finish_small(jobs, job)
    assert not waiting.done()
    assert [jobs.get(uuid).phase for uuid in "abc"] == [Phase.RUNNING] * 3
    jobs.record_ends()
    assert waiting.result(0).data == b"output"
    assert [jobs.get(uuid).phase for uuid in "abc"] == [Phase.HELD] * 3
    assert len(transactions) == 1


def test_an_end_that_is_recorded_after_its_job_was_released_leaves_nothing(jobs, commands, tmp_path, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.files.sink_path(running).write_bytes(b"output")
    jobs.on_end = lambda: None
    jobs.finished(running, 0.5, JobResult(jobs.files.result_path("j"), 6, "ab"), ready(running.slot))
    jobs.execute(commands.release("j"))
    jobs.record_ends()
    assert files(tmp_path) == []
    assert "JobFinished" not in [entry[0] for entry in reported()]


def test_an_end_that_cannot_be_recorded_is_computed_again(jobs, commands, journal, monkeypatch):
    running = give_small(jobs, commands, phase=Phase.RUNNING)

    def full(job, data):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "keep_result", full)
        with pytest.raises(sqlite3.OperationalError):
            finish_small(jobs, running)
    assert jobs.get("j").phase is Phase.STAGED
    again = jobs.started("j", busy())
    finish_small(jobs, again)
    assert jobs.get("j").phase is Phase.HELD


def test_commands_that_cannot_be_recorded_change_nothing(jobs, commands, journal):
    give_small(jobs, commands)
    (kept,) = jobs.all()

    def execute():
        with jobs.together():
            jobs.execute(commands.release(kept.uuid))
            jobs.execute(commands.assign("new"))
            raise StorageFull("no room")

    with pytest.raises(StorageFull):
        execute()
    assert jobs.all() == journal.jobs() == [kept]


def test_a_failure_that_cannot_be_recorded_is_computed_again(jobs, commands, journal, monkeypatch):
    running = give_small(jobs, commands, phase=Phase.RUNNING)

    def full(**_change):
        raise StorageFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "note", full)
        with pytest.raises(StorageFull):
            jobs.failed(running, "fpga_pool.stopped", "stopped", retryable=True)
    assert jobs.get("j").phase is Phase.STAGED


# Restart


@pytest.mark.parametrize(
    ("phase", "after"),
    [
        (Phase.WAITING, Phase.WAITING),
        (Phase.STAGED, Phase.STAGED),
        (Phase.RUNNING, Phase.STAGED),
        (Phase.FAILED, Phase.FAILED),
        (Phase.HELD, Phase.HELD),
    ],
)
def test_a_restarted_agent_goes_on_with_what_it_held(jobs, new_jobs, commands, phase, after, reported):
    give(jobs, commands, phase=phase)
    before = reported()
    assert [(job.uuid, job.phase) for job in new_jobs().all()] == [("j", after)]
    assert reported() == before


@pytest.mark.parametrize("phase", [Phase.STAGED, Phase.RUNNING])
def test_an_input_that_was_lost_in_a_restart_is_asked_for_again(jobs, new_jobs, commands, journal, phase):
    give(jobs, commands, phase=phase)
    jobs.files.input_path("j").unlink()
    restarted = new_jobs()
    _, failed = journal.reports(100)[-1]
    assert (failed.code, failed.retryable) == ("fpga_pool.input_lost", True)
    restarted.execute(commands.assign("j", attempt=2))
    assert restarted.get("j").phase is Phase.WAITING


def test_a_result_that_was_lost_in_a_restart_has_expired(jobs, new_jobs, commands, reported):
    give(jobs, commands, phase=Phase.HELD)
    jobs.files.result_path("j").unlink()
    assert new_jobs().all() == []
    assert reported()[-1] == ("ResultExpired", "j", 1)


def test_a_restart_removes_what_belongs_to_no_job_and_what_was_being_computed(jobs, new_jobs, commands, tmp_path):
    running = give(jobs, commands, "a", Phase.RUNNING)
    jobs.files.sink_path(running).write_bytes(b"half")
    give(jobs, commands, "b", Phase.WAITING)
    give(jobs, commands, "c", Phase.HELD)
    for name in ("inputs/b.part", "inputs/stray", "inputs/stray.part", "results/stray"):
        (tmp_path / name).write_bytes(b"x")
    new_jobs()
    assert files(tmp_path) == ["inputs/a", "inputs/b.part", "results/c"]


def test_an_input_that_is_complete_on_disk_is_staged_whatever_the_journal_had_time_for(
    jobs, new_jobs, commands, reported
):
    """The file gets its name when it is complete, checked and synced; a power loss may take the note of it."""
    give(jobs, commands, phase=Phase.WAITING)
    jobs.files.input_path("j").write_bytes(b"input")
    restarted = new_jobs()
    assert restarted.get("j").phase is Phase.STAGED
    assert reported() == [("InputStaged", "j", 1)]


# Evictions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep_progress", "done"), [(True, 0.75), (False, 0.0)])
def test_an_evicted_job_keeps_its_input_and_says_how_much_is_done(jobs, commands, journal, keep_progress, done):
    jobs.progress = lambda _: 0.75
    give(jobs, commands, phase=Phase.RUNNING)
    command = commands.evict("j", keep_progress=keep_progress)
    assert [jobs.execute(command).outcome for _ in range(2)] == ["accepted", "repeated"]
    assert [item.done for _, item in journal.reports(100) if isinstance(item, JobEvicted)] == [done]
    # It comes back and need not be sent again.
    jobs.execute(commands.assign("j", attempt=2, done=done))
    assert (jobs.get("j").phase, jobs.get("j").assignment.done) == (Phase.STAGED, done)


def test_a_job_that_was_evicted_before_it_began_has_done_what_it_had_done(jobs, commands, journal):
    give(jobs, commands, attempt=2, done=0.5)
    jobs.execute(commands.evict("j", attempt=2))
    assert [item.done for _, item in journal.reports(100) if isinstance(item, JobEvicted)] == [0.5]


def evicted(reported):
    return [item for item in reported() if item[0] == "JobEvicted"]


@pytest.mark.parametrize(
    ("phase", "attempt"), [(Phase.RUNNING, 2), (Phase.HELD, 1), (Phase.FAILED, 1)], ids=["another", "held", "failed"]
)
def test_an_eviction_of_another_attempt_or_of_one_that_has_ended_changes_nothing(
    jobs, commands, reported, phase, attempt
):
    give(jobs, commands, phase=phase)
    assert jobs.execute(commands.evict("j", attempt=attempt)).outcome == "accepted"
    assert (jobs.get("j").phase, evicted(reported)) == (phase, [])


def test_an_eviction_that_meets_an_end_on_its_way_into_the_table_leaves_it_an_end(jobs, commands, journal, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    journal.note(keep=running.at(Phase.HELD))
    jobs.execute(commands.evict("j"))
    assert (jobs.get("j").phase, evicted(reported)) == (Phase.RUNNING, [])


def test_an_agent_that_dies_after_an_eviction_does_not_begin_again_by_itself(jobs, new_jobs, commands):
    give(jobs, commands, phase=Phase.RUNNING)
    jobs.execute(commands.evict("j"))
    again = new_jobs()
    assert isinstance(again.next_action(SLOT, "sha256"), Wait)
    again.execute(commands.assign("j", attempt=2))
    assert again.get("j").phase is Phase.STAGED
