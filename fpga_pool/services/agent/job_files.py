"""Inputs and results of jobs on an agent's disk, how fast they arrive, and those that come before their commands."""

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

#: Small inputs that are kept in memory: 16 MiB at most.
RECENT = 256

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


class JobFiles:
    """Inputs and results of one agent's jobs.  Changes are made under the lock of its jobs."""

    def __init__(self, journal: Journal, state_dir: Path) -> None:
        self._journal = journal
        self._inputs = state_dir / "inputs"
        self._results = state_dir / "results"
        #: The newest small inputs, which are in the journal as well, until their slots take them.
        self._recent: dict[str, bytes] = {}

    def make_directories(self) -> None:
        """Make what the files are in."""
        for directory in (self._inputs, self._results):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def input_path(self, uuid: str) -> Path:
        """Where a job's complete input is."""
        return self._inputs / _checked(uuid)

    def partial_path(self, uuid: str) -> Path:
        """Where a job's input is until it is complete."""
        return self._inputs / f"{_checked(uuid)}.part"

    def result_path(self, uuid: str) -> Path:
        """Where a job's result is."""
        return self._results / _checked(uuid)

    def gathered_path(self, uuid: str, attempt: int) -> Path:
        """Where the input of an attempt grows while it is gathered from results of other jobs."""
        return self._inputs / f"{_checked(uuid)}.{attempt}.part"

    def sink_path(self, uuid: str, attempt: int) -> Path:
        """Where an attempt's result grows; an older attempt may still compute when a newer one begins."""
        return self._results / f"{_checked(uuid)}.{attempt}"

    def small_result(self, uuid: str) -> bytes | None:
        """Return a job's held result if it is a small one; else it is in a file."""
        return self._journal.result(uuid)

    def small_input(self, uuid: str) -> bytes | None:
        """Return a job's input if it is a small one; else it is in a file."""
        recent = self._recent.pop(uuid, None)
        return self._journal.input(uuid) if recent is None else recent

    def remember(self, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Keep small inputs, which are in the journal, in memory too: the newest of all."""
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
        """Return how much of an input that is not complete has come."""
        try:
            return self.partial_path(uuid).stat().st_size
        except FileNotFoundError:
            return 0

    def name_results(self, jobs: Sequence[HeldJob]) -> None:
        """Give large results the names under which they are found."""
        for job in jobs:
            self.sink_path(job.uuid, job.attempt).replace(self.result_path(job.uuid))
        if jobs:
            _sync_directory(self._results)

    def delete(self, uuid: str) -> None:
        """Remove what a job left on disk."""
        for path in (self.input_path(uuid), self.partial_path(uuid), self.result_path(uuid)):
            path.unlink(missing_ok=True)

    def delete_strays(self, held: Container[str]) -> None:
        """Remove files of unknown jobs, and incomplete results: these are computed again."""
        strays = [path for path in self._inputs.iterdir() if path.name.removesuffix(".part") not in held]
        strays += [path for path in self._results.iterdir() if path.name not in held]
        for path in strays:
            path.unlink()


def _checked(uuid: str) -> str:
    """Return the id of a job; InvalidInput unless it is the name of a file in the directory that it is put into.

    Messages are read by `model.fields.Id`; this is for what else may call, for the agent deletes what is named here.
    """
    if not _PLAIN_NAME.fullmatch(uuid):
        raise InvalidInput(f"job {uuid[:60]!r}: expected letters, digits and hyphens")
    return uuid


def place_file(source: Path, place: Path) -> None:
    """Give a file, whose content is durable, another name, durably."""
    source.replace(place)
    _sync_directory(place.parent)


def write_over(path: Path, data: bytes) -> None:
    """Have a file hold this data alone; OSError where there is no room for all of it, and then there is no file.

    The data takes the place of what was there: to empty a file first costs more than all the rest.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            file.write(data)
            file.truncate()
    except OSError:
        path.unlink(missing_ok=True)
        raise


def erase(path: Path) -> None:
    """Write zeros over what a file holds: no tenant's data stays beyond its job.  To empty it costs far more."""
    with path.open("r+b") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))


