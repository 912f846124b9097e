"""The state that an agent must not lose."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.exceptions import InvalidInput, StorageFull
from fpga_pool.model.messages.agents import InputStaged, JobFailed, ReleaseJob
from fpga_pool.services.agent import journal as journal_module
from fpga_pool.services.agent.journal import Journal

ROOT = Path(__file__).parents[4]


def held(commands, job="j", phase=Phase.WAITING, **fields):
    return HeldJob(slot="h0/sim0/slot0", assignment=commands.assign(job).action, phase=phase, **fields)


def keep(journal, *jobs, reports=(), command=None):
    """Record jobs, and reports about them."""
    commands = [] if command is None else [i.KeepCommand(command)]
    journal.record([*commands, *map(i.KeepJob, jobs), *map(i.Report, reports)])


def staged(job):
    return InputStaged(job=job, attempt=1, at=1.5)


def test_a_journal_of_an_earlier_version_is_migrated_with_what_it_holds(tmp_path, commands, monkeypatch):
    before = Journal(tmp_path / "j.sqlite")
    keep(before, held(commands), reports=[staged("j")])
    before.close()
    column = "ALTER TABLE jobs ADD COLUMN weight INTEGER NOT NULL DEFAULT 7; CREATE TABLE more (a TEXT)"
    monkeypatch.setattr(journal_module, "_MIGRATIONS", [*journal_module._MIGRATIONS, column])
    for _ in range(2):
        now = Journal(tmp_path / "j.sqlite")
        assert [job.uuid for job in now.jobs()] == ["j"]
        assert [report for _, report in now.reports(9)] == [staged("j")]
        assert now._db.execute("SELECT weight FROM jobs").fetchall() == [(7,)]
        assert now._db.execute("PRAGMA user_version").fetchone() == (2,)
        now.close()


def test_a_journal_of_a_later_version_is_refused_and_left_as_it_is(tmp_path, commands, monkeypatch):
    later = [*journal_module._MIGRATIONS, "CREATE TABLE more (a TEXT)"]
    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_MIGRATIONS", later)
        Journal(tmp_path / "j.sqlite").close()
    with pytest.raises(InvalidInput, match=r"schema 2, this one knows 1"):
        Journal(tmp_path / "j.sqlite")
    monkeypatch.setattr(journal_module, "_MIGRATIONS", later)
    Journal(tmp_path / "j.sqlite").close()


def test_a_migration_that_fails_changes_nothing(tmp_path, commands, monkeypatch):
    Journal(tmp_path / "j.sqlite").close()
    good = list(journal_module._MIGRATIONS)
    monkeypatch.setattr(journal_module, "_MIGRATIONS", [*good, "CREATE TABLE more (a TEXT); nonsense"])
    with pytest.raises(sqlite3.OperationalError):
        Journal(tmp_path / "j.sqlite")
    monkeypatch.setattr(journal_module, "_MIGRATIONS", good)
    journal = Journal(tmp_path / "j.sqlite")
    assert journal._db.execute("SELECT name FROM sqlite_master WHERE name = 'more'").fetchall() == []
    journal.close()


def test_a_command_is_known_once_it_was_executed(journal, commands):
    command, other = commands.assign("a"), commands.assign("b")
    journal.record([i.KeepCommand(command)])
    assert journal.executed(command)
    assert not journal.executed(other)
    assert journal.fence(command.slot) == (1, 1)
    assert journal.fence("h0/sim0/slot1") == (0, 0)


def test_a_full_disk_is_told_as_such_and_nothing_is_half_done(journal, commands):
    keep(journal, held(commands))
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")

    def keep_both():
        with journal.together():
            keep(journal, reports=[staged("j")])
            journal.record([i.KeepInput("j")], inputs={"j": bytes(1 << 20)})

    with pytest.raises(StorageFull, match=r"free space on the disk of \[agent\] state_dir"):
        keep_both()
    assert (journal.input("j"), journal.unreported()) == (None, 0)
    journal._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    keep_both()
    assert (journal.input("j"), journal.unreported()) == (bytes(1 << 20), 1)


def test_only_the_newest_commands_are_remembered(journal, commands, monkeypatch):
    monkeypatch.setattr(journal_module, "REMEMBERED", 2)
    sent = [commands.release("j") for _ in range(4)]
    for command in sent:
        journal.record([i.KeepCommand(command)])
    assert [journal.executed(command) for command in sent] == [False, False, True, True]


def test_a_new_journal_on_the_same_file_knows_everything(tmp_path, commands):
    first = Journal(tmp_path / "j.sqlite")
    job = held(commands, phase=Phase.HELD, result_bytes=7, result_sha256="ab" * 32, finished_at=2.5)
    command = commands.assign("j")
    failed = JobFailed(job="j", attempt=1, at=2.0, code="c", message="Märchen", retryable=True)
    keep(first, job, command=command, reports=[staged("j"), failed])
    assert first.use([("token", 10.0)]) == [True]
    first.close()
    again = Journal(tmp_path / "j.sqlite")
    assert (again.executed(command), again.fence(command.slot)) == (True, (1, 2))
    assert again.jobs() == [job]
    assert [report for _, report in again.reports(10)] == [staged("j"), failed]
    assert again.use([("token", 10.0)]) == [False]
    again.close()


def test_reports_wait_in_their_order_until_they_are_taken(journal):
    keep(journal, reports=[staged("a"), staged("b")])
    keep(journal, reports=[staged("c")])
    first_two = journal.reports(2)
    assert [report.job for _, report in first_two] == ["a", "b"]
    assert journal.reports(2) == first_two
    last = first_two[-1][0]
    keep(journal, reports=[staged("d")])
    journal.taken(last)
    assert [report.job for _, report in journal.reports(10)] == ["c", "d"]
    assert journal.unreported() == 2


def test_a_number_is_never_given_to_a_second_report(journal):
    keep(journal, reports=[staged("a")])
    ((last, _),) = journal.reports(1)
    journal.taken(last)
    keep(journal, reports=[staged("b")])
    journal.taken(last)  # late and repeated
    assert [report.job for _, report in journal.reports(10)] == ["b"]


def test_a_token_is_used_once_until_it_has_expired_by_itself(journal):
    token = ("t", 10.0)
    assert journal.use([token, token, ("u", 10.0)]) == [True, False, True]
    journal.forget_tokens(10.0)
    assert journal.use([token]) == [False]
    journal.forget_tokens(10.5)
    assert journal.use([token]) == [True]


def test_a_change_that_fails_leaves_nothing_behind(journal, commands):
    command = commands.assign("j")
    journal.record([i.KeepCommand(command)])
    before = journal.fence(command.slot)
    with pytest.raises(Exception, match="UNIQUE"):
        keep(journal, held(commands), command=command, reports=[staged("j")])
    assert (journal.jobs(), journal.unreported(), journal.fence(command.slot)) == ([], 0, before)


CHILD = """
import sys, uuid
from pathlib import Path
from fpga_pool.model.messages.agents import AssignJob, Command
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.messages.agents import ObservedSlot
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.shell import AgentShell

