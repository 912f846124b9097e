"""The jobs of a batch as its runner knows them: what is here, what moves, what stands in the way."""

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

#: What the API takes in one call.
_MOST_RECEIPTS = 1000
#: For how long a host may take to report that a result is here; then the pool is told from here.
_REPORTED_S = 2.0
#: Jobs whose inputs the pool does not hold.
AT_CLIENT = frozenset({JobState.PENDING, JobState.WAITING_INPUT})


class Goal(Enum):
    """When a run is over."""

    #: All results are here.
    RESULTS = "results"
    #: The pool holds all inputs; results stay in the pool until they are fetched.
    INPUTS = "inputs"
    #: The results that the pool holds now are here.
    HELD = "held"


@dataclass(slots=True, kw_only=True)
class Transfer:
    """One job."""

    source: Input
    sink: Path
    job: Job
    goal: Goal = Goal.RESULTS
    #: Its result is the input of other jobs of a pipeline, and stays in the pool.
    intermediate: bool = False
    #: The job was looked at since its last stream ended.
    fresh: bool = True
    #: What moves its bytes now.
    stream: Stream | Parcel | None = None
    result: ResultInfo | None = None
    #: The result of a former attempt, after which the job was planned again.
    former: ResultInfo | None = None
    #: When the host was told that the result is here, on the monotonic clock.
    received_s: float = 0.0
    failures: int = 0
    #: No new stream before this, on the monotonic clock.
    not_before_s: float = 0.0
    #: No new input before this: the responder has it all, and the pool will hear of it.
    staged_until_s: float = 0.0
    #: Why its input or result cannot be read or written here; such a job cannot go on.
    problem: str = ""
    #: What broke last.
    trouble: str = ""

    def look(self, job: Job) -> None:
        """Take note of the job as the pool has it now.

        What was done for a former attempt is void.  But the pool may learn of a result that is here only after it has
        planned the job again: the job is complete then, and has no other result.
        """
        if job.attempt != self.job.attempt:
            self.former, self.result = self.result or self.former, None
            self.failures, self.not_before_s, self.staged_until_s = 0, 0.0, 0.0
        self.job = job
        self.fresh = True
        self._take_former()

    def receive(self, result: ResultInfo, attempt: int) -> None:
        """Take note of a result that is here.

        Its attempt may be another one than the job's: a scheduler that was replaced may have said last how the job was.
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
        """Nothing is left to do for it here."""
        if self.problem:
            return self.stream is None
        if self.goal is Goal.INPUTS:
            return self.here and self.stream is None
        if self.job.state is JobState.RESULT_HELD:
            return self.intermediate or (self.result is not None and not self.awaits_report)
        return (self.goal is Goal.HELD or self.job.state in ENDED_JOBS) and self.stream is None

    @property
    def here(self) -> bool:
        """Its result is here, or never will be because it stays in the pool."""
        if self.goal is Goal.INPUTS:
            return self.job.state not in AT_CLIENT or bool(self.job.predecessors)
        return self.result is not None or (self.intermediate and self.job.state in ENDED_JOBS)

    @property
    def awaits_report(self) -> bool:
        """Its result came just now, and the host tells the pool so."""
        return self.result is not None and time.monotonic() < self.received_s + _REPORTED_S

    @property
    def stays(self) -> bool:
        """Its result stays in the pool."""
        return self.intermediate or self.goal is Goal.INPUTS

    @property
    def moving_bytes(self) -> int:
        """How much the next stream has to move: the input, or the result that waits."""
        return self.job.result_bytes or 0 if self.job.state is JobState.RESULT_HELD else self.job.input_bytes

    @property
    def begin_at(self) -> float:
        """When its input shall begin to move, on the pool's clock."""
        first_s = self.job.transfer[0].begin_s if self.job.transfer else 0.0
        return (self.job.dispatched_at or 0.0) + first_s


def new_job(work: Batch | Task, index: int, request: JobRequest) -> Job:
    """Return a job of a batch or a task as it is until the pool is asked for it."""
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
    """Return the input of a job whose file was not given; InvalidInput when it is opened."""

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
    """Order streams: inputs before results, which can wait; then what shall begin first."""
    return transfer.job.state is JobState.RESULT_HELD, transfer.begin_at


def progress_of(batch_uuid: str, transfers: Sequence[Transfer]) -> BatchProgress:
    """Return how far the jobs of a batch are."""
    return BatchProgress(
        batch_uuid=batch_uuid,
        jobs=len(transfers),
        states=Counter(transfer.job.state for transfer in transfers),
        results=sum(transfer.result is not None for transfer in transfers),
        input_bytes=sum(transfer.source.input_bytes for transfer in transfers),
        sent_bytes=sum(_sent_bytes_of(transfer) for transfer in transfers),
    )


def _sent_bytes_of(transfer: Transfer) -> int:
    """Return how much of the input has left."""
    if transfer.job.state not in AT_CLIENT:
        return transfer.source.input_bytes
    return transfer.stream.sent_bytes if transfer.stream is not None else 0


def confirm(api: PoolApi, batch: Batch, transfers: Sequence[Transfer]) -> Batch:
    """Say again which results are here, as far as the pool did not learn of it from its hosts; return the batch."""
    receipts = [
        Receipt(job=transfer.job.uuid, sha256=transfer.result.sha256)
        for transfer in transfers
        if transfer.result is not None and transfer.job.state is JobState.RESULT_HELD and not transfer.intermediate
    ]
    with suppress(Forbidden):  # a caller may have leave to read only; the pool deletes them in the end
        for begin in range(0, len(receipts), _MOST_RECEIPTS):
            batch = api.confirm(batch.uuid, receipts[begin : begin + _MOST_RECEIPTS])
    return batch


def outcome_of(transfer: Transfer) -> JobOutcome:
    """Return what came of the job, and why nothing did."""
    if transfer.result is not None:
        return JobOutcome(transfer.job, transfer.result.path)
    reason = transfer.problem or transfer.job.reason or transfer.trouble
    if not reason and transfer.job.state is JobState.COMPLETED:
        reason = "its result was fetched to another directory, or its retention in the pool is over"
    return JobOutcome(transfer.job, None, reason, transfer.intermediate)


def result_files(directory: Path, inputs: Sequence[Input | Job]) -> list[Path]:
    """Return the file for each result: the input's name and the function; equal ones get their number."""
    pairs = Counter((source.name, source.function) for source in inputs)
    return [
        directory
        / ".".join((source.name, *([] if pairs[source.name, source.function] == 1 else [str(index)]), source.function))
        for index, source in enumerate(inputs)
    ]
