"""The paper's model of a pool, which carries out the decisions of an online policy.

Loads of a card use its configuration port one after the other. The DMA of a card is shared max-min fairly. Jobs whose
patience ends, and the rest of evicted jobs, run on a separate CPU each.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.benefit.plus import TenantLimit
from fpga_pool.core.benefit.pool import Load, OnlinePool, Start, fair_rates
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.sim.benefit.trace import BOTH, CPU, FPGA, Record, Trace

#: Kinds of entries of the agenda.
END, LOADED, GIVE_UP, INTERVAL, CPU_END = range(5)
#: Remaining seconds of work below which a job is done, because of rounding.
_NOTHING_S = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Parameters of a run; benefit counts up to `horizon_s`; with `learn` the policy learns speedups of ended jobs."""

    pool: OnlinePool
    trace: Trace
    policy: OnlinePolicy
    horizon_s: float
    rng: np.random.Generator
    keep_stretches: bool
    learn: bool


class Shell:
    """Keeps the clock, and carries out the decisions of the policy."""

    def __init__(self, run: Run, limit: TenantLimit | None = None, view: Occupancy | None = None) -> None:
        pool, trace = run.pool, run.trace
        self._policy, self._horizon_s, self._rng = run.policy, run.horizon_s, run.rng
        self.view = view or Occupancy(pool)
        self._limit = limit
        # Without actual speedups in the trace, those of the catalogue are exact.
        self._learns = run.learn and trace.speedup is not None
        #: By job: its speedup on a slot; 1 for jobs that fit into no slot.
        gains = np.append(pool.speedup, 1.0)[trace.function] if trace.speedup is None else trace.speedup
        self._speedup: list[float] = gains.tolist()
        self._project = trace.project
        self._function: list[int] = trace.function.tolist()
        self._arrival_s: list[float] = trace.arrival_s.tolist()
        self._work_s: list[float] = trace.work_s.tolist()
        self._patience_s: list[float] = trace.patience_s.tolist()
        self.record = Record(len(trace.jobs), run.keep_stretches)
        #: Benefit up to the horizon, in vCPU-seconds.
        self.benefit = 0.0
        self._now_s = 0.0
        self._agenda: list[tuple[float, int, int, int]] = []
        # By slot: remaining work, rate, time of the last change, and number of ends put on the agenda.
        slots = pool.slots
        self._left_s, self._rate, self._since_s = [0.0] * slots, [0.0] * slots, [0.0] * slots
        self._version = [0] * slots
        #: By slot: its running job, -1 = none.
        self._job = self.view.job
        self._running: list[list[int]] = [[] for _ in range(len(pool.dma_bps))]
        self._unfinished = len(trace.jobs)
        self._longest_load_s = max(self.view.load_s)

    def run(self, interval_s: float) -> None:
        """Run until every job has ended or been sent to a CPU."""
        arrivals_s, agenda = self._arrival_s, self._agenda
        arriving, jobs = 0, len(arrivals_s)
        # Preloads begin at time 0; jobs that arrive at time 0 are known by then.
        begin_s = 0.0 if jobs and arrivals_s[0] > 0 else interval_s
        heapq.heappush(agenda, (begin_s, INTERVAL, 0, 0))
        while self._unfinished:
            # Ends are processed before arrivals of the same instant.
            if arriving < jobs and arrivals_s[arriving] < agenda[0][0]:
                self._now_s = arrivals_s[arriving]
                changed = self._arrive(arriving)
                arriving += 1
            else:
                self._now_s, what, which, version = heapq.heappop(agenda)
                changed = self._happens(what, which, version)
                if what == INTERVAL:
                    heapq.heappush(agenda, (self._now_s + interval_s, INTERVAL, 0, 0))
            if changed:
                self._decide()

    def _happens(self, what: int, which: int, version: int) -> bool:
        """Process an entry of the agenda; return whether there may be something to decide."""
        if what == END:
            return version == self._version[which] and self._end(which)
        if what == LOADED:
            self.view.loaded(which, self._now_s)
            return True
        if what == GIVE_UP:
            return self._give_up(which, bool(version))
        if what == CPU_END:
            self._learn(which)
            return False
        self.view.news = None, None
        return True

    def _decide(self) -> None:
        view, policy, rng = self.view, self._policy, self._rng
        while (move := policy.decide(view, None, self._now_s, rng)) is not None:
            if isinstance(move, Start):
                self._start(move.slot, next(iter(view.waiting[move.function])))
            else:
                self._load(move)

    # Jobs ---------------------------------------------------------------------------------------------------------

    def _arrive(self, job: int) -> bool:
        function = self._function[job]
        if function < 0:
            self._to_cpu(job, self._work_s[job])
            return False
        heapq.heappush(self._agenda, (self._now_s + self._patience_s[job], GIVE_UP, job, 0))
        if self._limit is not None and not self._limit.lets_in(job, self._project[job]):
            return False
        self._wait(job)
        return True

    def _wait(self, job: int) -> None:
        give_up_s = self._arrival_s[job] + self._patience_s[job]
        project = self._project[job]
        self.view.arrived(job, self._function[job], self._work_s[job], give_up_s, self._now_s, project)

    def _give_up(self, job: int, last: bool) -> bool:
        """Send a waiting job to its CPU, unless a slot is loading for it; jobs of a function are served in order."""
        function = self._function[job]
        waiting = self.view.waiting[function]
        if job not in waiting:
            if self._limit is not None and self._limit.gives_up(job, self._project[job]):
                self._to_cpu(job, self._work_s[job])
            return False
        if not last and job in islice(waiting, self.view.loading[function]):
            heapq.heappush(self._agenda, (self._now_s + self._longest_load_s, GIVE_UP, job, 1))
            return False
        self.view.left(job, function)
        self._to_cpu(job, self._work_s[job])
        return self._let_in_next(job)

    def _let_in_next(self, job: int) -> bool:
        """Admit the next job of the project of `job`, which has left, if the project was at its limit."""
        if self._limit is None or (following := self._limit.left(self._project[job])) is None:
            return False
        news = self.view.news
        self._wait(following)
        if news != (None, None) and news[1] is not None:
            self.view.news = None, None  # a slot became idle, too
        return True

    def _start(self, slot: int, job: int) -> None:
        function = self._function[job]
        self.view.left(job, function)
        self._left_s[slot], self._rate[slot], self._since_s[slot] = self._work_s[job], -1.0, self._now_s
        self.record.begin_s[job] = self._now_s
        self.view.started(slot, job, self._now_s + self._work_s[job])
        self._running[self.view.card[slot]].append(slot)
        self._share(self.view.card[slot])

    def _end(self, slot: int) -> bool:
        job = self._job[slot]
        self._note(slot)
        self._finish(job, FPGA)
        self._stop(slot)
        self._learn(job)
        self._let_in_next(job)
        return True

    def _finish(self, job: int, where: int) -> None:
        """Record that a job has ended now, and where it ran."""
        self.record.end_s[job], self.record.where[job] = self._now_s, where
        self._unfinished -= 1

    def _learn(self, job: int) -> None:
        """Update the estimates with the actual speedup of an ended job, even if it did not run on a slot."""
        if self._learns:
            self.view.demand.ran(self._function[job], self._speedup[job], self._project[job])

    def _stop(self, slot: int) -> None:
        self._version[slot] += 1
        self.view.stopped(slot)
        self._running[self.view.card[slot]].remove(slot)
        self._share(self.view.card[slot])

    def _to_cpu(self, job: int, left_s: float, where: int = CPU) -> None:
        """Run the remaining work of a job on one vCPU."""
        if where == CPU:
            self.record.begin_s[job] = self._now_s
        end_s = self._now_s + left_s * self._speedup[job]
        self.record.end_s[job], self.record.where[job] = end_s, where
        self._unfinished -= 1
        if self._learns and self._function[job] >= 0:
            heapq.heappush(self._agenda, (end_s, CPU_END, job, 0))

    # Slots --------------------------------------------------------------------------------------------------------

    def _load(self, move: Load) -> None:
        view, slot = self.view, move.slot
        if view.job[slot] >= 0:
            self._evict(slot)
        end_s = self._now_s + view.load_s[view.kind[slot]]
        view.loads(slot, move.function)
        self.record.load(slot, move.function, self._now_s, end_s)
        heapq.heappush(self._agenda, (end_s, LOADED, slot, 0))

    def _evict(self, slot: int) -> None:
        """Evict the job on a slot; its rest, or all of it if progress is not kept, runs on its CPU."""
        job = self.view.job[slot]
        self._note(slot)
        work_s, left_s = self._work_s[job], self._left_s[slot]
        if not self.view.progress_kept[self._function[job]]:
            lost_s = work_s - left_s
            self.benefit -= lost_s * self._speedup[job] if self._now_s <= self._horizon_s else 0.0
            self.record.lose(job, slot, self.record.begin_s[job])
            left_s = work_s
        self._to_cpu(job, left_s, BOTH if left_s < work_s else CPU)
        self._stop(slot)
        self._let_in_next(job)

    def _share(self, card: int) -> None:
        """Redistribute the card's DMA bandwidth among its running jobs."""
        running = self._running[card]
        for slot, rate in zip(running, self._rates(card, running), strict=True):
            if rate != self._rate[slot]:
                self._note(slot)
                self._rate[slot] = rate
                self._version[slot] += 1
                end_s = self._now_s + self._left_s[slot] / rate
                self._expect(slot, end_s)
                heapq.heappush(self._agenda, (end_s, END, slot, self._version[slot]))

    def _rates(self, card: int, running: Sequence[int]) -> Sequence[float]:
        """Return the rates of the jobs on these slots of a card; 1 = full speed."""
        view = self.view
        if view.asked_bps[card] <= view.dma_bps[card]:
            return [1.0] * len(running)
        return fair_rates([view.io_bps[view.kind[slot]][view.holds[slot]] for slot in running], view.dma_bps[card])

    def _expect(self, slot: int, end_s: float) -> None:
        """Notify the policy of a changed end of the job on a slot."""
        self.view.delayed(slot, end_s)

    def _note(self, slot: int) -> None:
        """Account for the work of a slot since its rate last changed."""
        since_s, rate, now_s = self._since_s[slot], self._rate[slot], self._now_s
        self._since_s[slot] = now_s
        if rate <= 0 or now_s <= since_s:
            return
        job = self._job[slot]
        done_s = (now_s - since_s) * rate
        self._left_s[slot] = left_s if (left_s := self._left_s[slot] - done_s) > _NOTHING_S else 0.0
        counted_s = max(0.0, min(now_s, self._horizon_s) - since_s)
        self.benefit += counted_s * rate * self._speedup[job]
        self.record.stretch(job, slot, since_s, now_s, rate)
