"""The jobs an agent holds: in memory for the slots' threads, in the journal for the next start."""

import logging
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from fpga_pool.core.dispatch import Load, QueueEntry, Run, Wait, next_action
from fpga_pool.dataplane.handler import JobFailure, JobResult
from fpga_pool.model.messages import (
    AssignJob,
    Command,
    InputStaged,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    Outcome,
    ReleaseJob,
    Report,
    ResultDelivered,
    ResultExpired,
    SlotChanged,
)
from fpga_pool.services.agent.journal import HeldJob, Journal, Phase
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

End = JobResult | JobFailure


class JobTable:
    """All jobs of one agent, with one lock and one condition on which slots and streams wait for changes.

    Every change is in the journal, with the reports that tell of it, before anyone sees it.
    """

    def __init__(self, journal: Journal, state_dir: Path, clock: Clock) -> None:
        self._journal = journal
        self._inputs = state_dir / "inputs"
        self._results = state_dir / "results"
        self._clock = clock
        self._jobs: dict[str, HeldJob] = {}
        self._waiters: dict[str, list[Future[End]]] = {}
        self.changed = threading.Condition(threading.RLock())
        #: Called after every change that made a report.
        self.on_report = lambda: None

    def restore(self) -> None:
        """Take up what the journal holds after a restart; what was computing starts again, what is lost is told."""
        for directory in (self._inputs, self._results):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.changed:
            for job in self._journal.jobs():
                self._restore(job)
            self._remove_strays()

    def _restore(self, job: HeldJob) -> None:
        if job.phase is Phase.HELD and not self.result_path(job.uuid).exists():
            self._change(None, ResultExpired(**self._about(job)), forget=job.uuid)
        elif job.phase in (Phase.STAGED, Phase.RUNNING) and not self.input_path(job.uuid).exists():
            self._jobs[job.uuid] = job
            self.failed(job, "fpga_pool.input_lost", "its input was lost in a restart", retryable=True)
        else:
            self._jobs[job.uuid] = job.at(Phase.STAGED) if job.phase is Phase.RUNNING else job
            if job.phase is Phase.WAITING and self.input_path(job.uuid).exists():
                # Complete and checked, or it would not have this name; the power went before the journal had it.
                self.staged(job.uuid)

    def _remove_strays(self) -> None:
        strays = [path for path in self._inputs.iterdir() if path.name.removesuffix(".part") not in self._jobs]
        # What was being computed is computed again.
        strays += [path for path in self._results.iterdir() if path.name not in self._jobs]
        for path in strays:
            path.unlink()

    def input_path(self, uuid: str) -> Path:
        """Where a job's complete input is."""
        return self._inputs / uuid

    def result_path(self, uuid: str) -> Path:
        """Where a job's result is."""
        return self._results / uuid

    def sink_path(self, job: HeldJob) -> Path:
        """Where an attempt's result grows; an older attempt may still compute when a newer one begins."""
        return self._results / f"{job.uuid}.{job.assignment.attempt}"

    def get(self, uuid: str) -> HeldJob | None:
        """Return a job, if it is held."""
        with self.changed:
            return self._jobs.get(uuid)

    def all(self) -> list[HeldJob]:
        """Return all jobs held."""
        with self.changed:
            return list(self._jobs.values())

    # Commands ---------------------------------------------------------------------------------------------------

    def execute(self, command: Command) -> Outcome:
        """Execute a command once; a repeat is answered, a late one is refused."""
        with self.changed:
            if self._journal.executed(command):
                return Outcome(command=command.id, outcome="repeated")
            epoch, sequence = self._journal.fence(command.slot)
            if command.fence <= (epoch, sequence):
                reason = (
                    f"{command.slot} has executed command {sequence} of epoch {epoch}: {command.sequence} of epoch"
                    f" {command.epoch} is late, or from a scheduler that was replaced"
                )
                return Outcome(command=command.id, outcome="refused", reason=reason)
            if isinstance(command.action, AssignJob):
                self._assign(command, command.action)
            elif isinstance(command.action, ReleaseJob):
                self._release(command, command.action)
            else:
                reason = f"{type(command.action).__name__} is no command for a slot"
                return Outcome(command=command.id, outcome="refused", reason=reason)
            return Outcome(command=command.id, outcome="accepted")

    def _assign(self, command: Command, assignment: AssignJob) -> None:
        job = HeldJob(slot=command.slot, assignment=assignment)
        reports: list[Report] = []
        if self.input_path(job.uuid).exists():  # kept from an attempt that failed
            job = job.at(Phase.STAGED)
            reports.append(InputStaged(**self._about(job)))
        self._journal.note_command(command, job, None, reports)
        self._jobs[job.uuid] = job
        self._announce(reports)

    def _release(self, command: Command, action: ReleaseJob) -> None:
        job = self._jobs.pop(action.job, None)
        reports = [JobReleased(**self._about(job))] if job is not None else []
        self._journal.note_command(command, None, action.job, reports)
        if job is not None:
            # A running job is stopped by its slot's thread, which also deletes the files when it is done with them.
            if job.phase is not Phase.RUNNING:
                self.delete_files(job.uuid)
            self._settle(job.uuid, JobFailure("fpga_pool.released", "the job was withdrawn from this host"))
        self._announce(reports)

    # What the slots do ------------------------------------------------------------------------------------------

    def next_action(self, slot: str, loaded: str) -> Load | Run | Wait:
        """Decide what an idle slot does next."""
        with self.changed:
            queue = [
                QueueEntry(
                    key=job.uuid,
                    order=job.assignment.order,
                    function=job.assignment.function,
                    staged=job.phase is Phase.STAGED,
                )
                for job in self._jobs.values()
                if job.slot == slot and job.phase in (Phase.WAITING, Phase.STAGED)
            ]
        return next_action(queue, loaded or None)

    def started(self, uuid: str, slot: SlotChanged) -> HeldJob | None:
        """Note that a job computes; None if it was withdrawn meanwhile."""
        with self.changed:
            job = self._jobs.get(uuid)
            if job is None or job.phase is not Phase.STAGED or job.slot != slot.slot:
                return None
            job = job.at(Phase.RUNNING)
            self._change(job, slot, JobStarted(**self._about(job)), durable=False)  # what is lost starts again
            return job

    def finished(self, job: HeldJob, compute_s: float, result: JobResult, slot: SlotChanged) -> None:
        """Note that a job is complete, if it is still wanted."""
        with self.changed:
            if self._jobs.get(job.uuid) != job:
                self.slot_changed(slot)
                return
            held = replace(
                job.at(Phase.HELD),
                result_bytes=result.size_bytes,
                result_sha256=result.sha256,
                finished_at=self._clock(),
            )
            report = JobFinished(
                **self._about(job),
                compute_s=compute_s,
                result_bytes=result.size_bytes,
                result_sha256=result.sha256,
            )
            self.sink_path(job).replace(result.path)
            _sync_directory(self._results)
            self._change(held, report, slot)
            self.input_path(job.uuid).unlink(missing_ok=True)
            self._settle(job.uuid, result)

    def failed(self, job: HeldJob, code: str, message: str, *, retryable: bool) -> None:
        """Note that an attempt failed, unless it is over; the input stays if the job may come back."""
        with self.changed:
            held = self._jobs.get(job.uuid)
            if held is None or held.assignment != job.assignment or held.phase in (Phase.HELD, Phase.FAILED):
                return
            report = JobFailed(**self._about(job), code=code, message=message, retryable=retryable)
            self._change(held.at(Phase.FAILED), report)
            self._settle(job.uuid, JobFailure(code, message))

    def clean_up(self, job: HeldJob) -> None:
        """Remove what a computation left that is not wanted any more."""
        with self.changed:
            self.sink_path(job).unlink(missing_ok=True)
            if job.uuid not in self._jobs:
                self.delete_files(job.uuid)

    def slot_changed(self, report: SlotChanged) -> None:
        """Note a change of a slot that is no job's."""
        with self.changed:
            self._change(None, report, durable=False)  # the next heartbeat tells it too

    # What the streams do ----------------------------------------------------------------------------------------

    def staged(self, uuid: str) -> None:
        """Note that a job's input is complete."""
        with self.changed:
            job = self._jobs.get(uuid)
            if job is not None and job.phase is Phase.WAITING:
                job = job.at(Phase.STAGED)
                self._change(job, InputStaged(**self._about(job)), durable=False)  # the file itself is: see _restore

    def end_of(self, uuid: str) -> "Future[End]":
        """Return a future of the job's end; resolved at once if it has ended."""
        future: Future[End] = Future()
        with self.changed:
            job = self._jobs.get(uuid)
            if job is None or job.phase is Phase.FAILED:
                future.set_result(JobFailure("fpga_pool.released", "the job is not held by this host"))
            elif job.phase is Phase.HELD:
                future.set_result(JobResult(self.result_path(uuid), job.result_bytes or 0, job.result_sha256))
            else:
                self._waiters.setdefault(uuid, []).append(future)
        return future

    def delivered(self, uuid: str) -> None:
        """Note that the client has the result; it is deleted."""
        self._end_retention(uuid, ResultDelivered)

    def expire(self, finished_before: float) -> None:
        """Delete results that were not fetched in time."""
        for job in self.all():
            if job.phase is Phase.HELD and (job.finished_at or 0.0) < finished_before:
                LOG.info("job %s: result expired", job.uuid)
                self._end_retention(job.uuid, ResultExpired)

    def _end_retention(self, uuid: str, report: type[ResultDelivered] | type[ResultExpired]) -> None:
        with self.changed:
            job = self._jobs.get(uuid)
            if job is not None and job.phase is Phase.HELD:
                del self._jobs[uuid]
                # Found again without its file, it is forgotten: see _restore.
                self._change(None, report(**self._about(job)), forget=uuid, durable=False)
                self.delete_files(uuid)

    # ------------------------------------------------------------------------------------------------------------

    def delete_files(self, uuid: str) -> None:
        """Remove what a job left on disk."""
        for path in (self.input_path(uuid), self._inputs / f"{uuid}.part", self.result_path(uuid)):
            path.unlink(missing_ok=True)

    def _change(self, job: HeldJob | None, *reports: Report, forget: str | None = None, durable: bool = True) -> None:
        self._journal.note(keep=job, forget=forget, reports=reports, durable=durable)
        if job is not None:
            self._jobs[job.uuid] = job
        self._announce(reports)

    def _announce(self, reports: Sequence[Report]) -> None:
        self.changed.notify_all()
        if reports:
            self.on_report()

    def _settle(self, uuid: str, end: End) -> None:
        for future in self._waiters.pop(uuid, []):
            if future.set_running_or_notify_cancel():
                future.set_result(end)

    def _about(self, job: HeldJob) -> dict[str, Any]:
        return {"job": job.uuid, "attempt": job.assignment.attempt, "at": self._clock()}


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
