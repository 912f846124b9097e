"""The acts of the demonstration: what a pool does besides computing a batch, shown on one embedded pool.

Cards, machines and the processes of gangs are simulated; scheduler, agents, journals, data ports and the channel of the
guest are those of a real pool.  Each act waits, for a bounded time, for the behavior that it shows, and checks it.
"""

import contextlib
import hashlib
import logging
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from rich.console import Console

from fpga_pool.client import BatchProgress, BatchResult, Client, JobSpec, RunSettings
from fpga_pool.experiments.embedded import Machine, Options, start_pool, stop_pool
from fpga_pool.model.exceptions import FpgaPoolError, ServiceUnavailable
from fpga_pool.model.objects.gangs import ENDED_GANGS, Gang, GangState, ProcessState
from fpga_pool.model.objects.pool import Job, JobState, LeaseKind, Slot, SlotState
from fpga_pool.services.audit import audit
from fpga_pool.store.store import Store

T = TypeVar("T")

#: Limit of each wait, in seconds.
WAIT_S = 60.0
_LOOK_S = 0.1
#: Bytes of the AES key and counter block that the function `aes` reads before the data.
KEY_BYTES, COUNTER_BYTES = 32, 16
#: `aes` jobs can be evicted and keep their progress.  Their header is one whole key and counter block.
_HEADER = bytes(KEY_BYTES + COUNTER_BYTES)
#: 12 MB compute for 1.7 s on the demo board.
_JOB_BYTES, _JOBS = 12_000_000, 12
#: Number of jobs that compute when the pool is killed, and maximum number of tries of that and of an eviction.
_COMPUTING, _TRIES = 4, 3
_GUEST_INPUT = b"what the guest of a virtual machine wants to have computed" * 1000
#: A gang on all pCPUs, and one that starts behind it: processes, share of a pCPU, and seconds that each computes.
_WIDE, _SMALL = (4, 0.5, 600.0), (2, 0.5, 6.0)
#: Seconds that the second gang computes in the background before the first one ends.
_BEHIND_S = 2.0
#: Number of acts.
ACTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """The outcome of an act: the lines that describe what it has shown, or why it failed."""

    name: str
    ok: bool
    lines: Sequence[str]
    seconds: float


class _NotShown(FpgaPoolError):
    """An act did not end as expected."""


class _Stage:
    """The pool of the acts, in a process that can be killed, and a client of it."""

    def __init__(self, directory: Path, sockets: Path, console: Console, port: int) -> None:
        self.guests, self.hook = sockets, sockets / "hook"
        self.directory = directory
        self._console = console
        self._options: Options = {
            "standalone": {
                "hosts": 2, "requesters": 2, "gang_processors": 2, "egress_mbps": 400, "ingress_mbps": 800,
            },
            "driver_simulated": {"board": "demo", "cards": 1},
            # No host is lost here: on a busy machine a host may be silent for seconds.
            "scheduler": {"host_timeout_s": WAIT_S},
            "agent": {"guest_driver": "simulated", "simulated_guests_dir": self.guests, "hook_socket": self.hook},
        }  # fmt: skip
        self._process: subprocess.Popen[str]
        self.endpoint: str
        self.client: Client
        self._port = port

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        stop_pool(self._process)

    def start(self) -> None:
        """Start the pool, on the state that its killed process has left, if any."""
        self._process, self.endpoint = start_pool(self.directory, self._options, self._port)
        self.client = Client(self.endpoint)

    def kill(self) -> None:
        """Kill the process, so that it cannot save anything."""
        self.client.close()
        self._process.kill()
        self._process.wait(WAIT_S)

    def wait(self, what: str, read: Callable[[], T], progress: Callable[[], str] = lambda: "") -> T:
        """Return the first true result of `read`, and show the progress until then; raise _NotShown after `WAIT_S`.

        If the scheduler is too busy to answer, `read` is called again.
        """
        end_s = time.monotonic() + WAIT_S
        with self._console.status(f"waiting: {what}") as status:
            while time.monotonic() < end_s:
                with contextlib.suppress(ServiceUnavailable):
                    if found := read():
                        return found
                    status.update(f"waiting: {what} {progress()}")
                time.sleep(_LOOK_S)
        raise _NotShown(f"not within {WAIT_S:g} s: {what}")

    def findings(self) -> list[str]:
        """Return the violations of the pool's invariants, including those that hold only for an idle pool."""
        store = Store(f"sqlite:///{self.directory / 'state' / 'pool.sqlite'}")
        try:
            return audit(store, idle=True)
        finally:
            store.close()


