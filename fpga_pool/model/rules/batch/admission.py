"""Batches as they come in: checked whole before anything is stored."""

from collections.abc import Sequence
from typing import Annotated

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.codec import Message
from fpga_pool.model.exceptions import InvalidInput, NoSlotFits, NotFound, UnknownFunction, UnknownRequester
from fpga_pool.model.fields import ByteCount, ChosenUuid, Internal, Text, text
from fpga_pool.model.lifecycle.batch import BATCH, BatchCancelRequested
from fpga_pool.model.lifecycle.job import CancelRequested
from fpga_pool.model.objects.pool import ENDED_JOBS, Batch, Host, Job, Slot
from fpga_pool.model.rules.shared.changes import change_job
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import Work, assign, parts
from fpga_pool.model.transaction import Transaction


class JobRequest(Message, frozen=True, kw_only=True):
    """One job as a tenant asks for it; the uuid is chosen by the client."""

    uuid: ChosenUuid
    name: Text = ""
    function: Text
    requester: Text
    input_bytes: ByteCount


class BatchRequest(Message, frozen=True, kw_only=True):
    """A batch as a tenant asks for it; an empty policy is the operator's default."""

    uuid: ChosenUuid
    project_id: Internal[str]
    user_id: Internal[str]
    name: Text = ""
    policy: Annotated[str, text(64)] = ""
    jobs: tuple[JobRequest, ...]


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

    """
    hosts, slots = tx.hosts(), tx.slots()
    check_batch(request, hosts, slots, catalogue, settings)
    work = [_work(job, catalogue) for job in request.jobs]
    shards = parts(catalogue, slots, hosts, tx.jobs_by_shard())
    places = assign(work, shards, split=settings.shards.split_batches)
    batch, jobs = as_stored(request, places, now_s)
    tx.add(batch, *jobs)
    return batch


def as_stored(request: BatchRequest, shards: Sequence[str], now_s: float) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs as they are stored; each job belongs to its own of `shards`."""
    batch = Batch(
        uuid=request.uuid,
        project_id=request.project_id,
        user_id=request.user_id,
        name=request.name,
        policy=request.policy,
        created_at=now_s,
        jobs=len(request.jobs),
    )
    jobs = [
        Job(
            uuid=job.uuid,
            batch_uuid=batch.uuid,
            project_id=batch.project_id,
            user_id=batch.user_id,
            index=index,
            name=job.name,
            function=job.function,
            requester=job.requester,
            input_bytes=job.input_bytes,
            created_at=now_s,
            shard=shard,
        )
        for index, (job, shard) in enumerate(zip(request.jobs, shards, strict=True))
    ]
    return batch, jobs


def _work(job: JobRequest, catalogue: Catalogue) -> Work:
    """Return what a job asks for; on several boards it takes as long as on the quickest."""
    models = catalogue.functions[job.function].fpga_time.values()
    return Work(job.function, min(model.seconds(job.input_bytes) for model in models), job.input_bytes)


def check_batch(
    request: BatchRequest,
    hosts: Sequence[Host],
    slots: Sequence[Slot],
    catalogue: Catalogue,
    settings: PoolSettings,
    *,
    each: str = "jobs",
) -> None:
    """Raise InvalidInput, or a subclass, if a batch cannot be accepted.

    Messages call its list of jobs `each`; those of a task (`shares`) have one function.
    """
    if not request.jobs:
        raise InvalidInput("jobs: a batch needs at least one job")
    if len(request.jobs) > settings.max_batch_jobs:
        raise InvalidInput(
            f"jobs: {len(request.jobs)} jobs in one batch, at most {settings.max_batch_jobs} are accepted; split the "
            "batch"
        )
    requesters = {host.name for host in hosts}
    seen: set[str] = set()
    fitting: set[str] = set()
    for index, job in enumerate(request.jobs):
        where = f"{each}[{index}]"
        if job.uuid in seen:
            raise InvalidInput(f"{where}.uuid: {job.uuid} is given twice in this batch")
        seen.add(job.uuid)
        if not 0 <= job.input_bytes <= settings.max_input_bytes:
            raise InvalidInput(
                f"{where}.input_bytes: {job.input_bytes} is not between 0 and {settings.max_input_bytes}"
            )
        if job.requester not in requesters:
            raise UnknownRequester(
                f"{where}.requester: no host {job.requester!r} in the pool; known: {some(requesters)}"
            )
        if job.function not in fitting:
            check_function(job.function, f"{where}.function" if each == "jobs" else "function", catalogue, slots)
            fitting.add(job.function)


def check_function(name: str, where: str, catalogue: Catalogue, slots: Sequence[Slot]) -> None:
    """Raise InvalidInput, or a subclass, unless a slot of the pool can hold a function; messages say `where` it is."""
    if name not in catalogue.functions:
        raise UnknownFunction(f"{where}: {name!r} is not in the catalogue; known: {some(catalogue.functions)}")
    # Without a time model a function can be simulated, not planned.
    boards = catalogue.functions[name].fpga_time
    if not any(slot.board in boards and catalogue.fits(name, slot.board, slot.kind) for slot in slots):
        wanted = ", ".join(catalogue.functions[name].slot_kinds)
        raise NoSlotFits(f"{where}: no slot of the pool can hold {name} (it requires a slot of kind {wanted})")


def some(names: object) -> str:
    """Return some of the names there are, for a message."""
    known = sorted(names)  # type: ignore[call-overload]
    return ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"


def owned_batch(tx: Transaction, uuid: str, project_id: str) -> Batch:
    """Return a batch of this project; another project's looks as if it did not exist."""
    batch = tx.batch(uuid)
    if batch.project_id != project_id:
        raise NotFound(f"no batch {uuid}")
    return batch


def cancel_batch(tx: Transaction, uuid: str, project_id: str, now_s: float) -> Batch:
    """Request the cancellation of a batch: completed jobs are kept, others are cancelled (`cancel_jobs`)."""
    batch = owned_batch(tx, uuid, project_id)
    changed, _ = BATCH.transition(batch, BatchCancelRequested(), now_s)
    tx.save(changed)
    return changed


def cancel_jobs(tx: Transaction, batch_uuid: str, now_s: float) -> None:
    """Have the jobs of a cancelled batch that are this shard's end; to be called for each of its shards."""
    for listed in tx.batch_jobs(batch_uuid):
        job = tx.job(listed.uuid)  # the end of one share of a task is that of the others
        if job.shard == tx.shard.name and job.state not in ENDED_JOBS:
            change_job(tx, job, CancelRequested(), now_s)
