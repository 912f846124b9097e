"""The agent's part of gangs: commands come true, whatever is lost on the way, and what happened is told once."""

import threading

import pytest

from fpga_pool.drivers.runners.base import Key, Phase, Running
from fpga_pool.drivers.runners.simulated import SimulatedRunner
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.flavor import Tier
from fpga_pool.model.gang_messages import LaunchProcess, SaveProcess, SetTier, StopProcess
from fpga_pool.model.messages import Command
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.processes import Processes

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


class Killed(BaseException):
    """Nobody catches it: what comes after it in the process does not happen."""


class Mortal:
    """Passes calls on to a runner or a journal; dies before, or after, a call."""

    def __init__(self, real, fate):
        self._real, self._fate = real, fate

    def __getattr__(self, name):
        call = getattr(self._real, name)
        if name not in ("launch", "set_tier", "save", "end", "leave", "note_process"):
            return call

        def mortal(*args):
            self._fate.pass_by()
            done = call(*args)
            self._fate.pass_by()
            return done

        return mortal


class Fate:
    def __init__(self, left=10_000):
        self.left = left

    def pass_by(self):
        self.left -= 1
        if self.left == 0:
            raise Killed


class Host:
    """One host: its guests and journal stay, its agent comes and goes."""

    def __init__(self, directory):
        self.directory = directory
        self.now_s = self.steady_s = 1000.0
        self.sequence = {}
        self.told = []
        self.start()

    def start(self, kill_after=10_000):
        fate = Fate(kill_after)
        runner = SimulatedRunner(self.directory / "guests", lambda: self.now_s, 5.0)
        self.journal = Journal(self.directory / "journal.sqlite")
        self.runner = Mortal(runner, fate)
        journal = Mortal(self.journal, fate)
        self.changed = threading.Condition()
        self.agent = Processes(
            "h0", [0, 1], self.runner, journal, lambda: self.now_s, self.changed, lambda: self.steady_s
        )

    def kill(self):
        self.journal.close()

    def command(self, action, number=0, epoch=1, sequence=None):
        slot = f"h0/pcpu/{number}"
        self.sequence[slot] = sequence or self.sequence.get(slot, 0) + 1
        sequence = self.sequence[slot]
        return Command(
            id=f"{slot} {epoch} {sequence}", shard="s", epoch=epoch, host="h0", slot=slot, sequence=sequence,
            action=action,
        )  # fmt: skip

    def launch(self, gang="a", tier=FRONT, number=0, **fields):
        known = {"gang": gang, "index": 0, "attempt": 1, "tier": tier}
        action = LaunchProcess(**known | {"processes": 1, "cpu_usage": 0.5, "work_s": 10.0} | fields)
        return self.command(action, number)

    def about(self, kind, gang="a", number=0, **fields):
        return self.command(kind(gang=gang, index=0, attempt=1, **fields), number)

    def obey(self, *commands):
        return [self.agent.execute(command).outcome for command in commands]

    def settle(self):
        while self.agent.step():
            pass
        return self.reports()

    def reports(self):
        told = self.journal.reports(100)
        if told:
            self.journal.taken(told[-1][0])
        self.told += [(type(report).__name__, report.gang) for _, report in told]
        return [report for _, report in told]

    def names(self):
        return [type(report).__name__ for report in self.settle()]

    def guests(self):
        return {key.gang: seen for key, seen in self.runner.observe().items()}


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.kill()


def test_a_process_is_launched_runs_to_its_end_and_is_forgotten(host):
    assert host.obey(host.launch(tier=BEHIND)) == ["accepted"]
    assert host.names() == ["ProcessStarted"]
    assert host.guests()["a"].tier is BEHIND
    host.now_s += 10.0
    (exited,) = host.settle()
    assert (type(exited).__name__, exited.cpu_s) == ("ProcessExited", 5.0)  # 10 s at a usage of 0.5
    assert host.guests() == {}
    assert host.agent.observed() == ()


def test_commands_are_executed_once_and_late_ones_refused(host):
    first, second = host.launch(), host.about(StopProcess)
    assert host.obey(first, first) == ["accepted", "repeated"]
    assert host.obey(second) == ["accepted"]
    late = host.command(first.action, sequence=1)
    assert host.obey(Command(**{name: getattr(late, name) for name in late.__slots__} | {"id": "new"})) == ["refused"]
    assert [(one.processor, one.sequence, one.epoch) for one in host.agent.observed_processors()] == [
        ("h0/pcpu/0", 2, 1),
        ("h0/pcpu/1", 0, 0),
    ]


