"""The jobs of a batch as its runner sees them: their results, the transfers in progress, and problems."""

import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from fpga_pool.client.api import PoolApi
from fpga_pool.client.inputs import Input
from fpga_pool.client.lane import Parcel
from fpga_pool.client.outcome import BatchProgress, JobOutcome, called
from fpga_pool.client.stream import Stream
from fpga_pool.model.exceptions import Forbidden, InvalidInput
from fpga_pool.model.messages.requests import Receipt
from fpga_pool.model.messages.work import JobRequest
from fpga_pool.model.objects.pool import ENDED_JOBS, Batch, Job, JobState
from fpga_pool.model.objects.tasks import Task
from fpga_pool.transfer.client import ResultInfo

#: Maximum number of receipts in one call of the API.
_MOST_RECEIPTS = 1000
#: Time in seconds for a host to report that a result was received; after that the client confirms it to the pool.
_REPORTED_S = 2.0
#: Jobs whose inputs the pool does not hold.
AT_CLIENT = frozenset({JobState.PENDING, JobState.WAITING_INPUT})


class Goal(Enum):
    """The condition that ends a run."""

    #: All results are here.
    RESULTS = "results"
    #: The pool holds all inputs; results stay in the pool until they are fetched.
    INPUTS = "inputs"
    #: The results that the pool holds now are here.
    HELD = "held"


@dataclass(slots=True, kw_only=True)
class Transfer:
    """One job of a run, with its transfers."""

    source: Input
    sink: Path
    job: Job
    goal: Goal = Goal.RESULTS
    #: Whether its result is the input of other jobs of a pipeline, and stays in the pool.
    intermediate: bool = False
    #: Whether the job was polled since its last stream ended.
    fresh: bool = True
    #: The stream or parcel that transfers its bytes now.
    stream: Stream | Parcel | None = None
    result: ResultInfo | None = None
    #: The result of a former attempt, after which the job was planned again.
    former: ResultInfo | None = None
    #: When the result was received, and confirmed to the host, on the monotonic clock.
    received_s: float = 0.0
    failures: int = 0
    #: No new stream before this, on the monotonic clock.
    not_before_s: float = 0.0
    #: The input is not sent again before this: the responder has all of it, and the pool will be informed.
    staged_until_s: float = 0.0
    #: Why its input or result cannot be read or written here, so that the job cannot continue.
    problem: str = ""
    #: Error of the last transfer that broke.
    trouble: str = ""

    def update(self, job: Job) -> None:
        """Record the current state of the job in the pool.

        Transfers of a former attempt are void.  But the pool may learn that a result was received only after it has
        planned the job again: then the job is complete, and that result is the only one.
        """
        if job.attempt != self.job.attempt:
            self.former, self.result = self.result or self.former, None
            self.failures, self.not_before_s, self.staged_until_s = 0, 0.0, 0.0
        self.job = job
        self.fresh = True
        self._take_former()

    def receive(self, result: ResultInfo, attempt: int) -> None:
        """Record a result that was received.

        Its attempt may differ from the job's: the last known state may be that of a scheduler that was replaced.
        """
        if attempt == self.job.attempt:
            self.result, self.received_s, self.failures = result, time.monotonic(), 0
        else:
            self.former = result
            self._take_former()

    def _take_former(self) -> None:
        if self.job.state is JobState.COMPLETED and self.result is None:
            self.result = self.former

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do for it here."""
        if self.problem:
            return self.stream is None
        if self.goal is Goal.INPUTS:
            return self.here and self.stream is None
        if self.job.state is JobState.RESULT_HELD:
            return self.intermediate or (self.result is not None and not self.awaits_report)
        return (self.goal is Goal.HELD or self.job.state in ENDED_JOBS) and self.stream is None

    @property
    def here(self) -> bool:
        """Whether its result is here or stays in the pool; for the goal INPUTS, whether the pool holds its input."""
        if self.goal is Goal.INPUTS:
            return self.job.state not in AT_CLIENT or bool(self.job.predecessors)
        return self.result is not None or (self.intermediate and self.job.state in ENDED_JOBS)

    @property
    def awaits_report(self) -> bool:
        """Whether its result was received just now, so that the host may still have to report that to the pool."""
        return self.result is not None and time.monotonic() < self.received_s + _REPORTED_S

    @property
    def stays(self) -> bool:
        """Whether its result stays in the pool."""
        return self.intermediate or self.goal is Goal.INPUTS

    @property
    def moving_bytes(self) -> int:
        """Number of bytes that the next stream has to transfer: of the input, or of the result that is held."""
        return self.job.result_bytes or 0 if self.job.state is JobState.RESULT_HELD else self.job.input_bytes

    @property
    def begin_at(self) -> float:
        """Planned start of the transfer of its input, on the pool's clock."""
        first_s = self.job.transfer[0].begin_s if self.job.transfer else 0.0
        return (self.job.dispatched_at or 0.0) + first_s


