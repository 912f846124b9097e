"""The state of an agent's jobs after a restart."""

import pytest

from fpga_pool.model.agent.objects import Phase
from support.agent_invariants import validate

from .held import OTHER, SLOT, Jobs, files, give


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


@pytest.mark.parametrize("left", [b"half of it", b""])
def test_the_begin_of_a_transfer_is_not_known_if_it_was_before_the_restart(jobs, new_jobs, commands, journal, left):
    give(jobs, commands, phase=Phase.WAITING)
    if left:
        jobs.files.partial_path("j").write_bytes(left)
    restarted = new_jobs()
    restarted.meter.received("j", 1, 20)
    restarted.staged("j", restarted.meter.age_s("j", 1))
    ((_, report),) = journal.reports(10)
    assert (report.transfer_began_at is None) == bool(left)


@pytest.mark.parametrize("phase", [Phase.STAGED, Phase.RUNNING])
def test_an_input_that_was_lost_in_a_restart_is_asked_for_again(jobs, new_jobs, commands, journal, phase):
    give(jobs, commands, phase=phase)
    jobs.files.input_path("j").unlink()
    restarted = new_jobs()
    _, failed = journal.reports(100)[-1]
    assert (failed.code, failed.retryable) == ("fpga_pool.input_lost", True)
    restarted.order(commands.assign("j", attempt=2))
    assert restarted.get("j").phase is Phase.WAITING


def test_a_result_that_was_lost_in_a_restart_has_expired(jobs, new_jobs, commands, reported):
    give(jobs, commands, phase=Phase.HELD)
    jobs.files.result_path("j").unlink()
    assert new_jobs().all() == []
    assert reported()[-1] == ("ResultExpired", "j", 1)


@pytest.mark.parametrize("phase", [Phase.WAITING, Phase.STAGED, Phase.HELD])
def test_jobs_of_a_slot_that_is_missing_after_a_restart_are_held_all_the_same(
    jobs, new_jobs, commands, journal, tmp_path, clock, reported, monkeypatch, phase
):
    give(jobs, commands, phase=phase, slot=OTHER)
    (tmp_path / "inputs" / "j.part").write_bytes(b"half")
    before, kept = reported(), files(tmp_path)
    restarted = Jobs(journal, tmp_path, clock, slots=(SLOT,))
    restarted.restore()
    validate(restarted.machine.state)
    assert [(job.uuid, job.phase) for job in restarted.all()] == [("j", phase)]
    assert (files(tmp_path), reported()) == (kept, before)
    if phase is Phase.HELD:
        assert restarted.end_of("j").result(0).size_bytes == 6
        later_s = clock() + 101.0
        monkeypatch.setattr(restarted, "_clock", lambda: later_s)
        restarted.expire()
        assert (restarted.all(), reported()[-1]) == ([], ("ResultExpired", "j", 1))
    # The slot is available again.
    assert [job.phase for job in new_jobs().all()] == ([] if phase is Phase.HELD else [phase])


def test_a_restart_removes_what_belongs_to_no_job_and_what_was_being_computed(jobs, new_jobs, commands, tmp_path):
    running = give(jobs, commands, "a", Phase.RUNNING)
    jobs.files.sink_path(running.uuid, running.attempt).write_bytes(b"half")
    give(jobs, commands, "b", Phase.WAITING)
    give(jobs, commands, "c", Phase.HELD, slot=OTHER)
    for name in ("inputs/b.part", "inputs/stray", "inputs/stray.part", "results/stray"):
        (tmp_path / name).write_bytes(b"x")
    new_jobs()
    assert files(tmp_path) == ["inputs/a", "inputs/b.part", "results/c"]


def test_an_input_that_is_complete_on_disk_is_staged_whatever_the_journal_had_time_for(
    jobs, new_jobs, commands, reported
):
    """The file gets its name when it is complete, checked and synced. A power loss may lose the journal entry."""
    give(jobs, commands, phase=Phase.WAITING)
    jobs.files.input_path("j").write_bytes(b"input")
    restarted = new_jobs()
    assert restarted.get("j").phase is Phase.STAGED
    assert reported() == [("InputStaged", "j", 1)]
