"""CPU workers, presented as slots: each runs the software models of functions on one vCPU of the host.

With `paced` a job takes the time that the catalogue states for one standard vCPU, to match simulated slots, which also
follow the catalogue; otherwise it takes as long as the software model.  A stop during the computation of the software
model takes effect when that ends.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from oslo_config import cfg

from fpga_pool.drivers.slots.base import (
    CardInventory,
    RunResult,
    RunStopped,
    SlotAddress,
    SlotDriver,
    SlotStatus,
    require_size,
)
from fpga_pool.drivers.slots.base import SlotInventory as Worker
from fpga_pool.drivers.slots.bitstream import Bitstream
from fpga_pool.drivers.slots.functions import FunctionModel, function_model
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import BitstreamRefused, Conflict, InvalidInput, NotFound
from fpga_pool.model.objects.pool import CPU, SlotState


@dataclass(slots=True)
class _Run:
    stopped: threading.Event
    began_s: float
    #: Total work in seconds (0 = unknown), and the share that was done before this run.
    whole_s: float
    done: float


class CpuWorkers(SlotDriver):
    """One `card`, cpu, with regions worker0, worker1, ..."""

    def __init__(
        self,
        catalogue: Catalogue,
        workers: int,
        *,
        paced: bool,
        models: Callable[[str], FunctionModel] = function_model,
    ) -> None:
        if workers < 0:
            raise InvalidInput(f"cpu_workers must be >= 0, found {workers}")
        self._catalogue = catalogue
        self._paced = paced
        self._models = models
        #: Current run of each worker; None = idle.
        self._runs: dict[str, _Run | None] = {f"worker{number}": None for number in range(workers)}
        self._lock = threading.Lock()

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts, catalogue: Catalogue, trusted_key: Ed25519PublicKey | None = None) -> Self:  # noqa: ARG003
        # Nothing is loaded, so no key is needed. On hosts with simulated slots, run times follow the catalogue too.
        return cls(catalogue, conf.agent.cpu_workers, paced=conf.agent.slot_driver == "simulated")

    def inventory(self) -> Sequence[CardInventory]:
        workers = tuple(Worker(name, CPU) for name in self._runs)
        return [CardInventory(CPU, CPU, workers, present=True)] if workers else []

    def state(self, slot: SlotAddress) -> SlotStatus:
        # An idle worker is EMPTY, whatever function it ran last.
        self._require(slot)
        return SlotStatus(SlotState.BUSY if self._runs[slot.region] else SlotState.EMPTY)

    def load(self, slot: SlotAddress, bitstream: Bitstream) -> None:
        """Refuse: a CPU has no region to load."""
        self._require(slot)
        raise BitstreamRefused(f"{slot}: a CPU worker cannot load a bitstream")

    def run(
        self,
        slot: SlotAddress,
        function: str,
        input_bytes: int,
        source: Path,
        sink: Path,
        project_id: str,
        done: float = 0.0,
    ) -> RunResult:
        self._require(slot)
        entry, model = self._catalogue.function(function), self._models(function)
        require_size(source, input_bytes)
        whole_s = entry.cpu_time.seconds(input_bytes) if self._paced and entry.cpu_time else 0.0
        run = _Run(threading.Event(), time.monotonic(), whole_s, done)
        with self._lock:
            if self._runs[slot.region] is not None:
                raise Conflict(f"{slot}: is BUSY; expected no operation in progress")
            self._runs[slot.region] = run
        try:
            model(source, sink)
            left_s = run.began_s + (1.0 - done) * whole_s - time.monotonic()
            if run.stopped.wait(max(left_s, 0.0)):
                raise RunStopped(f"{slot}: the job was stopped")  # noqa: TRY301
        except BaseException:
            sink.unlink(missing_ok=True)
            raise
        finally:
            with self._lock:
                self._runs[slot.region] = None
        return RunResult(time.monotonic() - run.began_s)

    def progress(self, slot: SlotAddress) -> float:
        self._require(slot)
        run = self._runs[slot.region]
        if run is None or run.whole_s <= 0:
            return 0.0
        return min(run.done + (time.monotonic() - run.began_s) / run.whole_s, 1.0)

    def stop(self, slot: SlotAddress) -> None:
        self._require(slot)
        with self._lock:
            run = self._runs[slot.region]
        if run is not None:
            run.stopped.set()

    def scrub(self, slot: SlotAddress) -> None:
        """Do nothing: each job has its own memory."""
        self._require(slot)

    def _require(self, slot: SlotAddress) -> None:
        if slot.card != CPU or slot.region not in self._runs:
            raise NotFound(f"no worker {slot} on this host")
