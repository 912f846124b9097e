"""Slots and CPU workers of a simulated live pool, their jobs, and their faults."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fpga_pool.core.benefit.cycle import UNUSED, Picture
from fpga_pool.core.benefit.occupancy import EMPTY, Demand
from fpga_pool.core.benefit.pool import fair_rates
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.benefit.queue import Queue
from fpga_pool.sim.benefit.shell import CPU_END, LOADED, Run, Shell
from fpga_pool.sim.benefit.trace import (
    BOTH,
    CANCELLED,
    CPU,
    FAILED,
    FPGA,
    Cancel,
    Drain,
    End,
    Failure,
    Fault,
    HostLoss,
    Outage,
)


@dataclass(slots=True)
class LiveSlot:
    """The state of a slot, apart from its running job."""

    #: Loaded or loading function.
    function: int = EMPTY
    loading: bool = False
    loaded_s: float = -math.inf
    loads: int = 0
    #: Number of its last load, so that the end of an aborted load is not mistaken for that of a later one.
    version: int = 0
    #: The job for which it loads; -1 = none.
    promised: int = -1
    #: Of its job: planned duration, expected end, begin and actual duration at full speed.
    planned_s: float = 0.0
    expected_s: float = 0.0
    began_s: float = 0.0
    lasts_s: float = 0.0
    #: The function that it held for a job when it failed.
    lost: int = EMPTY
    down: bool = False
    drained: bool = False

    @property
    def serves(self) -> bool:
        """Whether it is in service."""
        return not (self.down or self.drained)


@dataclass(slots=True)
class CpuWorker:
    """A CPU worker."""

    job: int = -1
    began_s: float = 0.0
    lasts_s: float = 0.0
    version: int = 0


class LivePlaces(Shell):
    """The state of slots, CPU workers and the jobs on them."""

    def __init__(self, run: Run, settings: PoolSettings, cpu_workers: int) -> None:
        pool = run.pool
        self.picture = Picture(pool, Demand(pool.speedup.tolist()), [UNUSED] * pool.slots)
        super().__init__(run, view=self.picture)
        self._settings = settings
        self._job = [-1] * pool.slots
        self._slots = [LiveSlot() for _ in range(pool.slots)]
        self._workers = [CpuWorker() for _ in range(cpu_workers)]
        self._free_workers = list(range(cpu_workers))
        #: Busy workers, by number.
        self._busy: dict[int, CpuWorker] = {}
        #: By card: when its configuration port is free.
        self._port_free_s = [0.0] * len(pool.dma_bps)
        #: Slots that have changed since the last planning cycle; and, by kind, the number of slots in service.
        self._changed: set[int] = set()
        self._serving = [self.view.kind.count(kind) for kind in self.view.kinds]
        self._queue = Queue(self.picture, self._function)
        # By job: number of attempts, and the completed share of its work.
        self._attempts, self._done = [0] * len(run.trace.jobs), [0.0] * len(run.trace.jobs)

    # Jobs ---------------------------------------------------------------------------------------------------------

    def _left_work_s(self, job: int) -> float:
        """Return the remaining seconds of a job on a slot; 0 if no slot is in service, so that jobs do not wait."""
        return (1.0 - self._done[job]) * self._work_s[job] if any(self._serving) else 0.0

    def _wait_again(self, job: int) -> None:
        if self._attempts[job] < self._settings.max_attempts:
            self._queue.add_again(job)
            return
        self._finish(job, FAILED)

    def _run(self, slot: int, job: int) -> None:
        """Begin a job on a slot that holds its function."""
        known, card = self._slots[slot], self.view.card[slot]
        known.began_s, known.lasts_s = self._now_s, self._work_s[job] * (1.0 - self._done[job])
        known.expected_s = self._now_s + known.planned_s
        self._changed.add(slot)
        self._job[slot] = job
        self._left_s[slot], self._rate[slot], self._since_s[slot] = known.lasts_s, -1.0, self._now_s
        self.record.begin_s[job] = self._now_s
        self._running[card].append(slot)
        self._share(card)

    def _end(self, slot: int) -> bool:
        job = self._job[slot]
        self._note(slot)
        self._stop(slot)
        self._finish(job, FPGA)
        if not self._done[job]:
            self._learn(job)
        return True

    def _stop(self, slot: int) -> None:
        self._changed.add(slot)
        self._version[slot] += 1
        self._job[slot] = -1
        card = self.view.card[slot]
        self._running[card].remove(slot)
        self._share(card)

    def _leave(self, slot: int, *, keep: bool) -> int:
        """Remove the running job from a slot, with its progress or without; return the job."""
        job, known = self._job[slot], self._slots[slot]
        self._note(slot)
        if keep:
            self._keep_progress(job, known.began_s, known.lasts_s)
        else:
            lost_s = known.lasts_s - self._left_s[slot]
            self.benefit -= lost_s * self._speedup[job] if self._now_s <= self._horizon_s else 0.0
            self.record.lose(job, slot, self.record.begin_s[job])
        self._stop(slot)
        return job

    def _to_worker(self, job: int) -> int:
        """Begin a job on the first free worker; return the number of the worker."""
        number = heapq.heappop(self._free_workers)
        worker = self._busy[number] = self._workers[number]
        worker.job, worker.began_s, worker.version = job, self._now_s, worker.version + 1
        worker.lasts_s = self._work_s[job] * self._speedup[job] * (1.0 - self._done[job])
        heapq.heappush(self._agenda, (self._now_s + worker.lasts_s, CPU_END, number, worker.version))
        return number

    def _end_on_cpu(self, number: int) -> bool:
        job = self._off_worker(number)
        self._finish(job, BOTH if self._done[job] else CPU)
        return True

    def _off_worker(self, number: int) -> int:
        worker = self._busy.pop(number)
        heapq.heappush(self._free_workers, number)
        job, worker.job, worker.version = worker.job, -1, worker.version + 1
        return job

    def _call_back(self, job: int) -> int:
        """Remove a job from its CPU worker, with its progress if its function keeps that; return the job."""
        number, worker = next(entry for entry in self._busy.items() if entry[1].job == job)
        if self.view.progress_kept[self._function[job]]:
            self._keep_progress(job, worker.began_s, worker.lasts_s)
        return self._off_worker(number)

    def _keep_progress(self, job: int, began_s: float, lasts_s: float) -> None:
        share = min((self._now_s - began_s) / lasts_s, 1.0) if lasts_s > 0 else 1.0
        self._done[job] += (1.0 - self._done[job]) * share

    # Slots --------------------------------------------------------------------------------------------------------

    def _begin_load(self, slot: int, function: int) -> None:
        known = self._slots[slot]
        self._changed.add(slot)
        known.function, known.loading = function, True
        known.loads, known.version = known.loads + 1, known.version + 1
        card = self.view.card[slot]
        begin_s = max(self._now_s, self._port_free_s[card])
        self._port_free_s[card] = end_s = begin_s + self.view.load_s[self.view.kind[slot]]
        self.record.load(slot, function, begin_s, end_s)
        heapq.heappush(self._agenda, (end_s, LOADED, slot, known.version))

    def _loaded(self, slot: int) -> bool:
        known = self._slots[slot]
        self._changed.add(slot)
        known.loading, known.loaded_s = False, self._now_s
        if known.promised >= 0:
            job, known.promised = known.promised, -1
            self._run(slot, job)
        return True

    def _withdraw_promise(self, slot: int) -> None:
        known = self._slots[slot]
        if known.promised >= 0:
            self._changed.add(slot)
            job, known.promised = known.promised, -1
            self._done[job] = 0.0
            self._wait_again(job)

    def _rates(self, card: int, running: Sequence[int]) -> Sequence[float]:
        view = self.view
        demands_bps = [view.io_bps[view.kind[slot]][self._slots[slot].function] for slot in running]
        return fair_rates(demands_bps, view.dma_bps[card])

    def _expect(self, slot: int, end_s: float) -> None:
        """Do nothing, as a live pool is not notified of changed rates."""

    def _apply_fault(self, fault: Fault | End) -> bool:
        match fault:
            case Outage(slots=slots) | HostLoss(slots=slots):
                for slot in slots:
                    self._fail(slot)
            case Failure(slot=slot):
                if self._job[slot] < 0:
                    return False
                self._wait_again(self._leave(slot, keep=False))
            case Cancel(job=job):
                return self._cancel(job)
            case Drain(slot=slot):
                self._put_in_service(slot, drained=True)
                self._withdraw_promise(slot)
            case End(of=Outage(slots=slots)):
                for slot in slots:
                    self._put_in_service(slot, down=False)
            case End(of=HostLoss(slots=slots)):
                for slot in slots:
                    self._port_free_s[self.view.card[slot]] = 0.0
                    self._put_in_service(slot, down=False)
                # Its agent resumes from its journal, until it gets commands: it loads the lost functions again.
                for slot in slots:
                    if (lost := self._slots[slot].lost) != EMPTY:
                        self._begin_load(slot, lost)
            case End(of=Drain(slot=slot)):
                self._put_in_service(slot, drained=False)
        return True

    def _cancel(self, job: int) -> bool:
        """Cancel a job, wherever it is; return False if it has not arrived or has ended."""
        if job in self._queue.pending:
            self._queue.discard(job)
        elif job in self._job:
            self._leave(self._job.index(job), keep=False)
        elif (slot := next((n for n, known in enumerate(self._slots) if known.promised == job), None)) is not None:
            self._slots[slot].promised = -1
            self._changed.add(slot)
        elif (number := next((n for n, worker in self._busy.items() if worker.job == job), None)) is not None:
            self._off_worker(number)
        else:
            return False
        self._finish(job, CANCELLED)
        return True

    def _put_in_service(self, slot: int, *, down: bool | None = None, drained: bool | None = None) -> None:
        """Set one of the two conditions that take a slot out of service."""
        known = self._slots[slot]
        before, nobody = known.serves, not any(self._serving)
        known.down = known.down if down is None else down
        known.drained = known.drained if drained is None else drained
        self._changed.add(slot)
        self._serving[self.view.kind[slot]] += known.serves - before
        if nobody == any(self._serving):
            self._queue.wait_differently()

    def _fail(self, slot: int) -> None:
        known = self._slots[slot]
        had_job = self._job[slot] >= 0 or known.promised >= 0
        known.lost = known.function if had_job else EMPTY
        if self._job[slot] >= 0:
            self._wait_again(self._leave(slot, keep=False))
        self._withdraw_promise(slot)
        known.function, known.loading, known.version = EMPTY, False, known.version + 1
        self._put_in_service(slot, down=True)
