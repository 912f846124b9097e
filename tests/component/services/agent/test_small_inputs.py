"""Small inputs and results, which the journal keeps, and ends that are recorded together or cannot be recorded."""

import sqlite3
import threading

import pytest

from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.exceptions import StorageFull
from fpga_pool.services.agent.job_files import write_over
from fpga_pool.transfer.handler import JobResult
from support.disks import Ballast

from .held import OTHER, SLOT, files, finish_small, give, give_small


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
        "InputStaged", "LOADING", "READY", "BUSY", "JobStarted", "JobFinished", "READY", "ResultDelivered",
    ]  # fmt: skip


def test_what_a_broken_stream_left_of_a_small_input_goes_when_a_lane_brings_all_of_it(jobs, commands, tmp_path):
    jobs.order(commands.assign("j", input_bytes=5))
    jobs.files.partial_path("j").write_bytes(b"inp")
    jobs.staged_small([("j", b"input")])
    assert files(tmp_path) == []


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
        jobs.order(commands.release(uuid))
    assert (journal.input("a"), journal.result("b")) == (None, None)


def test_ends_are_told_when_they_are_recorded_and_those_that_wait_are_recorded_together(
    jobs, commands, journal, monkeypatch
):
    jobs.on_end = lambda: None  # the ends are recorded later
    for uuid, slot in (("a", SLOT), ("b", OTHER), ("c", SLOT)):
        finish_small(jobs, give_small(jobs, commands, uuid, Phase.RUNNING, slot=slot))
    waiting = jobs.end_of("a")
    assert not waiting.done()
    assert [jobs.get(uuid).phase for uuid in "abc"] == [Phase.ENDED] * 3
    together, transactions = journal.together, []
    monkeypatch.setattr(journal, "together", lambda **options: transactions.append(1) or together(**options))
    jobs.record_ends()
    assert waiting.result(0).data == b"output"
    assert [jobs.get(uuid).phase for uuid in "abc"] == [Phase.HELD] * 3
    assert len(transactions) == 1


def test_an_end_that_is_recorded_after_its_job_was_released_leaves_nothing(jobs, commands, tmp_path, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.files.sink_path(running.uuid, running.attempt).write_bytes(b"output")
    jobs.on_end = lambda: None
    jobs.finished(running, 0.5, JobResult(jobs.files.result_path("j"), 6, "ab" * 32))
    jobs.order(commands.release("j"))
    jobs.record_ends()
    assert files(tmp_path) == []
    assert "JobFinished" not in [entry[0] for entry in reported()]


def test_an_end_that_cannot_be_recorded_is_computed_again(jobs, commands, journal, monkeypatch):
    running = give_small(jobs, commands, phase=Phase.RUNNING)

    def full(*_, **__):
        raise sqlite3.OperationalError("database or disk is full")

    jobs.on_end = lambda: None
    finish_small(jobs, running)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "record", full)
        with pytest.raises(sqlite3.OperationalError):
            jobs.record_ends()
    jobs.on_end = jobs.record_ends
    assert jobs.get("j").phase is Phase.STAGED
    again = jobs.started()
    finish_small(jobs, again)
    assert jobs.get("j").phase is Phase.HELD


def test_an_attempt_that_is_assigned_while_the_end_of_the_one_before_is_recorded_waits_for_its_input(
    jobs, commands, journal, monkeypatch
):
    running = give_small(jobs, commands, phase=Phase.RUNNING)
    jobs.on_end = lambda: None
    finish_small(jobs, running)
    looked, record = threading.Event(), journal.record
    has_input = jobs.files.has_input
    monkeypatch.setattr(jobs.files, "has_input", lambda uuid: (has_input(uuid), looked.set())[0])
    assigning = threading.Thread(target=jobs.order, args=(commands.assign("j", attempt=2),))

    def record_slowly(instructions, **options):
        monkeypatch.setattr(journal, "record", record)
        assigning.start()
        looked.wait(0.2)  # it must not check before the end is recorded, which deletes the input
        record(instructions, **options)

    monkeypatch.setattr(journal, "record", record_slowly)
    jobs.record_ends()
    assigning.join()
    assert (jobs.get("j").attempt, jobs.get("j").phase, journal.input("j")) == (2, Phase.WAITING, None)


def fill_the_disk(patch, journal):
    """Let the first instruction of each change be recorded, and fail after it."""
    record = journal.record

    def full(instructions, **options):
        record(instructions[:1], **options)
        raise StorageFull("no room")

    patch.setattr(journal, "record", full)


def test_commands_that_cannot_be_recorded_change_nothing(jobs, commands, journal, monkeypatch):
    give_small(jobs, commands)
    (kept,) = jobs.all()
    with monkeypatch.context() as patch:
        fill_the_disk(patch, journal)
        with pytest.raises(StorageFull):
            jobs.execute("s", 1, [commands.release(kept.uuid), commands.assign("new")])
    assert jobs.all() == journal.jobs() == [kept]
    assert jobs.order(commands.release(kept.uuid)).outcome == "accepted"


def test_a_failure_that_cannot_be_recorded_is_told_when_it_can(jobs, commands, journal, monkeypatch, reported):
    running = give_small(jobs, commands, phase=Phase.RUNNING)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "record", lambda *_, **__: raise_full())
        with pytest.raises(StorageFull):
            jobs.failed(running, "fpga_pool.stopped", "stopped", retryable=True)
    assert jobs.get("j") == running
    jobs.failed(running, "fpga_pool.stopped", "stopped", retryable=True)
    assert reported()[-2:] == [("JobFailed", "j", 1), ("READY", "sha256")]


def raise_full():
    raise StorageFull("no room")


def test_an_input_for_which_a_full_disk_has_room_in_part_only_is_not_placed(small_disk, tmp_path):
    disk = small_disk(tmp_path / "disk", 1)
    ballast, place = Ballast(disk), disk / "slot.in"
    ballast.fill()
    ballast.leave(8192)
    write_over(place, b"fits")
    with pytest.raises(OSError, match="No space left"):
        write_over(place, b"a" * 16384)
    assert not place.exists()
    ballast.remove()
    write_over(place, b"a" * 16384)
    write_over(place, b"less")
    assert place.read_bytes() == b"less"
