"""The jobs that an agent holds, without real slots."""

import pytest

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.messages.agents import RetimeJob
from fpga_pool.model.objects.pool import RateSegment
from fpga_pool.transfer.handler import JobFailure, JobResult

from .held import OTHER, SLOT, files, finish, give

# Commands


def test_a_command_is_executed_once_and_a_repeat_is_answered(jobs, commands, reported):
    command = commands.assign("j")
    assert jobs.order(command).outcome == "accepted"
    jobs.files.input_path("j").write_bytes(b"input")
    jobs.staged("j")
    assert jobs.order(command).outcome == "repeated"
    assert jobs.get("j").phase is Phase.STAGED
    assert reported() == [("InputStaged", "j", 1)]


def test_a_command_that_is_late_is_refused_and_says_why(jobs, commands):
    late, newer = commands.assign("late"), commands.assign("newer")
    jobs.order(newer)
    outcome = jobs.order(late)
    assert (outcome.outcome, outcome.command) == ("refused", late.id)
    assert outcome.reason == (
        f"{SLOT} has executed command 2 of epoch 1: 1 of epoch 1 is outdated, or from a replaced scheduler"
    )
    assert jobs.get("late") is None


def test_an_older_epoch_is_refused_whatever_its_sequence_and_a_newer_one_begins_again(jobs, commands):
    jobs.order(commands.assign("a", epoch=3))
    assert jobs.order(commands.assign("b", epoch=2)).outcome == "refused"
    commands.sequences.clear()
    assert jobs.order(commands.assign("c", epoch=4)).outcome == "accepted"


def test_slots_have_fences_of_their_own(jobs, commands):
    jobs.order(commands.assign("a", epoch=5))
    assert jobs.order(commands.assign("b", slot=OTHER, epoch=1)).outcome == "accepted"


def test_of_an_input_is_told_what_is_here_while_that_is_not_as_planned(jobs, commands, tmp_path, clock):
    # 5 MB in 5 s, so 1 MB is less than planned. Nothing is reported of an input that is not due yet.
    plan = {"input_bytes": 5_000_000, "transfer": (RateSegment(0.0, 5.0, 8e6),)}
    now_s = clock()
    jobs._clock = lambda: now_s
    give(jobs, commands, "punctual", Phase.WAITING, **plan, dispatched_at=now_s + 100.0)
    give(jobs, commands, "late", Phase.WAITING, **plan, dispatched_at=now_s - 3.0)
    (tmp_path / "inputs" / "late.part").write_bytes(bytes(1_000_000))
    assert {job.job: job.moved_bytes for job in jobs.observed()} == {"punctual": None, "late": 1_000_000}
    # According to the new plan, 1 MB is as planned.
    other = RetimeJob(job="late", attempt=1, dispatched_at=now_s, transfer=(RateSegment(0.0, 400.0, 8e4),))
    assert jobs.order(commands.command(other)).outcome == "accepted"
    assert {job.moved_bytes for job in jobs.observed()} == {None}


@pytest.mark.parametrize(("job", "attempt"), [("j", 2), ("nobody", 1)])
def test_other_times_for_what_is_not_waited_for_change_nothing(jobs, commands, job, attempt):
    give(jobs, commands, phase=Phase.WAITING)
    before = jobs.all()
    jobs.order(commands.command(RetimeJob(job=job, attempt=attempt, dispatched_at=9.0, transfer=())))
    assert jobs.all() == before


def test_who_reports_is_told_at_once_that_a_job_has_begun(jobs, commands, reported):
    heard = []
    give(jobs, commands, phase=Phase.STAGED)
    jobs.on_report = lambda: heard.append(reported()[-1][0])
    jobs.started()
    assert heard[-1] == "JobStarted"


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.STAGED, Phase.FAILED, Phase.HELD])
def test_a_released_job_leaves_no_file_and_is_reported(jobs, commands, tmp_path, reported, phase):
    give(jobs, commands, phase=phase)
    (tmp_path / "inputs" / "j.part").write_bytes(b"half")
    jobs.order(commands.release("j"))
    assert files(tmp_path) == []
    assert reported()[-1] == ("JobReleased", "j", 1)
    assert jobs.all() == []


def test_the_files_of_a_released_running_job_stay_until_its_slot_is_done_with_them(jobs, commands, tmp_path):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.files.sink_path(running.uuid, running.attempt).write_bytes(b"half")
    jobs.order(commands.release("j"))
    assert files(tmp_path) == ["inputs/j", "results/j.1"]
    jobs.failed(running, "fpga_pool.stopped", "stopped", retryable=True)
    assert files(tmp_path) == []


def test_the_release_of_a_job_that_is_not_held_is_noted_and_not_reported(jobs, commands, journal, reported):
    assert jobs.order(commands.release("nobody")).outcome == "accepted"
    assert (journal.fence(SLOT), reported()) == ((1, 1), [])


def test_an_input_that_was_kept_is_used_by_the_next_attempt(jobs, commands, reported):
    give(jobs, commands, phase=Phase.FAILED)
    jobs.order(commands.assign("j", attempt=2, slot=OTHER))
    assert (jobs.get("j").phase, jobs.get("j").slot) == (Phase.STAGED, OTHER)
    assert reported()[-1] == ("InputStaged", "j", 2)


