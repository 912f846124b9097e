"""The agent's state machine. The events of each test are replayed at its end and must give the same result."""

import pytest

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent import objects as state_module
from fpga_pool.model.agent.machine import LONGEST_TURN_S
from fpga_pool.model.agent.objects import Activity, HeldJob, HoldState, Phase
from fpga_pool.model.exceptions import InvalidTransition, StaleEpoch
from fpga_pool.model.messages.agents import (
    EvictJob,
    FreeSlot,
    HoldSlot,
    InputStaged,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobStarted,
    LoadFunction,
    ReleaseFlow,
    ReleaseJob,
    ResultDelivered,
    ResultExpired,
    SlotChanged,
)
from fpga_pool.model.objects.pool import SlotState

from .bench import PARAMETERS, WORKER, A, B, Machine, assign

HOLD = HoldSlot(instance="vm", project_id="p", function="f", lease_epoch=1)
FREE = FreeSlot(instance="vm", lease_epoch=1)


def outcomes(instructions):
    return [one.outcome.outcome for one in instructions if isinstance(one, i.Answer)]


def states(machine, slot=A):
    return [report.state.value for report in machine.reports(SlotChanged) if report.slot == slot]


# Jobs


def test_a_job_goes_from_its_command_to_its_delivery(machine):
    job = HeldJob(slot=A, assignment=assign("j"))
    assert machine.give(assign("j")) == [i.KeepJob(job), i.WakeSlot(A)]
    machine.now_s = 1.0
    staged = job.at(Phase.STAGED)
    report = InputStaged(job="j", attempt=1, at=1.0, transfer_began_at=0.25)
    assert machine.feed(e.InputArrived(job="j", took_s=0.75)) == [i.KeepJob(staged), i.Report(report), i.WakeSlot(A)]
    assert machine.ask() == [i.LoadSlot(A, "f")]
    assert machine.feed(e.Loaded(slot=A)) == [
        i.Report(SlotChanged(slot=A, at=1.0, state=SlotState.READY, function="f")),
    ]
    # Memory with unknown content is cleared first. The computation counts as hung after 2 x 3 + 1 s.
    assert machine.ask() == [i.Compute(A, job.at(Phase.RUNNING), True, 7.0)]
    machine.now_s = 4.0
    assert machine.end("j") == [i.RecordEnds()]
    recorded, settled = machine.record()
    held = machine.state.jobs["j"]
    assert (held.phase, held.finished_at, held.result_bytes) == (Phase.HELD, 4.0, 5)
    finished = JobFinished(job="j", attempt=1, at=4.0, compute_s=2.0, result_bytes=5, result_sha256="ab")
    ready = SlotChanged(slot=A, at=4.0, state=SlotState.READY, function="f")
    assert [one for one in recorded if not isinstance(one, i.KeepResult)] == [
        i.KeepJob(held), i.Report(finished), i.Report(ready),
    ]  # fmt: skip
    assert settled == [i.DeleteInput("j"), i.Settle("j")]
    assert machine.feed(e.ResultsDelivered(attempts=(("j", 1),))) == [
        i.ForgetJob("j"), i.Report(ResultDelivered(job="j", attempt=1, at=4.0)), i.DeleteFiles("j"),
    ]  # fmt: skip
    assert machine.state.jobs == {}


def test_a_slot_that_goes_on_with_the_next_job_does_not_report_that_it_was_ready(machine):
    machine.compute("j")
    machine.stage("k")
    machine.end("j")
    machine.ask()
    machine.record()
    assert states(machine) == ["LOADING", "READY", "BUSY", "BUSY"]


def test_an_end_that_could_not_be_recorded_is_computed_again(machine):
    machine.compute("j")
    machine.end("j")
    held = tuple(one.job for one in machine.feed(e.EndsDue()) if isinstance(one, i.KeepJob))
    assert machine.feed(e.EndsLost(jobs=held)) == [i.WakeSlot(A)]
    assert isinstance(machine.ask()[0], i.Compute)


