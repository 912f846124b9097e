"""The processes of gangs on one host: commands say what is to be, one loop makes it so, step by step.

What is to be is in the journal before a command is acknowledged, and leaves it together with the report that tells how
it ended: after a kill the next start goes on from there, with the guests that have lived on meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from fpga_pool.drivers.runners.base import Key, Phase, Runner, Running
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.model.gang_messages import (
    GangReport,
    LaunchProcess,
    ObservedProcess,
    ObservedProcessor,
    ProcessExited,
    ProcessFailed,
    ProcessSaved,
    ProcessStarted,
    ProcessStopped,
    SaveProcess,
    SetTier,
    StopProcess,
)
from fpga_pool.model.gangs import processor_name
from fpga_pool.model.messages import Command, Outcome
from fpga_pool.services.agent.held_processes import HeldProcess, Wish
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: A processor and one of its tiers.
Place = tuple[int, str]
_Each = TypeVar("_Each")

#: How often guests and saved memories that nobody knows of are looked for on a host that has no process.
IDLE_LOOK_S = 600.0


class Processes:
    """What commands and guests do to the processes of one host.

    `changed` is held while memory and journal change, so that a heartbeat sees one moment of both.
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
        self.numbers = {processor_name(host, number): number for number in numbers}
        self._runner = runner
        self._journal = journal
        self._clock = clock
        self._changed = changed
        self._steady = steady
        self._held: dict[Key, HeldProcess] = {held.key: held for held in journal.processes()}
        self._seen: Mapping[Key, Running] = {}
        #: Saved memories that nobody goes on from.
        self._unwanted: list[str] = []
        #: When guests that nobody asked for are looked for, if no process is held.
        self._look_at = float("-inf")
        #: Called when there is something to be told.
        self.on_report: Callable[[], object] = lambda: None

    def takes(self, name: str) -> bool:
        """Say whether commands to a processor are for this host: it gives it to gangs, or a gang still has it."""
        return name in self.numbers or name in self._withdrawn()

    def _withdrawn(self) -> dict[str, int]:
        """Return processors, with their numbers, that gangs have and that this host does not give to them any more."""
        had = {held.processor for held in self._held.values()} - self.numbers.keys()
        return {name: int(name.rpartition("/")[2]) for name in sorted(had)}

    # Commands -------------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Outcome:
        """Take note of a command, once; a repeat is answered, a late one is refused."""
        with self._changed:
            if self._journal.executed(command):
                return Outcome(command=command.id, outcome="repeated")
            epoch, sequence = self._journal.fence(command.slot)
            if command.fence <= (epoch, sequence):
                reason = f"{command.slot} has executed command {sequence} of epoch {epoch}: this one is late"
                return Outcome(command=command.id, outcome="refused", reason=reason)
            action = command.action
            if not isinstance(action, LaunchProcess | SetTier | SaveProcess | StopProcess):
                reason = f"{type(action).__name__} is no command for a processor of gangs"
                return Outcome(command=command.id, outcome="refused", reason=reason)
            self._note(command, action)
            return Outcome(command=command.id, outcome="accepted")

    def _note(self, command: Command, action: LaunchProcess | SetTier | SaveProcess | StopProcess) -> None:
        key = Key(action.gang, action.index, action.attempt)
        held = self._held.get(key)
        if isinstance(action, LaunchProcess):
            held = HeldProcess(command.slot, action)
        elif held is None:
            gone = [ProcessStopped(**self._about(key))] if isinstance(action, StopProcess) else []  # type: ignore[arg-type]
            self._journal.note_process(command, None, None, gone)
            if isinstance(action, StopProcess) and action.saved:
                self._unwanted.append(action.saved)
            self.on_report()
            return
        elif isinstance(action, SetTier):
            held = held.in_tier(action.tier)
        elif isinstance(action, StopProcess):
            held = held.to(Wish.STOP)
        elif not held.ending:
            held = held.to(Wish.SAVE_UNSEEN if held.wish is Wish.LAUNCH else Wish.SAVE)
        self._journal.note_process(command, held, None, [])
        self._held[key] = held

    # What is told ---------------------------------------------------------------------------------------------------

    def observed_processors(self) -> tuple[ObservedProcessor, ...]:
        """Return what this host gives to gangs, and what they have of it beside that."""
        numbers = self.numbers | self._withdrawn()
        fences = {name: self._journal.fence(name) for name in numbers}
        return tuple(
            ObservedProcessor(
                processor=name,
                number=number,
                epoch=fences[name][0],
                sequence=fences[name][1],
                offered=name in self.numbers,
            )
            for name, number in numbers.items()
        )

    def observed(self) -> tuple[ObservedProcess, ...]:
        """Return all processes held, with what was last seen of their progress."""
        return tuple(self._observed(held, self._seen.get(key)) for key, held in self._held.items())

    def _observed(self, held: HeldProcess, seen: Running | None) -> ObservedProcess:
        launch = held.launch
        return ObservedProcess(
            gang=launch.gang,
            index=launch.index,
            attempt=launch.attempt,
            processor=held.processor,
            tier=launch.tier,
            done_s=seen.done_s if seen else launch.done_s,
            rate=seen.rate if seen else 0.0,
            progress_at=seen.progress_at if seen else 0.0,
            ending=held.ending,
        )

    def _about(self, key: Key) -> dict[str, str | int | float]:
        return {"gang": key.gang, "index": key.index, "attempt": key.attempt, "at": self._clock()}

    # What is done ---------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Make what is there more like what is to be; return whether something has changed."""
        with self._changed:
            held = dict(self._held)
            unwanted, self._unwanted = self._unwanted, []
        self._discard(unwanted)
        if not held and self._steady() < self._look_at:
            return False
        seen = self._runner.observe()
        with self._changed:
            self._seen = seen
        failures: list[FpgaPoolError] = []
        strays = [key for key in seen.keys() - held.keys() if key not in self._held]
        self._each(strays, lambda key: self._end_stray(key, seen[key]), failures)
        self._look_at = float("-inf") if failures else self._steady() + IDLE_LOOK_S
        # What ends makes room for what begins.
        if self._each(held.values(), lambda one: self._end(one, seen.get(one.key)), failures):
            return True
        taken = {(running.processor, str(running.tier)) for running in seen.values()}
        if self._each(held.values(), lambda one: self._go_on(one, seen.get(one.key), taken), failures):
            return True
        if failures:
            raise failures[0]
        return False

    @staticmethod
    def _each(them: Iterable[_Each], act: Callable[[_Each], bool], failures: list[FpgaPoolError]) -> bool:
        """Do something with each, whichever of them fails; return whether something has changed."""
        changed = False
        for one in them:
            try:
                changed |= act(one)
            except FpgaPoolError as failure:
                LOG.debug("step: %s", failure)
                failures.append(failure)
        return changed

    def _discard(self, unwanted: Iterable[str]) -> None:
        """Remove saved memories; those that cannot be are swept when they are old."""
        for saved in unwanted:
            try:
                self._runner.discard(saved)
            except FpgaPoolError as error:
                LOG.warning("saved memory %s: not removed: %s", saved, error)

    def _end_stray(self, key: Key, seen: Running) -> bool:
        LOG.info("process %s: ended, nobody asked for it", key)
        # Of one that is saved the scheduler knows: it was told before it was forgotten.
        (self._runner.leave if seen.phase is Phase.SAVED else self._runner.end)(key)
        return False

    def _end(self, held: HeldProcess, seen: Running | None) -> bool:
        """Let go of a process that is to end, or has ended; return whether it has."""
        key, cpu_s = held.key, seen.cpu_s if seen else 0.0
        about: dict[str, object] = {**self._about(key), "cpu_s": cpu_s}
        if held.wish is Wish.STOP:
            self._runner.end(key)
            return self._tell_end(held, ProcessStopped(**about))  # type: ignore[arg-type]
        if seen is not None and seen.phase is Phase.EXITED:
            self._tell_end(held, ProcessExited(**about))  # type: ignore[arg-type]
            self._runner.end(key)
            return True
        if seen is not None and seen.phase is Phase.FAILED:
            self._runner.end(key)
            return self._tell_end(held, ProcessFailed(**about, message=seen.reason))  # type: ignore[arg-type]
        if held.wish is Wish.SAVE_UNSEEN and seen is None:
            self._runner.end(key)  # it may have been asked for, and be there only now
            passed_on = {"done_s": held.launch.done_s, "saved": held.launch.saved}
            return self._tell_end(held, ProcessSaved(**about, **passed_on))  # type: ignore[arg-type]
        if held.ending and seen is not None:
            if seen.phase is not Phase.SAVED:
                self._attempt(held, lambda: self._runner.save(key))
                return False
            self._tell_end(held, ProcessSaved(**about, done_s=seen.done_s, saved=seen.saved))  # type: ignore[arg-type]
            self._runner.leave(key)
            return True
        if seen is None and held.wish in (Wish.RUN, Wish.SAVE):
            self._runner.end(key)  # its saved memory may be there
            return self._tell_end(held, ProcessFailed(**about, message="its guest is gone"))  # type: ignore[arg-type]
        return False

    def _go_on(self, held: HeldProcess, seen: Running | None, taken: set[Place]) -> bool:
        """Launch a process, or put it where it is to be, once its place is free; return whether that is done."""
        place = self.numbers.get(held.processor, -1), str(held.launch.tier)
        if held.ending:
            return False
        if seen is None and held.wish is Wish.LAUNCH:
            if place in taken:
                return False
            taken.add(place)
            return self._launch(held)
        if held.wish is Wish.LAUNCH:  # a former agent launched it
            self._change(held, held.to(Wish.RUN), [ProcessStarted(**self._about(held.key))])  # type: ignore[arg-type]
            return True
        if seen is not None and seen.tier is not held.launch.tier and place not in taken:
            taken.discard((seen.processor, str(seen.tier)))
            taken.add(place)
            return self._attempt(held, lambda: self._runner.set_tier(held.key, held.launch.tier))
        return False

    def _launch(self, held: HeldProcess) -> bool:
        try:
            self._runner.launch(held.spec, self.numbers[held.processor], held.launch.tier)
        except ServiceUnavailable:
            raise
        except (FpgaPoolError, KeyError) as error:
            LOG.warning("process %s: not launched: %s", held.key, error)
            self._runner.end(held.key)
            return self._tell_end(held, ProcessFailed(**self._about(held.key), message=str(error)))  # type: ignore[arg-type]
        LOG.info("process %s: launched in the %s of %s", held.key, held.launch.tier, held.processor)
        self._change(held, held.to(Wish.RUN), [ProcessStarted(**self._about(held.key))])  # type: ignore[arg-type]
        return True

    def _attempt(self, held: HeldProcess, act: Callable[[], object]) -> bool:
        """Do something that is done again at the next step if it fails."""
        try:
            act()
        except ServiceUnavailable:
            raise
        except FpgaPoolError as error:
            LOG.warning("process %s: %s", held.key, error)
            return False
        return True

    def _change(self, before: HeldProcess, after: HeldProcess, reports: list[GangReport]) -> None:
        """Note how far a process is, with what a command has made of it meanwhile."""
        if before.launch.saved:  # it has gone on from there
            self._runner.discard(before.launch.saved)
        with self._changed:
            now = self._held[before.key]
            wish = after.wish if now.wish is before.wish else Wish.SAVE if now.wish is Wish.SAVE_UNSEEN else now.wish
            self._journal.note_process(None, now.to(wish), None, reports)
            self._held[before.key] = now.to(wish)
        self.on_report()

    def _tell_end(self, held: HeldProcess, report: GangReport) -> bool:
        if held.launch.saved and not (isinstance(report, ProcessSaved) and report.saved == held.launch.saved):
            self._runner.discard(held.launch.saved)
        with self._changed:
            self._journal.note_process(None, None, held.key, [report])
            self._held.pop(held.key, None)
        why = f": {report.message}" if isinstance(report, ProcessFailed) else ""
        LOG.info("process %s: %s%s", held.key, type(report).__name__, why)
        self.on_report()
        return True
