"""Results and progress of a batch, and writing of small results to files."""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.pool import Batch, Job, JobState


def called(job: Job) -> str:
    """Return the display name of a job, which need not have a name."""
    return job.name or f"job {job.index}"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of one job."""

    job: Job
    #: File with the result; None if there is none.
    result: Path | None
    #: Why there is no result.
    reason: str = ""
    #: Whether its result is the input of other jobs of a pipeline, and stays in the pool.
    intermediate: bool = False

    @property
    def name(self) -> str:
        """Name of the input."""
        return self.job.name

    @property
    def called(self) -> str:
        """Display name of the job."""
        return called(self.job)

    @property
    def state(self) -> JobState:
        """Final state of the job."""
        return self.job.state

    @property
    def complete(self) -> bool:
        """Whether its result was computed, and is only for other jobs of the pipeline."""
        return self.intermediate and self.state in (JobState.RESULT_HELD, JobState.COMPLETED)

    @property
    def slot(self) -> str:
        """Slot on which it was computed last."""
        return self.job.slot

    @property
    def compute_s(self) -> float | None:
        """Computation time in seconds."""
        return self.job.compute_s


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of a batch; the jobs are in the order of their inputs."""

    batch: Batch
    jobs: tuple[JobOutcome, ...]
    #: Directory of the results.
    output_dir: Path

    @property
    def ok(self) -> bool:
        """Whether every result is here, and every intermediate result was computed."""
        return all(outcome.result is not None or outcome.complete for outcome in self.jobs)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of a batch."""

    batch_uuid: str
    jobs: int
    #: Number of jobs by state; states without jobs are left out.
    states: Mapping[JobState, int]
    #: Number of results that are here.
    results: int
    input_bytes: int
    #: Bytes of input that have been sent, or need not be sent.
    sent_bytes: int


def make_directory(path: Path) -> None:
    """Create the directory of results if it does not exist; InvalidInput if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be a directory of results: {error.strerror}") from error


def write_files(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write small files together: each appears under its name completely and durably, or not at all.

    All are written before the first is synced to disk, because that also writes most of the others to disk.
    """
    token = uuid4().hex[:8]
    #: Final names of the files that still have temporary names; as strings, since Path objects would double the time.
    unnamed: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(_remove, unnamed)
        written: list[tuple[BinaryIO, str]] = []
        for number, (path, data) in enumerate(contents):
            directory, name = os.path.split(path)
            place = os.path.join(directory, f".{name}.{token}-{number}")  # noqa: PTH118
            file: BinaryIO = stack.enter_context(open(place, "xb", opener=_private))  # Path.open takes no opener
            unnamed[place] = os.fspath(path)
            file.write(data)
            file.flush()
            written.append((file, place))
        for file, place in written:
            os.fsync(file.fileno())
            os.replace(place, unnamed[place])  # noqa: PTH105
            del unnamed[place]


def _remove(places: Iterable[str]) -> None:
    for place in places:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)  # noqa: PTH108


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
