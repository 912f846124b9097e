"""Reference for `test_online`: an online policy over a trace, faults included, as a live pool runs it.

The paper's model (`simulator`) has no faults, and jobs that go to their CPU stay there.  A live pool gives a slot to a
job while its function still loads, so that the input moves meanwhile; its CPU workers are limited, and their jobs come
back to slots where that pays; jobs that were taken off a slot, or whose slot failed, ask for another one first; and
nothing tells it how jobs that share a card's DMA slow each other.  Looks are those of `core.benefit.look`, which the
live pool takes as well.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from fpga_pool.core.benefit.look import SlotNow, Taken, picture, take
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.plus import TenantLimit
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.model.rules.online.family import REST_S
from fpga_pool.model.rules.online.view import RequestedLoad
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.benefit.simulator import CPU_END, END, GIVE_UP, INTERVAL, LOADED
from fpga_pool.sim.benefit.trace import Record, Trace

from .online_faults import Fault, timeline
from .online_places import CpuWorker, LivePlaces

#: What an entry of the agenda says, beside what `simulator` puts there.
ARRIVAL, FAULT = 5, 6


@dataclass(frozen=True, slots=True)
class Decision:
    """What one look has decided: each entry is (what, job or slot, slot, worker or function)."""

    at_s: float
    moves: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """What came of a trace in a live pool."""

    #: See `simulator.Outcome`.
    mean_benefit_vcpus: float
    record: Record
    #: Each look that changed something.
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A job that wants a slot."""

    job: int
    work_s: float
    give_up_s: float


@dataclass(slots=True)
class _Ahead:
    """What is known of loads ahead of jobs."""

    told: dict[int, RequestedLoad] = field(default_factory=dict)
    #: Until then no look is taken for loads ahead alone.
    rests_until_s: float = 0.0


