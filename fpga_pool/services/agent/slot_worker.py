"""The thread of one slot, which executes the instructions of the agent's state machine one after the other."""

import hashlib
import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fpga_pool.drivers.slots.base import RunStopped, SlotAddress, SlotDriver
from fpga_pool.drivers.slots.bitstream import BitstreamLibrary
from fpga_pool.metrics import table
from fpga_pool.metrics.instruments import Instruments
from fpga_pool.model.agent import events as e
from fpga_pool.model.agent import instructions as i
from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.exceptions import (
    BitstreamRefused,
    FpgaPoolError,
    InvalidInput,
    InvalidTransition,
    NotFound,
    ServiceUnavailable,
    SlotFault,
    StorageFull,
)
from fpga_pool.model.objects.bitstreams import is_design
from fpga_pool.model.objects.pool import SlotState, is_cpu
from fpga_pool.services.agent.designs import Designs
from fpga_pool.services.agent.instances.slots import GuestUse
from fpga_pool.services.agent.job_files import erase, write_over
from fpga_pool.services.agent.shell import AgentShell
from fpga_pool.transfer.frames import SMALL_BYTES
from fpga_pool.transfer.handler import JobResult
from fpga_pool.transfer.port import NO_SPACE

LOG = logging.getLogger(__name__)

#: Interval at which an idle slot checks that its card is still present.
IDLE_S = 5.0
#: Pause before an event that could not be recorded, or an instruction that failed, is retried.
AGAIN_S = 1.0
#: How long a job that was stopped at the end of a drain may take to end.
STOP_S = 5.0

Attempt = tuple[str, int]

#: Names of the outcomes of loads in metrics.
_OUTCOMES = {e.Loaded: "loaded", e.LoadFailed: "failed", e.LoadRefused: "refused"}


