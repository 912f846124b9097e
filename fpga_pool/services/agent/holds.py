"""The slots that an agent keeps for instances: in memory for the slots' threads, in the journal for the next start."""

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fpga_pool.model.exceptions import Conflict, ServiceUnavailable, SlotFault
from fpga_pool.model.messages import Command, FreeSlot, HoldSlot
from fpga_pool.services.agent.journal import Journal


@dataclass(frozen=True, slots=True)
class Hold:
    """A slot that is kept for an instance."""

    action: HoldSlot
    #: Scrubbed and loaded: the instance may use it.
    ready: bool = False
    #: Why it is not ready, if that is known.
    problem: str = ""


class HoldTable:
    """All holds of one agent, under the lock of its jobs."""

    def __init__(self, journal: Journal, lock: threading.RLock) -> None:
        self._journal = journal
        self._holds: dict[str, Hold] = {}
        #: Notified with every change.
        self._changed = threading.Condition(lock)

    def restore(self) -> None:
        """Take up what the journal holds after a restart."""
        with self._changed:
            self._holds = {slot: Hold(action, ready) for slot, (action, ready) in self._journal.holds().items()}

    def all(self) -> dict[str, Hold]:
        """Return all holds by slot."""
        with self._changed:
            return dict(self._holds)

    def reset(self, holds: Mapping[str, Hold]) -> None:
        """Undo changes that the journal has not taken."""
        with self._changed:
            self._holds = dict(holds)

    def execute(self, command: Command, action: HoldSlot | FreeSlot) -> None:
        """Keep a slot, or let it go; it is not let go in the name of another instance."""
        with self._changed:
            hold = _after(self._holds.get(command.slot), action)
            if hold is None:
                self._journal.note_hold(command, None)
                self._holds.pop(command.slot, None)
            else:
                self._journal.note_hold(command, hold.action, ready=hold.ready)
                self._holds[command.slot] = hold
            self._changed.notify_all()

    def of(self, slot: str) -> Hold | None:
        """Return for whom a slot is kept."""
        with self._changed:
            return self._holds.get(slot)

    def slots_of(self, instance: str) -> list[str]:
        """Return the slots kept for an instance, always in the same order."""
        with self._changed:
            return sorted(slot for slot, hold in self._holds.items() if hold.action.instance == instance)

    def instances(self) -> set[str]:
        """Return the instances that slots are kept for."""
        with self._changed:
            return {hold.action.instance for hold in self._holds.values()}

    def note_ready(self, slot: str, action: HoldSlot, *, ready: bool, problem: str = "") -> None:
        """Note how far a slot is, unless it is kept for something else by now."""
        with self._changed:
            hold = self._holds.get(slot)
            if hold is None or hold.action != action or (hold.ready, hold.problem) == (ready, problem):
                return
            if hold.ready != ready:
                self._journal.note_ready(slot, ready=ready)
            self._holds[slot] = replace(hold, ready=ready, problem=problem)
            self._changed.notify_all()

    def wait_ready(self, instance: str, slots: Iterable[str], timeout_s: float) -> None:
        """Wait until all these slots are ready for an instance; an error says what keeps one from it."""
        until_s = time.monotonic() + timeout_s
        with self._changed:
            for slot in slots:
                while not self._is_ready(instance, slot):
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise ServiceUnavailable(f"slot {slot} was not ready within {timeout_s:.0f} s")
                    self._changed.wait(left_s)

    def _is_ready(self, instance: str, slot: str) -> bool:
        """Say whether a slot is ready; one that is not kept yet may be soon."""
        hold = self._holds.get(slot)
        if hold is None:
            return False
        if hold.action.instance != instance:
            raise Conflict(f"slot {slot} is kept for instance {hold.action.instance}")
        if hold.problem:
            raise SlotFault(f"slot {slot}: {hold.problem}")
        return hold.ready


def _after(hold: Hold | None, action: HoldSlot | FreeSlot) -> Hold | None:
    if isinstance(action, FreeSlot):
        return None if hold is not None and hold.action.instance == action.instance else hold
    same_use = hold is not None and _use(hold.action) == _use(action)
    return Hold(action, ready=hold is not None and same_use and hold.ready)


def _use(action: HoldSlot) -> tuple[str, str, str]:
    return action.instance, action.project_id, action.function
