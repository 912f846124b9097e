"""Files of jobs' inputs and results on an agent, rates of incoming inputs, and streams that precede their commands."""

import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.agent.objects import HeldJob
from fpga_pool.model.exceptions import InvalidInput, TransferRefused
from fpga_pool.model.messages.agents import MOST_FLOWS, ObservedFlow
from fpga_pool.services.agent.journal import Journal
from fpga_pool.transfer.port import sync_directory

#: Number of small inputs that are kept in memory, 16 MiB at most.
RECENT = 256

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


class JobFiles:
    """Files of one agent's jobs.  Callers hold the lock of the jobs when they change files."""

    def __init__(self, journal: Journal, state_dir: Path) -> None:
        self._journal = journal
        self._inputs = state_dir / "inputs"
        self._results = state_dir / "results"
        #: The newest small inputs, until their slots read them; all of them are also in the journal.
        self._recent: dict[str, bytes] = {}

    def make_directories(self) -> None:
        """Create the directories of the files."""
        for directory in (self._inputs, self._results):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def input_path(self, uuid: str) -> Path:
        """Return the path of a job's complete input."""
        return self._inputs / _checked(uuid)

    def partial_path(self, uuid: str) -> Path:
        """Return the path of a job's input until it is complete."""
        return self._inputs / f"{_checked(uuid)}.part"

    def result_path(self, uuid: str) -> Path:
        """Return the path of a job's result."""
        return self._results / _checked(uuid)

    def gathered_path(self, uuid: str, attempt: int) -> Path:
        """Return the path of an attempt's input while it is gathered from results of other jobs."""
        return self._inputs / f"{_checked(uuid)}.{attempt}.part"

    def sink_path(self, uuid: str, attempt: int) -> Path:
        """Return the path of an attempt's growing result; an older attempt may still compute when a newer begins."""
        return self._results / f"{_checked(uuid)}.{attempt}"

    def small_result(self, uuid: str) -> bytes | None:
        """Return a job's held result if it is small, else None: it is in a file."""
        return self._journal.result(uuid)

    def small_input(self, uuid: str) -> bytes | None:
        """Return a job's input if it is small, else None: it is in a file."""
        recent = self._recent.pop(uuid, None)
        return self._journal.input(uuid) if recent is None else recent

    def remember(self, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Cache small inputs, which are already in the journal, in memory; only the newest are kept."""
        self._recent.update(inputs[:RECENT])
        for uuid in list(self._recent)[:-RECENT]:
            self._recent.pop(uuid, None)

    def has_input(self, uuid: str) -> bool:
        """Return whether a job's complete input is here."""
        return self.input_path(uuid).exists() or self._journal.input(uuid) is not None

    def has_result(self, uuid: str) -> bool:
        """Return whether a job's result is here."""
        return self.result_path(uuid).exists() or self._journal.result(uuid) is not None

    def received_bytes(self, uuid: str) -> int:
        """Return the number of received bytes of an incomplete input."""
        try:
            return self.partial_path(uuid).stat().st_size
        except FileNotFoundError:
            return 0

    def name_results(self, jobs: Sequence[HeldJob]) -> None:
        """Rename large results to their final paths, durably."""
        for job in jobs:
            self.sink_path(job.uuid, job.attempt).replace(self.result_path(job.uuid))
        if jobs:
            sync_directory(self._results)

    def delete(self, uuid: str) -> None:
        """Remove the files of a job."""
        for path in (self.input_path(uuid), self.partial_path(uuid), self.result_path(uuid)):
            path.unlink(missing_ok=True)

    def delete_strays(self, held: Container[str]) -> None:
        """Remove files of unknown jobs, and incomplete results, which are computed again."""
        strays = [path for path in self._inputs.iterdir() if path.name.removesuffix(".part") not in held]
        strays += [path for path in self._results.iterdir() if path.name not in held]
        for path in strays:
            path.unlink()


def _checked(uuid: str) -> str:
    """Return the id of a job; raise InvalidInput unless it is a plain file name.

    The ids in messages are already checked by `model.fields.Id`. This protects files from other callers, because the
    agent deletes files by these names.
    """
    if not _PLAIN_NAME.fullmatch(uuid):
        raise InvalidInput(f"job {uuid[:60]!r}: expected letters, digits and hyphens")
    return uuid


def write_over(path: Path, data: bytes) -> None:
    """Replace the content of a file by this data; raise OSError, and remove the file, if there is no room for it.

    The old content is overwritten in place, because truncating the file first would cost more than everything else.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.write(data)
            file.truncate()
    except OSError:
        path.unlink(missing_ok=True)
        raise


def erase(path: Path) -> None:
    """Overwrite a file with zeros, so that no tenant's data outlives its job; truncating it would cost far more."""
    with path.open("r+b") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))


# ---- Rates of incoming inputs, measured by the receiver for any sender and under any limit

