"""The gangs' part of a simulated host: the machine of the agent, with guests in simulated time."""

import itertools
from collections.abc import Iterable, Sequence

from fpga_pool.model.agent.guests import Key
from fpga_pool.model.agent.process import HeldProcess
from fpga_pool.model.agent.process_messages import (
    Answer,
    CommandReceived,
    DiscardMemory,
    EndGuest,
    FinishLaunch,
    GuestEnded,
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
from fpga_pool.model.agent.processes import ProcessesState, handle
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.gang_messages import GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.gangs import processor_name
from fpga_pool.model.messages import Command, Outcome
from fpga_pool.sim.gangs.guests import Guests


class GangHost:
    """The processes of gangs on one host of a simulated pool.

    `execute` takes commands, `work` does what there is to do at this instant, and `reports` waits until it is `taken`.
    """

    def __init__(self, name: str, processors: Iterable[int], guests: Guests) -> None:
        self.name = name
        self._guests = guests
        self._offered = {processor_name(name, number): number for number in processors}
        self._state = ProcessesState(processors=self._offered)
        # What the journal of an agent holds.
        self._kept: dict[Key, HeldProcess] = {}
        self._executed: set[str] = set()
        self._fences: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        #: What is to be reported, each with its number, oldest first.
        self.reports: list[tuple[int, GangReport]] = []

    def takes(self, processor: str) -> bool:
        """Say whether commands to a processor are for this host."""
        return self._state.takes(processor)

    def execute(self, command: Command) -> Outcome:
        """Execute a command, once; a repeat is answered, a late one is refused."""
        fence = self._fences.get(command.slot, (0, 0))
        instructions = self._handle(CommandReceived(command, command.id in self._executed, fence))
        (outcome,) = [instruction.outcome for instruction in instructions if isinstance(instruction, Answer)]
        self._carry_out(instructions)
        return outcome

    def work(self) -> None:
        """Do all that there is to do at this instant."""
        while self._after(GuestsSeen(self._guests.observe(self.name))):
            pass

    def restart(self) -> None:
        """Begin as an agent does that was killed, with what its journal holds and the guests that have lived on."""
        restored = ProcessesRestored(tuple(self._kept.values()))
        self._state, _ = handle(ProcessesState(processors=self._offered), restored, self._guests.now_s)

    def taken(self, up_to: int) -> None:
        """Forget the reports up to this number: the pool has them."""
        self.reports = [(number, report) for number, report in self.reports if number > up_to]

    def observed_processors(self) -> tuple[ObservedProcessor, ...]:
        """Return what this host gives to gangs, for a heartbeat."""
        return self._state.observed_processors(self._fences)

    def observed(self) -> tuple[ObservedProcess, ...]:
        """Return all processes held as they are now, for a heartbeat."""
        self._guests.settle()
        self.work()
        return self._state.observed()

    def _after(self, event: ProcessesEvent) -> bool:
        return self._carry_out(self._handle(event))

    def _handle(self, event: ProcessesEvent) -> Sequence[ProcessesInstruction]:
        self._state, instructions = handle(self._state, event, self._guests.now_s)
        for instruction in instructions:
            if isinstance(instruction, Record):
                self._record(instruction)
        return instructions

    def _record(self, record: Record) -> None:
        if record.command is not None:
            self._executed.add(record.command.id)
            self._fences[record.command.slot] = record.command.fence
        if record.forget is not None:
            self._kept.pop(record.forget, None)
        if record.keep is not None:
            self._kept[record.keep.key] = record.keep
        self.reports += zip(self._numbers, record.reports, strict=False)

    def _carry_out(self, instructions: Sequence[ProcessesInstruction]) -> bool:
        """Do with guests what is to be done; return whether something has changed."""
        changed = any(isinstance(instruction, Record | MoveGuest) for instruction in instructions)
        for instruction in instructions:
            match instruction:
                case LaunchGuest():
                    changed |= self._launch(instruction)
                case FinishLaunch(key, saved):
                    self._guests.discard(saved)
                    changed |= self._after(GuestLaunched(key))
                case EndGuest(key, saved):
                    self._guests.end(key)
                    self._guests.discard(saved)
                    changed |= self._after(GuestEnded(key))
                case SaveGuest(key):
                    changed |= self._guests.save(key)
                case MoveGuest(key, tier):
                    self._guests.set_tier(key, tier)
                case LeaveGuest(key):
                    self._guests.leave(key)
                case DiscardMemory(saved):
                    self._guests.discard(saved)
        return changed

    def _launch(self, instruction: LaunchGuest) -> bool:
        spec = instruction.spec
        try:
            self._guests.launch(self.name, spec, instruction.processor, instruction.tier)
        except (Conflict, NotFound) as error:
            return self._after(GuestRefused(spec.key, str(error)))
        self._guests.discard(spec.saved)
        return self._after(GuestLaunched(spec.key))