class SlotWorker:
    """Executes the machine's instructions for one slot and reports the outcomes to it."""

    def __init__(
        self,
        name: str,
        address: SlotAddress,
        board: str,
        kind: str,
        driver: SlotDriver,
        library: BitstreamLibrary,
        shell: AgentShell,
        scratch: Path,
        instruments: Instruments,
        designs: Designs,
    ) -> None:
        self.name = name
        self._instruments = instruments
        self.address = address
        self._board = board
        self._kind = kind
        self._driver = driver
        self._library, self._designs = library, designs
        self._shell = shell
        self._stop = threading.Event()
        self._wake = threading.Event()
        #: Held to change the following fields, so that stopping a computation cannot stop the slot's next one.
        self._running_lock = threading.Lock()
        self._running: Attempt | None = None
        self._unwanted: Attempt | None = None
        self._late_at_s = math.inf
        #: Called when a job begins; `watch` must be called repeatedly from then on.
        self.on_run: Callable[[], object] = lambda: None
        self._checked_s = -math.inf
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        #: Files of the running job for its small input and its growing result.
        self._source = scratch / f"{address.card}-{address.region}.in"
        self._sink = scratch / f"{address.card}-{address.region}.out"
        self._moved_bytes = 0
        #: Runs the requests of an instance while the slot is lent to it.
        self.guest = GuestUse(driver, address)
        self._thread = threading.Thread(target=self._run, name=f"slot-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Request an instruction from the state machine now, because there may be one."""
        self._wake.set()

    def drain(self) -> None:
        """Start nothing new; a running job continues."""
        self._stop.set()
        self._wake.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the running job, and stop it after `timeout_s`; do nothing if the thread was never started."""
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        self.guest.end()
        if self._thread.is_alive():
            self._driver.stop(self.address)
            self._thread.join(STOP_S)

    @property
    def moved_bytes(self) -> int:
        """Bytes that ended computations, including those of instances, have moved over the card's DMA."""
        return self._moved_bytes + self.guest.moved_bytes

    def progress(self) -> float:
        """Return the completed share of the running job."""
        return self._driver.progress(self.address)

    def stop(self, job: str, attempt: int) -> None:
        """Stop a computation, also one that is about to begin."""
        with self._running_lock:
            self._unwanted = job, attempt
            if self._running == self._unwanted:
                self._driver.stop(self.address)

    def watch(self) -> bool:
        """Watch the running job: stop it if requested, report if it is late; return whether one runs.

        To be called repeatedly while one runs, as a stop before the computation starts has no effect.
        """
        with self._running_lock:
            running, late = self._running, time.monotonic() > self._late_at_s
            if running is None:
                return False
            if running == self._unwanted:
                self._driver.stop(self.address)
            elif late:
                self._late_at_s = math.inf
        if late and running != self._unwanted:
            LOG.warning("slot %s: job %s exceeded its time limit; stopped", self.name, running[0])
            self._shell.feed(e.ComputationOverdue(slot=self.name, job=running[0], attempt=running[1]))
        return True

    def _run(self) -> None:
        instructions: deque[i.SlotInstruction] = deque()
        while not self._stop.is_set():
            try:
                event = self._carry_out(instructions[0]) if instructions else self._idle()
            except Exception as error:
                self._log("not done; retrying", error)
                self._stop.wait(AGAIN_S)
                continue
            if instructions:
                instructions.popleft()
            if event is not None:
                self._wake.clear()
                instructions += self._feed(event)
                if isinstance(event, e.SlotFree) and not instructions and not self._stop.is_set():
                    self._wake.wait(IDLE_S)

    def _feed(self, event: e.SlotEvent) -> list[i.SlotInstruction]:
        """Feed an event to the state machine; retry while it cannot be recorded, e.g. because the disk is full."""
        while True:
            try:
                return self._shell.feed(event)
            except InvalidTransition as error:  # retrying would not help
                self._log(f"{type(event).__name__} is dropped", error)
                return []
            except Exception as error:
                self._log(f"{type(event).__name__} was not recorded", error)
            if self._stop.wait(AGAIN_S):
                return []

    def _log(self, what: str, error: Exception) -> None:
        known = isinstance(error, FpgaPoolError)  # its message suffices, without a traceback
        LOG.error("slot %s: %s: %s", self.name, what, error, exc_info=None if known else error)

    def _idle(self) -> e.SlotEvent | None:
        """Check the card every IDLE_S; otherwise request the next instruction."""
        if time.monotonic() - self._checked_s > IDLE_S:
            return self._check_card() or e.SlotFree(slot=self.name)
        return e.SlotFree(slot=self.name)

    def _carry_out(self, instruction: i.SlotInstruction) -> e.SlotEvent | None:
        match instruction:
            case i.LoadSlot(function=function):
                return self._load(function)
            case i.ScrubSlot():
                return self._scrub()
            case i.Compute(job=job):
                return self._compute(job, instruction)
            case i.CheckCard(after_s=after_s):
                return self._check_card_after(after_s)
            case i.BeginGuestUse(hold=hold):
                self.guest.begin(hold)
            case i.EndGuestUse():
                self.guest.end()
            case _:
                raise NotImplementedError(f"{type(instruction).__name__} is not implemented")
        return None

    # Loading, scrubbing, checking -------------------------------------------------------------------------------

    def _load(self, function: str) -> e.SlotEvent:
        began_s = time.monotonic()
        event = self._load_bitstream(function)
        self._instruments.count(table.LOADS, function, _OUTCOMES[type(event)])
        if isinstance(event, e.Loaded):
            self._instruments.observe(table.LOAD_TIME, time.monotonic() - began_s, function)
        return event

    def _load_bitstream(self, function: str) -> e.Loaded | e.LoadFailed | e.LoadRefused:
        try:
            if is_design(function):
                bitstream = self._designs.fetch(function, self._driver)
            else:
                bitstream = self._library.read(function, self._board, self._kind)
            self._shell.await_port(self.name)
            self._driver.load(self.address, bitstream)
        except (BitstreamRefused, NotFound) as error:
            LOG.error("slot %s: %s", self.name, error)  # noqa: TRY400  # the message says it all
            return e.LoadRefused(slot=self.name, code=error.code, message=str(error))
        except ServiceUnavailable:  # no scheduler permits the load of the design now: the slot is healthy, and retries
            raise
        except (FpgaPoolError, OSError) as error:
            return e.LoadFailed(slot=self.name, reason=str(error))
        except Exception as error:
            LOG.exception("slot %s: loading %s", self.name, function)
            return e.LoadFailed(slot=self.name, reason=repr(error))
        return e.Loaded(slot=self.name)

    def _scrub(self) -> e.Scrubbed | e.ScrubFailed:
        try:
            self._driver.scrub(self.address)
        except FpgaPoolError as error:
            return e.ScrubFailed(slot=self.name, reason=str(error))
        except Exception as error:
            LOG.exception("slot %s: scrubbing", self.name)
            return e.ScrubFailed(slot=self.name, reason=repr(error))
        LOG.info("slot %s: memory scrubbed", self.name)
        return e.Scrubbed(slot=self.name)

    def _check_card_after(self, after_s: float) -> e.SlotEvent | None:
        """Check the card after `after_s`; return None if there is other work before, or the thread stops."""
        until_s = time.monotonic() + after_s
        while (left_s := until_s - time.monotonic()) > 0 and not self._stop.is_set():
            self._wake.wait(left_s)
            if self._wake.is_set() and self._shell.asks(self.name):
                return None
            self._wake.clear()
        return None if self._stop.is_set() else self._check_card()

    def _check_card(self) -> e.CardSeen | None:
        """Check the card of the slot; return None while an instance computes on the slot.

        A failed slot is always checked before any further work on it.
        """
        self._checked_s = time.monotonic()
        status = self._driver.state(self.address)
        if status.state is SlotState.BUSY and self._shell.asks(self.name):
            return None
        present = any(card.present for card in self._driver.inventory() if card.serial == self.address.card)
        function = status.function if status.state is SlotState.READY else ""
        return e.CardSeen(slot=self.name, present=present, function=function, reason=status.reason)

    # Computing --------------------------------------------------------------------------------------------------

    def _compute(self, job: HeldJob, compute: i.Compute) -> e.SlotEvent:
        """Compute a job and keep its result; raise StorageFull if the disk has no room for its files."""
        code, retryable, slot_failed = "fpga_pool.agent_error", True, False
        try:
            compute_s = self._run_watched(job, compute)
            result = self._take_result(job)
        except RunStopped:
            code, message = "fpga_pool.stopped", "stopped by its agent"
        except SlotFault as error:
            code, message, slot_failed = error.code, str(error), True
        except (FpgaPoolError, OSError) as error:
            is_wanted = self._unwanted != (job.uuid, job.attempt)
            if is_wanted and getattr(error, "errno", None) in NO_SPACE:  # it is computed again, at the same attempt
                raise StorageFull(f"no space to compute job {job.uuid}; free space on the agent's disk") from None
            code, message = getattr(error, "code", code), str(error)
            retryable = not isinstance(error, InvalidInput)
        except Exception as error:
            LOG.exception("slot %s: computing job %s", self.name, job.uuid)
            message = repr(error)
        else:
            self._moved_bytes += job.assignment.input_bytes + result.size_bytes
            self._shell.keep_result(job, result)
            return e.ComputationEnded(
                slot=self.name,
                job=job.uuid,
                attempt=job.attempt,
                compute_s=compute_s,
                result_bytes=result.size_bytes,
                result_sha256=result.sha256,
            )
        finally:  # left by a small result, and by a failed computation
            self._sink.unlink(missing_ok=True)
        return e.ComputationFailed(
            slot=self.name,
            job=job.uuid,
            attempt=job.attempt,
            code=code,
            message=message,
            retryable=retryable,
            slot_failed=slot_failed,
        )

    def _run_watched(self, job: HeldJob, compute: i.Compute) -> float:
        """Compute while `watch` observes; a job that hangs is stopped, and the driver reports a fault of the slot."""
        assignment = job.assignment
        if compute.scrub and isinstance(scrub := self._scrub(), e.ScrubFailed):
            # A fault whatever the error, because the memory may still hold the data of another project.
            raise SlotFault(scrub.reason)
        source = self._place_input(job)
        with self._running_lock:
            self._running, self._late_at_s = (job.uuid, job.attempt), time.monotonic() + compute.limit_s
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
            if source == self._source:
                erase(source)

    def _place_input(self, job: HeldJob) -> Path:
        """Return the file that holds the job's input."""
        small = self._shell.files.small_input(job.uuid)
        if small is None:
            return self._shell.files.input_path(job.uuid)
        write_over(self._source, small)
        return self._source

    def _take_result(self, job: HeldJob) -> JobResult:
        """Move the result out of the sink file, so that the slot's next job can use that file."""
        place, size_bytes = self._shell.files.result_path(job.uuid), self._sink.stat().st_size
        if size_bytes <= SMALL_BYTES:
            data = self._sink.read_bytes()
            return JobResult(place, size_bytes, hashlib.sha256(data).hexdigest(), data)
        sha256 = _hash_durably(self._sink)
        self._sink.replace(self._shell.files.sink_path(job.uuid, job.attempt))
        return JobResult(place, size_bytes, sha256)


def moved_bytes(workers: Iterable[SlotWorker]) -> Mapping[str, int]:
    """Return the bytes that were moved over the DMA of each card so far."""
    moved: Counter[str] = Counter()
    for worker in workers:
        if not is_cpu(worker.name):
            moved[worker.address.card] += worker.moved_bytes
    return moved


def remove_scratch(directory: Path) -> None:
    """Remove files that an earlier run of the agent has left, because they hold data of tenants."""
    for path in directory.glob("*"):
        path.unlink(missing_ok=True)


def _hash_durably(path: Path) -> str:
    """Sync a file to disk and return its SHA-256."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