class _Background:
    """A batch that a client runs in a thread, and continues whatever happens to the pool."""

    def __init__(self, stage: _Stage, name: str) -> None:
        self._inputs = [name.encode() + bytes([number]) * _JOB_BYTES for number in range(_JOBS)]
        specs = [
            JobSpec("aes", data, f"requester-{1 + number % 2}", header=_HEADER, name=f"{name}-{number}")
            for number, data in enumerate(self._inputs)
        ]
        self._stage = stage
        self._client = Client(stage.client.endpoint)
        settings = RunSettings(patience_s=2 * WAIT_S, timeout_s=4 * WAIT_S)
        output = stage.directory / f"results-{name}"
        self._runner = self._client.runner(
            specs, output_dir=output, name=name, settings=settings, on_progress=self._note
        )
        self._progress = ""
        self._result: BatchResult | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._runner.run()
        except Exception as error:  # raised by `result`
            self._error = error

    def _note(self, now: BatchProgress) -> None:
        self._progress = f"({now.results} of {now.jobs} results, {now.states.get(JobState.RUNNING, 0)} jobs compute)"

    @property
    def ended(self) -> bool:
        """Whether the batch has ended."""
        return not self._thread.is_alive()

    def jobs(self, state: JobState) -> list[Job]:
        """Return the jobs in a state; none while the batch is not stored yet."""
        if self._error is not None:
            raise self._error
        try:
            return self._stage.client.jobs(self._runner.batch_uuid, [state])
        except FpgaPoolError:
            return []

    def result(self) -> BatchResult:
        """Wait for the end and return the outcome; raise an error unless all results are correct."""
        self._stage.wait("the batch ends", lambda: self.ended, lambda: self._progress)
        self._client.close()
        if self._error is not None or self._result is None:
            raise self._error or _NotShown("the batch has no outcome")
        for data, job in zip(self._inputs, self._result.jobs, strict=True):
            if job.result is None or job.result.read_bytes() != encrypted(data, _HEADER):
                raise _NotShown(f"job {job.name} has {'no' if job.result is None else 'a wrong'} result: {job.reason}")
        return self._result


def encrypted(data: bytes, header: bytes) -> bytes:
    """Return the output of the function `aes` for data and its header of key and counter block, by other means."""
    encryptor = Cipher(algorithms.AES256(header[:KEY_BYTES]), modes.CTR(header[KEY_BYTES:])).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def perform(directory: Path, console: Console, port: int) -> list[Act]:
    """Perform the acts on a pool with this port, up to the first that fails, and print the lines of each at its end."""
    shutil.rmtree(directory, ignore_errors=True)
    for name in ("keystoneauth", "urllib3"):  # they warn about each try while the pool is down
        logging.getLogger(name).setLevel(logging.ERROR)
    shown: list[Act] = []
    # Paths of sockets are limited in length.
    with (
        tempfile.TemporaryDirectory(prefix="fpga-pool-") as sockets,
        _Stage(directory, Path(sockets), console, port) as stage,
    ):
        gangs = _Gangs(stage)
        for name, act in (
            ("a virtual machine takes a slot", lambda: _lease(stage)),
            ("a gang comes to the foreground", gangs.swap),
            ("the pool is killed", lambda: _kill(stage)),
            ("nothing is left", lambda: _audit(stage)),
        ):
            shown.append(_performed(name, act, console))
            if not shown[-1].ok:
                break
    return shown


def _performed(name: str, act: Callable[[], Sequence[str]], console: Console) -> Act:
    begin_s = time.monotonic()
    try:
        ok, lines = True, act()
    except (FpgaPoolError, OSError) as error:
        ok, lines = False, [str(error)]
    console.print(name, style="bold" if ok else "bold red", highlight=False)
    for line in lines:
        console.print(f"    {line}", markup=False, highlight=False)
    return Act(name=name, ok=ok, lines=lines, seconds=time.monotonic() - begin_s)


# ---- A virtual machine, and the job that it evicts


def _lease(stage: _Stage) -> list[str]:
    """Start a machine on a host whose slots all compute: a job is evicted, and its function is replaced."""
    for number in range(_TRIES):  # a job may have ended just before, so that none is evicted
        batch = _Background(stage, f"batch-{number}")
        taken = _take_slot(stage, batch)
        jobs = batch.result().jobs
        evicted = [job for job in jobs if "JobEvicted" in _events(stage.client, job.job)]
        if evicted:
            break
    else:
        raise _NotShown("no job was evicted")
    job = stage.client.job(evicted[0].job.uuid)
    return [
        *taken,
        f"job {job.name} was evicted, and computed as attempt {job.attempt} on {job.slot};",
        f"all {len(jobs)} results are right",
    ]


def _take_slot(stage: _Stage, batch: _Background) -> list[str]:
    client, host = stage.client, "node-1"
    stage.wait(f"all slots of {host} compute", lambda: _all_busy(client.slots(host=[host])) or batch.ended)
    before = {slot.name: slot.function for slot in client.slots(host=[host])}
    machine = Machine(stage.guests, stage.hook, "sha256", "demo", WAIT_S)
    asked_s = time.monotonic()
    machine.start()
    took_s = time.monotonic() - asked_s
    _require(_leased(client) == 1, "one slot is leased to the instance")
    held = [slot for slot in client.slots(host=[host]) if slot.function == "sha256"]
    _require(len(held) == 1, "its function is in one slot")
    digest = machine.compute(_GUEST_INPUT).decode().strip()
    _require(digest == hashlib.sha256(_GUEST_INPUT).hexdigest(), "the guest gets the right digest")
    machine.end()
    stage.wait("the slot is given back", lambda: not _leased(client))
    return [
        f"all slots of {host} were busy; the machine could start after {took_s:.1f} s",
        f"slot {held[0].name}: {before[held[0].name]} replaced by sha256, leased to the instance;",
        f"its guest's digest is right: {digest[:16]}...",
    ]


