"""What a guest computes on a slot that is kept for its instance."""

import logging
import threading
from pathlib import Path

from fpga_pool.drivers.slots.base import SlotAddress, SlotDriver
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.messages import HoldSlot

LOG = logging.getLogger(__name__)

#: How often a computation that is to end is told so: a stop before it has begun has no effect.
STOP_AGAIN_S = 0.2


class GuestUse:
    """The requests of one instance to one slot, one at a time; the slot's own thread says from when to when."""

    def __init__(self, driver: SlotDriver, address: SlotAddress) -> None:
        self._driver = driver
        self._address = address
        self._lock = threading.Lock()
        self._hold: HoldSlot | None = None
        self._running = threading.Lock()

    @property
    def virtual_function(self) -> str:
        """PCI address through which a guest drives the slot itself; "" = it asks us, by a channel."""
        return self._driver.virtual_function(self._address)

    def begin(self, hold: HoldSlot) -> None:
        """Let the instance use the slot."""
        with self._lock:
            self._hold = hold

    def end(self) -> None:
        """Let it use the slot no more; what it computes there is stopped."""
        with self._lock:
            self._hold = None
        self.stop()

    def stop(self) -> None:
        """Stop what the instance computes; it may ask for something else afterwards."""
        while not self._running.acquire(timeout=STOP_AGAIN_S):
            self._driver.stop(self._address)
        self._running.release()

    def run(self, instance: str, function: str, input_bytes: int, source: Path, sink: Path, limit_s: float) -> float:
        """Compute `sink` from `source`; return the seconds it took.  See SlotDriver.run for what is raised.

        Conflict if the slot is not, or not any more, the instance's; a computation longer than the limit is stopped.
        """
        with self._running:
            hold = self._held_for(instance)
            if function not in ("", hold.function):
                raise Conflict(f"this accelerator is {hold.function}, not {function}")
            watch = threading.Timer(limit_s, self._stop_late, [instance])
            watch.daemon = True
            watch.start()
            try:
                result = self._driver.run(self._address, hold.function, input_bytes, source, sink, hold.project_id)
            finally:
                watch.cancel()
        return result.seconds

    def function(self, instance: str) -> str:
        """Return what the instance may compute; Conflict if the slot is not its."""
        return self._held_for(instance).function

    def is_for(self, instance: str) -> bool:
        """Say whether the instance may use the slot now."""
        with self._lock:
            return self._hold is not None and self._hold.instance == instance

    def _held_for(self, instance: str) -> HoldSlot:
        with self._lock:
            hold = self._hold
        if hold is None or hold.instance != instance:
            raise Conflict("this accelerator is not ready, or not this machine's any more")
        return hold

    def _stop_late(self, instance: str) -> None:
        LOG.warning("slot %s: a computation of instance %s takes too long; stopped", self._address, instance)
        self._driver.stop(self._address)
