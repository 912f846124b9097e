"""A discrete-event engine, a clock and what happens when; and the surroundings of simulated agents."""

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.messages.agents import AssignJob, HoldSlot, Report


class Engine:
    """Runs actions in order of their times; those of one instant in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def pending(self) -> int:
        """How many actions are still to be called."""
        return len(self._agenda)

    @property
    def next_s(self) -> float:
        """When the next action is called; infinite = never."""
        return self._agenda[0][0] if self._agenda else math.inf

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Have `action` called at `time_s`, or now if that has passed."""
        heapq.heappush(self._agenda, (max(time_s, self.now_s), next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Have `action` called after a while."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Let time pass until nothing is left to happen, or until `until_s`."""
        while self._agenda and self._agenda[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._agenda)
            action()


# ---- What surrounds an agent: delays, an executor that takes no threads, a journal in memory

#: Times closer than this are one and the same.
INSTANT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """What takes time around the decisions, in seconds; by default as in the embedded pool on idle processors."""

    #: From a commit to its execution by the agent.
    command_s: float = 0.03
    #: From an input's last byte to the job's place in the slot's queue: digest, disk, journal.
    staging_s: float = 0.01
    #: Between two computations on a slot: the result's digest, journal, reports.
    turnaround_s: float = 0.003


class Surroundings(Protocol):
    """What an agent does not decide: who hears its reports, and how long things take."""

    def report(self, host: str, reports: Sequence[Report]) -> None:
        """Hear what an agent reports, all of one change."""

    def arrives_at(self, assignment: AssignJob) -> float:
        """Return when the last byte of an attempt's input arrives, as things go now."""

    def input_age_s(self, assignment: AssignJob) -> float | None:
        """Return the time since the first byte of an attempt's input arrived; None where all of it comes at once."""

    def lost_source(self, assignment: AssignJob) -> str:
        """Return why the results that are an attempt's input cannot be read, as the pool says; "" = they can."""

    def is_fetched(self, job: str) -> bool:
        """Return whether a client fetches the result of a job: not if it is the input of others."""

    def received_bytes(self, assignment: AssignJob) -> int:
        """Return how much of an attempt's input has arrived by now."""

    def seconds(self, assignment: AssignJob, board: str) -> float:
        """Return how long the whole computation takes, done shares included."""


@dataclass(slots=True)
class InstantExecutor:
    """What carries out the instructions for one slot."""

    #: It has an instruction in hand, or pauses after one: it does not ask for the next.
    busy: bool = False
    #: It has failed until it is repaired.
    broken: bool = False
    #: Of the instruction, so that the end of one that was broken off is not taken for that of the present one.
    number: int = 0
    computing: i.Compute | None = None
    began_s: float = 0.0
    lasts_s: float = 0.0


@dataclass(slots=True)
class MemoryJournal:
    """What outlives a restart, as in the journal of a live agent."""

    jobs: dict[str, HeldJob] = field(default_factory=dict)
    holds: dict[str, tuple[HoldSlot, bool]] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    def record(self, instruction: i.RecordInstruction) -> None:
        """Keep what an instruction records."""
        match instruction:
            case i.KeepJob(job):
                self.jobs[job.uuid] = job
            case i.ForgetJob(uuid):
                self.jobs.pop(uuid, None)
            case i.KeepHold(slot, hold):
                self.holds[slot] = hold.action, hold.ready
            case i.ForgetHold(slot):
                self.holds.pop(slot, None)
            case i.KeepCommand(command):
                self.fences[command.slot] = command.fence
                self.executed.append(command.id)
            case i.KeepEpoch(shard, epoch):
                self.epochs[shard] = epoch

    def restarted(self, inputs: set[str]) -> e.Restarted:
        """Return what an agent finds that starts again."""
        return e.Restarted(
            jobs=tuple(sorted(self.jobs.values(), key=lambda job: (job.slot, job.assignment.order))),
            holds=dict(self.holds),
            fences=dict(self.fences),
            epochs=dict(self.epochs),
            executed=tuple(self.executed),
            inputs=frozenset(inputs),
            results=frozenset(uuid for uuid, job in self.jobs.items() if job.phase is Phase.HELD),
        )
