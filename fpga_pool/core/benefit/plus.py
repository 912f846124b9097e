"""`benefit_plus`, our online policy: a function is loaded where that gains more than everything it displaces.

`fill` chooses the loads into empty slots: at the start, a card's configuration port is scarce, not its slots.
`TenantLimit` bounds the slots of each tenant, so that the useful jobs of one cannot starve the others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.pool import Load, Move, Start
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState


class TenantLimit:
    """Decides which jobs a policy sees: of each tenant no more at a time than slots it may have.

    A job counts from when it is let in until it has left its slot, or has given up.  All others of its tenant are held
    back and let in as they came.  What that costs: slots stay unused, or do less useful work, while one tenant alone
    asks for more than its share.
    """

    def __init__(self, slots: int, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share: expected a number above 0, 1 at most, got {share!r}")
        self.most = max(1, int(slots * share + 1e-9))
        self._inside: dict[str, int] = {}
        self._held: dict[str, dict[int, None]] = {}

    def lets_in(self, job: int, tenant: str) -> bool:
        """Return whether a job that arrives may be seen; else it is held back."""
        inside = self._inside.get(tenant, 0)
        if inside < self.most:
            self._inside[tenant] = inside + 1
            return True
        self._held.setdefault(tenant, {})[job] = None
        return False

    def gives_up(self, job: int, tenant: str) -> bool:
        """Forget a job that is held back; False where it is not."""
        held = self._held.get(tenant, {})
        if job not in held:
            return False
        del held[job]
        return True

    def left(self, tenant: str) -> int | None:
        """Count a job of the tenant no more; return the next one to let in, which then counts."""
        if held := self._held.get(tenant):
            job = next(iter(held))
            del held[job]
            return job
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
            self._held.pop(tenant, None)
        return None


#: Waiting jobs of a function that count: more than one slot can do while it is waited for.
_JOBS_AHEAD = 8
#: Minimum probability that a slot is used for preloading a function into it.
_LEAST_USE = 0.01


def fill(view: Occupancy, now_s: float) -> Load | None:
    """Return the load into an empty slot that gains most, whether a job waits for the function or is only likely to.

    A load now rather than after the next one gains what its function would do in that time, and the jobs that wait for
    it.  A function that would have none of the card's empty slots in the long run makes all those wait that would.
    """
    best, most = None, 0.0
    for kind in view.kinds:
        slots: Mapping[int, None] = view.idle[kind][EMPTY]
        if view.put_off:
            slots = {slot: None for slot in slots if slot not in view.put_off}
        if not slots or (slot := view.roomiest(slots, port=True)) is None:
            continue
        for function, gain in _gains(view, kind, slot, now_s):
            if gain > most:
                best, most = Load(slot, function), gain
    return best


def _gains(view: Occupancy, kind: int, slot: int, now_s: float) -> Iterator[tuple[int, float]]:
    """Yield what a load of each function into the slot gains, in vCPU-seconds."""
    demand, load_s = view.demand, view.load_s[kind]
    fitting = [f for f in view.functions if view.fits[kind][f]]
    if not fitting:
        return
    chosen = dict.fromkeys(fitting, 0)
    # What each function would add per second, with the slots that it has and those that it is to have.
    adds = {f: demand.speedup[f] * demand.likely_more_than(view.held[f], f, now_s, view.slots) for f in fitting}
    first = dict(adds)
    delayed = 0.0
    for _ in range(view.empty_on(view.card[slot])):
        function = max(fitting, key=adds.__getitem__)
        delayed += adds[function]
        chosen[function] += 1
        others = view.held[function] + chosen[function]
        adds[function] = demand.speedup[function] * demand.likely_more_than(others, function, now_s, view.slots)
    for function in fitting:
        waiting = view.uncovered(function, _JOBS_AHEAD) if view.waiting[function] else 0
        gain = demand.speedup[function] * min(1, waiting) * demand.work_s[function]
        gain += load_s * (first[function] if chosen[function] else -delayed)
        if waiting or first[function] > _LEAST_USE * demand.speedup[function]:
            yield function, gain * view.rate(function, slot)


#: Work that is as good as none.
_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusParams(Parameters):
    """Parameters of `benefit_plus`; the defaults were found on the reference catalogues and hold on random ones."""

    #: A load is undone by another load: both are given up for what is done in between.
    loads_ahead: float = parameter(
        2.0, "Number of reconfigurations that one decision looks ahead, in addition to one job.", min=1.0
    )
    #: 0: work that arrives while a slot does something else is lost; 1: what idle time allows is caught up with.
    catch_up: float = parameter(
        0.3, "Share of a job's patience within which a slot is assumed to catch up with delayed work.", min=0.0, max=1.0
    )


class BenefitPlus:
    """Algorithm 2 with foresight; the rule is derived in doc/source/algorithms/benefit."""

    name = "benefit_plus"
    Params = PlusParams

    def __init__(self, params: PlusParams | None = None) -> None:
        self._params = params or PlusParams()

    def decide(self, view: Occupancy, state: PolicyState, now_s: float, rng: np.random.Generator) -> Move | None:
        """Return the next move."""
        if view.preloads and any(groups[EMPTY] for groups in view.idle) and (move := fill(view, now_s)) is not None:
            return move
        if not view.queue:
            return None
        function, slot = view.news
        concerned = view.functions if function is None else (function,)
        loaded_s = now_s + min(view.load_s)
        missed = {f: view.uncovered(f, _JOBS_AHEAD) for f in concerned if view.behind(f, loaded_s)}
        if missed:
            outlook = _Outlook(view, now_s, self._params, missed)
            if slot is None:
                for kind in view.kinds:
                    outlook.look_at(kind, (*view.functions, EMPTY))
            else:
                outlook.look_at(view.kind[slot], (view.holds[slot],))
            if outlook.best is not None:
                return outlook.best
        return start_ready(view, concerned if slot is None else (view.holds[slot],))


class _Outlook:
    """What a slot would gain with each function over the next while, at one moment.

    A slot that is given to f at the price of a load does the jobs of f that wait and that no other slot takes in
    time, and then what else arrives for it.  A slot that keeps g does the same for g.  Both in vCPU-seconds, over the
    same while: one job and `loads_ahead` loads.
    """

    def __init__(self, view: Occupancy, now_s: float, params: PlusParams, missed: Mapping[int, int]) -> None:
        self._view, self._now_s, self._params = view, now_s, params
        #: The load that gains most over all it gives up, and how much; None where none gains.
        self.best: Load | None = None
        self._most = 0.0
        #: Functions with jobs that a load could serve before others, and how many of them no slot takes in time.
        self._missed = missed
        self._offered = view.demand.offered(now_s)
        #: Share of the slots that all that comes would keep busy.
        self._load = sum(self._offered) / view.slots
        #: 1 while three quarters of the slots would do all that comes; 0 from the point on where all are needed.
        self._spare = min(1.0, max(0.0, 4.0 * (1.0 - self._load)))
        known_s = [work_s for work_s in view.demand.work_s if work_s > 0]
        self._job_s = sum(known_s) / max(len(known_s), 1)

    def look_at(self, kind: int, functions: Iterable[int]) -> None:
        """Consider all loads into slots of this kind that hold one of these functions."""
        view = self._view
        load_s = view.load_s[kind]
        while_s = self._job_s + self._params.loads_ahead * load_s
        least = self._awaited(kind, while_s - load_s)
        found = ((self._gain(f, while_s - load_s), f) for f in self._missed if view.fits[kind][f])
        gains = [(gain, f) for gain, f in found if gain > least]
        if not gains:
            return
        for held in functions:
            slots = view.idle[kind][held]
            if held == EMPTY:
                if slots and (slot := view.roomiest(slots, port=True)) is not None:
                    self._consider(gains, slot, 0.0)
                continue
            # A slot with a job at hand is as good as busy.
            taken = len(view.waiting[held]) >= view.idle_holding[held] + view.loading[held]
            better = [(gain, f) for gain, f in gains if self._beats(f, held, load_s)]
            welcome = better if taken else gains
            if welcome and slots and (slot := view.roomiest(slots, port=True)) is not None:
                self._consider(welcome, slot, self._kept(kind, held, None, while_s))
            if not better or not (slots := view.evictable[kind][held]):
                continue
            if (slot := view.roomiest(slots, port=True)) is None:
                continue
            left_s = max(0.0, view.end_s[slot] - self._now_s)
            if not view.progress_kept[held]:
                left_s = max(left_s, view.demand.work_s[held])
            self._consider(better, slot, self._kept(kind, held, left_s, while_s))

    def _beats(self, function: int, held: int, load_s: float) -> bool:
        """Return whether a job is worth evicting another one, or taking its turn: else it, or another one, can follow.

        As in Algorithm 2; without this, functions alike take turns at stopping each other, and in large pools slots
        swing from one to the other.
        """
        speedup = self._view.demand.speedup
        return (speedup[function] - speedup[held]) * self._view.demand.work_s[function] > load_s * speedup[held]

    def _consider(self, gains: Sequence[tuple[float, int]], slot: int, given_up: float) -> None:
        """Take the best load into the slot, if it gains more than what was found so far.

        What the shared DMA leaves for each function beside the others of the card counts: benefit per scarce resource.
        """
        view = self._view
        held = view.holds[slot]
        if given_up:
            given_up *= view.rate(held, slot)
        for gain, function in gains:
            if function == held or gain - given_up <= self._most:
                continue
            net = gain * view.rate(function, slot) - given_up
            if net > self._most:
                self.best, self._most = Load(slot, function), net

    def _awaited(self, kind: int, while_s: float) -> float:
        """Return what a slot would gain if it waited for the best function of which a job is still to come.

        A load takes the slot and the configuration port.  If there are spare slots, a new job finds another one.
        """
        view, demand = self._view, self._view.demand
        most = 0.0
        for function, offered in enumerate(self._offered):
            if offered > 0 and function not in self._missed and view.fits[kind][function]:
                left_s = while_s - demand.work_s[function] / offered
                if demand.speedup[function] * left_s > most:
                    most = max(most, demand.speedup[function] * left_s * self._use(function, view.held[function]))
        return most * (1.0 - self._spare)

    def _gain(self, function: int, while_s: float) -> float:
        """Return what one more slot does for the function."""
        demand, view = self._view.demand, self._view
        work_s = min(while_s, self._missed[function] * demand.work_s[function])
        # Jobs in progress at a time are Poisson where each has a slot: one more is used while there are more of them
        # than slots.
        use = self._use(function, view.held[function])
        return demand.speedup[function] * (work_s + use * (while_s - work_s))

    def _kept(self, kind: int, function: int, left_s: float | None, while_s: float) -> float:
        """Return what is lost for its function without a slot, whose job has `left_s` to run (None = idle)."""
        demand, view = self._view.demand, self._view
        jobs = 0
        if view.waiting[function]:
            jobs = view.uncovered(function, _JOBS_AHEAD, -1 if left_s is None else 0)
        work_s = min(while_s, (left_s or 0.0) + jobs * demand.work_s[function])
        use = self._use(function, view.held[function] - 1)
        later_s = use * (while_s - work_s) - (1 - use) * self._params.catch_up * demand.patience_s[function]
        later_s = max(0.0, later_s) * self._lost(kind, function)
        return demand.speedup[function] * (work_s + later_s)

    def _lost(self, kind: int, function: int) -> float:
        """Return the part of a job that comes later which is lost where this slot does not wait for it.

        All of it in a busy pool.  Where slots are to spare and another one is idle, the time of one more load: where
        the job can wait for that, only as far as the slot would have had other things to do.
        """
        view, demand = self._view, self._view.demand
        if not self._spare or sum(view.idle_slots[k] for k in view.kinds if view.fits[k][function]) < 2:
            return 1.0
        reload = min(1.0, view.load_s[kind] / max(demand.work_s[function], _MOMENT_S))
        if demand.patience_s[function] >= view.load_s[kind]:
            reload *= self._load
        return 1.0 - self._spare * (1.0 - reload)

    def _use(self, function: int, others: int) -> float:
        """Return the probability that more than `others` jobs of the function are there."""
        return self._view.demand.more_than(others, function, self._now_s)


def start_ready(view: Occupancy, functions: Iterable[int]) -> Start | None:
    """Return the start of a job on an idle slot that holds its function, the most useful first."""
    ready = [f for f in functions if f != EMPTY and view.waiting[f] and view.idle_holding[f]]
    if not ready:
        return None
    function = max(ready, key=view.demand.speedup.__getitem__)
    slots = next(groups[function] for groups in view.idle if groups[function])
    slot = view.roomiest(slots)
    return None if slot is None else Start(slot, function)