def test_an_end_that_is_being_recorded_is_neither_evicted_nor_recorded_twice(machine):
    machine.compute("j")
    machine.end("j")
    held = tuple(one.job for one in machine.feed(e.EndsDue()) if isinstance(one, i.KeepJob))
    assert machine.give(EvictJob(job="j", attempt=1, keep_progress=True)) == [i.KeepEviction("j", 0.0)]
    assert machine.feed(e.EndsDue()) == []
    machine.feed(e.EndsRecorded(jobs=held))
    assert machine.state.jobs["j"].phase is Phase.HELD
    assert machine.reports(JobEvicted) == []


def test_an_eviction_of_a_job_whose_end_cannot_be_recorded_is_reported_when_it_can_be(machine):
    machine.compute("j", done=0.25)
    machine.end("j")
    held = tuple(one.job for one in machine.feed(e.EndsDue()) if isinstance(one, i.KeepJob))
    machine.give(EvictJob(job="j", attempt=1, keep_progress=True))
    assert machine.feed(e.EndsLost(jobs=held)) == [i.DeleteOutput("j", 1)]
    failed = HeldJob(slot=A, assignment=assign("j", done=0.25), phase=Phase.FAILED)
    recorded = [i.KeepJob(failed), i.Report(JobEvicted(job="j", attempt=1, at=0.0, done=0.25))]
    assert machine.feed(e.EndsDue())[:2] == recorded
    machine.feed(e.EndsLost(jobs=(failed,)))
    assert machine.record()[0][:2] == recorded
    assert (machine.state.jobs["j"], machine.ask()) == (failed, [])
    assert machine.reports(JobFinished)[1:] == []  # only the one that was lost


def test_a_running_job_that_gets_another_slot_is_stopped_and_what_it_computed_is_deleted(machine):
    machine.compute("j")
    moved = machine.give(assign("j", attempt=2), B, inputs=frozenset({"j"}))
    assert moved[0] == i.StopComputation(A, "j", 1)
    assert machine.state.jobs["j"].phase is Phase.STAGED
    assert machine.fail("j", code="fpga_pool.stopped")[-1] == i.DeleteOutput("j", 1)
    assert machine.reports(JobFailed) == []
    assert states(machine)[-1] == "READY"


@pytest.mark.parametrize("bring", [Machine.stage, Machine.compute], ids=["staged", "running"])
def test_an_input_that_was_released_by_an_earlier_one_of_the_same_commands_is_waited_for(machine, bring):
    bring(machine, "j")
    release, again = machine.command(ReleaseJob(job="j")), machine.command(assign("j", attempt=2))
    machine.execute(release, again, inputs=frozenset({"j"}))
    assert machine.state.jobs["j"].phase is Phase.WAITING


def test_the_files_of_a_job_that_computes_are_deleted_when_its_slot_is_done_with_them(machine):
    machine.compute("j")
    released = machine.give(ReleaseJob(job="j"))
    assert i.DeleteFiles("j") not in released
    assert i.StopComputation(A, "j", 1) in released
    assert machine.fail("j")[-2:] == [i.DeleteOutput("j", 1), i.DeleteFiles("j")]


@pytest.mark.parametrize(("keep_progress", "done"), [(True, 0.75), (False, 0.0)])
def test_an_eviction_stops_what_computes_and_tells_how_much_is_done(machine, keep_progress, done):
    machine.compute("j")
    machine.give(EvictJob(job="j", attempt=1, keep_progress=keep_progress), progress={"j": 0.75})
    assert [report.done for report in machine.reports(JobEvicted)] == [done]
    machine.fail("j", code="fpga_pool.stopped")
    assert (machine.ask(), machine.reports(JobFailed)) == ([], [])


def test_a_computation_that_is_overdue_is_stopped_if_it_is_still_the_same(machine):
    machine.compute("j")
    assert machine.feed(e.ComputationOverdue(slot=A, job="j", attempt=1)) == [i.StopComputation(A, "j", 1)]
    assert machine.feed(e.ComputationOverdue(slot=A, job="other", attempt=1)) == []
    machine.fail("j", code="fpga_pool.stopped")
    assert [report.code for report in machine.reports(JobFailed)] == ["fpga_pool.stopped"]


