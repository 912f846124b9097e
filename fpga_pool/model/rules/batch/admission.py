"""Batches as they come in: checked whole before anything is stored."""

from collections.abc import Collection, Sequence

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.lifecycle.batch import BATCH, BatchCancelRequested
from fpga_pool.model.lifecycle.job import CancelRequested
from fpga_pool.model.messages.agents import ReleaseJob, ResultDelivered
from fpga_pool.model.messages.requests import Receipt
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import ENDED_JOBS, HELD, NEVER, Batch, BatchState, Job, JobState, Slot
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.pipeline.edges import is_intermediate
from fpga_pool.model.rules.shared.admission import as_stored, check_function, check_input, owned
from fpga_pool.model.rules.shared.changes import change_job, send
from fpga_pool.model.rules.shared.requesters import known_requesters
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import Work, assign, parts
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


def create_batch(
    tx: Transaction, request: BatchRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> Batch:
    """Store a batch and its jobs, or nothing.

    Raises
    ------
    InvalidInput
        (or a subclass) naming the job and what would be right.
    DuplicateId
        If the batch or a job of it exists already.
    NotFound
        If a batch that it is to wait for is not one of its project.

    """
    batch, jobs = admit_batch(tx, request, catalogue, settings, now_s)
    tx.add(batch, *jobs)
    return batch


def admit_batch(
    tx: Transaction, request: BatchRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs as `create_batch` stores them, each in its shard; InvalidInput as there."""
    if request.deadline_at is not None and not now_s < request.deadline_at < NEVER:
        raise InvalidInput("deadline_at: expected a point in time that is yet to come")
    hosts, slots = tx.hosts(), tx.slots()
    check_batch(request.jobs, known_requesters(tx, hosts, request.jobs, request.project_id), slots, catalogue, settings)
    work = [_work(job, catalogue) for job in request.jobs]
    shards = parts(catalogue, slots, hosts, tx.jobs_by_shard())
    places = assign(work, shards, split=settings.shards.split_batches)
    batch, jobs = as_stored(request, request.policy, request.jobs, places, now_s)
    before = [owned_batch(tx, uuid, request.project_id) for uuid in dict.fromkeys(request.after)]
    waits_for = tuple(one.uuid for one in before if one.state is not BatchState.COMPLETED)
    if request.held:
        jobs = [changed(job, reason=HELD) for job in jobs]
    options = {name: getattr(request, name) for name in ("held", "priority", "deadline_at")}
    return changed(batch, waits_for=waits_for, **options), jobs


def _work(job: JobRequest, catalogue: Catalogue) -> Work:
    """Return what a job asks for; on several boards it takes as long as on the quickest."""
    models = catalogue.functions[job.function].fpga_time.values()
    return Work(job.function, min(model.seconds(job.input_bytes) for model in models), job.input_bytes)


def check_batch(
    jobs: Sequence[JobRequest],
    requesters: Collection[str],
    slots: Sequence[Slot],
    catalogue: Catalogue,
    settings: PoolSettings,
    *,
    each: str = "jobs",
) -> None:
    """Raise InvalidInput, or a subclass, if a batch of these jobs cannot be accepted.

    Messages call the list of jobs `each`; those of a task (`shares`) have one function.
    """
    if not jobs:
        raise InvalidInput("jobs: a batch needs at least one job")
    if len(jobs) > settings.max_batch_jobs:
        raise InvalidInput(
            f"jobs: {len(jobs)} jobs in one batch, at most {settings.max_batch_jobs} are accepted; split the batch"
        )
    seen: set[str] = set()
    fitting: set[str] = set()
    for index, job in enumerate(jobs):
        where = f"{each}[{index}]"
        if job.uuid in seen:
            raise InvalidInput(f"{where}.uuid: {job.uuid} is given twice in this batch")
        seen.add(job.uuid)
        check_input(job, where, requesters, settings)
        if job.function not in fitting:
            check_function(job.function, f"{where}.function" if each == "jobs" else "function", catalogue, slots)
            fitting.add(job.function)


def owned_batch(tx: Transaction, uuid: str, project_id: str) -> Batch:
    """Return a batch of this project (`owned`)."""
    return owned(tx.batch(uuid), project_id, "batch")


def cancel_batch(tx: Transaction, uuid: str, project_id: str, now_s: float, seen: Seen = None) -> Batch:
    """Request the cancellation of a batch: completed jobs are kept, others are cancelled (`cancel_jobs`)."""
    batch = owned_batch(tx, uuid, project_id)
    require_seen(batch, seen)
    cancelled, _ = BATCH.transition(batch, BatchCancelRequested(), now_s)
    tx.save(cancelled)
    return cancelled


def cancel_jobs(tx: Transaction, batch_uuid: str, now_s: float) -> None:
    """Have the jobs of a cancelled batch that are this shard's end; to be called for each of its shards."""
    for listed in tx.batch_jobs(batch_uuid):
        job = tx.job(listed.uuid)  # the end of one share of a task is that of the others
        if job.shard == tx.shard.name and job.state not in ENDED_JOBS:
            change_job(tx, job, CancelRequested(), now_s)


def confirm_results(tx: Transaction, receipts: Collection[Receipt], now_s: float) -> None:
    """Complete the jobs of this shard whose results are with their client, as the word to their agent was lost.

    The agent is told to release them; where its host is lost, it is when it comes back.  A receipt of what is not held,
    or of another result than the one that is, changes nothing.
    """
    digests = {receipt.job: receipt.sha256 for receipt in receipts}
    for job in tx.jobs(digests):
        held = job.state is JobState.RESULT_HELD and job.result_sha256 == digests[job.uuid]
        if held and not is_intermediate(tx, job):
            change_job(tx, job, ResultDelivered(job=job.uuid, attempt=job.attempt, at=now_s), now_s)
            if tx.host(job.host).alive:
                send(tx, job.slot, ReleaseJob(job=job.uuid))
