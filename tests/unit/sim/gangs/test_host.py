"""The gang part of a simulated host: guests in simulated time, and random sequences of events."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.agent.gang_messages import ProcessesRestored
from fpga_pool.model.agent.gang_process import Key, Phase, ProcessSpec
from fpga_pool.model.agent.gang_processes import ProcessesState, handle
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.gangs import LaunchProcess, ProcessStarted, SaveProcess, SetTier, StopProcess
from fpga_pool.sim.gangs.host import GangHost, Guests, GuestTimes

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND
#: Share lost in the foreground beside another process, and share used of what another process leaves.
LOSS, USED = 0.02, 0.5


class Host(GangHost):
    """A host of two processors with a log of its machine's events, which gets commands in order."""

    def __init__(self, guests=None):
        self.guests = guests or Guests(GuestTimes(save_s=5.0, resume_s=15.0), shares=lambda *_: (LOSS, USED))
        super().__init__("h", [0, 1], self.guests)
        self.sequence = Counter()
        self.log, self.told = [], []

    def _handle(self, event):
        instructions = super()._handle(event)
        self.log.append((event, self.guests.now_s, instructions))
        return instructions

    def command(self, action, processor=0):
        slot = f"h/pcpu/{processor}"
        self.sequence[slot] += 1
        number = self.sequence[slot]
        command = Command(
            id=f"{slot} {number}", shard="s", epoch=1, host="h", slot=slot, sequence=number, action=action
        )
        return self.execute(command).outcome

    def launch(self, gang="a", tier=FRONT, processor=0, **fields):
        known = {"gang": gang, "index": 0, "attempt": 1, "tier": tier, "processes": 1, "cpu_usage": 0.5}
        return self.command(LaunchProcess(**known | {"work_s": 100.0} | fields), processor)

    def order(self, kind, gang="a", processor=0, **fields):
        return self.command(kind(gang=gang, index=0, attempt=1, **fields), processor)

    def hear(self):
        self.work()
        told = [report for _, report in self.reports]
        self.told += told
        if told:
            self.taken(self.reports[-1][0])
        return [type(report).__name__ for report in told]

    def pass_to(self, now_s):
        self.guests.pass_to(now_s)


def test_a_process_progresses_as_fast_as_its_tier_and_neighbour_let_it():
    host = Host()
    host.launch("a", cpu_usage=0.6)
    host.launch("b", BEHIND, cpu_usage=0.5, work_s=20.0)
    host.hear()
    # b uses 0.5 of the 0.4 that a leaves, and needs 0.5 for full speed: 0.5 * 0.4 / 0.5 = 0.4, so 20 s take 50 s.
    assert host.guests.next_s() == pytest.approx(50.0)
    host.pass_to(host.guests.next_s())
    assert host.hear() == ["ProcessExited"]
    # a runs for 50 s at 0.98, then alone.
    assert host.guests.next_s() == pytest.approx(50.0 + 100.0 - 49.0)


def test_the_processes_of_a_gang_wait_for_the_slowest_on_whatever_host():
    guests = Guests(shares=lambda *_: (LOSS, USED))
    hosts = {"h": GangHost("h", [0], guests), "i": GangHost("i", [0], guests)}
    key, tier = Key("wide", 0, 1), BEHIND
    spec = {"processes": 2, "cpu_usage": 0.8, "work_s": 40.0}
    guests.launch("h", ProcessSpec(key=key, **spec), 0, tier)
    assert guests.next_s() == float("inf")  # its other process does not run yet
    guests.launch("i", ProcessSpec(key=Key("wide", 1, 1), **spec), 0, tier)
    assert guests.next_s() == 40.0
    guests.launch("i", ProcessSpec(key=Key("b", 0, 1), processes=1, cpu_usage=0.2, work_s=1e6), 0, FRONT)
    assert guests.next_s() == pytest.approx(40.0 / USED)
    assert {name: len(guests.observe(name)) for name in hosts} == {"h": 1, "i": 2}


def test_a_migration_takes_the_save_here_and_the_resumption_there():
    host = Host()
    host.launch("a")
    host.hear()
    host.pass_to(30.0)
    host.order(SaveProcess)
    host.hear()
    assert host.guests.next_s() == 35.0
    host.pass_to(35.0)
    assert host.hear() == ["ProcessSaved"]
    assert (host.told[-1].done_s, host.guests.memories) == (30.0, {"a.1.0"})
    host.command(LaunchProcess(
        gang="a", index=0, attempt=2, tier=FRONT, processes=1, cpu_usage=0.5, work_s=100.0, done_s=30.0, saved="a.1.0"
    ), 1)  # fmt: skip
    assert host.hear() == ["ProcessStarted"]
    assert host.guests.memories == set()
    host.pass_to(host.guests.next_s())
    assert host.guests.now_s == 50.0
    assert host.guests.next_s() == 50.0 + 70.0