def _sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# ---- How fast inputs arrive: a flow is measured where it ends, of any sender and under any limit

#: Bytes of a shorter time say little.
SHORTEST_S = 0.1


@dataclass(slots=True)
class _Measured:
    """What had come at a moment, what has come now, and the rate up to that moment; None = not known yet."""

    at_s: float
    then_bytes: int
    now_bytes: int
    bps: float | None = None


class FlowMeter:
    """Counts what has come of each input; any thread may call its methods."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._measured: dict[tuple[str, int], _Measured] = {}
        #: When the first bytes came; None = before this agent was started.
        self._began_s: dict[tuple[str, int], float | None] = {}

    def received(self, job: str, attempt: int, total_bytes: int) -> None:
        """Note how much of an input has come; of a stream that is new, the time begins with this."""
        with self._lock:
            found = self._measured.get((job, attempt))
            if found is None or total_bytes < found.now_bytes:
                self._measured[job, attempt] = _Measured(self._now_s(), total_bytes, total_bytes)
                self._began_s.setdefault((job, attempt), self._now_s())
            else:
                found.now_bytes = total_bytes

    def begun(self, job: str, attempt: int) -> None:
        """Note that bytes of an input have come whose rate is of no interest."""
        with self._lock:
            self._began_s.setdefault((job, attempt), self._now_s())

    def missed(self, job: str, attempt: int) -> None:
        """Note that bytes of an input have come nobody knows when."""
        with self._lock:
            self._began_s[job, attempt] = None

    def age_s(self, job: str, attempt: int) -> float | None:
        """Return the time since the first byte of an input came; None where that is not known."""
        with self._lock:
            began_s = self._began_s.get((job, attempt))
        return None if began_s is None else self._now_s() - began_s

    def measure(self, waiting: Container[tuple[str, int]]) -> tuple[ObservedFlow, ...]:
        """Return the rates since this was called last; inputs of attempts that do not wait any more are forgotten."""
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
        """Return the rates that were measured last."""
        with self._lock:
            known = [(*key, round(flow.bps)) for key, flow in self._measured.items() if flow.bps is not None]
        return tuple(ObservedFlow(job, attempt, bps) for job, attempt, bps in known[:MOST_FLOWS])


# ---- Streams of jobs that the agent does not know yet: a client may be faster than the command that announces its job

#: Jobs that were released last, of which no command will come.
REMEMBERED = 10_000


class Announcements:
    """Who waits for which job.  No method waits, or takes the lock of the jobs; any thread may call them."""

    def __init__(self, jobs: Mapping[str, HeldJob]) -> None:
        self._jobs = jobs
        self._lock = threading.Lock()
        self._waiting: dict[str, list[tuple[int, Future[None]]]] = {}
        self._released: OrderedDict[str, int] = OrderedDict()

    def of(self, uuid: str, attempt: int) -> "Future[None] | None":
        """Return what ends when a job is held at this attempt or a later one, or was released; None if it is held."""
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
        """Note that commands were executed, by which attempts of jobs were `released`."""
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
            for uuid, one in decided:  # another thread that executes commands finds them no more
                self._waiting[uuid].remove(one)
        for _, (_, future) in decided:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def _is_held(self, uuid: str, attempt: int) -> bool:
        job = self._jobs.get(uuid)  # a look at what may change at any moment: the lock is held while a disk works
        return job is not None and job.assignment.attempt >= attempt

    def _forget(self, uuid: str, future: "Future[None]") -> None:
        with self._lock:
            left = [one for one in self._waiting.get(uuid, ()) if one[1] is not future]
            if left:
                self._waiting[uuid] = left
            else:
                self._waiting.pop(uuid, None)