def test_a_process_comes_to_the_foreground_when_the_one_before_has_left(host):
    host.obey(host.launch("a", work_s=100.0), host.launch("b", BEHIND, work_s=100.0))
    host.settle()
    host.obey(host.about(SetTier, "b", tier=FRONT))
    assert host.names() == []
    assert host.guests()["b"].tier is BEHIND  # its place is not free yet
    host.obey(host.about(StopProcess, "a"))
    assert host.names() == ["ProcessStopped"]
    assert host.guests()["b"].tier is FRONT


def test_a_process_is_not_launched_where_another_one_still_is(host):
    host.obey(host.launch("a", work_s=5.0), host.launch("b"))
    assert host.names() == ["ProcessStarted"]
    host.now_s += 5.0
    assert host.names() == ["ProcessExited", "ProcessStarted"]
    assert set(host.guests()) == {"b"}


def test_a_process_is_saved_with_what_it_has_done(host):
    host.obey(host.launch())
    host.settle()
    host.now_s += 4.0
    host.obey(host.about(SaveProcess))
    assert host.names() == []
    assert host.agent.observed()[0].ending
    host.now_s += 5.0
    (saved,) = host.settle()
    assert (type(saved).__name__, saved.done_s) == ("ProcessSaved", 4.0)
    assert host.guests() == {}


def test_a_process_that_was_not_launched_yet_is_saved_as_it_came(host):
    host.obey(host.launch(done_s=3.0), host.about(SaveProcess))
    (saved,) = host.settle()
    assert (type(saved).__name__, saved.done_s) == ("ProcessSaved", 3.0)


def test_to_stop_what_is_not_there_is_told_all_the_same(host):
    host.obey(host.about(StopProcess))
    assert host.names() == ["ProcessStopped"]


def test_a_guest_that_has_died_is_told_and_not_launched_again(host):
    host.obey(host.launch())
    host.settle()
    host.runner.end(Key("a", 0, 1))
    (failed,) = host.settle()
    assert (type(failed).__name__, failed.message) == ("ProcessFailed", "its guest is gone")
    assert host.names() == []


def test_a_guest_that_nobody_asked_for_is_ended(host, tmp_path):
    host.obey(host.launch())
    host.settle()
    host.kill()
    (tmp_path / "journal.sqlite").unlink()
    for left in tmp_path.glob("journal.sqlite-*"):
        left.unlink()
    host.start()
    assert host.names() == []
    assert host.guests() == {}


def test_a_processor_that_was_taken_away_is_obeyed_until_its_process_has_ended(host):
    host.obey(host.launch())
    host.settle()
    host.agent.numbers = {"h0/pcpu/1": 1}
    assert {one.processor: one.offered for one in host.agent.observed_processors()} == {
        "h0/pcpu/0": False,
        "h0/pcpu/1": True,
    }
    assert host.agent.takes("h0/pcpu/0")
    host.obey(host.about(StopProcess))
    assert host.names() == ["ProcessStopped"]
    assert not host.agent.takes("h0/pcpu/0")
    assert [one.processor for one in host.agent.observed_processors()] == ["h0/pcpu/1"]


def test_a_process_that_cannot_be_launched_is_told(host):
    host.agent._runner = type("Full", (), {"observe": lambda _: {}, "end": lambda *_: None, "launch": host_is_full})()
    host.obey(host.launch())
    (failed,) = host.settle()
    assert (type(failed).__name__, failed.message) == ("ProcessFailed", "no memory")


def host_is_full(*_):
    from fpga_pool.model.exceptions import Conflict

    raise Conflict("no memory")


def test_while_the_hypervisor_does_not_answer_nothing_is_concluded(host):
    host.obey(host.launch())
    host.settle()
    observe = host.runner.observe

    def silent():
        raise ServiceUnavailable("libvirt does not answer")

    host.agent._runner = type("Silent", (), {"observe": lambda _: silent()})()
    with pytest.raises(ServiceUnavailable):
        host.agent.step()
    host.agent._runner = host.runner
    assert host.names() == []
    assert observe()[Key("a", 0, 1)].phase is Phase.RUNNING


