"""What can be said of a pipeline, or a job, that is stored: why it waits, and when it can begin."""

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.requests import BatchDetail, JobDetail, PipelineDetail, TaskDetail
from fpga_pool.model.objects.pool import ACTIVE_JOBS, PIPELINE_POLICY, Batch, Job, JobState
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.batch.dry_run import ABOUT_TO_BE_PLANNED, batch_detail
from fpga_pool.model.rules.pipeline.edges import ready
from fpga_pool.model.rules.task.decisions import task_detail
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

WAITS_FOR_RESULTS = "subtasks wait for the results of others"


def job_detail(tx: Transaction, job: Job, catalogue: Catalogue, now_s: float) -> JobDetail:
    """Return a job of the shard with why it waits, and when it is expected to begin."""
    if job.state is not JobState.PENDING:
        return JobDetail(job=job, pending_reason="", expected_at=job.expected_at)
    batch = tx.batch(job.batch_uuid)
    found: BatchDetail | TaskDetail
    if batch.policy == TASK_POLICY:
        found = task_detail(tx, batch.uuid, catalogue, now_s)
    elif batch.policy == PIPELINE_POLICY:
        found = pipeline_outlook(tx, batch, tx.batch_jobs(batch.uuid), catalogue, now_s, only=job.uuid)
    else:
        found = batch_detail(tx, batch, {job.function}, catalogue, now_s)
    reason = found.pending_reason or job.reason or ABOUT_TO_BE_PLANNED
    return JobDetail(job=job, pending_reason=reason, expected_at=found.expected_at)


def job_details(tx: Transaction, jobs: Iterable[Job], catalogue: Catalogue, now_s: float) -> list[JobDetail]:
    """Return jobs of the shard as `job_detail` does, with what they wait for worked out once for each batch.

    Of a batch, jobs of the same function wait for the same; each subtask of a pipeline for its own predecessors.
    """
    once = cast("Transaction", _ReadOnce(tx))
    found: dict[tuple[str, str, str, str], JobDetail] = {}
    details = []
    for job in jobs:
        own = job.uuid if job.state is not JobState.PENDING or job.predecessors else ""
        alike = job.batch_uuid, job.function, job.reason, own
        if alike not in found:
            found[alike] = job_detail(once, job, catalogue, now_s)
        details.append(changed(found[alike], job=job))
    return details


class _ReadOnce:
    """A transaction that is only read, and asked nothing twice."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._answers: dict[tuple[str, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._tx, name)
        if not callable(ask):
            return ask

        def answer(*texts: Any, **others: Any) -> Any:
            if others or not all(isinstance(text, str) for text in texts):
                return ask(*texts, **others)
            if (name, *texts) not in self._answers:
                self._answers[name, *texts] = ask(*texts)
            return self._answers[name, *texts]

        return answer


def pipeline_detail(tx: Transaction, pipeline: Batch, catalogue: Catalogue, now_s: float) -> PipelineDetail:
    """Return a pipeline with its subtasks and its outlook."""
    jobs = tx.batch_jobs(pipeline.uuid)
    outlook = pipeline_outlook(tx, pipeline, jobs, catalogue, now_s)
    return PipelineDetail(
        pipeline=pipeline,
        pending_reason=outlook.pending_reason,
        expected_at=outlook.expected_at,
        ends_at=outlook.ends_at,
        late_s=outlook.late_s,
        subtask_list=tuple(jobs),
    )


def pipeline_outlook(
    tx: Transaction, pipeline: Batch, jobs: Sequence[Job], catalogue: Catalogue, now_s: float, only: str = ""
) -> BatchDetail:
    """Return a pipeline with its pending reason, expected start and end, and how late it is; `jobs` are all of it.

    Subtasks whose inputs are complete wait for a place, as jobs of a batch do.  Where there are none of these, the next
    one begins when the results that it reads are planned to be there.  `only` is the uuid of the one that is asked for.
    """
    living = {host.name for host in tx.hosts() if host.alive}
    able = [job for job in ready(jobs, living) if only in ("", job.uuid)]
    found = batch_detail(tx, pipeline, {job.function for job in able}, catalogue, now_s)
    waiting = [job for job in jobs if job.state is JobState.PENDING and only in ("", job.uuid)]
    if able or not waiting:
        return found
    if pipeline.withheld:
        return changed(found, pending_reason=pipeline.withheld)
    return changed(found, pending_reason=WAITS_FOR_RESULTS, expected_at=_next_begin(jobs, waiting, living, now_s))


def _next_begin(jobs: Sequence[Job], waiting: Sequence[Job], living: Collection[str], now_s: float) -> float | None:
    """Return when the first subtask has all it reads; None while a predecessor of each of them has no place."""
    there_at = {job.uuid: _there_at(job, living, now_s) for job in jobs}
    begin_s = min(max(there_at[uuid] for uuid in job.predecessors) for job in waiting)
    return begin_s if math.isfinite(begin_s) else None


def _there_at(job: Job, living: Collection[str], now_s: float) -> float:
    if job.state is JobState.RESULT_HELD and job.host in living:
        return now_s
    if job.state in ACTIVE_JOBS and job.dispatched_at is not None and job.end_s is not None:
        return max(job.dispatched_at + job.end_s, now_s)
    return math.inf
