"""The thread of one slot: loads, computes, recovers from faults; one thing at a time."""

import hashlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fpga_pool.core.dispatch import Load, Run
from fpga_pool.dataplane.frames import SMALL_BYTES
from fpga_pool.dataplane.handler import JobResult
from fpga_pool.drivers.slots.base import RunStopped, SlotAddress, SlotDriver
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.exceptions import BitstreamRefused, FpgaPoolError, InvalidInput, NotFound, SlotFault
from fpga_pool.model.links import USUAL, SlotLinks
from fpga_pool.model.messages import ObservedSlot, SlotChanged
from fpga_pool.model.objects import CPU, SlotState
from fpga_pool.services.agent.guest_use import GuestUse
from fpga_pool.services.agent.holds import Hold
from fpga_pool.services.agent.jobs import JobTable
from fpga_pool.services.agent.journal import HeldJob
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: How often an idle slot looks whether its card is still there.
IDLE_S = 0.5
#: How long a job that was stopped at the end of a drain may take to end.
STOP_S = 5.0


class SlotWorker:
    """Works through the queue of one slot by the shared rule (`core.dispatch`)."""

    def __init__(
        self,
        name: str,
        address: SlotAddress,
        board: str,
        kind: str,
        driver: SlotDriver,
        library: BitstreamLibrary,
        jobs: JobTable,
        settings: AgentSettings,
        clock: Clock,
        links: SlotLinks = USUAL,
    ) -> None:
        self.name = name
        self.address = address
        self._links = str(links)
        self._board = board
        self._kind = kind
        self._driver = driver
        self._library = library
        self._jobs = jobs
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()
        #: What was told last; changes together with the journal, under the lock of the jobs.
        self._now = self._report(SlotState.EMPTY, "")
        #: Changes under its lock, so that whoever stops a job cannot stop the slot's next one.
        self._running: HeldJob | None = None
        self._running_lock = threading.Lock()
        self._late_at_s = 0.0
        #: Called when a job begins: from then on `watch` is wanted.
        self.on_run: Callable[[], object] = lambda: None
        self._looked_s = -math.inf
        scratch = settings.state_dir / "scratch"
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        #: Where small inputs lie while they are computed on, and where results grow: one job after the other.
        self._source = scratch / f"{address.card}-{address.region}.in"
        self._sink = scratch / f"{address.card}-{address.region}.out"
        #: Project whose data the slot's memory may hold; None = scrubbed.
        self._memory_of: str | None = ""
        #: What an instance does here while the slot is kept for it; and whether one may be there.
        self.guest = GuestUse(driver, address)
        self._kept = False
        self._fault_pause_s = settings.fault_pause_s[0]
        self._thread = threading.Thread(target=self._run, name=f"slot-{name}", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def drain(self) -> None:
        """Begin nothing new; a running job goes on."""
        self._stop.set()
        with self._jobs.changed:
            self._jobs.wakeup(self.name).notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the running job; stop it when the time is up."""
        self._thread.join(timeout_s)
        self.guest.end()
        if self._thread.is_alive():
            self._driver.stop(self.address)
            self._thread.join(STOP_S)

    def observed(self, fence: tuple[int, int]) -> ObservedSlot:
        """Return the slot as it is now; `fence` is that of the last command executed on it."""
        epoch, sequence = fence
        hold = self._jobs.holds.of(self.name)
        return ObservedSlot(
            slot=self.name,
            card=self.address.card,
            region=self.address.region,
            board=self._board,
            kind=self._kind,
            state=self._now.state,
            function=self._now.function,
            job=self._now.job,
            reason=self._now.reason,
            sequence=sequence,
            epoch=epoch,
            instance="" if hold is None else hold.action.instance,
            links=self._links,
        )

    def progress(self) -> float:
        """Return the share of its work that the running job has done."""
        return self._driver.progress(self.address)

    def watch(self) -> bool:
        """Stop the running job if it is late or no longer held; say whether one runs.

        To be called again and again while one does, for a stop before the computation starts has no effect.
        """
        with self._running_lock:
            running = self._running
            if running is None:
                return False
            late = time.monotonic() > self._late_at_s
            if late:
                LOG.warning("slot %s: job %s takes too long; stopped", self.name, running.uuid)
            if late or self._jobs.get(running.uuid) != running:
                self._driver.stop(self.address)
            return True

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except FpgaPoolError as error:  # known and named; its message says it all
                LOG.error("slot %s: %s", self.name, error)  # noqa: TRY400
                self._stop.wait(1.0)
            except Exception:
                LOG.exception("slot %s: step failed", self.name)
                self._stop.wait(1.0)

    def _step(self) -> None:
        if self._now.state is not SlotState.FAULTED and time.monotonic() - self._looked_s > IDLE_S:
            self._looked_s = time.monotonic()
            self._notice_changes()
        hold = self._jobs.holds.of(self.name)
        if self._kept and (hold is None or not hold.ready):
            self._take_from_guest()
        elif self._now.state is SlotState.FAULTED:
            self._recover()
        elif hold is not None:
            self._keep(hold)
        else:
            self._work()

    def _work(self) -> None:
        """Do what comes next in the slot's queue, or wait for it."""
        with self._jobs.changed:
            action = self._jobs.next_action(self.name, self._now.function)
            if not isinstance(action, Load | Run):
                if not self._stop.is_set():
                    self._jobs.wakeup(self.name).wait(IDLE_S)
                return
        if isinstance(action, Load):
            self._load(action.function)
        else:
            self._compute(action.entry.key)

    # Kept for an instance ---------------------------------------------------------------------------------------

    def _keep(self, hold: Hold) -> None:
        """Let the instance use the slot, once it is scrubbed and loaded."""
        function = hold.action.function
        if not hold.ready or (self._now.state, self._now.function) != (SlotState.READY, function):
            self._prepare(hold)
            return
        self._kept = True
        self._memory_of = hold.action.instance
        self.guest.begin(hold.action)
        self._wait_while(hold, IDLE_S)

    def _wait_while(self, hold: Hold, timeout_s: float) -> None:
        """Wait as long as nothing else is said about whom the slot is kept for."""
        with self._jobs.changed:
            now = self._jobs.holds.of(self.name)
            if now is not None and now.action == hold.action and not self._stop.is_set():
                self._jobs.wakeup(self.name).wait(timeout_s)

    def _prepare(self, hold: Hold) -> None:
        self.guest.end()
        self._kept = False
        note = partial(self._jobs.holds.note_ready, self.name, hold.action)
        note(ready=False)
        problem = self._scrub() or self._load(hold.action.function)
        note(ready=not problem, problem=problem)
        if problem and self._now.state is not SlotState.FAULTED:
            self._wait_while(hold, self._settings.fault_pause_s[1])
        elif not problem:
            LOG.info("slot %s: ready for instance %s with %s", self.name, hold.action.instance, hold.action.function)

    def _scrub(self) -> str:
        """Clear the memory; return what went wrong, "" if nothing did."""
        try:
            self._driver.scrub(self.address)
        except FpgaPoolError as error:
            self._fault(str(error))
            return str(error)
        self._memory_of = None
        return ""

    def _take_from_guest(self) -> None:
        """Leave nothing of an instance in a slot that is let go, or kept for something else."""
        self.guest.end()
        self._scrub()
        self._kept = False
        LOG.info("slot %s: taken from its instance, and scrubbed", self.name)

    def _report(self, state: SlotState, function: str, job: str = "", reason: str = "") -> SlotChanged:
        return SlotChanged(slot=self.name, at=self._clock(), state=state, function=function, job=job, reason=reason)

    def _become(self, state: SlotState, function: str, reason: str = "") -> None:
        """Be in another state, and tell."""
        with self._jobs.changed:
            now = self._report(state, function, reason=reason)
            self._jobs.slot_changed(now)
            self._now = now

    # Loading ----------------------------------------------------------------------------------------------------

    def _load(self, function: str) -> str:
        """Load a function; return what went wrong, "" if nothing did."""
        before = self._now.function
        if self._kind == CPU:  # software is there at once
            self._become(SlotState.READY, function)
            return ""
        self._become(SlotState.LOADING, function)
        try:
            bitstream = self._library.read(function, self._board, self._kind)
            self._driver.load(self.address, bitstream)
        except (BitstreamRefused, NotFound) as error:
            LOG.error("slot %s: %s", self.name, error)  # noqa: TRY400  # the message says it all
            self._become(SlotState.READY if before else SlotState.EMPTY, before)
            self._fail_jobs_of(function, error)
            return str(error)
        except (FpgaPoolError, OSError) as error:
            self._fault(str(error))
            return str(error)
        self._fault_pause_s = self._settings.fault_pause_s[0]
        self._become(SlotState.READY, function)
        return ""

    def _fail_jobs_of(self, function: str, error: FpgaPoolError) -> None:
        for job in self._jobs.all():
            if job.slot == self.name and job.assignment.function == function:
                self._jobs.failed(job, error.code, str(error), retryable=False)

    # Computing --------------------------------------------------------------------------------------------------

    def _compute(self, uuid: str) -> None:
        with self._jobs.changed:
            busy = self._report(SlotState.BUSY, self._now.function, job=uuid)
            job = self._jobs.started(uuid, busy)
            if job is None:
                return
            self._now = busy
        self._compute_started(job)

    def _compute_started(self, job: HeldJob) -> None:
        try:
            compute_s = self._run_watched(job)
            result = self._take_result(job)
        except RunStopped:
            self._jobs.failed(job, "fpga_pool.stopped", "stopped by its agent", retryable=True)
            self._become(SlotState.READY, self._now.function)
        except SlotFault as error:
            self._jobs.failed(job, error.code, str(error), retryable=True)
            self._fault(str(error))
        except (FpgaPoolError, OSError) as error:
            code = getattr(error, "code", "fpga_pool.agent_error")
            self._jobs.failed(job, code, str(error), retryable=not isinstance(error, InvalidInput))
            self._become(SlotState.READY, self._now.function)
        else:
            self._now = self._report(SlotState.READY, self._now.function)
            self._jobs.finished(job, compute_s, result, self._now)
            return
        self._jobs.clean_up(job)

    def _run_watched(self, job: HeldJob) -> float:
        """Compute under `watch`; a job that hangs is stopped, which the driver tells as a fault of the slot."""
        assignment = job.assignment
        if self._memory_of != assignment.project_id and self._memory_of is not None:
            self._driver.scrub(self.address)
            self._memory_of = None
        self._memory_of = assignment.project_id
        source = self._place_input(job)
        with self._running_lock:
            limit_s = self._settings.hang_factor * assignment.expected_s + self._settings.hang_grace_s
            self._running, self._late_at_s = job, time.monotonic() + limit_s
        self.on_run()
        try:
            return self._driver.run(
                self.address,
                assignment.function,
                assignment.input_bytes,
                source,
                self._sink,
                assignment.project_id,
                assignment.done,
            ).seconds
        finally:
            with self._running_lock:
                self._running = None

    def _place_input(self, job: HeldJob) -> Path:
        """Return the file that holds the job's input."""
        small = self._jobs.files.small_input(job.uuid)
        if small is None:
            return self._jobs.files.input_path(job.uuid)
        # Written over the one before: to empty a file first costs more than all the rest.
        source = os.open(self._source, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(source, small, 0)
            os.ftruncate(source, len(small))
        finally:
            os.close(source)
        return self._source

    def _take_result(self, job: HeldJob) -> JobResult:
        """Take the result away, so that the slot's next job can have the place."""
        place, size_bytes = self._jobs.files.result_path(job.uuid), self._sink.stat().st_size
        if size_bytes <= SMALL_BYTES:
            data = self._sink.read_bytes()
            self._sink.unlink()
            return JobResult(place, size_bytes, hashlib.sha256(data).hexdigest(), data)
        sha256 = _hash_durably(self._sink)
        self._sink.replace(self._jobs.files.sink_path(job))
        return JobResult(place, size_bytes, sha256)

    # Faults -----------------------------------------------------------------------------------------------------

    def _fault(self, reason: str) -> None:
        LOG.warning("slot %s failed: %s", self.name, reason)
        self._memory_of = ""
        self._become(SlotState.FAULTED, "", reason)

    def _notice_changes(self) -> None:
        """See what became of an idle slot: its card may be gone, or back after a moment with its slots empty."""
        status = self._driver.state(self.address)
        if status.state is SlotState.BUSY:  # its instance computes
            return
        if not self._card_present():
            self._fault(status.reason or "its card does not answer")
            return
        if self._kind == CPU:  # which software was used last changes nothing
            return
        function = status.function if status.state is SlotState.READY else ""
        state = SlotState.READY if function else SlotState.EMPTY
        if (self._now.state, self._now.function) != (state, function):
            self._memory_of = ""
            self._become(state, function)

    def _recover(self) -> None:
        """Wait, then offer the slot again if its card answers; the next load repairs it or fails again."""
        self._stop.wait(self._fault_pause_s)
        self._fault_pause_s = min(2 * self._fault_pause_s, self._settings.fault_pause_s[1])
        if self._card_present() and not self._stop.is_set():
            LOG.info("slot %s: offered again", self.name)
            self._become(SlotState.EMPTY, "")

    def _card_present(self) -> bool:
        return any(card.present for card in self._driver.inventory() if card.serial == self.address.card)


def _hash_durably(path: Path) -> str:
    """Return the SHA-256 of a file whose content no power loss can take any more."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
