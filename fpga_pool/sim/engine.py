"""A discrete-event engine (a clock and an agenda), and the surroundings of simulated agents."""

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
    """Runs actions in order of time; actions at the same time run in the order in which they were scheduled."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def pending(self) -> int:
        """Number of actions that are still to be called."""
        return len(self._agenda)

    @property
    def next_s(self) -> float:
        """Time of the next action; infinite if there is none."""
        return self._agenda[0][0] if self._agenda else math.inf

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Call `action` at `time_s`, or now if that time has passed."""
        heapq.heappush(self._agenda, (max(time_s, self.now_s), next(self._numbers), action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` after `delay_s` seconds."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Run actions until none are left, or until `until_s`."""
        while self._agenda and self._agenda[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._agenda)
            action()


# ---- Surroundings of an agent: delays, an executor without threads, a journal in memory

#: Times closer than this are treated as equal.
INSTANT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """Delays around the decisions, in seconds; the defaults are those of the embedded pool on idle processors."""

    #: From the commit of a command to its execution by the agent.
    command_s: float = 0.03
    #: From an input's last byte to the job's place in the slot's queue: digest, disk, journal.
    staging_s: float = 0.01
    #: Between two computations on a slot: digest of the result, journal, reports.
    turnaround_s: float = 0.003


class Surroundings(Protocol):
    """The environment of an agent: it receives the reports and determines how long transfers and computations take."""

    def report(self, host: str, reports: Sequence[Report]) -> None:
        """Receive all reports that an agent makes of one change."""

    def arrives_at(self, assignment: AssignJob) -> float:
        """Return when the last byte of an attempt's input arrives, as far as is known now."""

    def input_age_s(self, assignment: AssignJob) -> float | None:
        """Return the seconds since the first byte of an attempt's input arrived; None if all of it arrives at once."""

    def lost_source(self, assignment: AssignJob) -> str:
        """Return the pool's reason why the results used as an attempt's input cannot be read; empty if they can be."""

    def is_fetched(self, job: str) -> bool:
        """Return whether a client fetches the result of a job, which it does not if the result feeds other jobs."""

    def received_bytes(self, assignment: AssignJob) -> int:
        """Return how many bytes of an attempt's input have arrived so far."""

    def seconds(self, assignment: AssignJob, board: str) -> float:
        """Return the duration of the whole computation in seconds, including any part that is already done."""


@dataclass(slots=True)
class InstantExecutor:
    """Carries out the instructions for one slot."""

    #: It executes an instruction or pauses after one, so it does not request the next.
    busy: bool = False
    #: The slot has failed and is not yet repaired.
    broken: bool = False
    #: Number of the current instruction, so that the end of an aborted instruction is not mistaken for its end.
    number: int = 0
    computing: i.Compute | None = None
    began_s: float = 0.0
    lasts_s: float = 0.0


@dataclass(slots=True)
class MemoryJournal:
    """The state that survives a restart, as in the journal of a live agent."""

    jobs: dict[str, HeldJob] = field(default_factory=dict)
    holds: dict[str, tuple[HoldSlot, bool]] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    def record(self, instruction: i.RecordInstruction) -> None:
        """Apply a record instruction to the journal."""
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
        """Return the event with the state that a restarting agent finds; `inputs` are the jobs with complete input."""
        return e.Restarted(
            jobs=tuple(sorted(self.jobs.values(), key=lambda job: (job.slot, job.assignment.order))),
            holds=dict(self.holds),
            fences=dict(self.fences),
            epochs=dict(self.epochs),
            executed=tuple(self.executed),
            inputs=frozenset(inputs),
            results=frozenset(uuid for uuid, job in self.jobs.items() if job.phase is Phase.HELD),
        )
