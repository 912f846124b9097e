"""Gangs on simulated hosts: the agent's state machine of each host, and all guests of the pool in simulated time.

Guests progress as in the fast simulator.  The processes of a gang wait for each other, so that the slowest one
determines its rate (two-tier paper, section 3.2), across hosts.  Rates change after all events of one instant.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from fpga_pool.core.gangs.progress import shares_of
from fpga_pool.core.gangs.sharing import ProgressParams, behind_rate
from fpga_pool.model.agent import gang_messages as messages
from fpga_pool.model.agent.gang_process import HeldProcess, Key, Phase, ProcessSpec, Running
from fpga_pool.model.agent.gang_processes import ProcessesState, handle
from fpga_pool.model.exceptions import Conflict, NotFound
from fpga_pool.model.flavor import Tier
from fpga_pool.model.messages.agents import Command, Outcome
from fpga_pool.model.messages.gangs import GangReport, ObservedProcess, ObservedProcessor
from fpga_pool.model.objects.gangs import processor_name


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTimes:
    """Durations of actions on guests, in seconds; a migration is a save, and a resumption on the other host."""

    save_s: float = 0.0
    #: From the launch of a guest with a saved memory until it runs; it occupies its place meanwhile.
    resume_s: float = 20.0


@dataclass(frozen=True, slots=True)
class _Guest:
    host: str
    spec: ProcessSpec
    processor: int
    tier: Tier
    phase: Phase = Phase.RUNNING
    reason: str = ""
    #: When its save ends, and when it begins to run.
    saved_at: float = math.inf
    runs_from: float = 0.0


@dataclass(slots=True)
class _Progress:
    """One attempt of a gang: the work done until `since_s`, in seconds on dedicated processors, and its rate since."""

    done_s: float
    since_s: float
    work_s: float
    rate: float = 0.0
    keys: set[Key] = field(default_factory=set)

    def note(self, now_s: float) -> None:
        if now_s > self.since_s:
            self.done_s += (now_s - self.since_s) * self.rate
            self.since_s = now_s

    @property
    def ends_at(self) -> float:
        return self.since_s + max(0.0, self.work_s - self.done_s) / self.rate if self.rate > 0 else math.inf


class Guests:
    """All guests of the pool.  `now_s` is the simulated time, which `pass_to` advances, at most to `next_s`."""

    def __init__(
        self,
        times: GuestTimes | None = None,
        shares: Callable[[str, int], tuple[float, float]] | None = None,
    ) -> None:
        """`shares(gang, width)` returns a gang's loss and its used part of idle cycles; None = by the paper's rules."""
        self.times = times or GuestTimes()
        self._params = ProgressParams()
        self._shares = shares or (lambda gang, width: shares_of(gang, width, self._params))
        self.now_s = 0.0
        self._guests: dict[Key, _Guest] = {}
        self._progress: dict[tuple[str, int], _Progress] = {}
        #: Saved memories, which all hosts can read.
        self.memories: set[str] = set()
        #: Whether rates have to be recomputed.
        self._unsettled = False

    # Time -------------------------------------------------------------------------------------------------------

    def next_s(self) -> float:
        """Return the time of the next event: a gang ends, a guest is saved or begins to run; inf if there is none."""
        self.settle()
        moments = [progress.ends_at for progress in self._progress.values()]
        for guest in self._guests.values():
            if guest.phase is Phase.SAVING:
                moments.append(guest.saved_at)
            elif guest.runs_from > self.now_s:
                moments.append(guest.runs_from)
        return min(moments, default=math.inf)

    def pass_to(self, now_s: float) -> None:
        """Advance the time to `now_s`, and process the events of that instant."""
        self.settle()
        self.now_s = now_s
        for progress in self._progress.values():
            if progress.ends_at <= now_s:
                progress.note(now_s)
                progress.rate = 0.0
                self._change(progress.keys, phase=Phase.EXITED)
        for key, guest in self._guests.items():
            if guest.phase is Phase.SAVING and guest.saved_at <= now_s:
                self._change([key], phase=Phase.SAVED)
            elif guest.runs_from == now_s:
                self._unsettled = True

    def settle(self) -> None:
        """Recompute the rates of all gangs, if necessary."""
        if not self._unsettled:
            return
        self._unsettled = False
        at: dict[tuple[str, int], list[Key]] = {}
        for key, guest in self._guests.items():
            if guest.phase is Phase.RUNNING:
                at.setdefault((guest.host, guest.processor), []).append(key)
        for progress in self._progress.values():
            rate = self._rate(progress.keys, at)
            if rate != progress.rate:
                progress.note(self.now_s)
                progress.rate, progress.since_s = rate, self.now_s

    def _rate(self, keys: set[Key], at: dict[tuple[str, int], list[Key]]) -> float:
        """Return the rate of a gang; see `core.gangs.progress.rate`."""
        guests = [(key, self._guests[key]) for key in keys]
        running = [guest for _, guest in guests if guest.phase is Phase.RUNNING and guest.runs_from <= self.now_s]
        spec = guests[0][1].spec
        if len(running) < spec.processes:
            return 0.0
        loss, used = self._shares(spec.key.gang, spec.processes)
        slowest = 1.0
        for key, guest in guests:
            others = [other for other in at[guest.host, guest.processor] if other != key]
            if not others:
                continue
            if guest.tier is Tier.FOREGROUND:
                slowest = min(slowest, 1.0 - loss)
            else:
                usage = self._guests[others[0]].spec.cpu_usage
                slowest = min(slowest, behind_rate(spec.cpu_usage, usage, used, self._params.usage_threshold))
        return slowest

    # Actions of hosts, which take effect now --------------------------------------------------------------------

    def observe(self, host: str) -> dict[Key, Running]:
        """Return the guests of a host."""
        return {key: self._running(key, guest) for key, guest in self._guests.items() if guest.host == host}

    def _running(self, key: Key, guest: _Guest) -> Running:
        progress = self._progress[key.gang, key.attempt]
        return Running(
            phase=guest.phase,
            processor=guest.processor,
            tier=guest.tier,
            done_s=progress.done_s,
            rate=progress.rate,
            progress_at=progress.since_s,
            cpu_s=guest.spec.cpu_usage * (progress.done_s - guest.spec.done_s),
            saved=str(key) if guest.phase is Phase.SAVED else "",
            reason=guest.reason,
        )

    def launch(self, host: str, spec: ProcessSpec, processor: int, tier: Tier) -> None:
        """Launch a guest; raises Conflict if its place is taken, NotFound if its saved memory does not exist."""
        if spec.key in self._guests:
            return
        for key, other in self._guests.items():
            if (other.host, other.processor, other.tier) == (host, processor, tier):
                raise Conflict(f"processor {processor}: process {key} is in its {tier}")
        if spec.saved and spec.saved not in self.memories:
            raise NotFound(f"no saved memory {spec.saved}")
        runs_from = self.now_s + self.times.resume_s if spec.saved else self.now_s
        self._guests[spec.key] = _Guest(host, spec, processor, tier, runs_from=runs_from)
        attempt = spec.key.gang, spec.key.attempt
        if attempt not in self._progress:
            self._progress[attempt] = _Progress(spec.done_s, self.now_s, spec.work_s)
        self._progress[attempt].keys.add(spec.key)
        self._unsettled = True

    def set_tier(self, key: Key, tier: Tier) -> None:
        """Move a guest to another tier of its processor."""
        self._change([key], tier=tier)

    def save(self, key: Key) -> bool:
        """Begin to save a guest so that it can be resumed elsewhere; return whether it has been saved at once."""
        if self._guests[key].phase is not Phase.RUNNING:
            return False
        progress = self._progress[key.gang, key.attempt]
        progress.note(self.now_s)
        progress.rate = 0.0
        self.memories.add(str(key))
        if self.times.save_s:
            self._change([key], phase=Phase.SAVING, saved_at=self.now_s + self.times.save_s)
            return False
        self._change([key], phase=Phase.SAVED)
        return True

    def end(self, key: Key) -> None:
        """Stop a guest in any phase, and remove its saved memory."""
        self.memories.discard(str(key))
        self.leave(key)

    def leave(self, key: Key) -> None:
        """Remove a guest; its saved memory stays."""
        if self._guests.pop(key, None) is None:
            return
        attempt = key.gang, key.attempt
        self._progress[attempt].keys.discard(key)
        if not self._progress[attempt].keys:
            del self._progress[attempt]
        self._unsettled = True

    def discard(self, saved: str) -> None:
        """Remove a saved memory, if it exists."""
        self.memories.discard(saved)

    # Failures ---------------------------------------------------------------------------------------------------

    def fail(self, key: Key, reason: str) -> None:
        """Make a guest fail."""
        self._progress[key.gang, key.attempt].note(self.now_s)
        self._change([key], phase=Phase.FAILED, reason=reason)

    def power_off(self, host: str) -> None:
        """Remove all guests of a host."""
        for key in [key for key, guest in self._guests.items() if guest.host == host]:
            self.end(key)

    def _change(self, keys: Iterable[Key], **fields: object) -> None:
        for key in keys:
            self._guests[key] = replace(self._guests[key], **fields)  # type: ignore[arg-type]
        self._unsettled = True


class GangHost:
    """The processes of gangs on one host of a simulated pool.

    `execute` executes commands, `work` does all pending work, and `reports` are kept until `taken` removes them.
    """

    def __init__(self, name: str, processors: Iterable[int], guests: Guests) -> None:
        self.name = name
        self._guests = guests
        self._offered = {processor_name(name, number): number for number in processors}
        self._state = ProcessesState(processors=self._offered)
        # The content of an agent's journal.
        self._kept: dict[Key, HeldProcess] = {}
        self._executed: set[str] = set()
        self._fences: dict[str, tuple[int, int]] = {}
        self._numbers = itertools.count(1)
        #: Numbered reports that are not yet delivered, oldest first.
        self.reports: list[tuple[int, GangReport]] = []

    def takes(self, processor: str) -> bool:
        """Return whether commands to a processor are for this host."""
        return self._state.takes(processor)

    def execute(self, command: Command) -> Outcome:
        """Execute a command once; a repeated command is only answered, a stale one is refused."""
        fence = self._fences.get(command.slot, (0, 0))
        instructions = self._handle(messages.CommandReceived(command, command.id in self._executed, fence))
        (outcome,) = [instruction.outcome for instruction in instructions if isinstance(instruction, messages.Answer)]
        self._carry_out(instructions)
        return outcome

    def work(self) -> None:
        """Do all work that is pending now."""
        while self._after(messages.GuestsSeen(self._guests.observe(self.name))):
            pass

    def restart(self) -> None:
        """Restart as a killed agent does, with the content of its journal and the guests that have survived."""
        restored = messages.ProcessesRestored(tuple(self._kept.values()))
        self._state, _ = handle(ProcessesState(processors=self._offered), restored, self._guests.now_s)

    def taken(self, up_to: int) -> None:
        """Remove the reports up to this number, which the pool has received."""
        self.reports = [(number, report) for number, report in self.reports if number > up_to]

    def observed_processors(self) -> tuple[ObservedProcessor, ...]:
        """Return the processors of this host for gangs, for a heartbeat."""
        return self._state.observed_processors(self._fences)

    def observed(self) -> tuple[ObservedProcess, ...]:
        """Return the current state of all processes on this host, for a heartbeat."""
        self._guests.settle()
        self.work()
        return self._state.observed()

    def _after(self, event: messages.ProcessesEvent) -> bool:
        return self._carry_out(self._handle(event))

    def _handle(self, event: messages.ProcessesEvent) -> Sequence[messages.ProcessesInstruction]:
        self._state, instructions = handle(self._state, event, self._guests.now_s)
        for instruction in instructions:
            if isinstance(instruction, messages.Record):
                self._record(instruction)
        return instructions

    def _record(self, record: messages.Record) -> None:
        if record.command is not None:
            self._executed.add(record.command.id)
            self._fences[record.command.slot] = record.command.fence
        if record.forget is not None:
            self._kept.pop(record.forget, None)
        if record.keep is not None:
            self._kept[record.keep.key] = record.keep
        self.reports += zip(self._numbers, record.reports, strict=False)

    def _carry_out(self, instructions: Sequence[messages.ProcessesInstruction]) -> bool:
        """Carry out instructions on guests; return whether anything has changed."""
        changed = any(isinstance(instruction, messages.Record | messages.MoveGuest) for instruction in instructions)
        for instruction in instructions:
            match instruction:
                case messages.LaunchGuest():
                    changed |= self._launch(instruction)
                case messages.FinishLaunch(key, saved):
                    self._guests.discard(saved)
                    changed |= self._after(messages.GuestLaunched(key))
                case messages.EndGuest(key, saved):
                    self._guests.end(key)
                    self._guests.discard(saved)
                    changed |= self._after(messages.GuestEnded(key))
                case messages.SaveGuest(key):
                    changed |= self._guests.save(key)
                case messages.MoveGuest(key, tier):
                    self._guests.set_tier(key, tier)
                case messages.LeaveGuest(key):
                    self._guests.leave(key)
                case messages.DiscardMemory(saved):
                    self._guests.discard(saved)
        return changed

    def _launch(self, instruction: messages.LaunchGuest) -> bool:
        spec = instruction.spec
        try:
            self._guests.launch(self.name, spec, instruction.processor, instruction.tier)
        except (Conflict, NotFound) as error:
            return self._after(messages.GuestRefused(spec.key, str(error)))
        self._guests.discard(spec.saved)
        return self._after(messages.GuestLaunched(spec.key))
