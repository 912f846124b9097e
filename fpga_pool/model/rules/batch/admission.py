"""Admission of batches, each checked as a whole before it is stored, and their hold, change and cancellation."""

from collections.abc import Collection, Iterator, Sequence

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import Conflict, InvalidInput
from fpga_pool.model.lifecycle.batch import (
    BATCH,
    BatchCancelRequested,
    BatchHeld,
    BatchReleased,
    DependenciesCompleted,
    PriorityChanged,
)
from fpga_pool.model.lifecycle.job import CancelRequested, Displaced, HoldChanged, Skipped
from fpga_pool.model.messages.agents import ReleaseJob, ResultDelivered
from fpga_pool.model.messages.requests import BatchChange, Receipt
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import ENDED_JOBS, HELD, NEVER, Batch, BatchState, Job, JobState, Slot
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.pipeline.edges import is_intermediate
from fpga_pool.model.rules.shared.admission import as_stored, check_function, check_input, known_requesters, owned
from fpga_pool.model.rules.shared.changes import change_job, send, settle_slots
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import Work, assign, open_jobs, parts
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


def create_batch(
    tx: Transaction, request: BatchRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> Batch:
    """Store a batch and all its jobs, or nothing.

    Raises
    ------
    InvalidInput
        (or a subclass) If the request is invalid; the message names the job and the valid values.
    DuplicateId
        If the batch or one of its jobs exists already.
    NotFound
        If a batch that it is to wait for does not exist in its project.

    """
    batch, jobs = admit_batch(tx, request, catalogue, settings, now_s)
    tx.add(batch, *jobs)
    return batch


def admit_batch(
    tx: Transaction, request: BatchRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs as `create_batch` stores them; raises the same exceptions, except DuplicateId."""
    if request.deadline_at is not None and not now_s < request.deadline_at < NEVER:
        raise InvalidInput("deadline_at: expected a point in time that is yet to come")
    hosts, slots = tx.hosts(), tx.slots()
    check_batch(request.jobs, known_requesters(tx, hosts, request.jobs, request.project_id), slots, catalogue, settings)
    work = [_work(job, catalogue) for job in request.jobs]
    shards = parts(catalogue, slots, hosts, open_jobs(tx, slots))
    places = assign(work, shards, split=settings.shards.split_batches)
    batch, jobs = as_stored(request, request.policy, request.jobs, places, now_s)
    before = [owned_batch(tx, uuid, request.project_id) for uuid in dict.fromkeys(request.after)]
    waits_for = tuple(one.uuid for one in before if one.state is not BatchState.COMPLETED)
    if request.held:
        jobs = [changed(job, reason=HELD) for job in jobs]
    options = {name: getattr(request, name) for name in ("held", "priority", "deadline_at")}
    return changed(batch, waits_for=waits_for, **options), jobs


def _work(job: JobRequest, catalogue: Catalogue) -> Work:
    """Return the demand of a job; its time is that on the fastest board of its function."""
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

    `each` is the name of the list of jobs in messages.  If it is not "jobs" (the `shares` of a task), all jobs have the
    same function, which messages name without an index.
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


def owned_batch(tx: Transaction, uuid: str, project_id: str | None) -> Batch:
    """Return a batch if it belongs to the project (see `owned`)."""
    return owned(tx.batch(uuid), project_id, "batch")


def cancel_batch(tx: Transaction, uuid: str, project_id: str | None, now_s: float, seen: Seen = None) -> Batch:
    """Request the cancellation of a batch: completed jobs are kept, others are cancelled (`cancel_jobs`)."""
    batch = owned_batch(tx, uuid, project_id)
    require_seen(batch, seen)
    cancelled, _ = BATCH.transition(batch, BatchCancelRequested(), now_s)
    tx.save(cancelled)
    return cancelled


def cancel_jobs(tx: Transaction, batch_uuid: str, now_s: float) -> None:
    """Cancel the jobs of a cancelled batch that belong to this shard; to be called for each shard of the batch."""
    for listed in tx.batch_jobs(batch_uuid):
        job = tx.job(listed.uuid)  # read again, as cancelling one share of a task changes the others
        if job.shard == tx.shard.name and job.state not in ENDED_JOBS:
            change_job(tx, job, CancelRequested(), now_s)


def confirm_results(tx: Transaction, receipts: Collection[Receipt], now_s: float) -> None:
    """Complete the jobs of this shard whose results the client has received, though the agent was not notified.

    The agents are commanded to release the jobs, those of lost hosts when they return.  A receipt changes nothing if
    the result is not held any more, or is a different one.
    """
    digests = {receipt.job: receipt.sha256 for receipt in receipts}
    for job in tx.jobs(digests):
        held = job.state is JobState.RESULT_HELD and job.result_sha256 == digests[job.uuid]
        if held and not is_intermediate(tx, job):
            change_job(tx, job, ResultDelivered(job=job.uuid, attempt=job.attempt, at=now_s), now_s)
            if tx.host(job.host).alive:
                send(tx, job.slot, ReleaseJob(job=job.uuid))


# ---- Changes by the owner: hold, release and priority


def change_batch(
    tx: Transaction, uuid: str, project_id: str, change: BatchChange, now_s: float, seen: Seen = None
) -> Batch:
    """Change a batch or a pipeline; `hold_jobs` then updates its jobs in each of its shards.

    Raises Conflict if it is a task, InvalidTransition if it has ended.
    """
    batch = owned_batch(tx, uuid, project_id)
    require_seen(batch, seen)
    if batch.policy == TASK_POLICY:
        raise Conflict(f"batch {uuid} is that of a task: a task is neither held nor changed, only cancelled")
    if change.held is not None:
        batch, _ = BATCH.transition(batch, BatchHeld() if change.held else BatchReleased(), now_s)
    if change.priority is not None:
        batch, _ = BATCH.transition(batch, PriorityChanged(priority=change.priority), now_s)
    tx.save(batch)
    return tx.batch(uuid)


def hold_jobs(tx: Transaction, batch_uuid: str, now_s: float) -> None:
    """Apply the hold or release of a batch to its jobs in this shard; may be repeated.

    When a batch is held, its jobs whose inputs have not arrived lose their places; this attempt does not count.  Jobs
    whose inputs have arrived continue, since the pool may have the only copy.  Plans being made for pending jobs become
    void.
    """
    held, left = tx.batch(batch_uuid).held, set()
    for job in tx.batch_jobs(batch_uuid):
        if job.shard != tx.shard.name:
            continue
        if job.state is JobState.PENDING and (held or job.reason == HELD):
            change_job(tx, job, HoldChanged(reason=HELD if held else ""), now_s)
        elif held and job.state is JobState.WAITING_INPUT and not job.cancel_requested:
            displaced = Displaced(reason=HELD, agent_reachable=tx.host(job.host).alive, excused=True)
            change_job(tx, job, displaced, now_s, settle=False)
            left.add(job.slot)
    settle_slots(tx, sorted(left), now_s)


# ---- Batches that wait for others to complete

#: Outcomes of a batch that cancel the batches waiting for it, in words; None = it is not stored any more.
_LOST = {BatchState.FAILED: "has failed", BatchState.CANCELLED: "was cancelled", None: "does not exist any more"}


def settle_dependencies(tx: Transaction, now_s: float) -> Iterator[tuple[str, str]]:
    """Update the batches that wait for others; yield the uuid of each changed batch or job with the reason.

    A batch waits until all batches in its `waits_for` are complete. If one of these has ended otherwise, the jobs of
    the waiting batch in this shard are cancelled (as with Slurm's ``afterok``).
    """
    for uuid, states in tx.waiting_batches().items():
        lost = next((f"batch {other} {_LOST[state]}" for other, state in states.items() if state in _LOST), "")
        completed = tuple(other for other, state in states.items() if state is BatchState.COMPLETED)
        if lost:
            for job in tx.pending_jobs([uuid]):
                change_job(tx, job, Skipped(reason=f"not computed: {lost}"), now_s)
                yield job.uuid, lost
        elif completed:
            tx.save(BATCH.transition(tx.batch(uuid), DependenciesCompleted(batches=completed), now_s)[0])
            yield uuid, f"complete: {', '.join(completed)}"