# Overlapping attempts: the pool planned a job again while its old attempt still computes


def test_an_older_attempt_that_ends_late_does_not_touch_the_newer_one(jobs, commands, tmp_path, reported):
    old = give(jobs, commands, phase=Phase.RUNNING)
    jobs.order(commands.assign("j", attempt=2, slot=OTHER))
    finish(jobs, old)
    assert (jobs.get("j").assignment.attempt, jobs.get("j").phase) == (2, Phase.STAGED)
    assert files(tmp_path) == ["inputs/j"]
    new = jobs.started(OTHER)
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


def test_a_job_that_was_moved_to_another_slot_computes_there_only(jobs, commands):
    give(jobs, commands)
    jobs.order(commands.assign("j", attempt=2, slot=OTHER))
    assert jobs.next(SLOT) == []
    assert jobs.started(OTHER).attempt == 2


def test_a_job_that_was_released_does_not_start(jobs, commands, reported):
    give(jobs, commands)
    jobs.order(commands.release("j"))
    assert jobs.next() == []
    assert ("BUSY", "sha256") not in reported()


def test_a_job_that_was_released_before_it_ended_does_not_finish(jobs, commands, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.order(commands.release("j"))
    finish(jobs, running)
    assert reported()[-2:] == [("JobReleased", "j", 1), ("READY", "sha256")]


def test_a_job_that_failed_is_reported_once_and_is_not_computed_again_by_itself(jobs, commands, reported):
    give(jobs, commands, "k", Phase.FAILED)
    assert reported().count(("JobFailed", "k", 1)) == 1
    assert jobs.next() == []


# Failures after an event was recorded


def test_a_file_that_cannot_be_deleted_keeps_no_other_command_from_its_effect(jobs, commands, tmp_path):
    give(jobs, commands, "j", Phase.WAITING)
    give(jobs, commands, "k", Phase.RUNNING)
    (tmp_path / "inputs" / "j").mkdir()  # cannot be removed like a file
    stopped, waiting = [], [jobs.end_of("j"), jobs.end_of("k")]
    jobs.stop = lambda *attempt: stopped.append(attempt)
    outcomes = jobs.execute("s", 1, [commands.release("j"), commands.release("k")])
    assert [outcome.outcome for outcome in outcomes] == ["accepted", "accepted"]
    assert stopped == [(SLOT, "k", 1)]
    assert all(end.result(0).code == "fpga_pool.released" for end in waiting)


def test_an_executor_learns_what_to_do_though_a_file_cannot_be_deleted(jobs, commands):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.files.sink_path("j", 1).mkdir()
    failed = e.ComputationFailed(slot=SLOT, job="j", attempt=1, code="c", message="m", retryable=True, slot_failed=True)
    assert [type(one) for one in jobs.feed(failed)] == [i.CheckCard]
    assert jobs.get(running.uuid).phase is Phase.FAILED


# The queue


def test_the_slot_gets_the_staged_job_of_lowest_order(jobs, commands):
    assert jobs.next() == []
    give(jobs, commands, "a", Phase.WAITING, order=0)
    assert jobs.next() == []
    give(jobs, commands, "b", order=2)
    give(jobs, commands, "c", order=1)
    give(jobs, commands, "d", order=0, slot=OTHER)
    assert jobs.started().uuid == "c"


# Results and the streams that wait for them


def test_whoever_waits_for_a_job_is_told_its_end(jobs, commands):
    running = give(jobs, commands, phase=Phase.RUNNING)
    waiting, cancelled = jobs.end_of("j"), jobs.end_of("j")
    cancelled.cancel()
    assert not waiting.done()
    finish(jobs, running)
    expected = JobResult(jobs.files.result_path("j"), 6, "ab" * 32, ended_at=jobs.get("j").finished_at)
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
        jobs.order(commands.release("j"))
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
    give(jobs, commands, phase=Phase.HELD, attempt=2, slot=OTHER)
    assert waiting.result(0).code == "fpga_pool.released"
    jobs.delivered([("j", 1)])
    assert jobs.get("j").phase is Phase.HELD


def test_delivery_and_cancellation_at_the_same_moment_end_the_job_once(jobs, commands, reported):
    give(jobs, commands, phase=Phase.HELD)
    jobs.order(commands.release("j"))
    jobs.delivered([("j", 1)])
    assert [entry[0] for entry in reported()[-2:]] == ["READY", "JobReleased"]


def test_a_result_that_is_not_fetched_in_time_expires(jobs, commands, tmp_path, clock, reported, monkeypatch):
    give(jobs, commands, phase=Phase.HELD)
    jobs.expire()
    assert files(tmp_path) == ["results/j"]
    later_s = clock() + 101.0
    monkeypatch.setattr(jobs, "_clock", lambda: later_s)
    jobs.expire()
    assert files(tmp_path) == []
    assert reported()[-1] == ("ResultExpired", "j", 1)
