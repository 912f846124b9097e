"""The state machine of gang processes, without a host: its instructions for commands and observed guests."""

import pytest

from fpga_pool.model.agent.gang_messages import (
    Answer,
    CommandReceived,
    DiscardMemory,
    EndGuest,
    FinishLaunch,
    GuestEnded,
    GuestLaunched,
    GuestRefused,
    GuestsSeen,
    LaunchGuest,
    LeaveGuest,
    MoveGuest,
    ProcessesRestored,
    Record,
    SaveGuest,
)
from fpga_pool.model.agent.gang_process import Goal, HeldProcess, Key, Phase, Running, SeenAlive, Unseen, transition
from fpga_pool.model.agent.gang_processes import ProcessesState, handle
from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.gangs import (
    LaunchProcess,
    ProcessExited,
    ProcessFailed,
    ProcessSaved,
    ProcessStarted,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


class Machine:
    """A host with two processors; `does` returns the instructions for an event, except records and answers."""

    def __init__(self):
        self.state = ProcessesState(processors={"h0/pcpu/0": 0, "h0/pcpu/1": 1})
        self.sequence = 0
        self.records, self.answers = [], []

    def does(self, event, now_s=5.0):
        self.state, instructions = handle(self.state, event, now_s)
        self.records += [one for one in instructions if isinstance(one, Record)]
        self.answers += [one.outcome.outcome for one in instructions if isinstance(one, Answer)]
        return [one for one in instructions if not isinstance(one, Record | Answer)]

    def reported(self):
        reported = [report for record in self.records for report in record.reports]
        self.records = []
        return reported

    def command(self, action, processor=0, **facts):
        self.sequence += 1
        slot = f"h0/pcpu/{processor}"
        command = Command(
            id=str(self.sequence), shard="s", epoch=1, host="h0", slot=slot, sequence=self.sequence, action=action
        )
        return self.does(CommandReceived(command, **{"repeated": False, "fence": (0, 0)} | facts))

    def launch(self, gang="a", tier=FRONT, processor=0, **fields):
        known = {"gang": gang, "index": 0, "attempt": 1, "tier": tier, "processes": 1, "cpu_usage": 0.5, "work_s": 9.0}
        return self.command(LaunchProcess(**known | fields), processor)

    def order(self, kind, gang="a", **fields):
        return self.command(kind(gang=gang, index=0, attempt=1, **fields))

    def sees(self, **guests):
        return self.does(GuestsSeen({key(gang): guest for gang, guest in guests.items()}))

    def runs(self, gang="a", tier=FRONT, processor=0, **fields):
        """Launch a process and let it run."""
        self.launch(gang, tier, processor, **fields)
        self.does(GuestLaunched(key(gang)))
        self.reported()


def key(gang):
    return Key(gang, 0, 1)


def guest(phase=Phase.RUNNING, tier=FRONT, processor=0, **fields):
    known = {"done_s": 4.0, "rate": 1.0, "progress_at": 1.0, "cpu_s": 2.0}
    return Running(**{"phase": phase, "processor": processor, "tier": tier} | known | fields)


@pytest.fixture
def machine():
    return Machine()


def test_a_process_is_launched_when_its_place_is_free(machine):
    assert machine.launch("b") == []
    (record,) = machine.records
    assert (record.command.id, record.keep.goal, record.reports) == ("1", Goal.LAUNCH, ())
    assert machine.sees(a=guest()) == [EndGuest(key("a"))]  # an unknown guest that occupies the place
    (launch,) = machine.sees()
    assert (type(launch), launch.spec.key, launch.processor, launch.tier) == (LaunchGuest, key("b"), 0, FRONT)
    machine.reported()
    machine.does(GuestLaunched(key("b")))
    assert [type(report) for report in machine.reported()] == [ProcessStarted]
    assert machine.sees(b=guest()) == []


def test_two_processes_are_not_launched_into_one_place(machine):
    machine.launch("a")
    machine.launch("b")
    assert [one.spec.key for one in machine.sees()] == [key("a")]


def test_a_launch_that_is_refused_is_reported_when_nothing_is_left_of_it(machine):
    machine.launch("a", saved="memory")
    assert machine.does(GuestRefused(key("a"), "no room")) == [EndGuest(key("a"), "memory")]
    machine.reported()
    machine.does(GuestEnded(key("a")))
    (failed,) = machine.reported()
    assert (type(failed), failed.message) == (ProcessFailed, "no room")
    assert machine.state.held == {}


def test_what_could_not_be_ended_after_a_refusal_is_launched_again(machine):
    machine.launch("a")
    machine.does(GuestRefused(key("a"), "no room"))
    assert [type(one) for one in machine.sees()] == [LaunchGuest]


def test_commands_are_answered_by_what_became_of_them(machine):
    machine.launch()
    stop = StopProcess(gang="a", index=0, attempt=1)
    machine.command(stop, repeated=True)
    machine.command(stop, fence=(2, 0))
    assert machine.answers == ["accepted", "repeated", "refused"]
    assert machine.state.held[key("a")].goal is Goal.LAUNCH


@pytest.mark.parametrize(
    ("seen", "report", "instruction"),
    [
        ({"phase": Phase.EXITED}, ProcessExited, EndGuest(key("a"))),
        ({"phase": Phase.FAILED, "reason": "it crashed"}, ProcessFailed, EndGuest(key("a"))),
        (None, ProcessFailed, EndGuest(key("a"))),
    ],
)
def test_a_process_that_ends_by_itself_is_reported_and_cleared_away(machine, seen, report, instruction):
    machine.runs()
    assert machine.sees(**({} if seen is None else {"a": guest(**seen)})) == [instruction]
    machine.does(GuestEnded(key("a")))
    (reported,) = machine.reported()
    assert (type(reported), reported.cpu_s) == (report, 0.0 if seen is None else 2.0)
    assert machine.state.held == {}


def test_an_exit_is_recorded_before_its_guest_is_ended_and_a_death_after(machine):
    machine.runs("a")
    machine.runs("b", processor=1)
    machine.sees(a=guest(Phase.EXITED), b=guest(Phase.FAILED, processor=1, reason="it crashed"))
    assert [type(report) for report in machine.reported()] == [ProcessExited]
    machine.does(GuestEnded(key("b")))
    assert [type(report) for report in machine.reported()] == [ProcessFailed]


def test_a_saved_process_leaves_its_memory_to_who_goes_on_from_it(machine):
    machine.runs()
    machine.order(SaveProcess)
    assert machine.sees(a=guest()) == [SaveGuest(key("a"))]
    machine.reported()
    assert machine.sees(a=guest(Phase.SAVED, saved="a.1.0")) == [LeaveGuest(key("a"))]
    (saved,) = machine.reported()
    assert (type(saved), saved.done_s, saved.saved) == (ProcessSaved, 4.0, "a.1.0")


def test_a_process_that_was_never_launched_passes_on_the_memory_it_came_with(machine):
    machine.launch(saved="old", done_s=3.0)
    machine.order(SaveProcess)
    assert machine.sees() == [EndGuest(key("a"))]  # nothing to save: the old memory is passed on
    machine.reported()
    machine.does(GuestEnded(key("a")))
    (saved,) = machine.reported()
    assert (saved.done_s, saved.saved) == (3.0, "old")


def test_a_launch_that_a_killed_agent_began_is_finished(machine):
    machine.launch(saved="old")
    assert machine.sees(a=guest()) == [FinishLaunch(key("a"), "old")]
    machine.does(GuestLaunched(key("a")))
    assert [type(report) for report in machine.reported()] == [ProcessStarted]


def test_a_process_that_is_to_stop_stops_whatever_its_guest_does(machine):
    for phase in (*Phase, None):
        machine.runs()
        machine.order(StopProcess)
        machine.reported()
        assert machine.sees(**({} if phase is None else {"a": guest(phase)})) == [EndGuest(key("a"))]
        machine.does(GuestEnded(key("a")))
        assert [type(report) for report in machine.reported()] == [ProcessStopped]


def test_to_stop_what_is_not_there_removes_the_memory_it_names(machine):
    assert machine.order(StopProcess, saved="old") == [DiscardMemory("old")]
    assert [type(report) for report in machine.reported()] == [ProcessStopped]


def test_a_process_waits_for_a_tier_unless_the_one_in_it_waits_for_its_own(machine):
    machine.runs("a")
    machine.runs("b", BEHIND)
    machine.order(SetTier, "b", tier=FRONT)
    guests = {"a": guest(), "b": guest(tier=BEHIND)}
    assert machine.sees(**guests) == []
    machine.order(SetTier, "a", tier=BEHIND)
    assert machine.sees(**guests) == [MoveGuest(key("a"), BEHIND), MoveGuest(key("b"), FRONT)]
    # The agent was killed between the two moves.
    assert machine.sees(a=guest(tier=BEHIND), b=guest(tier=BEHIND)) == [MoveGuest(key("b"), FRONT)]


def test_a_processor_that_is_taken_away_launches_nobody_and_is_obeyed_while_a_gang_has_it(machine):
    machine.runs("a")
    machine.launch("b", BEHIND)
    kept = tuple(machine.state.held.values())
    machine.state = ProcessesState(processors={"h0/pcpu/1": 1})
    machine.does(ProcessesRestored(kept))
    assert machine.state.takes("h0/pcpu/0")
    assert [one.offered for one in machine.state.observed_processors({})] == [True, False]
    assert machine.sees(a=guest()) == [EndGuest(key("b"))]
    machine.does(GuestEnded(key("b")))
    assert "no longer offered to gangs" in machine.reported()[-1].message


def test_an_event_without_a_rule_says_which_process_and_goal():
    held = HeldProcess("h0/pcpu/0", LaunchProcess(
        gang="a", index=0, attempt=1, tier=FRONT, processes=1, cpu_usage=0.5, work_s=9.0
    ), Goal.RUN)  # fmt: skip
    with pytest.raises(InvalidTransition, match=r"process a\.1\.0: str is not possible with goal run"):
        transition(held, "nothing", 0.0)
    assert transition(held, SeenAlive(guest()), 0.0)[0] is held
    assert transition(held, Unseen(), 0.0)[0].farewell is not None