home = Path(sys.argv[1])
slot = ObservedSlot(slot="h0/sim0/slot0", card="sim0", region="slot0", board="b", kind="small", state=SlotState.EMPTY)
jobs = AgentShell(Agent("h0", [slot]), Journal(home / "journal.sqlite"), home, lambda: 1.0)
jobs.restore()
for number in range(1, 100_000):
    job = f"job{number}"
    action = AssignJob(job=job, attempt=1, project_id="p", function="f", input_bytes=1, order=0, expected_s=1.0)
    command = Command(id=job, shard="s", epoch=1, host="h0", slot=slot.slot, sequence=number, action=action)
    assert jobs.execute("s", 1, [command])[0].outcome == "accepted"
    jobs.files.input_path(job).write_bytes(b"x")
    jobs.staged(job)
    print(number, flush=True)
"""


def test_an_agent_that_is_killed_between_any_two_steps_has_lost_nothing_it_acknowledged(tmp_path, new_jobs, commands):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    acknowledged = 0
    while acknowledged < 25:
        acknowledged = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().split(b"\n")[:-1]
    child.wait(60)
    child.stdout.close()
    acknowledged = int(rest[-1]) if rest else acknowledged

    jobs = new_jobs()
    journal = jobs._journal
    _, executed = journal.fence("h0/sim0/slot0")
    assert acknowledged <= executed <= acknowledged + 1
    phases = {job.uuid: job.phase for job in jobs.all()}
    assert set(phases) == {f"job{number}" for number in range(1, executed + 1)}
    assert all(phases[f"job{number}"] is Phase.STAGED for number in range(1, acknowledged + 1))
    told = [report.job for _, report in journal.reports(10_000)]
    assert told[:acknowledged] == [f"job{number}" for number in range(1, acknowledged + 1)]


def test_an_action_is_kept_as_it_was(journal, commands):
    job = held(commands)
    keep(journal, job)
    assert journal.jobs() == [job]
    journal.record([i.ForgetJob("j")])
    assert journal.jobs() == []
    assert commands.release("j").action == ReleaseJob(job="j")


def test_what_is_noted_together_is_kept_together_or_not_at_all(journal, commands):
    first, second = commands.assign("a"), commands.assign("b")

    def note(*noted, fails=False):
        with journal.together():
            for command in noted:
                keep(journal, HeldJob(slot=command.slot, assignment=command.action), command=command)
            if fails:
                raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        note(first, second, fails=True)
    assert not journal.executed(first)
    assert journal.jobs() == []
    note(first)
    assert journal.executed(first)
