"""The jobs that an agent holds, and what every change of them is made of."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fpga_pool.dataplane.handler import JobFailure, JobResult
from fpga_pool.model.messages import Report
from fpga_pool.services.agent.holds import HoldTable
from fpga_pool.services.agent.job_files import JobFiles
from fpga_pool.services.agent.journal import HeldJob, Journal, Phase
from fpga_pool.services.clock import Clock

End = JobResult | JobFailure


class HeldJobs:
    """All jobs of one agent, under one lock; each slot waits on a condition of its own for work.

    Every change is in the journal, with the reports that tell of it, before anyone sees it.
    """

    def __init__(self, journal: Journal, state_dir: Path, clock: Clock) -> None:
        self._journal = journal
        self.files = JobFiles(journal, state_dir)
        self._clock = clock
        self._jobs: dict[str, HeldJob] = {}
        #: Jobs by slot, and how an idle slot is woken; the conditions share the lock of `changed`.
        self._of_slot: defaultdict[str, dict[str, HeldJob]] = defaultdict(dict)
        self._wakeups: dict[str, threading.Condition] = {}
        self._waiters: dict[str, list[Future[End]]] = {}
        self._lock = threading.RLock()
        #: Notified when a job is announced.
        self.changed = threading.Condition(self._lock)
        #: Slots that are kept for instances, and take no jobs meanwhile.
        self.holds = HoldTable(journal, self._lock)
        #: Called after every change that made a report.
        self.on_report: Callable[[], object] = lambda: None

    def get(self, uuid: str) -> HeldJob | None:
        """Return a job, if it is held."""
        with self.changed:
            return self._jobs.get(uuid)

    def all(self) -> list[HeldJob]:
        """Return all jobs held."""
        with self.changed:
            return list(self._jobs.values())

    @contextmanager
    def together(self, *, durable: bool = True) -> Iterator[None]:
        """Make one change of all that is done inside: both in the journal and here, or nowhere; see `Journal`."""
        with self.changed:
            before, holds_before = dict(self._jobs), self.holds.all()
            try:
                with self._journal.together(durable=durable):
                    yield
            except BaseException:
                self._reset(before)
                self.holds.reset(holds_before)
                raise

    def _reset(self, jobs: Mapping[str, HeldJob]) -> None:
        for uuid in self._jobs.keys() - jobs.keys():
            self._drop(uuid)
        for job in jobs.values():
            if self._jobs.get(job.uuid) != job:
                self._put(job)

    def wakeup(self, slot: str) -> threading.Condition:
        """Return what is notified when a slot may have something to do."""
        with self.changed:
            return self._wakeups.setdefault(slot, threading.Condition(self._lock))

    def end_of(self, uuid: str) -> "Future[End]":
        """Return a future of the job's end; resolved at once if it has ended."""
        future: Future[End] = Future()
        with self.changed:
            job = self._jobs.get(uuid)
            if job is None or job.phase is Phase.FAILED:
                future.set_result(JobFailure("fpga_pool.released", "the job is not held by this host"))
            elif job.phase is Phase.HELD:
                future.set_result(
                    JobResult(
                        self.files.result_path(uuid),
                        job.result_bytes or 0,
                        job.result_sha256,
                        self._journal.result(uuid),
                        job.assignment.result_transfer,
                        job.finished_at or 0.0,
                    )
                )
            else:
                self._waiters.setdefault(uuid, []).append(future)
        return future

    def _change(self, job: HeldJob | None, *reports: Report, forget: str | None = None, durable: bool = True) -> None:
        self._journal.note(keep=job, forget=forget, reports=reports, durable=durable)
        if job is not None:
            self._put(job)
        self._tell(reports)

    def _put(self, job: HeldJob) -> None:
        self._drop(job.uuid)
        self._jobs[job.uuid] = self._of_slot[job.slot][job.uuid] = job
        if job.phase in (Phase.WAITING, Phase.STAGED):
            self.wakeup(job.slot).notify()

    def _drop(self, uuid: str) -> HeldJob | None:
        job = self._jobs.pop(uuid, None)
        if job is not None:
            del self._of_slot[job.slot][uuid]
        return job

    def _tell(self, reports: Sequence[Report]) -> None:
        if reports:
            self.on_report()

    def _settle(self, uuid: str, end: End) -> None:
        for future in self._waiters.pop(uuid, []):
            if future.set_running_or_notify_cancel():
                future.set_result(end)

    def _about(self, job: HeldJob) -> dict[str, Any]:
        return {"job": job.uuid, "attempt": job.assignment.attempt, "at": self._clock()}
