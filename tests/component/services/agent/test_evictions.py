"""Evictions of jobs by an agent, which keeps their inputs."""

import pytest

from fpga_pool.model.agent.events import EndsRecorded
from fpga_pool.model.agent.objects import Phase
from fpga_pool.model.messages.agents import JobEvicted

from .held import files, finish, finish_small, give, give_small


@pytest.mark.parametrize(("keep_progress", "done"), [(True, 0.75), (False, 0.0)])
def test_an_evicted_job_keeps_its_input_and_says_how_much_is_done(jobs, commands, journal, keep_progress, done):
    jobs.progress = lambda _: 0.75
    give(jobs, commands, phase=Phase.RUNNING)
    command = commands.evict("j", keep_progress=keep_progress)
    assert [jobs.order(command).outcome for _ in range(2)] == ["accepted", "repeated"]
    assert [item.done for _, item in journal.reports(100) if isinstance(item, JobEvicted)] == [done]
    # The job returns, and its input need not be sent again.
    jobs.order(commands.assign("j", attempt=2, done=done))
    assert (jobs.get("j").phase, jobs.get("j").assignment.done) == (Phase.STAGED, done)


def test_a_job_that_was_evicted_before_it_began_has_done_what_it_had_done(jobs, commands, journal):
    give(jobs, commands, attempt=2, done=0.5)
    jobs.order(commands.evict("j", attempt=2))
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
    assert jobs.order(commands.evict("j", attempt=attempt)).outcome == "accepted"
    assert (jobs.get("j").phase, evicted(reported)) == (phase, [])


def test_an_eviction_of_a_job_whose_end_is_being_recorded_leaves_it_an_end(jobs, commands, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.on_end = lambda: None  # the end is recorded later
    finish(jobs, running)
    assert jobs.order(commands.evict("j")).outcome == "accepted"
    jobs.record_ends()
    assert (jobs.get("j").phase, evicted(reported)) == (Phase.HELD, [])


def test_an_eviction_of_a_job_whose_end_cannot_be_recorded_is_recorded_later_and_the_next_attempt_has_the_input(
    jobs, commands, reported, journal, monkeypatch, tmp_path
):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.on_end = lambda: None
    finish(jobs, running)
    jobs.order(commands.evict("j"))
    for _ in range(2):  # first the end, then the eviction
        with monkeypatch.context() as patch:
            patch.setattr(journal, "record", no_room)
            with pytest.raises(OSError, match="disk"):
                jobs.record_ends()
        assert (jobs.next(), evicted(reported)) == ([], [])
    jobs.record_ends()
    assert (jobs.get("j").phase, evicted(reported)) == (Phase.FAILED, [("JobEvicted", "j", 1)])
    assert journal.jobs() == jobs.all()
    assert "inputs/j" in files(tmp_path)
    jobs.order(commands.assign("j", attempt=2))
    assert jobs.get("j").phase is Phase.STAGED


@pytest.mark.parametrize(("give", "finish"), [(give, finish), (give_small, finish_small)], ids=["large", "small"])
@pytest.mark.parametrize("lost", [False, True], ids=["not recorded yet", "could not be recorded"])
def test_an_agent_that_dies_with_an_end_unrecorded_has_not_forgotten_the_eviction_after_it(
    jobs, new_jobs, commands, reported, journal, monkeypatch, give, finish, lost
):
    running = give(jobs, commands, phase=Phase.RUNNING, attempt=2, done=0.5)
    jobs.on_end = lambda: None
    finish(jobs, running)
    jobs.order(commands.evict("j", attempt=2, keep_progress=True))
    if lost:
        with monkeypatch.context() as patch:
            patch.setattr(journal, "record", no_room)
            with pytest.raises(OSError, match="disk"):
                jobs.record_ends()
    for _ in range(2):  # the eviction is reported once
        again = new_jobs()
        assert again.next() == []
        assert evicted(reported) == [("JobEvicted", "j", 2)]
    assert again.get("j").phase is Phase.FAILED
    again.order(commands.assign("j", attempt=3))
    assert again.get("j").phase is Phase.STAGED


def test_an_eviction_in_the_moment_after_an_end_was_recorded_does_not_undo_it(jobs, new_jobs, commands, reported):
    running = give(jobs, commands, phase=Phase.RUNNING)
    jobs.on_end = lambda: None
    finish(jobs, running)
    handle = jobs.machine.handle

    def evict_first(event, now_s):
        if isinstance(event, EndsRecorded):
            assert jobs.order(commands.evict("j")).outcome == "accepted"
        return handle(event, now_s)

    jobs.machine.handle = evict_first
    jobs.record_ends()
    assert (new_jobs().get("j").phase, evicted(reported)) == (Phase.HELD, [])


def no_room(*_, **__):
    raise OSError("the disk is full")


def test_an_agent_that_dies_after_an_eviction_does_not_begin_again_by_itself(jobs, new_jobs, commands):
    give(jobs, commands, phase=Phase.RUNNING)
    jobs.order(commands.evict("j"))
    again = new_jobs()
    assert again.next() == []
    again.order(commands.assign("j", attempt=2))
    assert again.get("j").phase is Phase.STAGED
