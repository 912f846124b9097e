"""Small inputs and results, which the journal keeps, and ends that are recorded together or cannot be."""

import sqlite3

import pytest

from fpga_pool.dataplane.handler import JobResult
from fpga_pool.model.exceptions import StorageFull
from fpga_pool.services.agent.journal import Phase

from .held import busy, files, finish_small, give, give_small, ready


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