@pytest.mark.parametrize("kill_after", range(1, 40))
def test_an_agent_that_is_killed_at_any_moment_goes_on_where_it_was(host, kill_after):
    """Two processes share a processor; one ends, the other comes forward, is saved, and ends: each step once."""
    script = [
        lambda: host.obey(host.launch("a", work_s=10.0), host.launch("b", BEHIND, work_s=100.0)),
        lambda: setattr(host, "now_s", host.now_s + 11.0),
        lambda: host.obey(host.about(SetTier, "b", tier=FRONT)),
        lambda: host.obey(host.about(SaveProcess, "b")),
        lambda: setattr(host, "now_s", host.now_s + 5.0),
        lambda: host.obey(host.launch("c", number=1, work_s=1000.0)),
        lambda: host.obey(host.about(StopProcess, "c", number=1)),
    ]
    host.kill()
    host.start(kill_after)
    for act in script:
        sequences = dict(host.sequence)
        try:
            act()
            host.settle()
        except Killed:
            host.kill()
            host.start()
            if sequences != host.sequence:  # the scheduler has no answer: it says the same again
                host.sequence = sequences
                act()
            host.settle()
    host.reports()
    assert host.told == [
        ("ProcessStarted", "a"),
        ("ProcessStarted", "b"),
        ("ProcessExited", "a"),
        ("ProcessSaved", "b"),
        ("ProcessStarted", "c"),
        ("ProcessStopped", "c"),
    ]
    assert host.guests() == {}


class Memories:
    """A runner of two guests at the most whose processes go on from saved memories, as those of real guests do."""

    def __init__(self):
        self.seen, self.memories, self.calls = {}, {"old.1.0"}, []

    def observe(self):
        return dict(self.seen)

    def launch(self, spec, processor, tier):
        assert not spec.saved or spec.saved in self.memories
        self.seen[spec.key] = self._running(Phase.RUNNING, processor, tier)

    def save(self, key):
        self.memories.add(str(key))
        old = self.seen[key]
        self.seen[key] = self._running(Phase.SAVED, old.processor, old.tier, saved=str(key))

    def end(self, key):
        self.seen.pop(key, None)
        self.memories.discard(str(key))

    def leave(self, key):
        del self.seen[key]

    def discard(self, saved):
        self.memories.discard(saved)

    @staticmethod
    def _running(phase, processor, tier, **fields):
        return Running(
            phase=phase, processor=processor, tier=tier, done_s=4.0, rate=1.0, progress_at=0.0, cpu_s=2.0, **fields
        )


@pytest.fixture
def memories(host):
    host.agent._runner = Memories()
    return host.agent._runner


def test_a_process_goes_on_from_its_memory_which_is_then_removed(host, memories):
    host.obey(host.launch("a", saved="old.1.0"))
    assert host.names() == ["ProcessStarted"]
    assert memories.memories == set()


def test_a_saved_memory_is_told_and_left_to_who_goes_on_from_it(host, memories):
    host.obey(host.launch("a"))
    host.settle()
    host.obey(host.about(SaveProcess))
    host.agent.step()
    (saved,) = host.settle()
    assert (saved.saved, saved.done_s) == ("a.1.0", 4.0)
    assert (memories.seen, "a.1.0" in memories.memories) == ({}, True)
    host.obey(host.about(StopProcess, saved="a.1.0"))  # nobody goes on from it
    assert host.names() == ["ProcessStopped"]
    assert memories.memories == {"old.1.0"}


def test_a_memory_that_nobody_has_gone_on_from_yet_is_passed_on_or_removed(host, memories):
    host.obey(host.launch("a", saved="old.1.0"), host.about(SaveProcess))
    (saved,) = host.settle()
    assert (type(saved).__name__, saved.saved) == ("ProcessSaved", "old.1.0")
    assert memories.memories == {"old.1.0"}
    host.obey(host.launch("b", saved="old.1.0"), host.about(StopProcess, "b"))
    assert host.names() == ["ProcessStopped"]
    assert memories.memories == set()


def test_one_that_was_asked_for_and_may_still_turn_up_is_not_told_as_saved(host, memories):
    """Its launch was not answered: it is saved as it came once nothing of it can come to be any more."""
    memories.launch, end = lambda *_: unavailable(), memories.end
    host.obey(host.launch("a", saved="old.1.0"))
    with pytest.raises(ServiceUnavailable):
        host.agent.step()
    host.obey(host.about(SaveProcess))
    memories.end = lambda _: unavailable()
    with pytest.raises(ServiceUnavailable):
        host.agent.step()
    assert host.reports() == []
    memories.end = end
    (saved,) = host.settle()
    assert (type(saved).__name__, saved.saved) == ("ProcessSaved", "old.1.0")


def test_an_agent_that_was_killed_between_telling_and_leaving_leaves_the_memory(host, memories):
    memories.seen[Key("b", 0, 1)] = memories._running(Phase.RUNNING, 0, FRONT)
    memories.save(Key("b", 0, 1))  # of b nothing is held: it was told
    assert host.names() == []
    assert memories.seen == {}
    assert "b.1.0" in memories.memories


