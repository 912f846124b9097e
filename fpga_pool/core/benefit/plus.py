"""`benefit_plus`, our online policy: load a function where that gains more than everything it displaces.

`fill` chooses the loads into empty slots: at the start, a card's configuration port is scarce, not its slots.
`TenantLimit` limits the slots of each tenant, so that the useful jobs of one tenant cannot starve those of others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.pool import Load, Move, Start
from fpga_pool.core.parameters import Parameters, parameter
from fpga_pool.core.policy import PolicyState


class TenantLimit:
    """Decides which jobs a policy sees: of each tenant, at most as many at a time as slots that it may have.

    A job counts from its admission until it has left its slot or given up.  Further jobs of its tenant are held back
    and admitted in order of arrival.  The price is that slots stay unused, or do less useful work, while a single
    tenant requests more than its share.
    """

    def __init__(self, slots: int, share: float) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share: expected a number above 0, 1 at most, got {share!r}")
        self.most = max(1, int(slots * share + 1e-9))
        self._inside: dict[str, int] = {}
        self._held: dict[str, dict[int, None]] = {}

    def lets_in(self, job: int, tenant: str) -> bool:
        """Return whether an arriving job is admitted; otherwise it is held back."""
        inside = self._inside.get(tenant, 0)
        if inside < self.most:
            self._inside[tenant] = inside + 1
            return True
        self._held.setdefault(tenant, {})[job] = None
        return False

    def gives_up(self, job: int, tenant: str) -> bool:
        """Drop a job that is held back; return False if it is not held back."""
        held = self._held.get(tenant, {})
        if job not in held:
            return False
        del held[job]
        return True

    def left(self, tenant: str) -> int | None:
        """Stop counting one job of the tenant; return the next one to admit, which then counts, or None."""
        if held := self._held.get(tenant):
            job = next(iter(held))
            del held[job]
            return job
        self._inside[tenant] -= 1
        if not self._inside[tenant]:
            del self._inside[tenant]
            self._held.pop(tenant, None)
        return None


#: Maximum number of waiting jobs of a function that count; a single slot cannot serve more of them in time.
_JOBS_AHEAD = 8
#: Minimum probability that a slot is used for preloading a function into it.
_LEAST_USE = 0.01


def fill(view: Occupancy, now_s: float) -> Load | None:
    """Return the load into an empty slot that gains most, for a function that a job waits for or is likely to request.

    Loading a function now rather than after the next load gains the work that it would do in that time, and the jobs
    that wait for it.  A function that would get none of the card's empty slots in the long run delays all those that
    would.
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
    """Yield each function and the gain of loading it into the slot, in vCPU-seconds."""
    demand, load_s = view.demand, view.load_s[kind]
    fitting = [f for f in view.functions if view.fits[kind][f]]
    if not fitting:
        return
    chosen = dict.fromkeys(fitting, 0)
    # Gain per second of one more slot for each function, given its slots and those chosen for it below.
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


#: Negligible work, in seconds; avoids divisions by 0.
_MOMENT_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlusParams(Parameters):
    """Parameters of `benefit_plus`; the defaults were tuned on the reference catalogues and hold on random ones."""

    #: Two, since a load is undone by another load: the work between them has to pay for both.
    loads_ahead: float = parameter(
        2.0, "Number of reconfigurations that one decision looks ahead, in addition to one job.", min=1.0
    )
    #: 0: work that arrives while a slot is otherwise busy is lost; 1: the slot catches up as far as idle time allows.
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
                    outlook.examine(kind, (*view.functions, EMPTY))
            else:
                outlook.examine(view.kind[slot], (view.holds[slot],))
            if outlook.best is not None:
                return outlook.best
        return start_ready(view, concerned if slot is None else (view.holds[slot],))