def test_a_result_expires_after_its_retention_time(machine):
    machine.compute("j")
    machine.end("j")
    machine.record()
    machine.now_s = PARAMETERS.retention_s
    assert machine.feed(e.TimePassed()) == []
    machine.now_s += 0.1
    assert i.DeleteFiles("j") in machine.feed(e.TimePassed())
    assert len(machine.reports(ResultExpired)) == 1


def test_a_worker_of_the_cpu_pool_needs_no_load(machine):
    machine.stage("j", WORKER)
    (compute,) = machine.ask(WORKER)
    assert (compute.slot, compute.job.uuid) == (WORKER, "j")
    assert states(machine, WORKER) == ["READY", "BUSY"]


# Commands


def test_repeats_are_answered_and_late_commands_refused(machine):
    late, command = machine.command(assign("late")), machine.command(assign("j"))
    assert outcomes(machine.execute(command)) == ["accepted"]
    assert outcomes(machine.execute(command, late)) == ["repeated", "refused"]
    assert set(machine.state.jobs) == {"j"}


def test_commands_of_an_owner_that_was_replaced_change_nothing(machine):
    machine.execute(epoch=3)
    with pytest.raises(StaleEpoch, match="epoch 3 of shard s: epoch 2 is over"):
        machine.execute(machine.command(assign("j"), epoch=2), epoch=2)
    assert machine.state.jobs == {}


def test_commands_for_others_and_of_other_kinds_are_refused_by_name(machine):
    sent = [
        machine.command(assign("j"), host="elsewhere"),
        machine.command(assign("j"), "h/c/none"),
        machine.command(ReleaseFlow(job="j", attempt=1)),
    ]
    instructions = machine.execute(*sent)
    assert [one.outcome.reason for one in instructions if isinstance(one, i.Answer)] == [
        f"no slot {A} on host h",
        "no slot h/c/none on host h",
        "ReleaseFlow is not a command for a slot",
    ]


def test_only_the_newest_commands_are_remembered(monkeypatch):
    monkeypatch.setattr(state_module, "REMEMBERED", 2)
    machine = Machine()
    first, second, third, fourth = sent = [machine.command(ReleaseJob(job="")) for _ in range(4)]
    for command in sent[:3]:
        machine.execute(command)
    machine.execute(fourth)
    machine.agent.undo()  # it could not be recorded: the earlier commands remain as they were
    assert list(machine.state.executed) == [second.id, third.id]
    assert outcomes(machine.execute(second)) == ["repeated"]
    assert outcomes(machine.execute(first)) == ["refused"]


# Loads


def test_a_refused_bitstream_fails_all_jobs_of_the_slot_that_need_it(machine):
    machine.stage("good")
    machine.ask()
    machine.feed(e.Loaded(slot=A))
    machine.stage("bad", function="g", order=-2)
    machine.give(assign("bad too", function="g"))
    assert machine.ask() == [i.LoadSlot(A, "g")]
    machine.feed(e.LoadRefused(slot=A, code="c", message="altered"))
    assert [(report.job, report.retryable) for report in machine.reports(JobFailed)] == [
        ("bad", False), ("bad too", False),
    ]  # fmt: skip
    # The previous function is still loaded.
    (compute,) = machine.ask()
    assert compute.job.uuid == "good"


def test_the_pause_after_a_fault_doubles_up_to_its_limit_and_a_load_ends_that(machine):
    machine.stage("j")
    pauses_s = []
    for _ in range(3):
        machine.ask()
        machine.feed(e.LoadFailed(slot=A, reason="smoke"))
        pauses_s.append(machine.take()[0].after_s)
        machine.feed(e.CardSeen(slot=A, present=True))
    assert pauses_s == [2.0, 4.0, 7.0]
    assert machine.ask() == [i.LoadSlot(A, "f")]
    machine.feed(e.Loaded(slot=A))
    machine.feed(e.CardSeen(slot=A, present=False))
    assert machine.take() == [i.CheckCard(A, 2.0)]
    machine.feed(e.CardSeen(slot=A, present=False))
    assert machine.take() == [i.CheckCard(A, 4.0)]


