"""The agent's state machine, shared by its threads: each event is recorded before it takes effect."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.machine import Agent
from fpga_pool.model.agent.objects import HeldJob, Phase
from fpga_pool.model.messages.agents import (
    AssignJob,
    Command,
    EvictJob,
    ObservedFlow,
    ObservedJob,
    Outcome,
    ReleaseJob,
    Report,
    ResultExpired,
    SlotChanged,
)
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.services.agent.instances.slots import HoldTable
from fpga_pool.services.agent.job_files import Announcements, FlowMeter, JobFiles
from fpga_pool.services.agent.journal import Journal
from fpga_pool.services.clock import Clock
from fpga_pool.transfer.handler import JobFailure, JobResult
from fpga_pool.transfer.port import place_file

LOG = logging.getLogger(__name__)

End = JobResult | JobFailure

#: Upper limit of the time that a load of a slot takes.
LONGEST_LOAD_S = 60.0
#: How long to wait for the receipt of a result that was just sent, so that both are reported together.
RECEIPT_S = 0.02


class AgentShell:
    """The state machine with its journal and files.  All methods may be called from any thread."""

    def __init__(self, machine: Agent, journal: Journal, state_dir: Path, clock: Clock) -> None:
        self.machine = machine
        self._journal = journal
        self.files = JobFiles(journal, state_dir)
        self._clock = clock
        self._lock = threading.RLock()
        #: Notified when commands were executed, when a load has ended, and when receipts for results have arrived.
        self.changed = threading.Condition(self._lock)
        #: Streams that wait for the commands about their jobs.
        self.announcements = Announcements(machine.state.jobs)
        self.meter = FlowMeter()
        #: Slots that are reserved for instances and take no jobs meanwhile.
        self.holds = HoldTable(machine.state, self._lock)
        self._waiters: dict[str, list[Future[End]]] = {}
        #: Jobs whose results are being sent to clients.
        self._sent: set[str] = set()
        #: Results that are not recorded yet, by job and attempt.
        self._results: dict[tuple[str, int], JobResult] = {}
        #: Jobs that are known to have all their data in the journal, so that there are no files to delete.
        self._without_files: set[str] = set()
        self._recording = threading.Lock()
        #: Called after every change that created a report.
        self.on_report: Callable[[], object] = lambda: None
        #: Called after every end of a job; must arrange that `record_ends` is called, in this thread or another.
        self.on_end: Callable[[], object] = self.record_ends
        #: Wake the executor of a slot; stop its computation if it is of this attempt; return the completed share of it.
        self.wake: Callable[[str], object] = lambda _: None
        self.stop: Callable[[str, str, int], object] = lambda _slot, _job, _attempt: None
        self.progress: Callable[[str], float] = lambda _: 0.0
        #: Starts to assemble a job's input from the results of other jobs.
        self.gather: Callable[[HeldJob], object] = lambda _: None
        self._carried_out: dict[type, Callable[[Any], object]] = {
            i.Report: lambda one: self._reported(one.report),
            i.ReportLater: lambda _: self.on_report(),
            i.KeepInput: lambda _: None,
            i.KeepHold: self._hold_changed,
            i.ForgetHold: self._hold_changed,
            i.WakeSlot: lambda one: self.wake(one.slot),
            i.StopComputation: lambda one: self.stop(one.slot, one.job, one.attempt),
            i.RecordEnds: lambda _: None,
            i.GatherInput: lambda one: self.gather(one.job),
            i.Answer: lambda _: None,
            i.Settle: self._settle,
            i.DeleteFiles: self._delete_files,
            i.DeleteInput: self._delete_input,
            i.DeleteOutput: self._delete_output,
            i.DeleteStrays: lambda _: self.files.delete_strays(self.machine.state.jobs),
        }

    # Queries ----------------------------------------------------------------------------------------------------

    def get(self, uuid: str) -> HeldJob | None:
        """Return a job if it is held, else None."""
        with self.changed:
            return self.machine.state.jobs.get(uuid)

    def all(self) -> list[HeldJob]:
        """Return all jobs held."""
        with self.changed:
            return list(self.machine.state.jobs.values())

    def asks(self, slot: str) -> bool:
        """Return whether the executor of a slot may request its next instruction."""
        with self.changed:
            return self.machine.state.slots[slot].asks

    def await_port(self, slot: str) -> None:
        """Wait for the slot's turn at the configuration port of its card, at most LONGEST_LOAD_S."""
        with self.changed:
            self.changed.wait_for(lambda: not self.machine.loads_before(slot), LONGEST_LOAD_S)

    def observed(self) -> tuple[ObservedJob, ...]:
        """Return all jobs held, with the received bytes of inputs that do not arrive as planned."""
        with self.changed:
            return self.machine.observed_jobs(self.files.received_bytes, self._clock())

    def flows(self) -> tuple[ObservedFlow, ...]:
        """Return the average rates of the incoming inputs since the last call."""
        return self.meter.measure({(job.uuid, job.attempt) for job in self.all() if job.phase is Phase.WAITING})

    def end_of(self, uuid: str) -> "Future[End]":
        """Return a future of the job's result or failure, which is resolved if the job has ended."""
        future: Future[End] = Future()
        with self.changed:
            job = self.machine.state.jobs.get(uuid)
            if job is None or job.phase is Phase.FAILED:
                future.set_result(JobFailure("fpga_pool.released", "the job is not held by this host"))
            elif job.phase is Phase.HELD:
                future.set_result(self._held_result(job, self._journal.result(uuid)))
            else:
                self._waiters.setdefault(uuid, []).append(future)
        return future

    def _held_result(self, job: HeldJob, data: bytes | None) -> JobResult:
        return JobResult(
            self.files.result_path(job.uuid),
            job.result_bytes or 0,
            job.result_sha256,
            data,
            job.assignment.result_transfer,
            job.finished_at or 0.0,
        )

    # Events -----------------------------------------------------------------------------------------------------

    def feed(self, event: e.AgentEvent, *, inputs: Mapping[str, bytes] | None = None) -> list[i.SlotInstruction]:
        """Handle one event; return the instructions for the executor that reported it.

        Raises StorageFull if it could not be recorded; nothing has changed then.
        """
        with self.changed:
            with self._handled(event) as instructions:
                durable = event.durable or any(isinstance(one, i.KeepHold) for one in instructions)
                self._journal.record(instructions, durable=durable, inputs=inputs)
            self._carry_out(instructions)
            if isinstance(event, e.Loaded | e.LoadFailed | e.LoadRefused):
                self.changed.notify_all()  # the next slot that waits for the card's port
        if any(isinstance(one, i.RecordEnds) for one in instructions):
            self.on_end()
        return [one for one in instructions if isinstance(one, i.SlotInstruction)]

    @contextmanager
    def _handled(self, event: e.AgentEvent) -> Iterator[list[i.Instruction]]:
        """Handle an event, and undo it if the body fails."""
        instructions = self.machine.handle(event, self._clock())
        LOG.debug("%s -> %s", event, instructions)
        try:
            yield instructions
        except BaseException:
            self.machine.undo()
            raise

    def restore(self) -> None:
        """Restore the state from the journal after a restart."""
        self.files.make_directories()
        jobs, slots = self._journal.jobs(), self.machine.state.slots
        for job in jobs:
            if job.phase is Phase.WAITING and self.files.received_bytes(job.uuid):
                self.meter.missed(job.uuid, job.attempt)
        staged = (Phase.STAGED, Phase.RUNNING)
        self.feed(
            e.Restarted(
                jobs=tuple(jobs),
                holds={slot: hold for slot, hold in self._journal.holds().items() if slot in slots},
                fences={slot: fence for slot, fence in self._journal.fences().items() if slot in slots},
                epochs=self._journal.epochs(),
                executed=self._journal.commands(),
                inputs=frozenset(
                    job.uuid
                    for job in jobs
                    if (job.phase in staged and self.files.has_input(job.uuid))
                    or (job.phase is Phase.WAITING and self.files.input_path(job.uuid).exists())
                ),
                results=frozenset(
                    job.uuid for job in jobs if job.phase is Phase.HELD and self.files.has_result(job.uuid)
                ),
            )
        )

    def execute(
        self,
        shard: str,
        epoch: int,
        commands: Sequence[Command],
        others: Sequence[Callable[[], Outcome] | None] | None = None,
    ) -> list[Outcome]:
        """Execute commands on behalf of a shard's owner; return the outcomes in the same order.

        `others` has one entry per command; an entry that is not None executes the command, in the same transaction.
        Raises StaleEpoch if a later owner of the shard is known.
        """
        others = others or [None] * len(commands)
        with self.changed:
            jobs = self.machine.state.jobs
            names = {one.action.job for one in commands if isinstance(one.action, ReleaseJob)} & jobs.keys()
            released = [(name, jobs[name].assignment.attempt) for name in names]
            ours = tuple(command for command, other in zip(commands, others, strict=True) if other is None)
            # Wait for records in progress, as of `record_ends`, because they may delete inputs.
            with self._journal.alone():
                event = self._received(shard, epoch, ours)
                with self._handled(event) as instructions, self._journal.together():
                    answers = iter([one.outcome for one in instructions if isinstance(one, i.Answer)])
                    outcomes = [next(answers) if other is None else other() for other in others]
                    self._journal.record(instructions)
            self._carry_out(instructions)
            self.changed.notify_all()
        self.announcements.changed(released)
        return outcomes

    def _received(self, shard: str, epoch: int, commands: tuple[Command, ...]) -> e.CommandsReceived:
        jobs = self.machine.state.jobs
        again = {one.action.job for one in commands if isinstance(one.action, AssignJob) and one.action.attempt > 1}
        evicted = [jobs.get(one.action.job) for one in commands if isinstance(one.action, EvictJob)]
        running = [job for job in evicted if job is not None and job.phase is Phase.RUNNING]
        return e.CommandsReceived(
            shard=shard,
            epoch=epoch,
            commands=commands,
            inputs=frozenset(uuid for uuid in again if self.files.has_input(uuid)),
            progress={job.uuid: self.progress(job.slot) for job in running},
        )

    def stream_seen(self, uuid: str, attempt: int, source: str) -> None:
        """Handle the start of an attempt's input stream from a source address."""
        self.feed(e.StreamSeen(job=uuid, attempt=attempt, source=source))

    def staged(self, uuid: str, took_s: float | None = None) -> None:
        """Handle the completion of a job's input file, with the time that its transfer took, if known."""
        self.feed(e.InputArrived(job=uuid, took_s=took_s))

    def staged_from(self, job: HeldJob, source: Path) -> bool:
        """Use a complete file as the input of an attempt; return False if the attempt no longer waits for it."""
        with self.changed:
            if self.machine.state.jobs.get(job.uuid) != job:
                return False
            place_file(source, self.files.input_path(job.uuid))
            self._without_files.discard(job.uuid)
            self.staged(job.uuid, self.meter.age_s(job.uuid, job.attempt))
        return True

    def staged_small(self, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Handle the complete inputs of small jobs; they are in the journal when this returns."""
        with self.changed:
            event = e.SmallInputsArrived(jobs=tuple(uuid for uuid, _ in inputs))
            data = dict(inputs)
            with self._handled(event) as instructions:
                self._journal.record(instructions, inputs=data)
            kept = [one.job for one in instructions if isinstance(one, i.KeepInput)]
            for uuid in kept:  # left by a stream that broke before the input came over a lane
                self.files.partial_path(uuid).unlink(missing_ok=True)
            self.files.remember([(uuid, data[uuid]) for uuid in kept])
            self._without_files.update(kept)
            self._carry_out(instructions)

    def delivered(self, attempts: Sequence[tuple[str, int]]) -> None:
        """Handle receipts for the results of these attempts of jobs; the results are deleted."""
        self.feed(e.ResultsDelivered(attempts=tuple(attempts)))
        with self.changed:
            self._sent.difference_update(job for job, _ in attempts)
            self.changed.notify_all()

    def await_receipts(self) -> None:
        """Wait for the receipts of results that were just sent, at most RECEIPT_S."""
        with self.changed:
            self.changed.wait_for(lambda: not self._sent, RECEIPT_S)
            self._sent.clear()

    def expire(self) -> None:
        """Delete results that were not fetched in time."""
        self.feed(e.TimePassed())

    # Ends of jobs -----------------------------------------------------------------------------------------------

    def keep_result(self, job: HeldJob, result: JobResult) -> None:
        """Keep the output of an attempt until its end is recorded; call this before the machine gets the end event."""
        self._results[job.uuid, job.attempt] = result

    def record_ends(self) -> None:
        """Record all pending ends in one transaction, and notify their waiters.

        A disk sync takes as long for many ends as for one. The machine's lock is not held while waiting for the disk,
        so that the slots continue meanwhile.
        """
        with self._recording:
            held: tuple[HeldJob, ...] = ()
            results: dict[str, JobResult] = {}
            try:
                with ExitStack() as transaction:
                    with self.changed:
                        instructions = self.machine.handle(e.EndsDue(), self._clock())
                        held = tuple(one.job for one in instructions if isinstance(one, i.KeepJob))
                        if not instructions:
                            return
                        # Begun before the lock is released, so that nothing else is recorded in between.
                        transaction.enter_context(self._journal.together())
                    ended = [job for job in held if job.phase is Phase.HELD]  # the others were evicted
                    results = {job.uuid: self._results.pop((job.uuid, job.attempt)) for job in ended}
                    large = [job for job in ended if results[job.uuid].data is None]
                    self._without_files.difference_update(job.uuid for job in large)
                    self.files.name_results(large)
                    self._journal.record(instructions, results=results)
            except BaseException:
                with self.changed:
                    self._carry_out(self.machine.handle(e.EndsLost(jobs=held), self._clock()))
                raise
            with self.changed:
                recorded = self.machine.handle(e.EndsRecorded(jobs=held), self._clock())
                settled = {one.job for one in recorded if isinstance(one, i.Settle)}
                for job in held:
                    if job.uuid in settled:
                        self._sent.update({job.uuid} & self._waiters.keys())
                        self._notify(job.uuid, self._held_result(job, results[job.uuid].data))
                self._carry_out(recorded)
                self._carry_out(instructions)

    # Instructions -----------------------------------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[i.Instruction]) -> None:
        """Carry out instructions, except those that only change the journal or are for executors of slots.

        The event itself is already recorded, so failures are logged and all other instructions are carried out. Files
        that could not be deleted are deleted at the next start.
        """
        for one in instructions:
            act = self._carried_out.get(type(one))
            if act is not None:
                try:
                    act(one)
                except Exception:
                    LOG.exception("%s failed", one)
            elif not isinstance(one, i.RecordInstruction | i.SlotInstruction):
                raise NotImplementedError(f"{type(one).__name__} is not implemented")

    def _reported(self, report: Report) -> None:
        if isinstance(report, SlotChanged) and report.state is SlotState.FAULTED:
            LOG.warning("slot %s failed: %s", report.slot, report.reason)
        elif isinstance(report, ResultExpired):
            LOG.info("job %s: result expired", report.job)
        self.on_report()

    def _hold_changed(self, one: i.KeepHold | i.ForgetHold) -> None:
        if isinstance(one, i.ForgetHold):
            LOG.info("slot %s: no longer reserved", one.slot)
        elif one.hold.ready:
            LOG.info("slot %s: ready for instance %s with %s", one.slot, one.hold.action.instance,
                     one.hold.action.function)  # fmt: skip
        self.holds.changed.notify_all()

    def _settle(self, one: i.Settle) -> None:
        if one.code:
            self._notify(one.job, JobFailure(one.code, one.message))

    def _notify(self, uuid: str, end: End) -> None:
        for future in self._waiters.pop(uuid, []):
            if future.set_running_or_notify_cancel():
                future.set_result(end)

    def _delete_files(self, one: i.DeleteFiles) -> None:
        if one.job in self._without_files:
            self._without_files.remove(one.job)
        else:
            self.files.delete(one.job)

    def _delete_input(self, one: i.DeleteInput) -> None:
        if one.job not in self._without_files:
            self.files.input_path(one.job).unlink(missing_ok=True)

    def _delete_output(self, one: i.DeleteOutput) -> None:
        self._results.pop((one.job, one.attempt), None)
        self.files.sink_path(one.job, one.attempt).unlink(missing_ok=True)