#: Shortest time over which a rate is measured.
SHORTEST_S = 0.1


@dataclass(slots=True)
class _Measured:
    """Received bytes at time `at_s` and now, and the rate measured at `at_s`; None = not known yet."""

    at_s: float
    then_bytes: int
    now_bytes: int
    bps: float | None = None


class FlowMeter:
    """Counts the received bytes of each input; any thread may call its methods."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._measured: dict[tuple[str, int], _Measured] = {}
        #: When the first bytes arrived; None = before this agent was started.
        self._began_s: dict[tuple[str, int], float | None] = {}

    def received(self, job: str, attempt: int, total_bytes: int) -> None:
        """Record the received bytes of an input; the measurement of a new stream begins with its first call."""
        with self._lock:
            found = self._measured.get((job, attempt))
            if found is None or total_bytes < found.now_bytes:
                self._measured[job, attempt] = _Measured(self._now_s(), total_bytes, total_bytes)
                self._began_s.setdefault((job, attempt), self._now_s())
            else:
                found.now_bytes = total_bytes

    def begun(self, job: str, attempt: int) -> None:
        """Record the arrival of bytes of an input whose rate is not measured."""
        with self._lock:
            self._began_s.setdefault((job, attempt), self._now_s())

    def missed(self, job: str, attempt: int) -> None:
        """Record that the first bytes of an input arrived at an unknown time."""
        with self._lock:
            self._began_s[job, attempt] = None

    def age_s(self, job: str, attempt: int) -> float | None:
        """Return the seconds since the first bytes of an input arrived; None if that is not known."""
        with self._lock:
            began_s = self._began_s.get((job, attempt))
        return None if began_s is None else self._now_s() - began_s

    def measure(self, waiting: Container[tuple[str, int]]) -> tuple[ObservedFlow, ...]:
        """Return the average rates since the last call; forget inputs of attempts that no longer wait."""
        now_s = self._now_s()
        with self._lock:
            self._measured = {key: flow for key, flow in self._measured.items() if key in waiting}
            self._began_s = {key: at_s for key, at_s in self._began_s.items() if key in waiting}
            for flow in self._measured.values():
                if (passed_s := now_s - flow.at_s) >= SHORTEST_S:
                    flow.bps = 8.0 * (flow.now_bytes - flow.then_bytes) / passed_s
                    flow.at_s, flow.then_bytes = now_s, flow.now_bytes
        return self.rates()

    def rates(self) -> tuple[ObservedFlow, ...]:
        """Return the last measured rates."""
        with self._lock:
            known = [(*key, round(flow.bps)) for key, flow in self._measured.items() if flow.bps is not None]
        return tuple(ObservedFlow(job, attempt, bps) for job, attempt, bps in known[:MOST_FLOWS])


# ---- Streams of jobs that the agent does not know yet: a client may be faster than the command that announces its job

#: Number of recently released jobs that are remembered, as no command will announce them.
REMEMBERED = 10_000


class Announcements:
    """Streams that wait for their jobs.  Thread-safe; no method blocks, or takes the lock of the jobs."""

    def __init__(self, jobs: Mapping[str, HeldJob]) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[int, Future[None]]]] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    def of(self, uuid: str, attempt: int) -> "Future[None] | None":
        """Return a future that resolves when a job is held at this attempt or later, or released; None if held."""
        with self._lock:
            if self._is_held(uuid, attempt):
                return None
            if self._released.get(uuid, -1) >= attempt:
                raise TransferRefused("unknown_job", f"job {uuid} was released by this host")
            future: Future[None] = Future()
            future.add_done_callback(lambda _: self._forget(uuid, future))
            self._waiting.setdefault(uuid, []).append((attempt, future))
            return future

    def changed(self, released: Iterable[tuple[str, int]]) -> None:
        """Resolve futures after commands were executed, which have `released` these attempts of jobs."""
        with self._lock:
            for uuid, attempt in released:
                self._released[uuid] = attempt
                self._released.move_to_end(uuid)
            while len(self._released) > REMEMBERED:
                self._released.popitem(last=False)
            decided = [
                (uuid, one)
                for uuid, waiting in self._waiting.items()
                for one in waiting
                if self._is_held(uuid, one[0]) or self._released.get(uuid, -1) >= one[0]
            ]
            for uuid, one in decided:  # so that no other thread resolves them, too
                self._waiting[uuid].remove(one)
        for _, (_, future) in decided:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _is_held(self, uuid: str, attempt: int) -> bool:
        job = self._jobs.get(uuid)  # read without the lock of the jobs, which may be held during disk writes
        return job is not None and job.assignment.attempt >= attempt

    def _forget(self, uuid: str, future: "Future[None]") -> None:
        with self._lock:
            left = [one for one in self._waiting.get(uuid, ()) if one[1] is not future]
            if left:
                self._waiting[uuid] = left
            else:
                self._waiting.pop(uuid, None)
