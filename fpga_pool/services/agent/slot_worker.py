"""The thread of one slot: loads, computes, recovers from faults; one thing at a time."""

import hashlib
import logging
import threading
from pathlib import Path

from fpga_pool.core.dispatch import Load, Run
from fpga_pool.dataplane.handler import JobResult
from fpga_pool.drivers.slots.base import RunStopped, SlotAddress, SlotDriver
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.model.exceptions import BitstreamRefused, FpgaPoolError, InvalidInput, NotFound, SlotFault
from fpga_pool.model.messages import ObservedSlot, SlotChanged
from fpga_pool.model.objects import SlotState
from fpga_pool.services.agent.jobs import JobTable
from fpga_pool.services.agent.journal import HeldJob
from fpga_pool.services.agent.settings import AgentSettings
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: How often an idle slot looks whether its card is still there.
IDLE_S = 0.5


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
    ) -> None:
        self.name = name
        self.address = address
        self._board = board
        self._kind = kind
        self._driver = driver
        self._library = library
        self._jobs = jobs
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()
        self._state = SlotState.EMPTY
        self._function = ""
        self._running: HeldJob | None = None
        self._reason = ""
        #: Project whose data the slot's memory may hold; None = scrubbed.
        self._memory_of: str | None = ""
        self._fault_pause_s = settings.fault_pause_s[0]
        self._thread = threading.Thread(target=self._run, name=f"slot-{name}", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def drain(self) -> None:
        """Begin nothing new; a running job goes on."""
        self._stop.set()
        with self._jobs.changed:
            self._jobs.changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the running job; stop it when the time is up."""
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._driver.stop(self.address)
            self._thread.join(5.0)

    def observed(self, sequence: int) -> ObservedSlot:
        """Return the slot as it is now."""
        running = self._running
        return ObservedSlot(
            slot=self.name,
            card=self.address.card,
            region=self.address.region,
            board=self._board,
            kind=self._kind,
            state=self._state,
            function=self._function,
            job=running.uuid if running is not None else "",
            reason=self._reason,
            sequence=sequence,
        )

    def stop_if_withdrawn(self) -> None:
        """Stop the running job if it is no longer held."""
        running = self._running
        if running is not None and self._jobs.get(running.uuid) != running:
            self._driver.stop(self.address)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except Exception:
                LOG.exception("slot %s: step failed", self.name)
                self._stop.wait(1.0)

    def _step(self) -> None:
        if self._state is not SlotState.FAULTED:
            self._notice_lost_card()
        if self._state is SlotState.FAULTED:
            self._recover()
            return
        with self._jobs.changed:
            action = self._jobs.next_action(self.name, self._function)
            if not isinstance(action, Load | Run):
                self._jobs.changed.wait(IDLE_S)
                return
        if isinstance(action, Load):
            self._load(action.function)
        else:
            self._compute(action.entry.key)

    def _changed(self, state: SlotState, function: str, job: str = "", reason: str = "") -> SlotChanged:
        """Return the report of a new state, and be in it."""
        self._state, self._function, self._reason = state, function, reason
        return SlotChanged(slot=self.name, at=self._clock(), state=state, function=function, job=job, reason=reason)

    # Loading ----------------------------------------------------------------------------------------------------

    def _load(self, function: str) -> None:
        self._jobs.slot_changed(self._changed(SlotState.LOADING, function))
        try:
            bitstream = self._library.read(function, self._board, self._kind)
            self._driver.load(self.address, bitstream)
        except SlotFault as error:
            self._fault(str(error))
        except (BitstreamRefused, NotFound) as error:
            LOG.error("slot %s: %s", self.name, error)  # noqa: TRY400  # the message says it all
            self._jobs.slot_changed(self._changed(SlotState.EMPTY, ""))
            self._fail_jobs_of(function, error)
        else:
            self._fault_pause_s = self._settings.fault_pause_s[0]
            self._jobs.slot_changed(self._changed(SlotState.READY, function))

    def _fail_jobs_of(self, function: str, error: FpgaPoolError) -> None:
        for job in self._jobs.all():
            if job.slot == self.name and job.assignment.function == function:
                self._jobs.failed(job.uuid, error.code, str(error), retryable=False)

    # Computing --------------------------------------------------------------------------------------------------

    def _compute(self, uuid: str) -> None:
        busy = self._changed(SlotState.BUSY, self._function, job=uuid)
        job = self._jobs.started(uuid, busy)
        if job is None:
            self._changed(SlotState.READY, self._function)
            return
        self._running = job
        try:
            self._compute_started(job)
        finally:
            self._running = None
            if self._jobs.get(uuid) is None:
                self._jobs.delete_files(uuid)

    def _compute_started(self, job: HeldJob) -> None:
        try:
            compute_s = self._run_watched(job)
        except RunStopped:
            self._jobs.failed(job.uuid, "fpga_pool.stopped", "stopped by its agent", retryable=True)
            self._jobs.slot_changed(self._changed(SlotState.READY, self._function))
        except SlotFault as error:
            self._jobs.failed(job.uuid, error.code, str(error), retryable=True)
            self._fault(str(error))
        except InvalidInput as error:
            self._jobs.failed(job.uuid, error.code, str(error), retryable=False)
            self._jobs.slot_changed(self._changed(SlotState.READY, self._function))
        except (FpgaPoolError, OSError) as error:
            self._jobs.failed(job.uuid, getattr(error, "code", "fpga_pool.agent_error"), str(error), retryable=True)
            self._jobs.slot_changed(self._changed(SlotState.READY, self._function))
        else:
            path = self._jobs.result_path(job.uuid)
            result = JobResult(path, path.stat().st_size, _sha256(path))
            self._jobs.finished(job, compute_s, result, self._changed(SlotState.READY, self._function))

    def _run_watched(self, job: HeldJob) -> float:
        """Compute with a watchdog; a job that hangs is stopped, which the driver tells as a fault of the slot."""
        assignment = job.assignment
        if self._memory_of != assignment.project_id and self._memory_of is not None:
            self._driver.scrub(self.address)
            self._memory_of = None
        limit_s = self._settings.hang_factor * assignment.expected_s + self._settings.hang_grace_s
        watchdog = threading.Timer(limit_s, self._driver.stop, [self.address])
        watchdog.daemon = True
        watchdog.start()
        self._memory_of = assignment.project_id
        try:
            self.stop_if_withdrawn()
            return self._driver.run(
                self.address,
                assignment.function,
                assignment.input_bytes,
                self._jobs.input_path(job.uuid),
                self._jobs.result_path(job.uuid),
                assignment.project_id,
            ).seconds
        finally:
            watchdog.cancel()

    # Faults -----------------------------------------------------------------------------------------------------

    def _fault(self, reason: str) -> None:
        LOG.warning("slot %s failed: %s", self.name, reason)
        self._memory_of = ""
        self._jobs.slot_changed(self._changed(SlotState.FAULTED, "", reason=reason))

    def _notice_lost_card(self) -> None:
        if not self._card_present():
            self._fault(self._driver.state(self.address).reason or "its card does not answer")

    def _recover(self) -> None:
        """Wait, then offer the slot again if its card answers; the next load repairs it or fails again."""
        self._stop.wait(self._fault_pause_s)
        self._fault_pause_s = min(2 * self._fault_pause_s, self._settings.fault_pause_s[1])
        if self._card_present() and not self._stop.is_set():
            LOG.info("slot %s: offered again", self.name)
            self._jobs.slot_changed(self._changed(SlotState.EMPTY, ""))

    def _card_present(self) -> bool:
        return any(card.present for card in self._driver.inventory() if card.serial == self.address.card)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
