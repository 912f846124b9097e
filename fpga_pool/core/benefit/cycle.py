"""One planning cycle for the online jobs of a live pool, in which a load occupies its slot as soon as it begins.

The occupancy is rebuilt from the known state of each slot.  The policy is called for moves until it returns none.  Then
each job for which a slot is loading is assigned to it at once, so that its input is transferred during the load.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fpga_pool.core.benefit.occupancy import EMPTY, Demand, Occupancy
from fpga_pool.core.benefit.pool import Move, OnlinePool, Start

#: Number of loads after which one cycle stops preloading, so that a large pool is not filled in one transaction.
MOST_LOADS = 100


class SlotNow(NamedTuple):
    """Known state of a slot in service."""

    #: The function that the slot holds, loads, or is going to load for its job; EMPTY = none.
    function: int
    #: Whether the slot loads, or was commanded to, and has no job.
    loading: bool = False
    #: Whether the slot needs its card's configuration port.
    needs_port: bool = False
    #: Expected end of the last of its jobs; None = no job.
    end_s: float | None = None
    #: Whether its job may be replaced by another one.
    movable: bool = False
    #: Time at which the function was loaded, if known.
    loaded_s: float = -math.inf
    #: Whether only functions that a job waits for may be loaded into the slot.
    put_off: bool = False


#: A slot in service that holds nothing.
UNUSED = SlotNow(EMPTY)


class Ranked(MutableMapping[int, None]):
    """An ordered set of slot numbers; slots of cards whose configuration port is in use come last."""

    __slots__ = ("_keys", "_rank")

    def __init__(self, rank: Sequence[int]) -> None:
        self._rank = rank
        self._keys: list[int] = []

    def __setitem__(self, slot: int, value: None) -> None:
        insort(self._keys, self._rank[slot])

    def __getitem__(self, slot: int) -> None:
        self._index(slot)

    def __delitem__(self, slot: int) -> None:
        del self._keys[self._index(slot)]

    def _index(self, slot: int) -> int:
        rank = self._rank[slot]
        index = bisect_left(self._keys, rank)
        if index == len(self._keys) or self._keys[index] != rank:
            raise KeyError(slot)
        return index

    def __iter__(self) -> Iterator[int]:
        slots = len(self._rank)
        return (key if key < slots else key - slots for key in self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Picture(Occupancy):
    """The occupancy that follows from the known state of each slot alone.

    It does not depend on the order of updates: a picture updated slot by slot is equal to one that is rebuilt.
    """

    def __init__(self, pool: OnlinePool, demand: Demand, slots: Sequence[SlotNow | None]) -> None:
        #: By slot: its rank among equivalent slots.
        self._rank = list(range(pool.slots))
        super().__init__(pool, demand)
        self._known: list[SlotNow | None] = [UNUSED] * pool.slots
        for slot, known in enumerate(slots):
            if known != UNUSED:
                self._replace(slot, known)
        for card in range(len(self.dma_bps)):
            self._settle(card)

    def note(self, slot: int, known: SlotNow | None) -> None:
        """Replace the known state of a slot; None = it is not in service."""
        self._replace(slot, known)
        self._settle(self.card[slot])

    def _replace(self, slot: int, known: SlotNow | None) -> None:
        served, self._known[slot] = self._known[slot] is not None, known
        if served:
            self._forget(slot)
        if known is None:
            if served:
                self._slots_of[self.card[slot]].remove(slot)
                self.slots -= 1
            return
        if not served:
            card = self.card[slot]
            insort(self._slots_of[card], slot)
            self._rank[slot] = slot + self.port_busy[card] * self.pool.slots
            self.slots += 1
        kind, function = self.kind[slot], known.function
        self.holds[slot] = function
        self.loaded_s[slot] = known.loaded_s
        if function != EMPTY:
            self.held[function] += 1
        if known.loading:
            self.loading[function] += 1
        elif known.end_s is None:
            self._add_idle(slot)
        else:
            self.job[slot], self.end_s[slot] = slot, known.end_s
            insort(self.ends_s[function], known.end_s)
            if known.movable and self.preemptible[function]:
                self.evictable[kind][function][slot] = None
        if known.put_off:
            self.put_off.add(slot)

    def _forget(self, slot: int) -> None:
        """Undo the known state of a slot in service, and the moves made with it in the picture."""
        kind, function = self.kind[slot], self.holds[slot]
        if self.job[slot] >= 0:
            self.job[slot] = -1
            del self.ends_s[function][bisect_left(self.ends_s[function], self.end_s[slot])]
            self.evictable[kind][function].pop(slot, None)
        elif slot in self.idle[kind][function]:
            self._drop_idle(slot)
        else:
            self.loading[function] -= 1
        if function != EMPTY:
            self.held[function] -= 1
        self.put_off.discard(slot)

    def _settle(self, card: int) -> None:
        """Recompute the DMA demand and the port state of a card from the known state of its slots."""
        asked_bps, busy = 0.0, False
        for slot in self._slots_of[card]:
            if self.job[slot] >= 0:
                asked_bps += self.io_bps[self.kind[slot]][self.holds[slot]]
            known = self._known[slot]
            busy |= known is not None and known.needs_port
        self.asked_bps[card] = asked_bps
        self._set_port(card, busy)

    def _group(self) -> Ranked:
        return Ranked(self._rank)

    def loaded(self, slot: int, now_s: float) -> None:
        self._set_port(self.card[slot], False)
        super().loaded(slot, now_s)

    def _use_port(self, card: int) -> None:
        self._set_port(card, True)

    def _set_port(self, card: int, busy: bool) -> None:
        if self.port_busy[card] == busy:
            return
        self.port_busy[card] = busy
        for slot in self._slots_of[card]:
            kind, function = self.kind[slot], self.holds[slot]
            group = self.idle[kind][function] if self.job[slot] < 0 else self.evictable[kind][function]
            present = slot in group
            if present:
                del group[slot]
            self._rank[slot] = slot + busy * self.pool.slots
            if present:
                group[slot] = None


class Place(NamedTuple):
    """Assignment of a job, by its number in the occupancy, to a slot."""

    job: int
    slot: int
    #: Seconds until the job can begin: the rest of the load of its function.
    load_s: float


@dataclass(slots=True)
class Taken:
    """The outcome of a decision."""

    places: list[Place] = field(default_factory=list)
    #: Slots whose job is to be evicted.
    evicted: list[int] = field(default_factory=list)
    #: Jobs to be withdrawn from their CPU; they get a slot in the next cycle after they have left it.
    called_back: list[int] = field(default_factory=list)
    #: Slots that are to preload a function.
    loads: list[int] = field(default_factory=list)
    #: Slots whose state in the picture has changed.
    touched: set[int] = field(default_factory=set)


def take(
    view: Occupancy,
    decide: Callable[[Occupancy], Move | None],
    *,
    now_s: float,
    work_s: Callable[[int], float],
    on_cpu: Callable[[int], bool],
    loading: Mapping[int, float],
) -> Taken:
    """Apply the moves that `decide` returns until it returns None; `view` must not be used afterwards.

    `work_s` returns how long a job, given by number, computes on a slot, and `on_cpu` whether it computes on a CPU now.
    `loading` maps each slot that preloads to the time at which the load was commanded.
    """
    taking = _Taking(view, now_s, work_s, on_cpu, loading)
    while view.slots:
        view.news = None, None
        if (move := decide(view)) is None:
            break
        if isinstance(move, Start):
            taking.give(move.slot, move.function, 0.0)
        else:
            taking.load(move.slot, move.function)
            view.preloads &= taking.begun < MOST_LOADS
    taking.give_loading()
    return taking.taken


class _Taking:
    """Applies the policy's moves to the picture, and collects the resulting changes of the pool."""

    def __init__(
        self,
        view: Occupancy,
        now_s: float,
        work_s: Callable[[int], float],
        on_cpu: Callable[[int], bool],
        loading: Mapping[int, float],
    ) -> None:
        self._view, self._now_s, self._work_s, self._on_cpu = view, now_s, work_s, on_cpu
        self.taken = Taken()
        #: By loading slot: seconds until it has loaded; and the slots that are to begin a load now.
        self._left_s = {
            slot: max(0.0, commanded_at + self._load_s(slot) - now_s) for slot, commanded_at in loading.items()
        }
        self._begun: dict[int, None] = {}
        self._ahead = view.preloads

    @property
    def begun(self) -> int:
        """Number of slots that are to begin a load."""
        return len(self._begun)

    def _load_s(self, slot: int) -> float:
        return self._view.load_s[self._view.kind[slot]]

    def load(self, slot: int, function: int) -> None:
        """Load a function into a slot; a job that computes there is evicted."""
        if self._view.job[slot] >= 0:
            self.taken.evicted.append(slot)
            self._view.stopped(slot)
        self._view.loads(slot, function)
        self.taken.touched.add(slot)
        self._left_s[slot] = self._load_s(slot)
        self._begun[slot] = None

    def give(self, slot: int, function: int, load_s: float) -> None:
        """Assign a slot to the oldest job that waits for the function."""
        view = self._view
        job = next(iter(view.waiting[function]))
        view.left(job, function)
        self.taken.touched.add(slot)
        view.started(slot, slot, self._now_s + load_s + self._work_s(job))
        view.evictable[view.kind[slot]][function].pop(slot, None)
        if self._on_cpu(job):
            self.taken.called_back.append(job)
        else:
            self.taken.places.append(Place(job, slot, load_s))

    def give_loading(self) -> None:
        """Assign loading slots to jobs that wait for their functions, in the order in which the slots become ready."""
        view, taken = self._view, self.taken
        for slot, left_s in sorted(self._left_s.items(), key=lambda item: item[1]):
            function = view.holds[slot]
            if view.waiting[function]:
                view.loaded(slot, self._now_s)
                self.give(slot, function, left_s)
            elif self._ahead and slot in self._begun and slot not in taken.evicted:
                taken.loads.append(slot)
