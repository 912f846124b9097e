"""Slots that an agent reserves for instances, and the guests' requests that are computed on them."""

import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from fpga_pool.drivers.slots.base import SlotAddress, SlotDriver
from fpga_pool.model.agent.objects import AgentState, Hold
from fpga_pool.model.exceptions import Conflict, ServiceUnavailable, SlotFault
from fpga_pool.model.messages.agents import HoldSlot


class HoldTable:
    """All holds of one agent, read under the lock of its machine."""

    def __init__(self, state: AgentState, lock: threading.RLock) -> None:
        self._state = state
        #: Notified of every change of a hold.
        self.changed = threading.Condition(lock)

    def of(self, slot: str) -> Hold | None:
        """Return the hold of a slot, or None if the slot is not reserved."""
        with self.changed:
            return self._state.holds.get(slot)

    def slots_of(self, instance: str) -> list[str]:
        """Return the slots that are reserved for an instance, always in the same order."""
        with self.changed:
            return sorted(slot for slot, hold in self._state.holds.items() if hold.action.instance == instance)

    def instances(self) -> set[str]:
        """Return the instances for which slots are reserved."""
        with self.changed:
            return {hold.action.instance for hold in self._state.holds.values()}

    def wait_ready(self, instance: str, slots: Iterable[str], timeout_s: float) -> None:
        """Wait until all these slots are ready for an instance; raise an error with the reason if one is not."""
        until_s = time.monotonic() + timeout_s
        with self.changed:
            for slot in slots:
                while not self._is_ready(instance, slot):
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise ServiceUnavailable(f"slot {slot} was not ready within {timeout_s:.0f} s")
                    self.changed.wait(left_s)

    def _is_ready(self, instance: str, slot: str) -> bool:
        """Return whether a slot is ready; False if it is not reserved yet, as it may be soon."""
        hold = self._state.holds.get(slot)
        if hold is None:
            return False
        if hold.action.instance != instance:
            raise Conflict(f"slot {slot} is reserved for instance {hold.action.instance}")
        if hold.problem:
            raise SlotFault(f"slot {slot}: {hold.problem}")
        return hold.ready


LOG = logging.getLogger(__name__)

#: Interval of stop requests to a computation: a stop before its start has no effect.
STOP_AGAIN_S = 0.2


class GuestUse:
    """Runs the requests of one instance on one slot, one at a time; the slot's thread begins and ends this use."""

    def __init__(self, driver: SlotDriver, address: SlotAddress) -> None:
        self._driver = driver
        self._address = address
        self._lock = threading.Lock()
        self._hold: HoldSlot | None = None
        self._running = threading.Lock()
        #: Bytes of the inputs and results of these requests, which were moved over the card's DMA.
        self.moved_bytes = 0

    @property
    def virtual_function(self) -> str:
        """PCI address through which a guest drives the slot itself; "" = the agent serves it over a channel."""
        return self._driver.virtual_function(self._address)

    def begin(self, hold: HoldSlot) -> None:
        """Let the instance use the slot."""
        with self._lock:
            self._hold = hold

    def end(self) -> None:
        """Revoke its access to the slot; a running computation is stopped."""
        with self._lock:
            self._hold = None
        self.stop()

    def stop(self) -> None:
        """Stop the running computation of the instance; it may request others afterwards."""
        while not self._running.acquire(timeout=STOP_AGAIN_S):
            self._driver.stop(self._address)
        self._running.release()

    def run(self, instance: str, function: str, input_bytes: int, source: Path, sink: Path, limit_s: float) -> float:
        """Compute `sink` from `source`; return the computation time in seconds.

        A computation that exceeds the limit is stopped.  Raises Conflict if the slot is not (or no longer) assigned to
        the instance, and what SlotDriver.run raises.
        """
        with self._running:
            hold = self._held_for(instance)
            if function not in ("", hold.function):
                raise Conflict(f"this accelerator is {hold.function}, not {function}")
            over = threading.Event()
            watch = threading.Timer(limit_s, self._stop_late, [instance, over])
            watch.daemon = True
            watch.start()
            try:
                result = self._driver.run(self._address, hold.function, input_bytes, source, sink, hold.project_id)
                self.moved_bytes += input_bytes + sink.stat().st_size
            finally:
                watch.cancel()
                with self._lock:
                    over.set()
        return result.seconds

    def function(self, instance: str) -> str:
        """Return the function that the instance may compute; raise Conflict if the slot is not assigned to it."""
        return self._held_for(instance).function

    def is_for(self, instance: str) -> bool:
        """Return whether the instance may use the slot now."""
        with self._lock:
            return self._hold is not None and self._hold.instance == instance

    def _held_for(self, instance: str) -> HoldSlot:
        with self._lock:
            hold = self._hold
        if hold is None or hold.instance != instance:
            raise Conflict("this accelerator is not ready, or no longer assigned to this machine")
        return hold

    def _stop_late(self, instance: str, over: threading.Event) -> None:
        """Request the stop of a computation until it is over; never stop a later one."""
        LOG.warning("slot %s: a computation of instance %s exceeded its time limit; stopped", self._address, instance)
        while True:
            with self._lock:
                if over.is_set():
                    return
                self._driver.stop(self._address)
            over.wait(STOP_AGAIN_S)
