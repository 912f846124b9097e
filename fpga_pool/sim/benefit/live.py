"""Simulates the rules of a live pool on a trace, including faults, without transactions and with incremental updates.

A live pool assigns a slot to a job while its function still loads, so that the input moves meanwhile. Its CPU workers
are limited, and their jobs return to slots if that is faster. Jobs that were evicted, or whose slot failed, first
request another slot, and a CPU worker only if they get none. It does not know how jobs that share a card's DMA slow
each other.  Decisions are made by `core.benefit.cycle`, as in the scheduler, which rebuilds its picture of the pool for
each planning cycle; here the changes since the last cycle are applied to it.  `tests/unit/parity/test_online.py`
compares each decision.
"""

import contextlib
import gc
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.benefit.cycle import UNUSED, SlotNow, Taken, take
from fpga_pool.core.benefit.occupancy import EMPTY
from fpga_pool.core.benefit.plus import TenantLimit
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.model.rules.online.family import REST_S
from fpga_pool.model.rules.online.view import RequestedLoad
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.benefit.places import CpuWorker, LivePlaces
from fpga_pool.sim.benefit.queue import Returning
from fpga_pool.sim.benefit.shell import CPU_END, END, GIVE_UP, INTERVAL, LOADED, Run, Shell
from fpga_pool.sim.benefit.trace import BOTH, CPU, FPGA, Fault, Record, Trace, timeline

#: Kinds of entries of the agenda, in addition to those of `shell`.
ARRIVAL, FAULT = 5, 6
#: Seconds by which the end of a pause is checked early, because of rounding.
_EARLY_S = 1e-6


@dataclass(frozen=True, slots=True)
class Decision:
    """The decisions of one planning cycle; each move is (kind, job or function, slot or worker)."""

    at_s: float
    moves: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRules:
    """The parameters of a live pool other than its slots, and its faults; faults of one slot must not overlap.

    The settings, not the trace, determine how long jobs wait; the patience in the trace only triggers a planning cycle.
    """

    settings: PoolSettings = field(default_factory=PoolSettings)
    cpu_workers: int = 0
    faults: Sequence[Fault] = ()
    #: Called with the decision of each planning cycle that changed something.
    watch: Callable[[Decision], None] | None = None


@dataclass(slots=True)
class _Ahead:
    """The state of preloads: loads for which no job waits."""

    #: By slot: its last requested preload.
    requested: dict[int, RequestedLoad] = field(default_factory=dict)
    #: Slots that are loading without a job.
    loading: set[int] = field(default_factory=set)
    #: Heap of (end of the pause before the next preload, less `_EARLY_S`, slot).
    pauses: list[tuple[float, int]] = field(default_factory=list)
    #: Until then no planning cycle is run only for preloads.
    rests_until_s: float = 0.0