def test_a_card_that_was_away_between_two_looks_is_loaded_again(machine):
    machine.compute("j")
    machine.end("j")
    assert machine.feed(e.CardSeen(slot=A, present=True, function="f")) == []
    machine.feed(e.CardSeen(slot=A, present=True, function=""))
    machine.stage("k")
    assert machine.ask() == [i.LoadSlot(A, "f")]


def test_memory_is_cleared_between_projects_only(machine):
    machine.compute("j")
    machine.end("j")
    machine.stage("k")
    machine.stage("l", project_id="q", order=1)
    (compute,) = machine.ask()
    assert (compute.job.uuid, compute.scrub) == ("k", False)
    machine.end("k")
    (compute,) = machine.ask()
    assert (compute.job.uuid, compute.scrub) == ("l", True)


def test_a_load_ahead_is_for_this_moment_and_this_state(machine):
    ahead = LoadFunction(function="f", replaces="")
    machine.give(ahead)
    assert machine.ask() == [i.LoadSlot(A, "f")]
    assert machine.give(ahead) == []  # already loading
    machine.feed(e.Loaded(slot=A))
    assert machine.ask() == []
    machine.give(LoadFunction(function="g", replaces="other"))
    assert machine.ask() == []
    machine.give(LoadFunction(function="g", replaces="f"))
    assert machine.ask() == [i.LoadSlot(A, "g")]


@pytest.mark.parametrize("busy_with", ["a load", "a computation", "a fault"])
def test_a_slot_that_has_something_to_do_when_it_is_to_load_ahead_loads_nothing_afterwards(machine, busy_with):
    ahead = LoadFunction(function="g", replaces="f")
    if busy_with == "a load":
        machine.stage("j")
        machine.ask()
        machine.give(ahead)
        machine.give(ReleaseJob(job="j"))
        machine.feed(e.Loaded(slot=A))
    elif busy_with == "a computation":
        machine.compute("j")
        machine.give(ahead)
        machine.end("j")
    else:
        machine.feed(e.CardSeen(slot=A, present=False))
        machine.take()
        machine.give(LoadFunction(function="g", replaces=""))
        machine.feed(e.CardSeen(slot=A, present=True))
    assert machine.ask() == []


def test_a_slot_that_fails_forgets_what_it_was_to_load(machine):
    machine.give(LoadFunction(function="g", replaces=""))
    machine.feed(e.CardSeen(slot=A, present=False))
    machine.take()
    machine.feed(e.CardSeen(slot=A, present=True))
    assert machine.ask() == []


# Turns at the configuration port


@pytest.fixture
def both(machine):
    """Return a machine in which two slots of a card want to load; the executor of the later one asks first."""
    machine.execute(machine.command(assign("j"), A), machine.command(assign("k"), B))
    assert machine.ask(B) == []
    return machine


def woken(instructions):
    return [one.slot for one in instructions if isinstance(one, i.WakeSlot)]


def test_slots_of_a_card_load_in_the_order_of_their_names_whoever_asks_first(both):
    assert woken(both.feed(e.SlotFree(slot=A))) == [B]
    assert both.take(A) == [i.LoadSlot(A, "f")]
    assert both.ask(B) == [i.LoadSlot(B, "f")]
    assert both.agent.loads_before(B)
    assert not both.agent.loads_before(A)
    both.feed(e.Loaded(slot=A))
    assert not both.agent.loads_before(B)


