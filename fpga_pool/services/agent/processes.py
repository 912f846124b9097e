"""Gang processes on one host: the service that runs `model.agent.gang_processes` with a journal and a runner.

The desired state of a process is in the journal before its command is acknowledged. It is deleted in the transaction
that stores the report of its end. After a kill, the next start continues from there with the guests that still run.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from fpga_pool.drivers.runners.domain import Runner
from fpga_pool.model.agent.gang_messages import (
    Answer,
    CommandReceived,
    DiscardMemory,
    EndGuest,
    FinishLaunch,
    GuestEnded,
    GuestInstruction,
    GuestLaunched,
    GuestRefused,
    GuestsSeen,
    LaunchGuest,
    LeaveGuest,
    MoveGuest,
    ProcessesEvent,
    ProcessesInstruction,
    ProcessesRestored,
    Record,
    SaveGuest,
)
from fpga_pool.model.agent.gang_process import Key, ProcessSpec
from fpga_pool.model.agent.gang_processes import ProcessesState, handle
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.messages.gangs import ObservedProcess, ObservedProcessor, ProcessFailed
from fpga_pool.model.objects.gangs import processor_name
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: Interval of checks of processes; interval of the search for unknown guests and saved memories on a host without any.
POLL_S, IDLE_POLL_S = 0.2, 600.0


class Processes:
    """Applies commands and observed guests to the processes of one host.

    `changed` is held while memory and journal change, so that a heartbeat sees a consistent state of both.
    """

    def __init__(
        self,
        host: str,
        numbers: Iterable[int],
        runner: Runner,
        journal: Journal,
        clock: Clock,
        changed: threading.Condition,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._journal = journal
        self._clock = clock
        self._changed = changed
        self._steady = steady
        offered = {processor_name(host, number): number for number in numbers}
        restored = ProcessesRestored(tuple(journal.processes()))
        self._state, _ = handle(ProcessesState(processors=offered), restored, clock())
        #: Instructions of executed commands that are not yet carried out on guests.
        self._left: list[GuestInstruction] = []
        #: Last logged problem of each process whose guest does not reach its desired state.
        self._complaints: dict[Key, str] = {}
        #: Time of the next search for unknown guests, if no process is held.
        self._next_poll_s = float("-inf")
        #: Called when there are new reports.
        self.on_report: Callable[[], object] = lambda: None

    def takes(self, name: str) -> bool:
        """Return whether a processor is one that this host provides for gangs, or that a gang still occupies."""
        return self._state.takes(name)

    def observed_processors(self) -> tuple[ObservedProcessor, ...]:
        """Return the processors that this host provides for gangs, and others that gangs still occupy."""
        return self._state.observed_processors(self._journal.fences())

    def observed(self) -> tuple[ObservedProcess, ...]:
        """Return all processes held, with their last observed progress."""
        return self._state.observed()

    def execute(self, command: Command) -> Outcome:
        """Execute a command once; repeated commands are acknowledged again, and outdated ones are refused."""
        with self._changed:
            repeated, fence = self._journal.executed(command), self._journal.fence(command.slot)
            instructions = self._handle(CommandReceived(command, repeated, fence))
            (outcome,) = [instruction.outcome for instruction in instructions if isinstance(instruction, Answer)]
            self._left += [instruction for instruction in instructions if not isinstance(instruction, Answer | Record)]
            return outcome

    def pause_s(self) -> float:
        """Return the seconds until the next step, unless a command is executed before."""
        return POLL_S if self._state.held else max(POLL_S, self._next_poll_s - self._steady())

    def step(self) -> bool:
        """Reconcile the observed processes with the desired ones; return whether something has changed."""
        with self._changed:
            left, self._left = self._left, []
        failures: list[FpgaPoolError] = []
        self._carry_out_all(left, failures)
        if not self._state.held and self._steady() < self._next_poll_s:
            return False
        changed = self._after(GuestsSeen(self._runner.observe()), failures)
        self._next_poll_s = float("-inf") if failures else self._steady() + IDLE_POLL_S
        if failures and not changed:
            raise failures[0]
        return changed

    def _after(self, event: ProcessesEvent, failures: list[FpgaPoolError]) -> bool:
        """Execute the consequences of an event, even if some of them fail; return whether something has changed."""
        with self._changed:
            instructions = self._handle(event)
        to_do = [instruction for instruction in instructions if not isinstance(instruction, Answer | Record)]
        changed = any(isinstance(instruction, Record) for instruction in instructions)
        return self._carry_out_all(to_do, failures) or changed

    def _handle(self, event: ProcessesEvent) -> Sequence[ProcessesInstruction]:
        """Change the state after the change is in the journal; return the remaining instructions."""
        state, instructions = handle(self._state, event, self._clock())
        records = [instruction for instruction in instructions if isinstance(instruction, Record)]
        if records:
            with self._journal.together():
                for record in records:
                    self._journal.note_process(record.command, record.keep, record.forget, record.reports)
        self._state = state
        reports = [report for record in records for report in record.reports]
        for report in reports:
            why = f": {report.message}" if isinstance(report, ProcessFailed) else ""
            key = Key(report.gang, report.index, report.attempt)
            LOG.info("process %s: %s%s", key, type(report).__name__, why)
        if reports:
            self.on_report()
        return instructions

    def _carry_out_all(self, instructions: Sequence[GuestInstruction], failures: list[FpgaPoolError]) -> bool:
        changed = False
        for instruction in instructions:
            try:
                changed |= self._carry_out(instruction, failures)
            except FpgaPoolError as failure:
                LOG.debug("step: %s", failure)
                failures.append(failure)
        return changed

    def _carry_out(self, instruction: GuestInstruction, failures: list[FpgaPoolError]) -> bool:
        """Carry out one instruction on a guest; return whether something has changed."""
        runner = self._runner
        match instruction:
            case LaunchGuest(spec, processor, tier):
                return self._launch(spec, processor, tier, failures)
            case FinishLaunch(key, saved):
                runner.discard(saved)
                return self._after(GuestLaunched(key), failures)
            case EndGuest(key, saved):
                runner.end(key)
                if saved:
                    runner.discard(saved)
                return self._after(GuestEnded(key), failures)
            case SaveGuest(key):
                self._attempt(key, lambda: runner.save(key))
                return False
            case MoveGuest(key, tier):
                return self._attempt(key, lambda: runner.set_tier(key, tier))
            case LeaveGuest(key):
                self._complaints.pop(key, None)
                runner.leave(key)
            case DiscardMemory(saved):
                self._discard(saved)
        return False

    def _launch(self, spec: ProcessSpec, processor: int, tier: Tier, failures: list[FpgaPoolError]) -> bool:
        try:
            self._runner.launch(spec, processor, tier)
        except ServiceUnavailable:
            raise
        except FpgaPoolError as error:
            LOG.warning("process %s: not launched: %s", spec.key, error)
            return self._after(GuestRefused(spec.key, str(error)), failures)
        LOG.info("process %s: launched in the %s of processor %d", spec.key, tier, processor)
        if spec.saved:
            self._runner.discard(spec.saved)
        return self._after(GuestLaunched(spec.key), failures)

    def _discard(self, saved: str) -> None:
        """Remove a saved memory; if that fails, it is removed later, when it is old."""
        try:
            self._runner.discard(saved)
        except FpgaPoolError as error:
            LOG.warning("saved memory %s: not removed: %s", saved, error)

    def _attempt(self, key: Key, act: Callable[[], object]) -> bool:
        """Run an action, and return whether it succeeded; if not, it is retried after the next observation of guests.

        Each new problem of a process is logged once.
        """
        try:
            act()
        except ServiceUnavailable:
            raise
        except FpgaPoolError as error:
            if self._complaints.get(key) != str(error):
                LOG.warning("process %s: %s", key, error)
            self._complaints[key] = str(error)
            return False
        self._complaints.pop(key, None)
        return True
