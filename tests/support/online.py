"""Users of a pool that runs an online policy, and a catalogue of functions with low and high speedups."""

import hashlib
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fpga_pool.client import BatchResult, Client, JobSpec
from fpga_pool.client.outcome import JobOutcome
from fpga_pool.experiments.embedded import Options
from fpga_pool.model.objects.pool import Job, Slot, is_cpu

POLICY = "benefit_plus"
BYTES = 10_000
#: Seconds that a job of each function computes on a slot, and on a CPU.
SLOT_S = 0.4
CPU_S = {"bytecount": 0.8, "wordcount": 1.2, "sha256": 12.0}
LOAD_S = 0.1
SLOTS = 2

CATALOGUE = """format_version = 1

[boards.small]
slots = ["small", "small"]
configuration_bps = 8e6
dma_bps = 1e10
source = "test"
regions.small = {{bitstream_bytes = {load_bytes}}}
{functions}"""

FUNCTION = """
[functions.{name}]
version = "1.0"
slot_kinds = ["small"]
io_bps = 1e6
preemptible = true
progress_kept = true
cpu_time = {{a_s = 0.0, b_s_per_byte = {cpu_s_per_byte}}}
fpga_time.small = {{a_s = 0.0, b_s_per_byte = {slot_s_per_byte}}}
source = "test"
"""


def write_catalogue(directory: Path) -> Path:
    """Write a catalogue with a card of two slots, which load in 0.1 s, and speedups 2, 3 and 30; return its path."""
    functions = "".join(
        FUNCTION.format(name=name, cpu_s_per_byte=seconds / BYTES, slot_s_per_byte=SLOT_S / BYTES)
        for name, seconds in CPU_S.items()
    )
    path = directory / "catalogue.toml"
    path.write_text(CATALOGUE.format(load_bytes=int(LOAD_S * 1e6), functions=functions))
    return path


class Users:
    """Submits jobs with known results, in batches, each in its own thread."""

    def __init__(self, client: Client, directory: Path, policy: str = POLICY) -> None:
        self._client, self._directory, self._policy = client, directory, policy
        self._rng = random.Random(5)
        self._threads: list[threading.Thread] = []
        self.payloads: dict[str, list[bytes]] = {}
        self.results: dict[str, BatchResult] = {}

    def submit(self, function: str, jobs: int = 1, size: int = BYTES) -> None:
        name = f"{len(self._threads)}"
        self.payloads[name] = [self._rng.randbytes(size) for _ in range(jobs)]
        self._threads.append(threading.Thread(target=self._run, args=(name, function), daemon=True))
        self._threads[-1].start()

    def _run(self, name: str, function: str) -> None:
        specs = [JobSpec(function, data, "node-1") for data in self.payloads[name]]
        self.results[name] = self._client.run_jobs(specs, policy=self._policy, output_dir=self._directory / name)

    def wait(self, timeout_s: float = 240.0) -> None:
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(until_s - time.monotonic(), 0.0))

    def wrong(self) -> list[tuple[str, JobOutcome | None]]:
        """Return the jobs with no result or a wrong one; None stands for a job without outcome."""
        found: list[tuple[str, JobOutcome | None]] = []
        for name, payloads in self.payloads.items():
            jobs: Sequence[JobOutcome | None] = [None] * len(payloads)
            if name in self.results:
                jobs = self.results[name].jobs
            for data, job in zip(payloads, jobs, strict=True):
                if job is None or job.result is None or digest(job.result) != expected(job.job.function, data):
                    found.append((name, job))
        return found

    def jobs(self) -> list[Job]:
        return [outcome.job for result in self.results.values() for outcome in result.jobs]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def expected(function: str, data: bytes) -> str:
    result = {
        "sha256": lambda: hashlib.sha256(data).hexdigest().encode() + b"\n",
        "wordcount": lambda: b"%d\n" % len(data.split()),
        "bytecount": lambda: b"%d\n" % len(data),
    }[function]()
    return hashlib.sha256(result).hexdigest()


def slots_of(client: Client) -> list[Slot]:
    return [slot for slot in client.slots() if not is_cpu(slot.name)]


def options(catalogue: Path, **scheduler: object) -> Options:
    return {
        "standalone": {"hosts": 1, "catalogue": catalogue},
        "functions": {"catalogue": catalogue},
        "driver_simulated": {"board": "small", "cards": 1},
        "scheduler": {"online_interval_s": 0.1} | scheduler,
        "agent": {"cpu_workers": 3, "hang_factor": 20.0},
    }
