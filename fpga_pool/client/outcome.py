"""Results of a batch, its progress meanwhile, and small results as files."""

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
    """Return what a job is called for people; it need not have a name."""
    return job.name or f"job {job.index}"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of one job."""

    job: Job
    #: File with the output; None where there is none.
    result: Path | None
    #: Why there is none.
    reason: str = ""
    #: Its result is the input of other jobs of a pipeline, and stays in the pool.
    intermediate: bool = False

    @property
    def name(self) -> str:
        """Name of the input."""
        return self.job.name

    @property
    def called(self) -> str:
        """What it is called for people."""
        return called(self.job)

    @property
    def state(self) -> JobState:
        """How the job ended."""
        return self.job.state

    @property
    def complete(self) -> bool:
        """Its result has served the jobs that need it."""
        return self.intermediate and self.state in (JobState.RESULT_HELD, JobState.COMPLETED)

    @property
    def slot(self) -> str:
        """Where it was computed last."""
        return self.job.slot

    @property
    def compute_s(self) -> float | None:
        """How long it computed."""
        return self.job.compute_s


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The outcome of a batch; the jobs are in the order of their inputs."""

    batch: Batch
    jobs: tuple[JobOutcome, ...]
    #: Where the results are.
    output_dir: Path

    @property
    def ok(self) -> bool:
        """Every result is here, and none is missing in between."""
        return all(outcome.result is not None or outcome.complete for outcome in self.jobs)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Progress of a batch."""

    batch_uuid: str
    jobs: int
    #: Number of jobs by state; states without jobs are left out.
    states: Mapping[JobState, int]
    #: Results that are here.
    results: int
    input_bytes: int
    #: Bytes of input that have left, or need not.
    sent_bytes: int


def make_directory(path: Path) -> None:
    """Make a directory of results unless it is there; InvalidInput where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be a directory of results: {error.strerror}") from error


def write_files(contents: Sequence[tuple[Path, bytes]]) -> None:
    """Write small files together: each appears whole and durable under its name, or not at all.

    All are written before the first is synced to disk, which takes most of the others with it.
    """
    token = uuid4().hex[:8]
    #: What is not under its name yet.  In texts: with paths as objects half of the time would be theirs.
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
