"""One look at a pool in which loads take slots from the moment they begin: how a live pool decides on online jobs.

The occupancy is made again from what is known of each slot; a policy is asked for moves until it has none; then each
job that a load is for goes to its slot at once, so that its input moves while the slot loads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.pool import Move, OnlinePool, Start

#: Loads that one look begins at most before it goes on with jobs alone: a large pool is not filled in one transaction.
MOST_LOADS = 100


class SlotNow(NamedTuple):
    """What is known of a slot that serves."""

    #: The function that it holds, loads, or is to load for its job; EMPTY = none.
    function: int
    #: It loads, or has been told to, and no job has it.
    loading: bool = False
    #: It needs its card's configuration port.
    needs_port: bool = False
    #: When the last of its jobs is expected to end; None = it has no job.
    end_s: float | None = None
    #: Its job may leave for another one.
    movable: bool = False
    #: When the function was loaded, if it holds one.
    loaded_s: float = 0.0
    #: Nothing is loaded into it that no job waits for.
    put_off: bool = False


def picture(pool: OnlinePool, demand: Demand, slots: Sequence[SlotNow | None], now_s: float) -> Occupancy:
    """Return the occupancy of slots, by number; None = one that does not serve.

    Those that need their card's configuration port come last: it is in use then, whatever else the card holds, and
    slots of cards where it is free are found among the first.
    """
    view = Occupancy(pool, demand)
    serving = []
    for number, slot in enumerate(slots):
        if slot is None:
            view.withdraw(number)
        else:
            serving.append((slot.needs_port, number, slot))
    for needs_port, number, slot in sorted(serving, key=lambda entry: entry[0]):
        if slot.function != EMPTY:
            view.loads(number, slot.function)
            if not slot.loading:
                view.loaded(number, slot.loaded_s)
        if slot.end_s is not None:
            view.started(number, number, max(now_s, slot.end_s))
            if not slot.movable:
                view.evictable[view.kind[number]][slot.function].pop(number, None)
        if slot.put_off:
            view.put_off.add(number)
        if needs_port:
            view.port_busy[view.card[number]] = True
    view.news = None, None
    return view


class Place(NamedTuple):
    """A job, by the number that the occupancy knows it by, and the slot that it gets."""

    job: int
    slot: int
    #: Seconds until it begins: the rest of the load of its function.
    load_s: float


@dataclass(slots=True)
class Taken:
    """What came of a look."""

    places: list[Place] = field(default_factory=list)
    #: Slots whose job is to leave.
    evicted: list[int] = field(default_factory=list)
    #: Jobs that are to leave their CPU: they get a slot at the next look, when they have.
    called_back: list[int] = field(default_factory=list)
    #: Slots that are to load ahead of jobs.
    loads: list[int] = field(default_factory=list)


def take(
    view: Occupancy,
    decide: Callable[[Occupancy], Move | None],
    *,
    now_s: float,
    work_s: Callable[[int], float],
    on_cpu: Callable[[int], bool],
    loading: Mapping[int, float],
) -> Taken:
    """Ask for moves until there are no more.

    Parameters
    ----------
    view
        What the policy looks at; of no use afterwards.
    decide
        Returns the next move.
    now_s
        The time.
    work_s, on_cpu
        How long a job computes on a slot, and whether it computes on a CPU now, by its number.
    loading
        When each slot that loads ahead of jobs was told to.

    """
    taking = _Taking(view, now_s, work_s, on_cpu, loading)
    while view.slots and (move := decide(view)) is not None:
        if isinstance(move, Start):
            taking.give(move.slot, move.function, 0.0)
        else:
            taking.load(move.slot, move.function)
            view.preloads &= taking.begun < MOST_LOADS
        view.news = None, None
    taking.give_loading()
    return taking.taken


class _Taking:
    """Does in the picture what the policy wants, and notes what that is in the pool."""

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
        #: By slot that loads: seconds until it has; and those that are to begin now, without a job so far.
        self._left_s = {slot: max(0.0, told_at + self._load_s(slot) - now_s) for slot, told_at in loading.items()}
        self._begun: dict[int, None] = {}
        self._ahead = view.preloads

    @property
    def begun(self) -> int:
        """How many slots are to begin to load."""
        return len(self._begun)

    def _load_s(self, slot: int) -> float:
        return self._view.load_s[self._view.kind[slot]]

    def load(self, slot: int, function: int) -> None:
        """Let a slot load a function; a job that computes there is to leave."""
        if self._view.job[slot] >= 0:
            self.taken.evicted.append(slot)
            self._view.stopped(slot)
        self._view.loads(slot, function)
        self._left_s[slot] = self._load_s(slot)
        self._begun[slot] = None

    def give(self, slot: int, function: int, load_s: float) -> None:
        """Give a slot to the oldest job that waits for the function."""
        view = self._view
        job = next(iter(view.waiting[function]))
        view.left(job, function)
        view.started(slot, slot, self._now_s + load_s + self._work_s(job))
        view.evictable[view.kind[slot]][function].pop(slot, None)
        if self._on_cpu(job):
            self.taken.called_back.append(job)
        else:
            self.taken.places.append(Place(job, slot, load_s))

    def give_loading(self) -> None:
        """Give slots that load to jobs that wait for what they load, the first to be ready first."""
        view, taken = self._view, self.taken
        for slot, left_s in sorted(self._left_s.items(), key=lambda item: item[1]):
            function = view.holds[slot]
            if view.waiting[function]:
                view.loaded(slot, self._now_s)
                self.give(slot, function, left_s)
            elif self._ahead and slot in self._begun and slot not in taken.evicted:
                taken.loads.append(slot)