def test_a_slot_that_begins_to_load_later_is_loaded_later_whatever_its_name(machine):
    machine.give(assign("k"), B)
    assert machine.ask(B) == [i.LoadSlot(B, "f")]
    machine.now_s = 0.001
    machine.give(assign("j"), A)
    assert machine.ask(A) == [i.LoadSlot(A, "f")]
    assert machine.agent.loads_before(A)
    assert not machine.agent.loads_before(B)


@pytest.mark.parametrize("action", [ReleaseJob(job="j"), EvictJob(job="j", attempt=1, keep_progress=False), HOLD])
def test_a_slot_is_woken_when_the_one_before_it_has_nothing_to_load_for_its_jobs(both, action):
    assert B in woken(both.give(action, A))
    assert both.ask(B) == [i.LoadSlot(B, "f")]


def test_a_slot_does_not_wait_for_one_whose_card_has_failed(both):
    assert woken(both.feed(e.CardSeen(slot=A, present=False))) == [B]
    assert both.ask(B) == [i.LoadSlot(B, "f")]


def test_a_slot_waits_for_a_moment_only_for_one_whose_executor_does_not_ask(both):
    both.now_s = LONGEST_TURN_S / 2
    assert both.ask(B) == []
    both.now_s = LONGEST_TURN_S * 1.01
    assert both.ask(B) == [i.LoadSlot(B, "f")]


def test_a_slot_whose_job_needs_no_load_waits_for_nobody(machine):
    machine.compute("k", B)
    machine.end("k", B)
    machine.stage("l", B)
    machine.give(assign("j"), A)
    assert [type(one) for one in machine.ask(B)] == [i.Compute]


# Slots held for instances


def prepare(machine):
    machine.give(HOLD)
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]
    machine.feed(e.Scrubbed(slot=A))
    assert machine.take() == [i.LoadSlot(A, "f")]


def test_a_slot_is_scrubbed_loaded_lent_taken_away_and_scrubbed(machine):
    prepare(machine)
    assert not machine.state.holds[A].ready
    machine.feed(e.Loaded(slot=A))
    assert machine.state.holds[A].ready
    assert machine.ask() == [i.BeginGuestUse(A, HOLD)]
    assert machine.ask() == []
    machine.stage("j")
    assert machine.ask() == []
    assert machine.give(FREE) == [i.ForgetHold(A), i.WakeSlot(A)]
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]
    machine.feed(e.Scrubbed(slot=A))
    (compute,) = machine.ask()
    assert (compute.job.uuid, compute.scrub) == ("j", False)


def test_a_hold_requested_again_changes_nothing_and_another_instance_gets_a_scrubbed_slot(machine):
    prepare(machine)
    machine.feed(e.Loaded(slot=A))
    machine.ask()
    again = HoldSlot(instance="vm", project_id="p", function="f", lease_epoch=2)
    machine.give(again)
    assert machine.ask() == [i.BeginGuestUse(A, again)]
    other = HoldSlot(instance="other", project_id="p", function="f", lease_epoch=3)
    machine.give(other)
    machine.give(FREE)  # late: names an older lease epoch
    assert machine.state.holds[A].action == other
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]


def test_a_slot_that_is_to_be_prepared_for_another_instance_meanwhile_is_not_ready_for_it(machine):
    prepare(machine)
    machine.give(HoldSlot(instance="other", project_id="p", function="f", lease_epoch=2))
    machine.feed(e.Loaded(slot=A))
    assert machine.state.holds[A].state is HoldState.PREPARING
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]


def test_a_bitstream_that_is_refused_is_tried_again_after_a_pause_or_for_somebody_else_at_once(machine):
    prepare(machine)
    machine.feed(e.LoadRefused(slot=A, code="c", message="altered"))
    assert machine.state.holds[A].problem == "altered"
    assert machine.take() == [i.CheckCard(A, PARAMETERS.fault_pause_s[1])]
    assert machine.ask() == [i.CheckCard(A, PARAMETERS.fault_pause_s[1])]  # woken early: the pause is not over
    machine.give(HoldSlot(instance="other", project_id="p", function="g", lease_epoch=2))
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]