def test_what_a_host_reports_of_a_process_says_where_it_is_at_any_moment():
    host = Host()
    host.launch("a", work_s=50.0)
    host.hear()
    (seen,) = host.observed()
    assert (seen.done_s, seen.rate, seen.progress_at) == (0.0, 1.0, 0.0)
    host.pass_to(20.0)
    assert host.observed() == (seen,)  # its progress follows from the reported rate
    host.launch("b", BEHIND)
    host.hear()
    seen = host.observed()[0]
    assert (seen.done_s, seen.rate, seen.progress_at) == (20.0, 1.0 - LOSS, 20.0)


gangs = st.sampled_from("abcd")
tiers = st.sampled_from([FRONT, BEHIND])
processors = st.integers(0, 1)
steps = st.one_of(
    *[st.tuples(st.just("launch"), gangs, tiers, processors)] * 3,
    st.tuples(st.just("set_tier"), gangs, tiers),
    st.tuples(st.just("save"), gangs),
    st.tuples(st.just("stop"), gangs),
    *[st.tuples(st.just("hear"))] * 3,
    st.tuples(st.just("time")),
    st.tuples(st.just("fail"), gangs),
    st.tuples(st.just("vanish"), gangs),
    st.tuples(st.just("stray"), processors, tiers),
    st.tuples(st.just("restart")),
    st.tuples(st.just("power_off")),
)


class Walk:
    """Random steps; the end of every launched process must be reported once, and nothing of it may be left."""

    def __init__(self):
        self.host = Host()
        self.at = {}

    def launch(self, gang, tier, processor):
        if gang not in self.at:
            self.at[gang] = processor
            self.host.launch(gang, tier, processor)

    def order(self, kind, gang, **fields):
        if gang in self.at:
            self.host.order(kind, gang, self.at[gang], **fields)

    def set_tier(self, gang, tier):
        self.order(SetTier, gang, tier=tier)

    def save(self, gang):
        self.order(SaveProcess, gang)

    def stop(self, gang):
        if Key(gang, 0, 1) in self.host._state.held:  # else its stop would be reported twice, as intended
            self.order(StopProcess, gang)

    def hear(self):
        self.host.hear()
        guests = self.host.guests.observe("h")
        places = Counter((guest.processor, guest.tier) for guest in guests.values())
        assert max(places.values(), default=0) <= 1
        assert guests.keys() <= self.host._state.held.keys()

    def time(self):
        if (now_s := self.host.guests.next_s()) < float("inf"):
            self.host.pass_to(now_s)

    def fail(self, gang):
        guest = self.host.guests.observe("h").get(Key(gang, 0, 1))
        if guest is not None and guest.phase is Phase.RUNNING:
            self.host.guests.fail(Key(gang, 0, 1), "it crashed")

    def vanish(self, gang):
        self.host.guests.end(Key(gang, 0, 1))

    def stray(self, processor, tier):
        guests = self.host.guests.observe("h").values()
        if all((guest.processor, guest.tier) != (processor, tier) for guest in guests):
            spec = ProcessSpec(key=Key("stray", 0, 1), processes=1, cpu_usage=0.5, work_s=10.0)
            self.host.guests.launch("h", spec, processor, tier)

    def restart(self):
        self.host.restart()
        kept = tuple(self.host._kept.values())
        self.host.log.append((ProcessesRestored(kept), self.host.guests.now_s, ()))

    def power_off(self):
        self.host.guests.power_off("h")
        self.restart()

    def end(self):
        for gang in self.at:
            self.stop(gang)
        self.hear()
        assert not self.host._state.held
        assert not self.host.guests.observe("h")
        ends = Counter(report.gang for report in self.host.told if not isinstance(report, ProcessStarted))
        assert ends == Counter(list(self.at))
        starts = Counter(report.gang for report in self.host.told if isinstance(report, ProcessStarted))
        assert max(starts.values(), default=0) <= 1


def replayed(log):
    """Return the state and the instructions of a new machine that handles the same events."""
    state = new = ProcessesState(processors={"h/pcpu/0": 0, "h/pcpu/1": 1})
    said = []
    for event, now_s, _ in log:
        state, instructions = handle(new if isinstance(event, ProcessesRestored) else state, event, now_s)
        said.append(tuple(instructions))
    return state, said


@given(walk=st.lists(steps, max_size=60))
def test_processes_keep_their_invariants_through_any_walk_and_its_events_lead_to_the_same_again(walk):
    walker = Walk()
    for kind, *arguments in walk:
        getattr(walker, kind)(*arguments)
    walker.end()
    state, said = replayed(walker.host.log)
    assert said == [tuple(instructions) for _, _, instructions in walker.host.log]
    assert state == walker.host._state
