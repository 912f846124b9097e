"""A host of gangs for tests of the agent's part. Its guests and journal persist, while its agent is restarted."""

import threading

from fpga_pool.drivers.runners.simulated import SimulatedRunner
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command
from fpga_pool.model.messages.gangs import LaunchProcess
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.agent.processes import Processes

FRONT, BEHIND = Tier.FOREGROUND, Tier.BACKGROUND


class Killed(BaseException):
    """An exception that the tested code never catches, as if the agent were killed at that point."""


class Mortal:
    """A proxy of a runner or a journal, during whose calls the agent may be killed."""

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
    """A host whose guests and journal persist while its agent is restarted."""

    def __init__(self, directory):
        self.directory = directory
        self.now_s = self.steady_s = 1000.0
        self.sequence = {}
        self.told = []
        self.start()

    def start(self, kill_after=10_000, numbers=(0, 1)):
        fate = Fate(kill_after)
        runner = SimulatedRunner(self.directory / "guests", lambda: self.now_s, 5.0)
        self.journal = Journal(self.directory / "journal.sqlite")
        self.runner = Mortal(runner, fate)
        journal = Mortal(self.journal, fate)
        self.changed = threading.Condition()
        self.agent = Processes(
            "h0", numbers, self.runner, journal, lambda: self.now_s, self.changed, lambda: self.steady_s
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