class LiveShell(LivePlaces):
    """Keeps the clock, and runs the planning cycles."""

    def __init__(self, run: Run, rules: PoolRules) -> None:
        if (run.trace.function < 0).any():
            raise ValueError("function: a live pool refuses jobs that fit into no slot of it")
        super().__init__(run, rules.settings, rules.cpu_workers)
        self._pool, self._demand, self._watch = run.pool, self.view.demand, rules.watch
        self._ahead = _Ahead()
        self._faults = timeline(rules.faults)

    def run(self, interval_s: float) -> None:
        agenda = self._agenda
        agenda += [(at_s, ARRIVAL, job, 0) for job, at_s in enumerate(self._arrival_s)]
        agenda += [(at_s, FAULT, number, 0) for number, (at_s, _) in enumerate(self._faults)]
        agenda.append((interval_s, INTERVAL, 0, 0))
        heapq.heapify(agenda)
        self._interval_s = interval_s
        while self._unfinished:
            self._now_s, changed = agenda[0][0], False
            while agenda and agenda[0][0] == self._now_s:
                _, what, which, version = heapq.heappop(agenda)
                changed |= self._happens(what, which, version)
            while changed:
                changed = self._run_cycle()

    def _happens(self, what: int, which: int, version: int) -> bool:
        if what == END:
            return version == self._version[which] and self._end(which)
        if what == LOADED:
            return version == self._slots[which].version and self._loaded(which)
        if what == GIVE_UP:
            return which in self._queue.pending
        if what == CPU_END:
            return version == self._workers[which].version and self._end_on_cpu(which)
        if what == ARRIVAL:
            return self._arrive(which)
        if what == FAULT:
            return self._apply_fault(self._faults[which][1])
        heapq.heappush(self._agenda, (self._now_s + self._interval_s, INTERVAL, 0, 0))
        return True

    # Jobs ---------------------------------------------------------------------------------------------------------

    def _arrive(self, job: int) -> bool:
        patience_s = self._patience_of(job)
        work_s = self._left_work_s(job)
        self._demand.arrived(self._function[job], work_s, patience_s, self._now_s, self._project[job])
        heapq.heappush(self._agenda, (self._now_s + self._patience_s[job], GIVE_UP, job, 0))
        self._queue.add(job)
        return True

    def _patience_of(self, job: int) -> float:
        return self._settings.online_patience_s or self._left_work_s(job)

    def _movable(self, job: int) -> bool:
        """Return whether a job may be moved; at most half of its attempts may be moves."""
        return self._attempts[job] <= self._settings.max_attempts // 2

    # Planning -----------------------------------------------------------------------------------------------------

    def _run_cycle(self) -> bool:
        """Run one planning cycle and apply its decisions; return whether anything has changed."""
        now_s, ahead, view = self._now_s, self._ahead, self.picture
        on_cpu = [worker for _, worker in sorted(self._busy.items()) if self._movable(worker.job)]
        may_load = self._settings.load_ahead and self._demand.arrivals > 0
        for_loads = may_load and now_s >= ahead.rests_until_s
        self._note_slots()
        asked = bool(self._queue.pending or on_cpu)
        if not asked and (not for_loads or not any(groups[EMPTY] for groups in view.idle)):
            if for_loads:
                ahead.rests_until_s = now_s + REST_S
            return False
        returning = {asks.job: asks for asks in self._returning(on_cpu)}
        self._queue.show(
            now_s, lambda job: self._arrival_s[job] + self._patience_of(job), returning.values(), self._limit_now()
        )
        view.preloads = may_load
        if for_loads and not ahead.loading:
            ahead.rests_until_s = now_s + REST_S
        taken = take(
            view,
            lambda view: self._policy.decide(view, None, now_s, self._rng),
            now_s=now_s,
            work_s=lambda job: returning[job].work_s if job in returning else self._left_work_s(job),
            on_cpu=lambda job: job in returning,
            loading={slot: self._requested_at(slot, may_load=may_load) for slot in sorted(ahead.loading)},
        )
        moves = self._do(taken)
        if moves and self._watch is not None:
            self._watch(Decision(now_s, tuple(sorted(moves))))
        return bool(moves)

    def _note_slots(self) -> None:
        """Apply the changes of slots to the picture."""
        now_s, view, pauses = self._now_s, self.picture, self._ahead.pauses
        while pauses and pauses[0][0] <= now_s:
            self._changed.add(heapq.heappop(pauses)[1])
        for slot in self._changed:
            known = self._slot_now(slot)
            view.note(slot, known)
            (self._ahead.loading.add if known is not None and known.loading else self._ahead.loading.discard)(slot)
            if known is not None and known.put_off:
                requested = self._ahead.requested[slot]
                heapq.heappush(pauses, (requested.at + requested.pause_s - _EARLY_S, slot))
        self._changed.clear()

    def _slot_now(self, number: int) -> SlotNow | None:
        slot, job = self._slots[number], self._job[number]
        if not slot.serves:
            return None
        if job >= 0:
            return SlotNow(slot.function, end_s=slot.expected_s, movable=self._movable(job))
        if slot.promised >= 0:
            return SlotNow(slot.function, needs_port=True, end_s=slot.expected_s)
        if slot.loading:
            return SlotNow(slot.function, loading=True, needs_port=True)
        if slot.function != EMPTY:
            return SlotNow(slot.function, loaded_s=slot.loaded_s)
        requested = self._requested(number)
        return SlotNow(EMPTY, put_off=True) if requested and self._now_s - requested.at < requested.pause_s else UNUSED

    def _requested(self, slot: int) -> RequestedLoad | None:
        """Return the last requested preload of a slot, as long as it is remembered."""
        requested = self._ahead.requested.get(slot)
        return requested if requested is not None and requested.is_remembered(self._now_s) else None

    def _requested_at(self, slot: int, *, may_load: bool) -> float:
        """Return when the load on a slot was requested; now if it is not a known preload."""
        requested = self._requested(slot) if may_load else None
        same = requested is not None and requested.function == self._pool.functions[self._slots[slot].function]
        return requested.at if requested is not None and same else self._now_s

    def _returning(self, on_cpu: Sequence[CpuWorker]) -> list[Returning]:
        """Return the jobs on CPU workers that would be complete earlier on a slot."""
        now_s, returning = self._now_s, []
        slowest_load_s = max((self.view.load_s[kind] for kind in self.view.kinds if self._serving[kind]), default=0.0)
        for worker in on_cpu:
            left_s = worker.began_s + worker.lasts_s - now_s
            if left_s <= slowest_load_s:
                continue
            work_s = self._left_work_s(worker.job)
            if self.view.progress_kept[self._function[worker.job]]:
                work_s *= min(left_s / worker.lasts_s, 1.0)
            if left_s > work_s + slowest_load_s:
                returning.append(Returning(job=worker.job, work_s=work_s, give_up_s=now_s + left_s - work_s))
        return returning

    def _limit_now(self) -> Callable[[int], bool] | None:
        """Return a filter of the jobs that may wait, by the slots that each project holds now; None = no limit."""
        if self._settings.tenant_share >= 1:
            return None
        limit = TenantLimit(sum(self._serving), self._settings.tenant_share)
        for job, slot in zip(self._job, self._slots, strict=True):
            if (holder := job if job >= 0 else slot.promised) >= 0:
                limit.lets_in(-1, self._project[holder])
        return lambda job: limit.lets_in(job, self._project[job])

    def _do(self, taken: Taken) -> list[tuple[str, int, int]]:
        """Apply the decisions; return them as moves."""
        self._changed |= taken.touched
        moves, left = [], []
        for slot in taken.evicted:
            kept = self.view.progress_kept[self._function[self._job[slot]]]
            job = self._leave(slot, keep=kept)
            if not kept:
                self._done[job] = 0.0
            left.append(job)
            moves.append(("evict", job, slot))
        for place in taken.places:
            self._place(place.job, place.slot, place.load_s)
            moves.append(("load" if place.load_s else "start", place.job, place.slot))
        for job in self._queue.late(len(self._free_workers)):
            self._queue.discard(job)
            self._attempts[job] += 1
            if not self._done[job]:
                self.record.begin_s[job] = self._now_s
            moves.append(("cpu", job, self._to_worker(job)))
        for job in taken.called_back:
            left.append(self._call_back(job))
            moves.append(("call back", job, -1))
        for slot in taken.loads:
            function = self.view.holds[slot]
            self._tell(slot, function)
            self._begin_load(slot, function)
            moves.append(("ahead", function, slot))
        if taken.loads:
            self._ahead.rests_until_s = 0.0
        for job in left:
            self._wait_again(job)
        return moves

    def _place(self, job: int, slot: int, load_s: float) -> None:
        known, work_s = self._slots[slot], self._left_work_s(job)
        self._queue.discard(job)
        self._attempts[job] += 1
        end_s = load_s + work_s
        known.planned_s, known.expected_s = end_s - load_s, self._now_s + end_s
        if known.function == self._function[job] and not known.loading:
            self._run(slot, job)
            return
        known.promised = job
        if not known.loading:
            self._begin_load(slot, self._function[job])

    def _tell(self, slot: int, function: int) -> None:
        known, functions = self._slots[slot], self._pool.functions
        requested = RequestedLoad(
            function=functions[function],
            replaces="" if known.function == EMPTY else functions[known.function],
            at=self._now_s,
            reconfigurations=known.loads,
        )
        self._ahead.requested[slot] = requested.after(self._requested(slot))


