"""The lifecycle of a job: every allowed pair of state and event, and its effects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.lifecycle.job import JOB
from fpga_pool.model.messages.agents import AssignJob, EvictJob, ReleaseJob
from fpga_pool.model.objects.history import HISTORY_LENGTH
from fpga_pool.model.objects.pool import ACTIVE_JOBS, ENDED_JOBS, Job, JobState, RateSegment
from fpga_pool.model.values import changed

PENDING, WAITING_INPUT, STAGED, RUNNING, RESULT_HELD, COMPLETED, FAILED, CANCELLED = JobState

#: The next state by state and event; all other events are refused.
ALLOWED = {
    PENDING: {
        "Planned": WAITING_INPUT,
        "CancelRequested": CANCELLED,
        "GaveUp": FAILED,
        "HoldChanged": PENDING,
        "Skipped": CANCELLED,
    },
    WAITING_INPUT: {
        "InputStaged": STAGED,
        "GaveUp": FAILED,
        "JobFinished": RESULT_HELD,
        "Moved": WAITING_INPUT,
        "Retimed": WAITING_INPUT,
    },
    STAGED: {
        "JobStarted": RUNNING,
        "GaveUp": FAILED,
        "JobFinished": RESULT_HELD,
        "Moved": WAITING_INPUT,
        "Retimed": STAGED,
    },
    RUNNING: {"JobStarted": RUNNING, "JobFinished": RESULT_HELD},
    RESULT_HELD: {
        "ResultDelivered": COMPLETED,
        "ResultExpired": COMPLETED,
        "JobReleased": COMPLETED,
        "ResultLost": PENDING,
    },
    COMPLETED: {"ResultLost": PENDING},
    FAILED: {},
    CANCELLED: {},
}
for planned in (WAITING_INPUT, STAGED, RUNNING):
    ALLOWED[planned] |= {
        "JobFailed": PENDING,
        "JobFailed for good": FAILED,
        "Displaced": PENDING,
        "JobReleased": PENDING,
        "CancelRequested": planned,
        "EvictRequested": planned,
        "JobEvicted": PENDING,
    }


@pytest.mark.parametrize(
    ("state", "name", "after"), [(s, n, after) for s, row in ALLOWED.items() for n, after in row.items()]
)
def test_an_allowed_event_leads_where_the_table_says_and_is_in_the_history(new_job, job_events, state, name, after):
    job, _ = JOB.transition(new_job(state=state), job_events[name], 7.0)
    assert job.state is after
    last = job.history[-1]
    assert (last.at, last.event, last.before, last.after) == (7.0, name.split()[0], state, after)


def test_every_other_pair_is_refused(new_job, job_events):
    for state in JobState:
        for name, event in job_events.items():
            if name not in ALLOWED[state]:
                with pytest.raises(InvalidTransition):
                    JOB.transition(new_job(state=state), event, 7.0)


def test_a_refusal_tells_the_object_its_state_what_is_possible_and_the_history(new_job, job_events):
    job, _ = JOB.transition(new_job(), job_events["Planned"], 7.25)
    with pytest.raises(InvalidTransition) as refusal:
        JOB.transition(job, job_events["JobStarted"], 8.0)
    assert str(refusal.value).splitlines() == [
        "job j: JobStarted is not possible in state WAITING_INPUT (possible: CancelRequested, Displaced,"
        " EvictRequested, GaveUp, InputStaged, JobEvicted, JobFailed, JobFinished, JobReleased, Moved, Retimed)",
        "  History:",
        "    7.250 Planned: PENDING -> WAITING_INPUT",
    ]


def test_a_refusal_in_a_final_state_says_that_nothing_is_possible(new_job, job_events):
    with pytest.raises(InvalidTransition, match=r"in state FAILED, which is final"):
        JOB.transition(new_job(state=FAILED), job_events["Planned"], 8.0)


def test_the_history_keeps_only_the_last_transitions(new_job, job_events):
    job = new_job(state=RUNNING)
    for at in range(HISTORY_LENGTH + 5):
        job, _ = JOB.transition(job, job_events["JobStarted"], float(at))
    assert [entry.at for entry in job.history] == [float(at) for at in range(5, HISTORY_LENGTH + 5)]


def test_planning_assigns_the_job_to_its_agent_and_forgets_the_attempt_before(new_job, job_events):
    before = new_job(attempt=2, reason="it smoked", flow="192.0.2.1:7", staged_at=1.0, started_at=2.0)
    before = changed(before, transfer_began_at=0.5)
    job, actions = JOB.transition(before, job_events["Planned"], 7.0)
    assert (job.attempt, job.host, job.slot, job.order) == (3, "h0", "h0/c/0", 3)
    assert (job.reason, job.flow) == ("", "")
    assert job.transfer_began_at is job.staged_at is job.started_at is None
    assert job.transfer == (RateSegment(0.0, 2.0, 8e6),)
    # expected_s: from 2 s to 5 s of the plan.
    assert actions == [
        AssignJob(job="j", attempt=3, project_id="p", function="aes", input_bytes=10, order=3, expected_s=3.0)
    ]


def test_what_happened_is_noted_in_the_agents_time(new_job, job_events):
    job = new_job(state=WAITING_INPUT)
    for name in ("InputStaged", "JobStarted", "JobFinished"):
        job, actions = JOB.transition(job, job_events[name], 9.0)
        assert actions == []
    assert (job.staged_at, job.started_at, job.finished_at, job.ended_at) == (5.0, 5.0, 5.0, None)
    assert (job.compute_s, job.result_bytes, job.result_sha256) == (3.0, 64, "ab")


def test_the_begin_of_a_transfer_is_noted_with_its_end_and_kept_by_a_later_report_without_it(new_job, job_events):
    staged, finished = (job_events[name] for name in ("InputStaged", "JobFinished"))
    in_steps, _ = JOB.transition(new_job(state=WAITING_INPUT), changed(staged, transfer_began_at=4.5), 9.0)
    assert (in_steps.transfer_began_at, in_steps.staged_at) == (4.5, 5.0)
    assert JOB.transition(in_steps, finished, 9.0)[0].transfer_began_at == 4.5
    all_at_once = changed(finished, transfer_began_at=4.5, staged_at=4.75)
    short, _ = JOB.transition(new_job(state=WAITING_INPUT), all_at_once, 9.0)
    assert (short.transfer_began_at, short.staged_at, short.started_at) == (4.5, 4.75, None)


@pytest.mark.parametrize("state", sorted(ACTIVE_JOBS))
def test_cancellation_of_a_planned_job_is_a_flag_and_one_release(new_job, job_events, state):
    job, actions = JOB.transition(new_job(state=state), job_events["CancelRequested"], 7.0)
    assert (job.state, job.cancel_requested, actions) == (state, True, [ReleaseJob(job="j")])
    again, actions = JOB.transition(job, job_events["CancelRequested"], 8.0)
    assert (again.state, again.cancel_requested, actions) == (state, True, [])


@pytest.mark.parametrize("state", sorted(ACTIVE_JOBS))
@pytest.mark.parametrize("name", ["JobReleased", "JobFailed", "JobFailed for good", "JobEvicted", "Displaced"])
def test_a_job_to_be_cancelled_is_cancelled_by_whatever_takes_it_off_its_slot(new_job, job_events, state, name):
    job, _ = JOB.transition(new_job(state=state, cancel_requested=True), job_events[name], 7.0)
    assert (job.state, job.ended_at) == (CANCELLED, 7.0)


def test_an_input_that_never_comes_for_a_job_to_be_cancelled_ends_it_cancelled(new_job, job_events):
    job, actions = JOB.transition(new_job(state=WAITING_INPUT, cancel_requested=True), job_events["GaveUp"], 7.0)
    assert (job.state, actions) == (CANCELLED, [ReleaseJob(job="j")])


def test_a_job_that_is_complete_before_its_cancellation_arrives_stays_complete(new_job, job_events):
    job, _ = JOB.transition(new_job(state=RUNNING, cancel_requested=True), job_events["JobFinished"], 7.0)
    assert job.state is RESULT_HELD
    job, _ = JOB.transition(job, job_events["JobReleased"], 8.0)
    assert (job.state, job.reason) == (COMPLETED, "result discarded: cancelled after completion")


def test_a_retryable_failure_leaves_the_input_with_the_agent(new_job, job_events):
    job, actions = JOB.transition(new_job(state=RUNNING, start_s=1.0, end_s=2.0), job_events["JobFailed"], 7.0)
    assert (job.state, job.reason, job.start_s, job.end_s, actions) == (PENDING, "it smokes", None, None, [])


@pytest.mark.parametrize("state", sorted(ACTIVE_JOBS))
def test_an_eviction_is_a_command_about_this_attempt_until_the_agent_answers(new_job, job_events, state):
    job, actions = JOB.transition(new_job(state=state, attempt=2), job_events["EvictRequested"], 7.0)
    assert (job.state, actions) == (state, [EvictJob(job="j", attempt=2, keep_progress=True)])
    job, actions = JOB.transition(job, job_events["JobEvicted"], 8.0)
    assert (job.state, job.done, actions) == (PENDING, 0.25, [])


def test_an_evicted_job_goes_on_where_it_was_on_the_same_host_and_from_the_start_on_another(new_job, job_events):
    for host, done in (("h0", 0.25), ("h1", 0.0)):
        job, actions = JOB.transition(new_job(host=host, done=0.25), job_events["Planned"], 7.0)
        assert (job.done, actions[0].done) == (done, done)


@pytest.mark.parametrize("name", ["Displaced", "JobReleased"])
def test_what_an_agent_has_let_go_of_is_not_done_any_more(new_job, job_events, name):
    job, _ = JOB.transition(new_job(state=STAGED, done=0.25), job_events[name], 7.0)
    assert (job.state, job.done) == (PENDING, 0.0)


def test_an_eviction_that_comes_after_the_end_changes_nothing(job_events):
    assert not any(JOB.allows(state, type(job_events["JobEvicted"])) for state in ENDED_JOBS)


def test_a_final_failure_has_a_code_and_releases_the_input(new_job, job_events):
    job, actions = JOB.transition(new_job(state=RUNNING), job_events["JobFailed for good"], 7.0)
    assert (job.error_code, job.reason, job.ended_at) == ("fpga_pool.invalid_input", "too long", 7.0)
    assert actions == [ReleaseJob(job="j")]


@given(names=st.lists(st.sampled_from(sorted({n for row in ALLOWED.values() for n in row})), max_size=60))
def test_no_sequence_of_events_ends_a_job_twice_or_completes_it_after_its_end(job_events, names):
    job = Job(
        uuid="j", batch_uuid="b", project_id="p", user_id="u", index=0, name="", function="aes", requester="h0",
        input_bytes=10, created_at=1.0,
    )  # fmt: skip
    ends, completions = 0, 0
    for now_s, name in enumerate(names):
        try:
            after, _ = JOB.transition(job, job_events[name], float(now_s))
        except InvalidTransition:
            continue
        ends += after.state in ENDED_JOBS and job.state not in ENDED_JOBS
        completions += after.state is RESULT_HELD and job.state is not RESULT_HELD
        assert not (job.state in ENDED_JOBS and after.state not in ENDED_JOBS)
        assert after.attempt - job.attempt == (name in ("Planned", "Moved"))
        assert after.cancel_requested >= job.cancel_requested
        assert len(after.history) == min(len(job.history) + 1, HISTORY_LENGTH)
        job = after
    assert ends <= 1
    assert completions <= ends
    assert (ends == 1) == (job.state in ENDED_JOBS)
    assert (job.state in (FAILED, CANCELLED)) <= (completions == 0)


def test_a_job_that_is_moved_begins_a_new_attempt_at_its_new_place(new_job, job_events):
    before = new_job(state=STAGED, attempt=2, host="h1", slot="h1/c/1", flow="10.0.0.1:5", staged_at=4.0)
    job, actions = JOB.transition(before, job_events["Moved"], 7.0)
    assert (job.attempt, job.host, job.slot, job.order) == (3, "h0", "h0/c/0", 4)
    assert (job.flow, job.staged_at) == ("", None)
    assert [(action.job, action.attempt) for action in actions] == [("j", 3)]


def test_a_job_that_is_retimed_stays_where_it_is_and_nobody_is_told(new_job, job_events):
    before = new_job(state=WAITING_INPUT, attempt=2, host="h1", slot="h1/c/1", order=5)
    job, actions = JOB.transition(before, job_events["Retimed"], 7.0)
    assert (job.attempt, job.slot, job.order, actions) == (2, "h1/c/1", 5, [])
    assert (job.dispatched_at, job.start_s, job.end_s) == (110.0, 3.0, 6.0)
    assert job.transfer == (RateSegment(1.0, 3.0, 4e6),)
