"""Outlook of stored pipelines and jobs: why they wait, and when they are expected to begin."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.requests import BatchDetail, JobDetail, PipelineDetail
from fpga_pool.model.objects.pool import ACTIVE_JOBS, PIPELINE_POLICY, Batch, Job, JobState
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.rules.batch.dry_run import ABOUT_TO_BE_PLANNED, batch_detail, waiting
from fpga_pool.model.rules.pipeline.edges import ready
from fpga_pool.model.rules.task.decisions import Outlook, task_outlooks, task_view
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

WAITS_FOR_RESULTS = "subtasks wait for the results of others"


def job_detail(tx: Transaction, job: Job, catalogue: Catalogue, now_s: float) -> JobDetail:
    """Return a job of the shard with its pending reason and expected start."""
    return job_details(tx, [job], catalogue, now_s)[0]


def job_details(tx: Transaction, jobs: Iterable[Job], catalogue: Catalogue, now_s: float) -> list[JobDetail]:
    """Return jobs of the shard as `job_detail` does; outlooks that several jobs have in common are computed once."""
    outlooks = _Outlooks(cast("Transaction", _ReadOnce(tx)), catalogue, now_s)
    details = []
    for job in jobs:
        reason, expected_at = "", job.expected_at
        if job.state is JobState.PENDING:
            because, expected_at = outlooks.of(job)
            reason = because or job.reason or ABOUT_TO_BE_PLANNED
        details.append(JobDetail(job=job, pending_reason=reason, expected_at=expected_at))
    return details


class _Outlooks:
    """Computes why pending jobs wait, and when they can begin.

    Jobs of a batch with the same function have the same outlook; a subtask of a pipeline also waits for its
    predecessors.
    """

    def __init__(self, tx: Transaction, catalogue: Catalogue, now_s: float) -> None:
        self._tx, self._catalogue, self._now_s = tx, catalogue, now_s
        #: Outlooks by batch and function.
        self._places: dict[tuple[str, str], Outlook] = {}
        self._subtasks: dict[str, _Subtasks] = {}
        #: Outlooks by task, as far as they were needed, and the iterator over the others.
        self._tasks: dict[str, Outlook] = {}
        self._more_tasks: Iterator[tuple[str, Outlook]] | None = None

    def of(self, job: Job) -> Outlook:
        """Return why a job waits ("" = unknown), and when it can begin (None = unknown)."""
        batch = self._tx.batch(job.batch_uuid)
        if batch.policy == TASK_POLICY:
            return self._task(batch.uuid)
        if batch.policy != PIPELINE_POLICY:
            return self._place(batch, job)
        if batch.uuid not in self._subtasks:
            self._subtasks[batch.uuid] = _Subtasks(self._tx, self._tx.batch_jobs(batch.uuid), self._now_s)
        subtasks = self._subtasks[batch.uuid]
        if job.uuid not in subtasks.waiting:
            return "", None
        if job.uuid in subtasks.able:
            return self._place(batch, job)
        if batch.withheld:
            return batch.withheld, None
        return WAITS_FOR_RESULTS, subtasks.next_begin([job])

    def _place(self, batch: Batch, job: Job) -> Outlook:
        alike = batch.uuid, job.function
        if alike not in self._places:
            self._places[alike] = waiting(self._tx, batch, {job.function}, self._catalogue, self._now_s)
        return self._places[alike]

    def _task(self, uuid: str) -> Outlook:
        if self._more_tasks is None:
            view = task_view(self._tx, self._catalogue, self._now_s)
            self._more_tasks = iter(()) if view is None else task_outlooks(view)
        while uuid not in self._tasks and (found := next(self._more_tasks, None)) is not None:
            self._tasks[found[0]] = found[1]
        return self._tasks.get(uuid, ("", None))


class _ReadOnce:
    """A read-only transaction that caches its answers to calls without arguments, or with strings alone."""

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
    tx: Transaction, pipeline: Batch, jobs: Sequence[Job], catalogue: Catalogue, now_s: float
) -> BatchDetail:
    """Return a pipeline with its pending reason, expected start and end, and lateness; `jobs` are all its subtasks.

    Subtasks whose inputs are complete wait for a place, as jobs of a batch do.  If there are none of these, the next
    subtask begins when the results that it reads are planned to be complete.
    """
    subtasks = _Subtasks(tx, jobs, now_s)
    found = batch_detail(tx, pipeline, {job.function for job in subtasks.able.values()}, catalogue, now_s)
    if subtasks.able or not subtasks.waiting:
        return found
    if pipeline.withheld:
        return changed(found, pending_reason=pipeline.withheld)
    begins_at = subtasks.next_begin(subtasks.waiting.values())
    return changed(found, pending_reason=WAITS_FOR_RESULTS, expected_at=begins_at)


class _Subtasks:
    """The waiting subtasks of a pipeline, and when the results that they read are complete; `jobs` are all subtasks."""

    def __init__(self, tx: Transaction, jobs: Sequence[Job], now_s: float) -> None:
        living = {host.name for host in tx.hosts() if host.alive}
        self.waiting = {job.uuid: job for job in jobs if job.state is JobState.PENDING}
        #: Waiting subtasks whose inputs are complete.
        self.able = {job.uuid: job for job in ready(jobs, living)}
        self._there_at = {job.uuid: _there_at(job, living, now_s) for job in jobs}

    def next_begin(self, waiting: Iterable[Job]) -> float | None:
        """Return when the first of these has its whole input; None if each has a predecessor without a place."""
        begin_s = min(max(self._there_at[uuid] for uuid in job.predecessors) for job in waiting)
        return begin_s if math.isfinite(begin_s) else None


def _there_at(job: Job, living: Collection[str], now_s: float) -> float:
    if job.state is JobState.RESULT_HELD and job.host in living:
        return now_s
    if job.state in ACTIVE_JOBS and job.dispatched_at is not None and job.end_s is not None:
        return max(job.dispatched_at + job.end_s, now_s)
    return math.inf
