"""The agent's state machine without its shell: tests feed events and check instructions."""

from collections import deque

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.agent.objects import AgentParameters
from fpga_pool.model.messages.agents import AssignJob, Command, ObservedSlot
from fpga_pool.model.objects.pool import CPU, SlotState
from support.agent_invariants import validate

A, B, WORKER = "h/c/a", "h/c/b", "h/cpu/worker0"
PARAMETERS = AgentParameters(hang_factor=2.0, hang_grace_s=1.0, fault_pause_s=(2.0, 7.0), retention_s=100.0)


def inventory():
    return [
        ObservedSlot(slot=name, card=name.split("/")[1], region="r", board="b", kind=kind, state=SlotState.EMPTY)
        for name, kind in ((A, "small"), (B, "small"), (WORKER, CPU))
    ]


def assign(job, *, attempt=1, **others):
    known = {"project_id": "p", "function": "f", "input_bytes": 1, "order": 0, "expected_s": 3.0}
    return AssignJob(**known | others, job=job, attempt=attempt)


class Machine:
    """The state machine with a log of its events and instructions.

    Its entries are (event, time, instructions); the instructions are None if the event was undone.
    """

    def __init__(self):
        self.agent = Agent("h", inventory(), PARAMETERS)
        self.now_s = 0.0
        self.log = []
        #: The pending instructions for the executors of the slots.
        self.hands = {name: deque() for name in self.agent.state.slots}
        self._sequence = 0

    @property
    def state(self):
        return self.agent.state

    def feed(self, event):
        instructions = self.agent.handle(event, self.now_s)
        self.log.append((event, self.now_s, instructions))
        for instruction in instructions:
            if isinstance(instruction, i.SlotInstruction):
                self.hands[instruction.slot].append(instruction)
        validate(self.state)
        return instructions

    def command(self, action, slot=A, *, epoch=1, **others):
        self._sequence += 1
        known = {"id": f"c{self._sequence}", "host": "h", "sequence": self._sequence}
        return Command(**known | others, shard="s", epoch=epoch, slot=slot, action=action)

    def execute(self, *commands, epoch=1, **facts):
        return self.feed(e.CommandsReceived(shard="s", epoch=epoch, commands=commands, **facts))

    def give(self, action, slot=A, **facts):
        """Execute one command; return its instructions without `KeepEpoch`, `KeepCommand` and `Answer`."""
        instructions = self.execute(self.command(action, slot), **facts)
        return [one for one in instructions if not isinstance(one, i.KeepEpoch | i.KeepCommand | i.Answer)]

    def stage(self, job, slot=A, **fields):
        self.give(assign(job, **fields), slot)
        self.feed(e.InputArrived(job=job))

    def ask(self, slot=A):
        """Have an executor ask for work; return its instructions."""
        self.feed(e.SlotFree(slot=slot))
        return self.take(slot)

    def take(self, slot=A):
        taken = list(self.hands[slot])
        self.hands[slot].clear()
        return taken

    def compute(self, job, slot=A, **fields):
        """Advance a job until it computes."""
        self.stage(job, slot, **fields)
        if self.ask(slot) == [i.LoadSlot(slot, "f")]:
            self.feed(e.Loaded(slot=slot))
            self.ask(slot)

    def end(self, job, slot=A, attempt=1):
        return self.feed(
            e.ComputationEnded(slot=slot, job=job, attempt=attempt, compute_s=2.0, result_bytes=5, result_sha256="ab")
        )

    def fail(self, job, slot=A, attempt=1, **others):
        known = {"code": "c", "message": "m", "retryable": True}
        return self.feed(e.ComputationFailed(**known | others, slot=slot, job=job, attempt=attempt))

    def record(self):
        """Commit the job ends to the journal, as the shell does."""
        instructions = self.feed(e.EndsDue())
        held = tuple(one.job for one in instructions if isinstance(one, i.KeepJob))
        return instructions, self.feed(e.EndsRecorded(jobs=held))

    def reports(self, kind=None):
        """Return all reports, or those of one kind, in order."""
        said = [one for _, _, them in self.log for one in them or () if isinstance(one, i.Report | i.ReportLater)]
        return [one.report for one in said if kind is None or isinstance(one.report, kind)]


def contents(state):
    """Return a state as values that can be compared."""
    names = ("slots", "jobs", "ended", "holds", "fences", "epochs", "executed", "turns")
    return {name: dict(getattr(state, name)) for name in names}


def replay(log):
    """Return a new agent that has handled the events of the log, and its instructions for those not undone."""
    agent, said = Agent("h", inventory(), PARAMETERS), []
    for event, now_s, instructions in log:
        if instructions is None:
            agent.handle(event, now_s)
            agent.undo()
        else:
            said.append(agent.handle(event, now_s))
    return agent, said
