"""One simulated card: its slots and the shared configuration port, faults and DMA engine.

The DMA engine is a max-min fair fluid model without a clock: callers pass the time.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Condition

from fpga_pool.drivers.slots.base import CardInventory, RunStopped, SlotInventory, SlotStatus
from fpga_pool.drivers.slots.faults import Faults, SlotLuck
from fpga_pool.model.catalogue import Board
from fpga_pool.model.exceptions import Conflict, SlotFault
from fpga_pool.model.objects.links import ALONE, CardLinks
from fpga_pool.model.objects.pool import SlotState

# ---- DMA engine


def max_min_shares(capacity_bps: float, demands_bps: Sequence[float]) -> list[float]:
    """Divide a capacity max-min fairly: no share exceeds its demand; the rest is divided equally among the others."""
    shares = [0.0] * len(demands_bps)
    left_bps = capacity_bps
    by_demand = sorted(range(len(demands_bps)), key=lambda i: demands_bps[i])
    for served, i in enumerate(by_demand):
        shares[i] = min(demands_bps[i], left_bps / (len(by_demand) - served))
        left_bps -= shares[i]
    return shares


@dataclass(slots=True)
class _Flow:
    demand_bps: float
    #: Remaining work, in seconds at full speed.
    remaining_s: float
    #: Current speed; 1 = full speed.
    pace: float = 1.0


class SharedDma:
    """Jobs on one DMA engine; each slows down while its share is below its demand.

    A job that gets the share s of its demand d progresses at pace s / d, so its pace changes whenever another job
    starts or ends.  With a `neighbour_cost` of c, n other jobs additionally reduce the pace by a factor of
    1 / (1 + c n), whatever their demands.  The times that callers pass must not decrease.
    """

    def __init__(self, capacity_bps: float, neighbour_cost: float = 0.0) -> None:
        self._capacity_bps, self._neighbour_cost = capacity_bps, neighbour_cost
        self._flows: dict[str, _Flow] = {}
        self._now_s = -math.inf

    def start(self, key: str, demand_bps: float, work_s: float, now_s: float) -> None:
        """Add a job that takes `work_s` seconds when it runs alone."""
        self.advance(now_s)
        self._flows[key] = _Flow(demand_bps, work_s)
        self._share()

    def stop(self, key: str, now_s: float) -> None:
        """Remove a job, if it is still active."""
        self.advance(now_s)
        if self._flows.pop(key, None):
            self._share()

    def is_active(self, key: str) -> bool:
        """Return whether the job had work left at the last `advance`."""
        return key in self._flows

    def left_s(self, key: str) -> float:
        """Return the seconds of work, at full speed, that the job had left at the last `advance`."""
        return self._flows[key].remaining_s if key in self._flows else 0.0

    def next_end_s(self) -> float:
        """Return when the next job ends if no other starts or stops before; inf if there is no job."""
        return self._next_end()[0]

    def advance(self, now_s: float) -> None:
        """Advance the time. When a job ends in between, the others share its bandwidth from that moment on."""
        while (end := self._next_end())[0] <= now_s:
            self._progress(end[0])
            del self._flows[end[1]]
            self._share()
        self._progress(now_s)

    def _next_end(self) -> tuple[float, str]:
        return min(
            ((self._now_s + flow.remaining_s / flow.pace, key) for key, flow in self._flows.items()),
            default=(math.inf, ""),
        )

    def _progress(self, now_s: float) -> None:
        for flow in self._flows.values():
            flow.remaining_s = max(0.0, flow.remaining_s - (now_s - self._now_s) * flow.pace)
        self._now_s = now_s

    def _share(self) -> None:
        flows = list(self._flows.values())
        shares = max_min_shares(self._capacity_bps, [flow.demand_bps for flow in flows])
        for flow, share_bps in zip(flows, shares, strict=True):
            flow.pace = share_bps / flow.demand_bps if flow.demand_bps else 1.0
            flow.pace /= 1 + self._neighbour_cost * (len(flows) - 1)


# ---- The card

#: Modelled size of a slot's memory.
MEMORY_BYTES = 4096
#: Upper bound of each wait; normally a notification ends it earlier.
_LONGEST_WAIT_S = 60.0
_GONE = "the card does not answer"


@dataclass(slots=True, eq=False)
class Activity:
    """A load or run in progress. Events are recorded here for the thread that waits for it."""

    stopped: bool = False
    #: The card disappeared.
    lost: bool = False
    hangs: bool = False
    card_disappears_at_s: float = math.inf


@dataclass(slots=True, eq=False)
class _Slot:
    kind: str
    luck: SlotLuck
    state: SlotState = SlotState.EMPTY
    function: str = ""
    reason: str = ""
    activity: Activity | None = None
    memory: bytearray = field(default_factory=lambda: bytearray(MEMORY_BYTES))
    #: Project whose data may be in the memory; "" = scrubbed.
    owner: str = ""

    def become(self, state: SlotState, function: str = "", reason: str = "") -> None:
        self.state, self.function, self.reason, self.activity = state, function, reason, None

    def clear_memory(self) -> None:
        self.memory[:] = bytes(len(self.memory))
        self.owner = ""


class Card:
    """The state of one card, guarded by one lock with one condition that every change notifies."""

    def __init__(
        self,
        serial: str,
        index: int,
        board: Board,
        faults: Faults,
        links: CardLinks = ALONE,
        neighbour_cost: float = 0.0,
    ) -> None:
        self.serial, self._neighbour_cost = serial, neighbour_cost
        self._links = links
        self._board = board
        self._returns_after_s = faults.card_returns_after_s
        self._changed = Condition()
        self._slots = {
            f"slot{i}": _Slot(kind, SlotLuck(faults, card=index, slot=i)) for i, kind in enumerate(board.slots)
        }
        self._port: Activity | None = None
        self._dma = SharedDma(board.dma_bps, neighbour_cost)
        #: When the card responds again after it has disappeared; -inf = it is present.
        self._absent_until_s = -math.inf

    @property
    def regions(self) -> Sequence[str]:
        """Names of the slots, in order."""
        return tuple(self._slots)

    def kind(self, region: str) -> str:
        """Return the kind of the slot."""
        return self._slots[region].kind

    def luck(self, region: str) -> SlotLuck:
        """Return the fault source of the slot, which tests may control."""
        return self._slots[region].luck

    def inventory(self) -> CardInventory:
        """Return the inventory of the card, including whether it is present now."""
        with self._changed:
            slots = tuple(SlotInventory(region, slot.kind) for region, slot in self._slots.items())
            return CardInventory(self.serial, self._board.name, slots, self._is_present(), self._links)

    def status(self, region: str) -> SlotStatus:
        """Return the current state of the slot."""
        with self._changed:
            self._is_present()
            slot = self._slots[region]
            return SlotStatus(slot.state, slot.function, slot.reason)

    def memory(self, region: str) -> bytes:
        """Return a copy of the slot's memory."""
        with self._changed:
            return bytes(self._slots[region].memory)

    def configure(self, region: str, function: str, load_s: float) -> None:
        """Load a function: wait for the configuration port, then for the transfer."""
        with self._changed:
            slot = self._idle_slot(region)
            fails = slot.luck.load_fails()
            activity = Activity()
            slot.become(SlotState.LOADING)
            slot.activity = activity
            while self._port is not None and not activity.lost:
                self._changed.wait(_LONGEST_WAIT_S)
            if not activity.lost:
                self._transfer(activity, load_s)
            if activity.lost:
                raise SlotFault(f"{self.serial}/{region}: {_GONE}")
            if fails:
                slot.become(SlotState.FAULTED, reason=f"loading {function} failed")
                raise SlotFault(f"{self.serial}/{region}: loading {function} failed")
            slot.become(SlotState.READY, function)

    def _transfer(self, activity: Activity, load_s: float) -> None:
        """Hold the configuration port for `load_s` seconds, or until the card disappears."""
        self._port = activity
        end_s = time.monotonic() + load_s
        while not activity.lost and (left_s := end_s - time.monotonic()) > 0:
            self._changed.wait(left_s)
        # If the card has disappeared, the port was released then, and another load may hold it by now.
        if self._port is activity:
            self._port = None
            self._changed.notify_all()

    def begin_run(
        self, region: str, function: str, project_id: str, remnant: bytes, demand_bps: float, work_s: float
    ) -> Activity:
        """Make the slot BUSY and start the job's modelled time."""
        with self._changed:
            slot = self._idle_slot(region)
            if slot.state is not SlotState.READY or slot.function != function:
                held = slot.function or "nothing"
                raise Conflict(f"{self.serial}/{region}: is {slot.state} with {held}, expected READY with {function}")
            if slot.owner not in ("", project_id):
                raise Conflict(f"{self.serial}/{region}: its memory contains data of another project; scrub it first")
            fate = slot.luck.run()
            now_s = time.monotonic()
            activity = Activity(hangs=fate.hangs)
            if fate.card_disappears_after is not None:
                activity.card_disappears_at_s = now_s + fate.card_disappears_after * work_s
            slot.become(SlotState.BUSY, function)
            slot.activity, slot.owner = activity, project_id
            slot.memory[: len(remnant)] = remnant
            if not activity.hangs:
                self._dma.start(region, demand_bps, work_s, now_s)
            # The shares of other jobs have shrunk; their waiting threads recompute when the jobs end.
            self._changed.notify_all()
            return activity

    def wait_run(self, region: str, activity: Activity) -> None:
        """Wait until the job's modelled time is over. Raises RunStopped or SlotFault if it ends otherwise."""
        with self._changed:
            while True:
                now_s = time.monotonic()
                self._dma.advance(now_s)
                if activity.card_disappears_at_s <= now_s and not activity.lost:
                    self._disappear(now_s + self._returns_after_s)
                self._raise_ending(region, activity)
                if not activity.hangs and not self._dma.is_active(region):
                    return
                next_s = min(self._dma.next_end_s(), activity.card_disappears_at_s)
                self._changed.wait(min(next_s - now_s, _LONGEST_WAIT_S))

    def _raise_ending(self, region: str, activity: Activity) -> None:
        if activity.lost:
            raise SlotFault(f"{self.serial}/{region}: {_GONE}")
        if activity.stopped and activity.hangs:
            raise SlotFault(f"{self.serial}/{region}: the job hung until it was stopped")
        if activity.stopped:
            raise RunStopped(f"{self.serial}/{region}: the job was stopped")

    def end_run(self, region: str, activity: Activity) -> None:
        """Free the slot after a run, however it ended."""
        with self._changed:
            slot = self._slots[region]
            # After a loss the slot no longer belongs to this run: the card may even be back and loaded again.
            if slot.activity is not activity:
                return
            self._dma.stop(region, time.monotonic())
            if activity.hangs:
                slot.become(SlotState.FAULTED, reason="its job hung; reload the function")
            else:
                slot.become(SlotState.READY, slot.function)
            self._changed.notify_all()

    def left_s(self, region: str) -> float:
        """Return the seconds of modelled work that the slot's run has left."""
        with self._changed:
            self._dma.advance(time.monotonic())
            return self._dma.left_s(region)

    def stop(self, region: str) -> None:
        """Stop the slot's run."""
        with self._changed:
            slot = self._slots[region]
            if slot.state is SlotState.BUSY and slot.activity:
                slot.activity.stopped = True
                self._changed.notify_all()

    def scrub(self, region: str) -> None:
        """Clear the slot's memory."""
        with self._changed:
            self._idle_slot(region).clear_memory()

    def remove(self) -> None:
        """Make the card disappear until `restore` is called."""
        with self._changed:
            self._disappear(math.inf)

    def restore(self) -> None:
        """Bring the card back, with empty slots."""
        with self._changed:
            self._absent_until_s = min(self._absent_until_s, time.monotonic())
            self._is_present()

    def _idle_slot(self, region: str) -> _Slot:
        """Return the slot. Raises SlotFault if the card does not respond, Conflict if the slot is in use."""
        if not self._is_present():
            raise SlotFault(f"{self.serial}/{region}: {_GONE}")
        slot = self._slots[region]
        if slot.state in (SlotState.LOADING, SlotState.BUSY):
            raise Conflict(f"{self.serial}/{region}: is {slot.state}; expected no operation in progress")
        return slot

    def _is_present(self) -> bool:
        """Return whether the card responds. After an absence all its slots become empty."""
        if self._absent_until_s == -math.inf:
            return True
        if time.monotonic() < self._absent_until_s:
            return False
        self._absent_until_s = -math.inf
        for slot in self._slots.values():
            slot.become(SlotState.EMPTY)
        return True

    def _disappear(self, until_s: float) -> None:
        """Simulate a power loss: all runs and loads fail at once, memories are cleared, port and DMA become idle."""
        for slot in self._slots.values():
            if slot.activity:
                slot.activity.lost = True
            slot.clear_memory()
            slot.become(SlotState.FAULTED, reason=_GONE)
        self._port = None
        self._dma = SharedDma(self._board.dma_bps, self._neighbour_cost)
        self._absent_until_s = until_s
        self._changed.notify_all()
