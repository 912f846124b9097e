"""What came of a batch, and how far it is meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fpga_pool.model.objects import Batch, Job, JobState


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What came of one job."""

    job: Job
    #: File with the output; None where there is none.
    result: Path | None
    #: Why there is none.
    reason: str = ""

    @property
    def name(self) -> str:
        """Name of the input."""
        return self.job.name

    @property
    def state(self) -> JobState:
        """How the job ended."""
        return self.job.state

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
    """What came of a batch; the jobs are in the order of their inputs."""

    batch: Batch
    jobs: tuple[JobOutcome, ...]
    #: Where the results are.
    output_dir: Path

    @property
    def ok(self) -> bool:
        """Every job has its result."""
        return all(outcome.result is not None for outcome in self.jobs)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a batch is."""

    batch_uuid: str
    jobs: int
    #: Number of jobs by state; states without jobs are left out.
    states: Mapping[JobState, int]
    #: Results that are here.
    results: int
    input_bytes: int
    #: Bytes of input that have left, or need not.
    sent_bytes: int