def _leased(client: Client) -> int:
    """Return the number of slots that instances hold."""
    return sum(one.slots for one in client.pool_counts().lease_list if one.kind == LeaseKind.INSTANCE)


def _all_busy(slots: Sequence[Slot]) -> bool:
    return all(slot.state is SlotState.BUSY for slot in slots)


def _events(client: Client, job: Job) -> set[str]:
    return {entry.event for entry in client.events("jobs", job.uuid)}


# ---- Gangs


class _Gangs:
    """A gang on all pCPUs that ends early, and one behind it, which runs on while the first act is shown."""

    def __init__(self, stage: _Stage) -> None:
        self._stage = stage
        wide = self._create("wide", *_WIDE)
        stage.wait("gang wide has all pCPUs", lambda: self._gang(wide).state is GangState.FOREGROUND)
        self._small = self._create("small", *_SMALL)
        stage.wait("gang small runs behind it", self._runs_behind)
        time.sleep(_BEHIND_S)
        stage.client.cancel_gang(wide)

    def _create(self, name: str, processes: int, cpu_usage: float, work_s: float) -> str:
        return self._stage.client.create_gang(processes, 600.0, cpu_usage, name=name, work_s=work_s).uuid

    def _gang(self, uuid: str) -> Gang:
        return self._stage.client.gang(uuid).gang

    def _runs_behind(self) -> bool:
        detail = self._stage.client.gang(self._small)
        states = {process.state for process in detail.process_list}
        return detail.gang.state is GangState.BACKGROUND and states == {ProcessState.RUNNING}

    def swap(self) -> list[str]:
        """Wait for the end of the gang behind, and report how it got to the foreground."""
        self._stage.wait("gang small ends", lambda: self._gang(self._small).state in ENDED_GANGS)
        small = self._gang(self._small)
        states = [str(entry.after) for entry in small.history if entry.before not in ("", entry.after)]
        _require(
            states == ["BACKGROUND", "FOREGROUND", "COMPLETED"],
            f"the gang runs in the background, then in the foreground; got {states}",
        )
        _require((small.swaps, small.migrations) == (1, 0), "it is swapped once")
        processes, cpu_usage, work_s = _SMALL
        _require(abs(small.cpu_s - processes * cpu_usage * work_s) < 0.01, f"it works once, not for {small.cpu_s} s")
        behind_s, front_s = small.background_s / processes, small.foreground_s / processes
        return [
            f"gang small, {processes} processes, ran behind gang wide on its pCPUs for {behind_s:.1f} s,",
            f"was swapped to the foreground when wide ended, and ran there for {front_s:.1f} s;",
            f"it used {small.cpu_s:.1f} s of CPU time: nothing was done twice",
        ]


# ---- Kill


def _kill(stage: _Stage) -> list[str]:
    """Kill the pool's process while jobs compute, and restart it: its agents continue from their journals."""
    for number in range(_TRIES):  # a client without CPU time may see too few computing jobs
        batch = _Background(stage, f"killed-{number}")
        stage.wait("jobs compute", lambda batch=batch: batch.ended or len(batch.jobs(JobState.RUNNING)) >= _COMPUTING)  # type: ignore[misc]
        if computing := batch.jobs(JobState.RUNNING):
            break
        batch.result()
    else:
        raise _NotShown("no job was seen to compute")
    killed_s = time.monotonic()
    stage.kill()
    stage.start()
    down_s = time.monotonic() - killed_s
    jobs = {job.job.uuid: job.job for job in batch.result().jobs}
    kept = sum(jobs[job.uuid].attempt == job.attempt for job in computing)
    done_s = time.monotonic() - killed_s
    _require(kept > 0, "a job ends as the same attempt")
    return [
        f"SIGKILL to the process of scheduler, API and agents while {len(computing)} jobs computed;",
        f"started again, the pool answers after {down_s:.1f} s;",
        f"{kept} of these jobs ended in the same attempt, with the inputs that agents held;",
        f"after {done_s:.1f} s all {len(jobs)} results are right",
    ]


def _audit(stage: _Stage) -> list[str]:
    """Check the remaining state against the invariants of the pool."""
    stage.wait("the audit finds nothing", lambda: not stage.findings())
    day = Counter({one.function: one.jobs for one in stage.client.usage() if one.jobs})
    leased_s = sum(one.instance_slot_s for one in stage.client.usage())
    return [
        "the audit of the database finds no stale lease, command or placement;",
        f"accounted: {day.total()} jobs, and {leased_s:.1f} s of a slot for the instance",
    ]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise _NotShown(f"expected: {what}")