# ---- A run over a trace of up to millions of jobs, by the paper's model (`shell`) or the rules above


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a simulation of a trace."""

    #: Mean over the horizon of the sum of the speedups of the jobs on slots (equation 1).
    mean_benefit_vcpus: float
    horizon_s: float
    reconfigurations: int
    jobs_on_fpga: int
    jobs_on_cpu: int
    record: Record


def simulate(
    pool: OnlinePool,
    trace: Trace,
    policy: OnlinePolicy,
    *,
    horizon_s: float | None = None,
    interval_s: float = 0.1,
    seed: int = 0,
    keep_stretches: bool = True,
    tenant_share: float = 1.0,
    learn: bool = True,
    preloads: bool = True,
    rules: PoolRules | None = None,
) -> Outcome:
    """Simulate a policy on a trace: by the paper's model or, with `rules`, by the rules of a live pool.

    Benefit counts up to `horizon_s`, by default the last arrival.  A project holds at most `tenant_share` of all slots
    at a time.  The policy knows the catalogue and, with `learn`, the actual speedups of ended jobs.  Without `preloads`
    functions are loaded only for waiting jobs.  With `rules`, their settings determine `tenant_share` and `preloads`;
    raises ValueError if these are given, too.
    """
    horizon_s = trace.last_arrival_s if horizon_s is None else horizon_s
    run = Run(pool, trace, policy, horizon_s, np.random.default_rng(seed), keep_stretches, learn)
    if rules is None:
        shell = Shell(run, TenantLimit(pool.slots, tenant_share) if tenant_share < 1 else None)
        shell.view.preloads = preloads
    elif tenant_share < 1 or not preloads:
        raise ValueError("tenant_share, preloads: with rules, their settings say so")
    else:
        shell = LiveShell(run, rules)
    with _no_collector():
        shell.run(interval_s)
    where = shell.record.where
    return Outcome(
        mean_benefit_vcpus=shell.benefit / horizon_s if horizon_s > 0 else 0.0,
        horizon_s=horizon_s,
        reconfigurations=shell.record.reconfigurations,
        jobs_on_fpga=int(((where == FPGA) | (where == BOTH)).sum()),
        jobs_on_cpu=int((where == CPU).sum()),
        record=shell.record,
    )


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Disable the garbage collector: there are no reference cycles, and scanning a million jobs takes tens of ms."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
