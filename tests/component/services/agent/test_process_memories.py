"""Processes of gangs that continue from saved memories, and guests that do not end when requested."""

import pytest

from fpga_pool.model.agent.gang_process import Key, Phase, Running
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.messages.gangs import SaveProcess, StopProcess

from .gang_host import BEHIND, FRONT, Host


class Memories:
    """A runner of at most two guests. Like those of real guests, its processes continue from saved memories."""

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
def host(tmp_path):
    host = Host(tmp_path)
    yield host
    host.kill()


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
    host.obey(host.about(StopProcess, saved="a.1.0"))  # it will not be continued
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
    """Its launch was not answered. It is reported as saved once it is certain that its guest cannot appear any more."""
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
    memories.save(Key("b", 0, 1))  # the agent holds nothing about b: the save was reported
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
    """Of three processes that are to end, the first two do not. The third ends, and a fourth takes its place."""
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
    assert {key.gang for key in memories.seen} == {"a", "b", "d", "stray"}  # the place of e is not free yet
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
    """The removal may take long, and must not delay commands and heartbeats."""
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
    assert (type(failed).__name__, failed.message) == ("ProcessFailed", "its guest no longer exists")
    assert memories.memories == {"old.1.0"}
