"""`benefit_plus`, ours: loads a function where that gains more than all it gives up."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammainc

from fpga_pool.core.benefit.moves import Load, Move, Start
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy, OrderedSet
from fpga_pool.core.policy import PolicyState

#: Waiting jobs of a function that one decision looks at: more than one slot can do within any horizon that pays.
_JOBS_AHEAD = 8
#: Work that is as good as none.
_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusParams:
    """Knobs of `benefit_plus`; the defaults were found on the reference catalogues and hold on random ones."""

    #: A load is undone by another load: both are given up for what is done in between.
    loads_ahead: float = field(
        default=2.0, metadata={"min": 1.0, "help": "Reconfigurations that one decision looks ahead, beside one job."}
    )
    #: 0: work that arrives while a slot does something else is lost; 1: what idle time allows is caught up with.
    catch_up: float = field(
        default=0.2,
        metadata={
            "min": 0.0,
            "max": 1.0,
            "help": "Share of a job's patience in which a slot is taken to catch up with work that had to wait.",
        },
    )

    def __post_init__(self) -> None:
        if not 1 <= self.loads_ahead < np.inf:
            raise ValueError(f"loads_ahead: expected a number, 1 or more, got {self.loads_ahead!r}")
        if not 0 <= self.catch_up <= 1:
            raise ValueError(f"catch_up: expected a number from 0 to 1, got {self.catch_up!r}")


class BenefitPlus:
    """Algorithm 2 with foresight; DESIGN of the rule in doc/source/algorithms/benefit."""

    name = "benefit_plus"
    Params = PlusParams

    def __init__(self, params: PlusParams | None = None) -> None:
        self._params = params or PlusParams()

    def supports(self, view: Occupancy) -> bool:
        """Every pool."""
        return True

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next move."""
        if not view.queue:
            return None
        open_kinds = [kind for kind in view.kinds if any(view.idle[kind]) or any(view.evictable[kind])]
        if not open_kinds:
            return None
        outlook = _Outlook(view, now_s, self._params)
        if outlook.missed:
            best, move = 0.0, None
            for kind in open_kinds:
                for gain, found in outlook.loads(kind):
                    if gain > best:
                        best, move = gain, found
            if move is not None:
                return move
        return _start(view)


class _Outlook:
    """What a slot would gain with each function over the next while, at one moment.

    A slot that is given to f at the price of a load does the jobs of f that wait and that no other slot takes in
    time, and then what else arrives for it.  A slot that keeps g does the same for g.  Both in vCPU-seconds, over the
    same while: one job and `loads_ahead` loads.
    """

    def __init__(self, view: Occupancy, now_s: float, params: PlusParams) -> None:
        self._view, self._now_s, self._params = view, now_s, params
        demand = view.demand
        self._offered = [demand.offered(f, now_s) for f in view.functions]
        #: Functions with jobs that no slot takes in time, and how many.
        self.missed: dict[int, int] = {}
        for f in view.functions:
            if view.waiting[f] and (missed := view.uncovered(f, _JOBS_AHEAD)):
                self.missed[f] = missed
        self._idle = [sum(map(len, groups)) for groups in view.idle]
        #: 1 while three quarters of the slots would do all that comes; 0 from the point on where all are needed.
        self._spare = min(1.0, max(0.0, 4.0 * (1.0 - sum(self._offered) / view.pool.slots)))
        known_s = [work_s for work_s in demand.work_s if work_s > 0]
        self._job_s = sum(known_s) / max(len(known_s), 1)

    def loads(self, kind: int) -> list[tuple[float, Load]]:
        """Return what each load into a slot of this kind gains over all it gives up, for those that gain."""
        view = self._view
        load_s = view.load_s[kind]
        while_s = self._job_s + self._params.loads_ahead * load_s
        gains = [(self._gain(f, while_s - load_s), f) for f in self.missed if view.fits[kind][f]]
        if not gains:
            return []
        found = []
        for slot, held, given_up in self._victims(kind, while_s):
            better = [(gain - given_up, Load(slot, f)) for gain, f in gains if f != held and gain > given_up]
            if better:
                found.append(max(better, key=lambda entry: entry[0]))
        return found

    def _victims(self, kind: int, while_s: float) -> list[tuple[int, int, float]]:
        """Return slots that could load, one for each function held: slot, function, and what it would give up."""
        view, found = self._view, []
        for held in (*view.functions, EMPTY):
            if (slot := self._ready(view.idle[kind][held])) is not None:
                found.append((slot, held, 0.0 if held == EMPTY else self._kept(slot, held, 0.0, while_s)))
        for held in view.functions:
            if (slot := self._ready(view.evictable[kind][held])) is not None:
                left_s = max(0.0, view.end_s[slot] - self._now_s)
                if not view.progress_kept[held]:
                    left_s = max(left_s, view.demand.work_s[held])
                found.append((slot, held, self._kept(slot, held, left_s, while_s)))
        return found

    def _ready(self, slots: OrderedSet) -> int | None:
        return self._view.roomiest(slots, port=True) if slots else None

    def _gain(self, function: int, while_s: float) -> float:
        """Return what one more slot does for the function."""
        demand, view = self._view.demand, self._view
        work_s = min(while_s, self.missed[function] * demand.work_s[function])
        # Jobs in progress at a time are Poisson where each has a slot: one more is used while there are more of them
        # than slots.
        use = self._use(function, view.held[function])
        return demand.speedup[function] * (work_s + use * (while_s - work_s))

    def _kept(self, slot: int, function: int, left_s: float, while_s: float) -> float:
        """Return what is lost for its function without this slot, whose job has `left_s` to run (0 = idle)."""
        demand, view = self._view.demand, self._view
        jobs = 0
        if view.waiting[function]:
            jobs = view.uncovered(function, _JOBS_AHEAD, -1 if view.job[slot] < 0 else 0)
        work_s = min(while_s, left_s + jobs * demand.work_s[function])
        use = self._use(function, view.held[function] - 1)
        later_s = use * (while_s - work_s) - (1 - use) * self._params.catch_up * demand.patience_s[function]
        later_s = max(0.0, later_s) * self._lost(slot, function)
        return demand.speedup[function] * (work_s + later_s)

    def _lost(self, slot: int, function: int) -> float:
        """Return the part of a job that comes later which is lost where this slot does not wait for it.

        All of it in a busy pool; where slots are to spare and another one is idle, the time of one more load.
        """
        view = self._view
        idle = sum(self._idle[kind] for kind in view.kinds if view.fits[kind][function])
        if idle < 2:
            return 1.0
        reload = min(1.0, view.load_s[view.kind[slot]] / max(view.demand.work_s[function], _MOMENT_S))
        return 1.0 - self._spare * (1.0 - reload)

    def _use(self, function: int, others: int) -> float:
        """Return the probability that more than `others` jobs of the function are there."""
        return float(gammainc(others + 1, self._offered[function]))


def _start(view: Occupancy) -> Start | None:
    """Return the start of a job on an idle slot that holds its function, the most useful first."""
    waiting = [f for f in view.functions if view.waiting[f]]
    for function in sorted(waiting, key=lambda f: -view.demand.speedup[f]):
        for kind in view.kinds:
            if slots := view.idle[kind][function]:
                slot = view.roomiest(slots)
                return None if slot is None else Start(slot, function)
    return None
