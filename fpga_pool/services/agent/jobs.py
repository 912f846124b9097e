"""The jobs an agent holds: in memory for the slots' threads, in the journal for the next start."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fpga_pool.core.dispatch import Load, QueueEntry, Run, Wait, next_action
from fpga_pool.dataplane.handler import JobFailure, JobResult
from fpga_pool.model.messages import (
    AssignJob,
    Command,
    EvictJob,
    FreeSlot,
    HoldSlot,
    InputStaged,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    LoadFunction,
    ObservedJob,
    Outcome,
    ReleaseJob,
    Report,
    ResultDelivered,
    ResultExpired,
    RetimeJob,
    SlotChanged,
)
from fpga_pool.model.objects import SlotState
from fpga_pool.model.progress import told_bytes
from fpga_pool.services.agent.held_jobs import HeldJobs
from fpga_pool.services.agent.journal import HeldJob, Journal, Phase
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _End:
    """A job that computed to its end."""

    job: HeldJob
    compute_s: float
    result: JobResult
    slot: SlotChanged


class JobTable(HeldJobs):
    """What commands, slots and streams do to the jobs of one agent."""

    def __init__(self, journal: Journal, state_dir: Path, clock: Clock) -> None:
        super().__init__(journal, state_dir, clock)
        #: What was told last of each slot.
        self._states: dict[str, SlotChanged] = {}
        #: What slots without work are to load, by slot.  It is only useful at once: a start of the agent forgets it,
        #: and a fault of the slot.
        self._ahead: dict[str, LoadFunction] = {}
        #: Ends that are not recorded yet.
        self._ends: list[_End] = []
        self._recording = threading.Lock()
        #: Returns the share of its work that the job of a slot has done.
        self.progress: Callable[[str], float] = lambda _: 0.0
        #: Called after every end of a job; sees to it that `record_ends` is called, by this thread or another.
        self.on_end: Callable[[], object] = self.record_ends

    def restore(self) -> None:
        """Take up what the journal holds after a restart; what was computing starts again, what is lost is told."""
        self.files.make_directories()
        with self.changed:
            self.holds.restore()
            for job in self._journal.jobs():
                self._restore(job)
            self.files.delete_strays(self._jobs)

    def _restore(self, job: HeldJob) -> None:
        if job.phase is Phase.HELD and not self.files.has_result(job.uuid):
            self._change(None, ResultExpired(**self._about(job)), forget=job.uuid)
        elif job.phase in (Phase.STAGED, Phase.RUNNING) and not self.files.has_input(job.uuid):
            self._put(job)
            self.failed(job, "fpga_pool.input_lost", "its input was lost in a restart", retryable=True)
        else:
            self._put(job.at(Phase.STAGED) if job.phase is Phase.RUNNING else job)
            if job.phase is Phase.WAITING and self.files.input_path(job.uuid).exists():
                # Complete and checked, or it would not have this name; the power went before the journal had it.
                self.staged(job.uuid)

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
            elif isinstance(command.action, RetimeJob):
                self._retime(command, command.action)
            elif isinstance(command.action, ReleaseJob):
                self._release(command, command.action)
            elif isinstance(command.action, EvictJob):
                self._evict(command, command.action)
            elif isinstance(command.action, HoldSlot | FreeSlot):
                self.holds.execute(command, command.action)
                self._ahead.pop(command.slot, None)
                self.wakeup(command.slot).notify()
            elif isinstance(command.action, LoadFunction):
                self._load_ahead(command, command.action)
            else:
                reason = f"{type(command.action).__name__} is no command for a slot"
                return Outcome(command=command.id, outcome="refused", reason=reason)
            return Outcome(command=command.id, outcome="accepted")

    def _assign(self, command: Command, assignment: AssignJob) -> None:
        job = HeldJob(slot=command.slot, assignment=assignment)
        reports: list[Report] = []
        if job.assignment.attempt > 1 and self.files.has_input(job.uuid):  # kept from an attempt that failed
            job = job.at(Phase.STAGED)
            reports.append(InputStaged(**self._about(job)))
        self._journal.note_command(command, job, None, reports)
        self._put(job)
        # Whoever waits for the end of a former attempt must not take this one's for it.
        self._settle(job.uuid, JobFailure("fpga_pool.released", "the job was given to this host anew"))
        self.changed.notify_all()
        self._tell(reports)

    def _retime(self, command: Command, action: RetimeJob) -> None:
        """Take note of when the input of a job is to move, if it is still waited for."""
        job = self._jobs.get(action.job)
        waiting = job is not None and job.phase is Phase.WAITING and job.assignment.attempt == action.attempt
        if job is None or not waiting:
            self._journal.note_command(command, None, None, [])
            return
        times = {"dispatched_at": action.dispatched_at, "transfer": action.transfer}
        job = replace(job, assignment=replace(job.assignment, **times))  # type: ignore[arg-type]
        self._journal.note_command(command, job, None, [])
        self._put(job)

    def _load_ahead(self, command: Command, action: LoadFunction) -> None:
        """Have a slot load ahead of jobs if nothing keeps it at this moment; afterwards it need not be of use."""
        self._journal.note_command(command, None, None, [])
        told = self._states.get(command.slot)
        if told is None or told.state in (SlotState.EMPTY, SlotState.READY):
            self._ahead[command.slot] = action
            self.wakeup(command.slot).notify()

    def observed(self) -> tuple[ObservedJob, ...]:
        """Return all jobs held, and how far those inputs are that do not move as planned."""
        return tuple(
            ObservedJob(job=job.uuid, attempt=job.assignment.attempt, slot=job.slot, moved_bytes=self._told_bytes(job))
            for job in self.all()
        )

    def _told_bytes(self, job: HeldJob) -> int | None:
        assignment = job.assignment
        since_s = self._clock() - assignment.dispatched_at
        if job.phase is not Phase.WAITING or not assignment.transfer or since_s < assignment.transfer[0].begin_s:
            return None
        return told_bytes(assignment.transfer, assignment.input_bytes, self.files.received_bytes(job.uuid), since_s)

    def _release(self, command: Command, action: ReleaseJob) -> None:
        job = self._drop(action.job)
        reports = [JobReleased(**self._about(job))] if job is not None else []
        self._journal.note_command(command, None, action.job, reports)
        if job is not None:
            # A running job is stopped by its slot's thread, which also deletes the files when it is done with them.
            if job.phase is not Phase.RUNNING:
                self.files.delete(job.uuid)
            self._settle(job.uuid, JobFailure("fpga_pool.released", "the job was withdrawn from this host"))
        self._tell(reports)

    def _evict(self, command: Command, action: EvictJob) -> None:
        """Let go of an attempt and keep its input; the slot's thread stops what computes.  An end stays an end."""
        job = self._jobs.get(action.job)
        wanted = job is not None and (job.slot, job.assignment.attempt) == (command.slot, action.attempt)
        # The journal knows of ends that are recorded at this moment.
        ended = job is None or job.phase in (Phase.HELD, Phase.FAILED) or self._journal.is_held(job.uuid)
        if job is None or not wanted or ended:
            self._journal.note_command(command, None, None, [])
            return
        done = self.progress(job.slot) if job.phase is Phase.RUNNING else job.assignment.done
        report = JobEvicted(**self._about(job), done=done if action.keep_progress else 0.0)
        self._journal.note_command(command, job.at(Phase.FAILED), None, [report])
        self._put(job.at(Phase.FAILED))
        self._tell([report])

    # What the slots do ------------------------------------------------------------------------------------------

    def next_action(self, slot: str, loaded: str) -> Load | Run | Wait:
        """Decide what an idle slot does next; a load ahead of jobs is for this moment, or never."""
        with self.changed:
            ahead = self._ahead.pop(slot, None)
            if self.holds.of(slot) is not None:
                return Wait()
            queue = [
                QueueEntry(
                    key=job.uuid,
                    order=job.assignment.order,
                    function=job.assignment.function,
                    staged=job.phase is Phase.STAGED,
                )
                for job in self._of_slot[slot].values()
                if job.phase in (Phase.WAITING, Phase.STAGED)
            ]
        wanted = ahead.function if ahead is not None and ahead.replaces == loaded else None
        return next_action(queue, loaded or None, wanted)

    def started(self, uuid: str, slot: SlotChanged) -> HeldJob | None:
        """Note that a job computes; None if it was withdrawn meanwhile."""
        with self.changed:
            job = self._jobs.get(uuid)
            if job is None or job.phase is not Phase.STAGED or job.slot != slot.slot:
                return None
            job = job.at(Phase.RUNNING)
            # The journal need not know: what was running is staged after a restart, and starts again.
            self._journal.tell_later([slot, JobStarted(**self._about(job))])
            self._put(job)
            self._states[slot.slot] = slot
            self._tell([slot])
            return job

    def finished(self, job: HeldJob, compute_s: float, result: JobResult, slot: SlotChanged) -> None:
        """Note that a job is complete, if it is still wanted; it is told when `record_ends` has made it durable.

        The disk takes as long for many ends as for one, and the slot can go on meanwhile.
        """
        with self.changed:
            self._states[slot.slot] = slot
            self._ends.append(_End(job, compute_s, result, slot))
        self.on_end()

    def record_ends(self) -> None:
        """Record all ends that have come, in one transaction, and tell whoever waits for them."""
        with self._recording:
            with self.changed:
                ends, self._ends = self._ends, []
            if ends:
                self._record(ends)

    def _record(self, ends: Sequence[_End]) -> None:
        try:
            held, reports = self._record_durably(ends)
        except BaseException:
            self._compute_again(ends)
            raise
        with self.changed:
            for end in ends:
                if end.job.uuid in held and self._jobs.get(end.job.uuid) == end.job:
                    self._put(held[end.job.uuid])
                    self._settle(end.job.uuid, end.result)
                else:
                    self.clean_up(end.job)
        self._tell(reports)

    def _record_durably(self, ends: Sequence[_End]) -> tuple[dict[str, HeldJob], list[Report]]:
        """Put ends into the journal, without the lock on the jobs: slots and streams need not wait for the disk.

        A job that is withdrawn leaves the table before the journal hears of it, so that one which is there, seen from
        within a transaction, is withdrawn after this transaction if at all.
        """
        held: dict[str, HeldJob] = {}
        reports: list[Report] = []
        with self._journal.together():
            wanted = [end for end in ends if self._jobs.get(end.job.uuid) == end.job]
            self.files.name_results([end.job for end in wanted if end.result.data is None])
            for end in wanted:
                if end.result.data is not None:
                    self._journal.keep_result(end.job.uuid, end.result.data)
                held[end.job.uuid] = self._held(end)
                reports.append(self._finish_report(end))
                self._journal.note(keep=held[end.job.uuid], reports=reports[-1:])
            # A slot that computes the next job already has told so.
            states: list[Report] = [end.slot for end in ends if self._states.get(end.slot.slot) is end.slot]
            self._journal.note(reports=states)
        for uuid in held:
            self.files.input_path(uuid).unlink(missing_ok=True)
        return held, reports + states

    def _held(self, end: _End) -> HeldJob:
        return replace(
            end.job.at(Phase.HELD),
            result_bytes=end.result.size_bytes,
            result_sha256=end.result.sha256,
            finished_at=self._clock(),
        )

    def _finish_report(self, end: _End) -> JobFinished:
        return JobFinished(
            **self._about(end.job),
            compute_s=end.compute_s,
            result_bytes=end.result.size_bytes,
            result_sha256=end.result.sha256,
        )

    def _compute_again(self, ends: Sequence[_End]) -> None:
        """Give up ends that could not be recorded (the disk is full, perhaps): their jobs are computed anew."""
        with self.changed:
            for end in ends:
                if self._jobs.get(end.job.uuid) == end.job:
                    self._put(end.job.at(Phase.STAGED))

    def failed(self, job: HeldJob, code: str, message: str, *, retryable: bool) -> None:
        """Note that an attempt failed, unless it is over; the input stays if the job may come back."""
        with self.changed:
            held = self._jobs.get(job.uuid)
            if held is None or held.assignment != job.assignment or held.phase in (Phase.HELD, Phase.FAILED):
                return
            report = JobFailed(**self._about(job), code=code, message=message, retryable=retryable)
            try:
                self._change(held.at(Phase.FAILED), report)
            except BaseException:
                self._put(held.at(Phase.STAGED))  # nobody would hear of it: it is computed anew
                raise
            self._settle(job.uuid, JobFailure(code, message))

    def clean_up(self, job: HeldJob) -> None:
        """Remove what a computation left that is not wanted any more."""
        with self.changed:
            self.files.sink_path(job).unlink(missing_ok=True)
            if job.uuid not in self._jobs:
                self.files.delete(job.uuid)

    def slot_changed(self, report: SlotChanged) -> None:
        """Note a change of a slot that is no job's."""
        with self.changed:
            self._states[report.slot] = report
            if report.state is SlotState.FAULTED:
                self._ahead.pop(report.slot, None)
            self._change(None, report, durable=False)  # the next heartbeat tells it too

    # What the streams do ----------------------------------------------------------------------------------------

    def staged(self, uuid: str) -> None:
        """Note that a job's input is complete."""
        with self.changed:
            job = self._jobs.get(uuid)
            if job is not None and job.phase is Phase.WAITING:
                job = job.at(Phase.STAGED)
                self._change(job, InputStaged(**self._about(job)), durable=False)  # the file itself is: see _restore

    def staged_small(self, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Note that small jobs' inputs are complete: they are in the journal when this returns."""
        with self.changed:
            jobs = [(self._jobs[uuid], data) for uuid, data in inputs if uuid in self._jobs]
            staged = [(job.at(Phase.STAGED), data) for job, data in jobs if job.phase is Phase.WAITING]
            reports = [InputStaged(**self._about(job)) for job, _ in staged]
            with self._journal.together():
                for (job, data), report in zip(staged, reports, strict=True):
                    self._journal.keep_input(job.uuid, data)
                    self._journal.note(keep=job, reports=[report])
            self.files.remember([(job.uuid, data) for job, data in staged])
            for job, _ in staged:
                self._put(job)
            self._tell(reports)

    def delivered(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Note that clients have the results of these attempts of jobs; they are deleted."""
        with self.together(durable=False):
            for uuid, attempt in attempts:
                job = self._jobs.get(uuid)
                if job is not None and job.assignment.attempt == attempt:
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
                self._drop(uuid)
                small = self._journal.result(uuid) is not None
                # Found again without its file, it is forgotten: see _restore.
                self._change(None, report(**self._about(job)), forget=uuid, durable=False)
                if not small:
                    self.files.delete(uuid)
