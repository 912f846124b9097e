"""The agent's part of gangs: commands are carried out despite failures, and each event is reported once."""

import logging

import pytest

from fpga_pool.model.agent.gang_process import Key, Phase
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.gangs import SaveProcess, SetTier, StopProcess

from .gang_host import BEHIND, FRONT, Host, Killed


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
    assert host.guests()["b"].tier is BEHIND  # the foreground is not free yet
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
    assert (type(failed).__name__, failed.message) == ("ProcessFailed", "its guest no longer exists")
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
    host.kill()
    host.start(numbers=[1])
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
    raise Conflict("no memory")


def test_what_goes_on_failing_is_logged_once(host, caplog, monkeypatch):
    host.obey(host.launch("a", work_s=100.0))
    host.settle()

    def refuse(*_):
        raise Conflict("no control group")

    with monkeypatch.context() as patched:
        patched.setattr(host.runner, "set_tier", refuse, raising=False)
        host.obey(host.about(SetTier, tier=BEHIND))
        for _ in range(3):
            host.agent.step()
    host.settle()
    assert host.guests()["a"].tier is BEHIND
    host.obey(host.about(SetTier, tier=FRONT))
    host.settle()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warnings == ["process a.1.0: no control group"]


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
    """Two processes share a processor. One ends; the other is moved to the foreground, saved and ended, each once."""
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
            if sequences != host.sequence:  # the scheduler got no answer and repeats the command
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