class _Outlook:
    """Expected gain of a slot with each function over the near future, at one moment.

    A slot that loads f serves the waiting jobs of f that no other slot takes in time, and then later arrivals of f.  A
    slot that keeps g does the same for g.  Both are compared in vCPU-seconds over the same interval: one job and
    `loads_ahead` loads.
    """

    def __init__(self, view: Occupancy, now_s: float, params: PlusParams, missed: Mapping[int, int]) -> None:
        self._view, self._now_s, self._params = view, now_s, params
        #: The load with the largest net gain, and that gain; None if no load gains.
        self.best: Load | None = None
        self._most = 0.0
        #: Functions with jobs that a load could serve sooner, and the number of these that no slot takes in time.
        self._missed = missed
        self._offered = view.demand.offered(now_s)
        #: Share of the slots that all arriving jobs would keep busy.
        self._load = sum(self._offered) / view.slots
        #: 1 while three quarters of the slots suffice for all arriving jobs; 0 once all slots are needed.
        self._spare = min(1.0, max(0.0, 4.0 * (1.0 - self._load)))
        known_s = [work_s for work_s in view.demand.work_s if work_s > 0]
        self._job_s = sum(known_s) / max(len(known_s), 1)

    def examine(self, kind: int, functions: Iterable[int]) -> None:
        """Evaluate all loads into slots of this kind that hold one of these functions."""
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
            # Idle slots for which jobs wait count as busy.
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
        """Return whether a job of the function is worth evicting a job of `held`, or taking its turn.

        As in Algorithm 2.  Without this, similar functions would evict each other in turn, and in large pools slots
        would swing from one function to the other.
        """
        speedup = self._view.demand.speedup
        return (speedup[function] - speedup[held]) * self._view.demand.work_s[function] > load_s * speedup[held]

    def _consider(self, gains: Sequence[tuple[float, int]], slot: int, given_up: float) -> None:
        """Choose the best load into the slot if it gains more than the best one found so far.

        Gains are scaled by the rate that the shared DMA leaves for each function beside the other slots of the card.
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
        """Return the gain of a slot that waits for the best function whose next job has not arrived yet.

        A load would take the slot and the configuration port.  If there are spare slots, a new job finds another one.
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
        """Return the gain of one more slot for the function, in vCPU-seconds."""
        demand, view = self._view.demand, self._view
        work_s = min(while_s, self._missed[function] * demand.work_s[function])
        # If each job has a slot, the number of jobs in progress is Poisson: one more slot is used while there are more
        # jobs than slots.
        use = self._use(function, view.held[function])
        return demand.speedup[function] * (work_s + use * (while_s - work_s))

    def _kept(self, kind: int, function: int, left_s: float | None, while_s: float) -> float:
        """Return the loss of the function if it gives up a slot whose job has `left_s` to run (None = idle)."""
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
        """Return the share of a later job's work that is lost if this slot does not wait for the job.

        In a busy pool that is all of it.  If there are spare slots and another one is idle, it is the time of one more
        load; if the job can wait for the load, only the part of it in which the slot would have been busy.
        """
        view, demand = self._view, self._view.demand
        if not self._spare or sum(view.idle_slots[k] for k in view.kinds if view.fits[k][function]) < 2:
            return 1.0
        reload = min(1.0, view.load_s[kind] / max(demand.work_s[function], _MOMENT_S))
        if demand.patience_s[function] >= view.load_s[kind]:
            reload *= self._load
        return 1.0 - self._spare * (1.0 - reload)

    def _use(self, function: int, others: int) -> float:
        """Return the probability that more than `others` jobs of the function are present."""
        return self._view.demand.more_than(others, function, self._now_s)


def start_ready(view: Occupancy, functions: Iterable[int]) -> Start | None:
    """Return the start of the most useful waiting job that has an idle slot with its function; None without one."""
    ready = [f for f in functions if f != EMPTY and view.waiting[f] and view.idle_holding[f]]
    if not ready:
        return None
    function = max(ready, key=view.demand.speedup.__getitem__)
    slots = next(groups[function] for groups in view.idle if groups[function])
    slot = view.roomiest(slots)
    return None if slot is None else Start(slot, function)