class LiveShell(LivePlaces):
    """Keeps the clock, looks and decides."""

    def __init__(
        self,
        pool: OnlinePool,
        trace: Trace,
        policy: OnlinePolicy,
        *,
        horizon_s: float,
        seed: int,
        keep_stretches: bool,
        settings: PoolSettings,
        cpu_workers: int,
        faults: Sequence[Fault],
    ) -> None:
        super().__init__(
            *(pool, trace, policy, horizon_s, seed, keep_stretches), settings=settings, cpu_workers=cpu_workers
        )
        self._pool, self._demand = pool, self.view.demand
        self._ahead = _Ahead()
        self._faults = timeline(faults)
        #: What was decided at each look that changed something.
        self.decisions: list[Decision] = []

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
                changed = self._look()

    def _happens(self, what: int, which: int, version: int) -> bool:
        if what == END:
            return version == self._version[which] and self._end(which)
        if what == LOADED:
            return version == self._slots[which].version and self._loaded(which)
        if what == GIVE_UP:
            return which in self._pending
        if what == CPU_END:
            return version == self._workers[which].version and self._end_on_cpu(which)
        if what == ARRIVAL:
            return self._arrive(which)
        if what == FAULT:
            return self._befall(self._faults[which][1])
        heapq.heappush(self._agenda, (self._now_s + self._interval_s, INTERVAL, 0, 0))
        return True

    # Jobs ---------------------------------------------------------------------------------------------------------

    def _arrive(self, job: int) -> bool:
        patience_s = self._patience_of(job)
        work_s = self._left_work_s(job)
        self._demand.arrived(self._function[job], work_s, patience_s, self._now_s, self._project[job])
        heapq.heappush(self._agenda, (self._now_s + self._patience_s[job], GIVE_UP, job, 0))
        self._pending.add(job)
        return True

    def _patience_of(self, job: int) -> float:
        return self._settings.online_patience_s or self._left_work_s(job)

    def _movable(self, job: int) -> bool:
        """Say whether a job may be moved: of its attempts half may be moves."""
        return self._attempts[job] <= self._settings.max_attempts // 2

    # Looks --------------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Look at the pool, decide and do it; return whether something has changed."""
        now_s, ahead = self._now_s, self._ahead
        ahead.told = {slot: told for slot, told in ahead.told.items() if told.is_remembered(now_s)}
        on_cpu = [worker for worker in self._workers if worker.job >= 0 and self._movable(worker.job)]
        may_load = self._settings.load_ahead and self._demand.arrivals > 0
        for_loads = may_load and now_s >= ahead.rests_until_s
        serving = [slot for slot in self._slots if slot.serves]
        asked = bool(self._pending or on_cpu)
        if not asked and (not for_loads or all(slot.function != EMPTY for slot in serving)):
            if for_loads:
                ahead.rests_until_s = now_s + REST_S
            return False
        loading: dict[int, float] = {}
        known = [self._slot_now(number, loading, may_load) for number in range(len(self._slots))]
        view = picture(self._pool, self._demand, known, now_s)
        view.preloads = may_load
        asking = self._asking(on_cpu)
        self._admit(view, asking, len(serving))
        if for_loads and not loading:
            ahead.rests_until_s = now_s + REST_S
        pending = self._pending
        taken = take(
            view,
            lambda view: self._policy.decide(view, None, now_s, self._rng),
            now_s=now_s,
            work_s=lambda number: asking[number].work_s,
            on_cpu=lambda number: asking[number].job not in pending,
            loading=loading,
        )
        moves = self._do(view, asking, taken)
        if moves:
            self.decisions.append(Decision(now_s, tuple(sorted(moves))))
        return bool(moves)

    def _slot_now(self, number: int, loading: dict[int, float], may_load: bool) -> SlotNow | None:
        slot, job = self._slots[number], self._job[number]
        if not slot.serves:
            return None
        if job >= 0:
            return SlotNow(slot.function, end_s=slot.expected_s, movable=self._movable(job))
        if slot.promised >= 0:
            return SlotNow(slot.function, needs_port=True, end_s=slot.expected_s)
        told = self._ahead.told.get(number) if may_load else None
        if slot.loading:
            same = told is not None and told.function == self._pool.functions[slot.function]
            loading[number] = told.at if told and same else self._now_s
            return SlotNow(slot.function, loading=True, needs_port=True)
        if slot.function != EMPTY:
            return SlotNow(slot.function, loaded_s=slot.loaded_s)
        return SlotNow(EMPTY, put_off=told is not None and self._now_s - told.at < told.pause_s)

    def _asking(self, on_cpu: Sequence[CpuWorker]) -> list[Asking]:
        """Return jobs that want a slot: those without a place, oldest first, then those that a CPU computes."""
        now_s, asking = self._now_s, []
        for job in sorted(self._pending):
            give_up_s = now_s if self._attempts[job] else self._arrival_s[job] + self._patience_of(job)
            asking.append(Asking(job=job, work_s=self._left_work_s(job), give_up_s=give_up_s))
        loads_s = (
            self.view.load_s[kind] for kind, slot in zip(self.view.kind, self._slots, strict=True) if slot.serves
        )
        slowest_load_s = max(loads_s, default=0.0)
        for worker in on_cpu:
            left_s = worker.began_s + worker.lasts_s - now_s
            work_s = self._left_work_s(worker.job)
            if self.view.progress_kept[self._function[worker.job]]:
                work_s *= min(max(left_s, 0.0) / worker.lasts_s, 1.0)
            if left_s > work_s + slowest_load_s:
                asking.append(Asking(job=worker.job, work_s=work_s, give_up_s=now_s + left_s - work_s))
        return asking

    def _admit(self, view: Occupancy, asking: Sequence[Asking], serving: int) -> None:
        """Let jobs wait, of each project as many as it may have slots."""
        limit = TenantLimit(serving, self._settings.tenant_share) if self._settings.tenant_share < 1 else None
        if limit is not None:
            for job in self._job:
                if job >= 0:
                    limit.lets_in(-1, self._project[job])
            for slot in self._slots:
                if slot.promised >= 0:
                    limit.lets_in(-1, self._project[slot.promised])
        for number, asks in enumerate(asking):
            if limit is None or limit.lets_in(number, self._project[asks.job]):
                view.waits(number, self._function[asks.job], asks.give_up_s)
        view.news = None, None

    def _do(self, view: Occupancy, asking: Sequence[Asking], taken: Taken) -> list[tuple[str, int, int]]:
        """Do what was decided; return it."""
        moves = []
        free = [number for number, worker in enumerate(self._workers) if worker.job < 0]
        left = []
        for slot in taken.evicted:
            kept = self.view.progress_kept[self._function[self._job[slot]]]
            job = self._leave(slot, keep=kept)
            if not kept:
                self._done[job] = 0.0
            left.append(job)
            moves.append(("evict", job, slot))
        for number in taken.called_back:
            left.append(self._call_back(asking[number].job))
            moves.append(("call back", left[-1], -1))
        got = {*taken.called_back}
        for place in taken.places:
            got.add(place.job)
            asks = asking[place.job]
            self._place(asks, place.slot, place.load_s)
            moves.append(("load" if place.load_s else "start", asks.job, place.slot))
        for number, asks in enumerate(asking):
            late = asks.give_up_s <= self._now_s and asks.job in self._pending
            if number not in got and late and free:
                self._pending.discard(asks.job)
                self._attempts[asks.job] += 1
                if not self._done[asks.job]:
                    self.record.begin_s[asks.job] = self._now_s
                moves.append(("cpu", asks.job, free[0]))
                self._to_worker(asks.job, free.pop(0))
        for slot in taken.loads:
            function = view.holds[slot]
            self._tell(slot, function)
            self._begin_load(slot, function)
            moves.append(("ahead", function, slot))
        if taken.loads:
            self._ahead.rests_until_s = 0.0
        for job in left:
            self._wait_again(job)
        return moves

    def _place(self, asks: Asking, slot: int, load_s: float) -> None:
        known, job = self._slots[slot], asks.job
        self._pending.discard(job)
        self._attempts[job] += 1
        end_s = load_s + asks.work_s
        known.planned_s, known.expected_s = end_s - load_s, self._now_s + end_s
        if known.function == self._function[job] and not known.loading:
            self._run(slot, job)
            return
        known.promised = job
        if not known.loading:
            self._begin_load(slot, self._function[job])

    def _tell(self, slot: int, function: int) -> None:
        known, functions = self._slots[slot], self._pool.functions
        told = RequestedLoad(
            function=functions[function],
            replaces="" if known.function == EMPTY else functions[known.function],
            at=self._now_s,
            reconfigurations=known.loads,
        )
        self._ahead.told[slot] = told.after(self._ahead.told.get(slot))


def simulate_live(
    pool: OnlinePool,
    trace: Trace,
    policy: OnlinePolicy,
    *,
    settings: PoolSettings | None = None,
    cpu_workers: int = 0,
    faults: Sequence[Fault] = (),
    horizon_s: float | None = None,
    interval_s: float = 0.5,
    seed: int = 0,
    keep_stretches: bool = True,
) -> LiveOutcome:
    """Return what a live pool with so many CPU workers makes of a trace; faults of one slot must not overlap.

    Benefit counts up to `horizon_s`, by default the last arrival.  Every function of the trace fits into some slot.
    """
    horizon_s = trace.last_arrival_s if horizon_s is None else horizon_s
    shell = LiveShell(
        pool, trace, policy, horizon_s=horizon_s, seed=seed, keep_stretches=keep_stretches,
        settings=settings or PoolSettings(), cpu_workers=cpu_workers, faults=faults,
    )  # fmt: skip
    shell.run(interval_s)
    return LiveOutcome(
        mean_benefit_vcpus=shell.benefit / horizon_s if horizon_s > 0 else 0.0,
        record=shell.record,
        decisions=tuple(shell.decisions),
    )
