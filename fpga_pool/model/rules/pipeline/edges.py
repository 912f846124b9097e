"""Consequences of the states of a pipeline's jobs along its edges.

A job is ready when every predecessor holds its result on a host that is alive.  All functions depend on stored states
alone, so they return the same after a crash.
"""

from collections.abc import Collection, Iterator, Sequence

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.objects.pool import ENDED_JOBS, PIPELINE_POLICY, Job, JobState
from fpga_pool.model.transaction import Transaction

_WITHOUT_RESULT = frozenset({JobState.FAILED, JobState.CANCELLED})
_COMPLETE = frozenset({JobState.RESULT_HELD, JobState.COMPLETED})


def skipped(jobs: Sequence[Job]) -> Iterator[tuple[str, str]]:
    """Yield the jobs that will never get an input, each with the reason; `jobs` are all of a pipeline, by index.

    Indices follow the edges: a predecessor comes before its dependents.
    """
    lost = {job.uuid: f"{job.name} {_END[job.state]}" for job in jobs if job.state in _WITHOUT_RESULT}
    for job in jobs:
        cause = next((lost[uuid] for uuid in job.predecessors if uuid in lost), None)
        if cause is not None and job.state is JobState.PENDING:
            lost[job.uuid] = f"{job.name} was skipped"
            yield job.uuid, f"not computed: its predecessor {cause}"


_END = {JobState.FAILED: "failed", JobState.CANCELLED: "was cancelled"}


def unneeded(jobs: Sequence[Job], ended: Collection[str]) -> list[Job]:
    """Return the jobs whose results are no longer needed by other jobs now that the `ended` jobs, by uuid, have ended.

    Results that are not the input of any job are for clients and are not included.
    """
    read = {uuid for job in jobs for uuid in job.predecessors}
    needed = {uuid for job in jobs if job.state not in ENDED_JOBS for uuid in job.predecessors}
    concerned = {uuid for job in jobs if job.uuid in ended for uuid in (job.uuid, *job.predecessors)}
    unread = (concerned & read) - needed
    return [job for job in jobs if job.uuid in unread and job.state is JobState.RESULT_HELD]


def ready(jobs: Sequence[Job], living: Collection[str]) -> list[Job]:
    """Return the pending jobs whose input is complete; `living` are the names of the hosts that are alive."""
    held = {job.uuid for job in jobs if _is_held(job, living)}
    return [job for job in jobs if job.state is JobState.PENDING and held.issuperset(job.predecessors)]


def lost(jobs: Sequence[Job], living: Collection[str]) -> list[Job]:
    """Return the complete jobs that have to compute again because their results are gone and other jobs need them.

    If a job has to compute again, so do its predecessors whose results have been released meanwhile.
    """
    again: dict[str, Job] = {}
    waiting = {uuid for job in jobs if job.state is JobState.PENDING for uuid in job.predecessors}
    for job in reversed(jobs):
        if job.uuid in waiting and job.state in _COMPLETE and not _is_held(job, living):
            again[job.uuid] = job
            waiting.update(job.predecessors)
    return list(reversed(again.values()))


def is_intermediate(tx: Transaction, job: Job) -> bool:
    """Return whether the result of a job is an input of other jobs."""
    if tx.batch(job.batch_uuid).policy != PIPELINE_POLICY:
        return False
    return any(job.uuid in other.predecessors for other in tx.batch_jobs(job.batch_uuid))


def input_sources(tx: Transaction, uuid: str, host: str, attempt: int) -> list[Job]:
    """Return the jobs whose results, one after the other, are the input for which an attempt on a host waits.

    Raises Conflict if the attempt does not wait for results, or one of the results is not held any more.
    """
    job = tx.job(uuid)
    if (job.host, job.attempt, job.state) != (host, attempt, JobState.WAITING_INPUT) or not job.predecessors:
        raise Conflict(f"job {uuid}: attempt {attempt} does not wait for results of other jobs on host {host}")
    sources = [tx.job(predecessor) for predecessor in job.predecessors]
    for source in sources:
        if source.state is not JobState.RESULT_HELD or not tx.host(source.host).alive:
            raise Conflict(f"job {uuid}: the result of its predecessor {source.name} is not held any more")
    return sources


def _is_held(job: Job, living: Collection[str]) -> bool:
    return job.state is JobState.RESULT_HELD and job.host in living
