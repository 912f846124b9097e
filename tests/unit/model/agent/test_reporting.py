import pytest

from fpga_pool.model.agent.coalescing import coalesced
from fpga_pool.model.messages.agents import (
    InputStaged,
    JobFailed,
    JobFinished,
    JobStarted,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.objects.pool import SlotState


def staged(job, at=1.0, attempt=1, began_at=None):
    return InputStaged(job=job, attempt=attempt, at=at, transfer_began_at=began_at)


def started(job, at=2.0, attempt=1):
    return JobStarted(job=job, attempt=attempt, at=at)


def finished(job, attempt=1, **times):
    return JobFinished(job=job, attempt=attempt, at=3.0, compute_s=0.5, result_bytes=6, result_sha256="ab", **times)


def delivered(job):
    return ResultDelivered(job=job, attempt=1, at=4.0)


def slot(state, name="s"):
    return SlotChanged(slot=name, at=0.0, state=SlotState(state))


def reported(*reports):
    return coalesced(list(enumerate(reports, start=10)))


def test_the_end_of_a_job_tells_when_it_was_staged_and_started():
    assert reported(staged("j"), started("j"), finished("j"), delivered("j")) == [
        (12, finished("j", staged_at=1.0, started_at=2.0)),
        (13, delivered("j")),
    ]


def test_the_end_of_a_job_tells_when_its_transfer_began():
    assert reported(staged("j", began_at=0.25), finished("j")) == [
        (11, finished("j", transfer_began_at=0.25, staged_at=1.0))
    ]


def test_what_began_before_this_call_is_told_by_the_end_as_far_as_it_is_in_the_call():
    assert reported(started("j"), finished("j")) == [(11, finished("j", started_at=2.0))]
    assert reported(finished("j")) == [(10, finished("j"))]


def test_a_job_without_an_end_is_told_step_by_step():
    failed = JobFailed(job="j", attempt=1, at=3.0, code="c", message="m", retryable=True)
    reports = [staged("j"), started("j"), failed]
    assert [report for _, report in reported(*reports)] == reports


def test_the_end_of_another_attempt_or_job_says_nothing():
    assert reported(staged("j", attempt=1), staged("k"), finished("j", attempt=2)) == [
        (10, staged("j", attempt=1)),
        (11, staged("k")),
        (12, finished("j", attempt=2)),
    ]


def test_of_two_starts_the_later_one_counts():
    assert reported(staged("j"), started("j", at=2.0), started("j", at=2.5), finished("j")) == [
        (13, finished("j", staged_at=1.0, started_at=2.5))
    ]


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (["busy", "ready", "busy", "ready"], ["ready"]),
        (["ready", "busy"], ["busy"]),
        # Loads are counted, faults displace jobs and empty slots need work, so these states are reported, each with
        # the state before it.
        (["busy", "ready", "loading", "ready", "busy"], ["ready", "loading", "busy"]),
        (["busy", "faulted", "empty"], ["busy", "faulted", "empty"]),
    ],
)
def test_of_a_slot_that_is_busy_and_ready_in_turns_only_the_last_is_told(states, kept):
    reports = reported(*(slot(state.upper()) for state in states))
    assert [report.state for _, report in reports] == [SlotState(state.upper()) for state in kept]


def test_slots_are_told_of_each_for_itself_and_the_last_report_keeps_its_number():
    assert reported(slot("BUSY", "a"), slot("BUSY", "b"), slot("READY", "a")) == [
        (11, slot("BUSY", "b")),
        (12, slot("READY", "a")),
    ]