def test_a_guest_that_has_failed_is_ended_and_told_why(host, memories):
    host.obey(host.launch("a"))
    host.settle()
    memories.seen[Key("a", 0, 1)] = memories._running(Phase.FAILED, 0, FRONT, reason="its guest crashed")
    (failed,) = host.settle()
    assert (type(failed).__name__, failed.message, failed.cpu_s) == ("ProcessFailed", "its guest crashed", 2.0)
    assert memories.seen == {}


def test_a_guest_that_a_killed_agent_left_in_no_tier_is_put_into_its_own(host, memories):
    given = []
    memories.set_tier = lambda key, tier: given.append((key.gang, tier))
    host.obey(host.launch("a", tier=BEHIND))
    host.settle()
    memories.seen[Key("a", 0, 1)] = memories._running(Phase.RUNNING, 0, None)
    host.agent.step()
    assert given == [("a", BEHIND)]


@pytest.mark.parametrize("failure", [ServiceUnavailable, Conflict])
def test_a_guest_that_cannot_be_ended_keeps_no_other_from_being_ended_or_launched(host, memories, failure):
    """Of three processes that are to end the first two do not; the third does, and a fourth comes to its place."""
    host.obey(host.launch("a"), host.launch("b", BEHIND), host.launch("c", number=1))
    host.settle()
    memories.seen[Key("stray", 0, 1)] = memories._running(Phase.RUNNING, 5, FRONT)
    end = memories.end

    def stuck(key):
        if key.gang != "c":
            raise failure(f"{key} does not end")
        end(key)

    memories.end = stuck
    stops = [host.about(StopProcess, "a"), host.about(StopProcess, "b"), host.about(StopProcess, "c", 1)]
    host.obey(*stops, host.launch("d", number=1), host.launch("e"))
    with pytest.raises(failure, match=r"stray\.1\.0 does not end"):
        host.settle()
    assert [(type(report).__name__, report.gang) for report in host.reports()] == [
        ("ProcessStopped", "c"),
        ("ProcessStarted", "d"),
    ]
    assert {key.gang for key in memories.seen} == {"a", "b", "d", "stray"}  # e has no place yet
    memories.end = end
    assert host.names() == ["ProcessStopped", "ProcessStopped", "ProcessStarted"]
    assert {key.gang for key in memories.seen} == {"d", "e"}


def test_a_stray_guest_that_did_not_end_is_ended_later(host, memories):
    memories.seen[Key("stray", 0, 1)] = memories._running(Phase.RUNNING, 0, FRONT)
    end, memories.end = memories.end, lambda _: unavailable()
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            host.agent.step()
    memories.end = end
    assert host.names() == []
    assert memories.seen == {}


def unavailable():
    raise ServiceUnavailable("no answer")


def test_a_memory_that_nobody_wants_is_removed_while_commands_can_come(host, memories):
    """The directory may take its time: nobody waits for it who would execute a command or send a heartbeat."""
    host.settle()
    owned, discard = [], memories.discard

    def slow(saved):
        owned.append(host.changed._is_owned())
        discard(saved)

    memories.discard = slow
    host.obey(host.about(StopProcess, saved="old.1.0"))
    assert (owned, memories.memories) == ([], {"old.1.0"})
    assert host.names() == ["ProcessStopped"]
    assert (owned, memories.memories) == ([False], set())


def test_a_memory_that_cannot_be_removed_is_left_to_be_swept(host, memories):
    memories.discard = lambda _: unavailable()
    host.obey(host.about(StopProcess, saved="old.1.0"), host.launch("b"))
    assert host.names() == ["ProcessStopped", "ProcessStarted"]


def test_a_host_without_processes_is_looked_at_now_and_then(host, memories):
    host.settle()
    memories.seen[Key("stray", 0, 1)] = memories._running(Phase.RUNNING, 0, FRONT)
    host.steady_s += 599.0
    host.settle()
    assert len(memories.seen) == 1
    host.steady_s += 1.0
    host.settle()
    assert memories.seen == {}


def test_a_guest_that_is_gone_leaves_no_memory(host, memories):
    host.obey(host.launch("a"))
    host.settle()
    host.obey(host.about(SaveProcess))
    memories.seen.clear()
    memories.memories.add("a.1.0")
    (failed,) = host.settle()
    assert (type(failed).__name__, failed.message) == ("ProcessFailed", "its guest is gone")
    assert memories.memories == {"old.1.0"}