def test_a_card_that_fails_under_an_instance_is_prepared_again(machine):
    prepare(machine)
    machine.feed(e.Loaded(slot=A))
    machine.ask()
    machine.feed(e.CardSeen(slot=A, present=False))
    assert machine.take() == [i.EndGuestUse(A), i.CheckCard(A, 2.0)]
    machine.feed(e.CardSeen(slot=A, present=True))
    assert machine.ask() == [i.EndGuestUse(A), i.ScrubSlot(A)]


@pytest.mark.parametrize("event", [e.LoadFailed, e.ScrubFailed])
def test_a_fault_during_the_preparation_is_the_problem_of_the_hold_until_the_next_one_begins(machine, event):
    machine.give(HOLD)
    machine.ask()
    if event is e.LoadFailed:
        machine.feed(e.Scrubbed(slot=A))
    machine.feed(event(slot=A, reason="smoke"))
    assert (machine.state.holds[A].state, machine.state.holds[A].problem) == (HoldState.TROUBLED, "smoke")
    machine.feed(e.CardSeen(slot=A, present=True))
    machine.take()
    machine.ask()
    assert machine.state.holds[A].state is HoldState.PREPARING


# Restart and impossible events


@pytest.mark.parametrize(
    ("phase", "inputs", "after"),
    [
        (Phase.WAITING, (), Phase.WAITING),
        (Phase.WAITING, ("j",), Phase.STAGED),
        (Phase.STAGED, ("j",), Phase.STAGED),
        (Phase.RUNNING, ("j",), Phase.STAGED),
        (Phase.STAGED, (), Phase.FAILED),
        (Phase.FAILED, (), Phase.FAILED),
    ],
)
def test_a_restart_goes_on_with_what_the_journal_holds(machine, phase, inputs, after):
    job = HeldJob(slot=A, assignment=assign("j"), phase=phase)
    machine.feed(e.Restarted(jobs=(job,), inputs=frozenset(inputs)))
    assert machine.state.jobs["j"].phase is after
    assert bool(machine.reports()) == (after is not phase and phase is not Phase.RUNNING)


def test_a_restart_remembers_commands_owners_and_holds(machine):
    command = machine.command(assign("j"))
    holds, fences = {A: (HOLD, True)}, {A: command.fence}
    machine.feed(e.Restarted(holds=holds, fences=fences, epochs={"s": 4}, executed=(command.id,)))
    assert machine.state.holds[A].ready
    with pytest.raises(StaleEpoch):
        machine.execute(command, epoch=3)
    assert outcomes(machine.execute(command, epoch=4)) == ["repeated"]


def test_a_result_that_was_lost_in_a_restart_has_expired(machine):
    held = HeldJob(slot=A, assignment=assign("j"), phase=Phase.HELD, result_bytes=1, finished_at=0.0)
    machine.feed(e.Restarted(jobs=(held,)))
    assert (machine.state.jobs, len(machine.reports(ResultExpired))) == ({}, 1)


def test_an_event_that_cannot_be_changes_nothing_and_the_error_tells_the_events_before():
    machine = Machine()
    machine.compute("j")
    with pytest.raises(InvalidTransition, match=r"slot h/c/a: Loaded is not possible in state computing") as error:
        machine.feed(e.Loaded(slot=A))
    assert "SlotFree" in str(error.value)
    with pytest.raises(InvalidTransition, match="attempt 1 of job k has not begun here"):
        machine.end("k")
    assert machine.state.slots[A].activity is Activity.COMPUTING


def test_what_could_not_be_recorded_is_taken_back():
    machine = Machine()
    machine.stage("j")
    before = dict(machine.state.jobs), dict(machine.state.fences), dict(machine.state.executed)
    machine.execute(machine.command(ReleaseJob(job="j")), machine.command(assign("k"), B))
    machine.agent.undo()
    assert (machine.state.jobs, machine.state.fences, machine.state.executed) == before
    assert machine.state.jobs_of_slot[A].keys() == {"j"}
    assert isinstance(machine.reports()[0], InputStaged | JobStarted)
