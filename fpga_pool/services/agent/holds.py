"""The slots that an agent keeps for instances, for those who wait for them."""

import threading
import time
from collections.abc import Iterable

from fpga_pool.model.agent.objects import Hold
from fpga_pool.model.agent.state import AgentState
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable, SlotFault


class HoldTable:
    """All holds of one agent, read under the lock of its machine."""

    def __init__(self, state: AgentState, lock: threading.RLock) -> None:
        self._state = state
        #: Notified with every change.
        self.changed = threading.Condition(lock)

    def of(self, slot: str) -> Hold | None:
        """Return for whom a slot is kept."""
        with self.changed:
            return self._state.holds.get(slot)

    def slots_of(self, instance: str) -> list[str]:
        """Return the slots kept for an instance, always in the same order."""
        with self.changed:
            return sorted(slot for slot, hold in self._state.holds.items() if hold.action.instance == instance)

    def instances(self) -> set[str]:
        """Return the instances that slots are kept for."""
        with self.changed:
            return {hold.action.instance for hold in self._state.holds.values()}

    def wait_ready(self, instance: str, slots: Iterable[str], timeout_s: float) -> None:
        """Wait until all these slots are ready for an instance; an error says what keeps one from it."""
        until_s = time.monotonic() + timeout_s
        with self.changed:
            for slot in slots:
                while not self._is_ready(instance, slot):
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise ServiceUnavailable(f"slot {slot} was not ready within {timeout_s:.0f} s")
                    self.changed.wait(left_s)

    def _is_ready(self, instance: str, slot: str) -> bool:
        """Say whether a slot is ready; one that is not kept yet may be soon."""
        hold = self._state.holds.get(slot)
        if hold is None:
            return False
        if hold.action.instance != instance:
            raise Conflict(f"slot {slot} is kept for instance {hold.action.instance}")
        if hold.problem:
            raise SlotFault(f"slot {slot}: {hold.problem}")
        return hold.ready