def new_job(work: Batch | Task, index: int, request: JobRequest) -> Job:
    """Return a new job of a batch or a task, as it is known before the first poll."""
    return Job(
        uuid=request.uuid,
        batch_uuid=work.uuid,
        project_id=work.project_id,
        user_id=work.user_id,
        index=index,
        name=request.name,
        function=request.function,
        requester=request.requester,
        input_bytes=request.input_bytes,
        created_at=work.created_at,
    )


def absent_input(job: Job) -> Input:
    """Return the input of a job whose file was not given; opening it raises InvalidInput."""

    def open_() -> BinaryIO:
        raise InvalidInput(f"{called(job)}: the pool needs this input again; attach with the files of the batch")

    return Input(job.name, job.input_bytes, open_, job.function, job.requester)


def found_result(path: Path, job: Job) -> ResultInfo | None:
    """Return the result of a job if an earlier client has left it at this path."""
    if not job.result_sha256 or not path.is_file() or path.stat().st_size != job.result_bytes:
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ResultInfo(path, path.stat().st_size, digest) if digest == job.result_sha256 else None


def urgency(transfer: Transfer) -> tuple[bool, float]:
    """Return the sort key of streams: inputs before results, which can wait; then by planned start."""
    return transfer.job.state is JobState.RESULT_HELD, transfer.begin_at


def progress_of(batch_uuid: str, transfers: Sequence[Transfer]) -> BatchProgress:
    """Return the progress of the jobs of a batch."""
    return BatchProgress(
        batch_uuid=batch_uuid,
        jobs=len(transfers),
        states=Counter(transfer.job.state for transfer in transfers),
        results=sum(transfer.result is not None for transfer in transfers),
        input_bytes=sum(transfer.source.input_bytes for transfer in transfers),
        sent_bytes=sum(_sent_bytes_of(transfer) for transfer in transfers),
    )


def _sent_bytes_of(transfer: Transfer) -> int:
    """Return the number of bytes of the input that have been sent."""
    if transfer.job.state not in AT_CLIENT:
        return transfer.source.input_bytes
    return transfer.stream.sent_bytes if transfer.stream is not None else 0


def confirm(api: PoolApi, batch: Batch, transfers: Sequence[Transfer]) -> Batch:
    """Confirm to the pool the received results that its hosts have not reported yet; return the batch."""
    receipts = [
        Receipt(job=transfer.job.uuid, sha256=transfer.result.sha256)
        for transfer in transfers
        if transfer.result is not None and transfer.job.state is JobState.RESULT_HELD and not transfer.intermediate
    ]
    with suppress(Forbidden):  # the caller may have read access only; the pool deletes the results in the end
        for begin in range(0, len(receipts), _MOST_RECEIPTS):
            batch = api.confirm(batch.uuid, receipts[begin : begin + _MOST_RECEIPTS])
    return batch


def outcome_of(transfer: Transfer) -> JobOutcome:
    """Return the outcome of a job, with the reason if it has no result."""
    if transfer.result is not None:
        return JobOutcome(transfer.job, transfer.result.path)
    reason = transfer.problem or transfer.job.reason or transfer.trouble
    if not reason and transfer.job.state is JobState.COMPLETED:
        reason = "its result was fetched to another directory, or its retention in the pool is over"
    return JobOutcome(transfer.job, None, reason, transfer.intermediate)


def result_files(directory: Path, inputs: Sequence[Input | Job]) -> list[Path]:
    """Return the file of each result: NAME.FUNCTION, or NAME.INDEX.FUNCTION if several have the same."""
    pairs = Counter((source.name, source.function) for source in inputs)
    return [
        directory
        / ".".join((source.name, *([] if pairs[source.name, source.function] == 1 else [str(index)]), source.function))
        for index, source in enumerate(inputs)
    ]
