"""The common part of the admission of batches, tasks, gangs and pipelines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput, NoSlotFits, NotFound, UnknownFunction, UnknownRequester
from fpga_pool.model.messages.work import JobRequest, SubtaskRequest, WorkRequest
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.pool import Batch, BatchState, Job, Slot
from fpga_pool.model.objects.servers import server_of
from fpga_pool.model.rules.shared.settings import PoolSettings

#: What is stored as a job.
RequestedJob = JobRequest | SubtaskRequest


class _Owned(Protocol):
    @property
    def uuid(self) -> str: ...
    @property
    def project_id(self) -> str: ...


OwnedT = TypeVar("OwnedT", bound=_Owned)


def as_stored(
    request: WorkRequest, policy: str, requested: Sequence[RequestedJob], shards: Sequence[str], now_s: float
) -> tuple[Batch, list[Job]]:
    """Return a batch and its jobs as they are stored; each job belongs to its own of `shards`."""
    batch = Batch(
        uuid=request.uuid,
        project_id=request.project_id,
        user_id=request.user_id,
        name=request.name,
        policy=policy,
        created_at=now_s,
        jobs=len(requested),
        input_bytes=sum(job.input_bytes for job in requested),
        history=created(now_s, BatchState.PENDING),
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
        for index, (job, shard) in enumerate(zip(requested, shards, strict=True))
    ]
    return batch, jobs


def check_input(job: RequestedJob, where: str, requesters: Iterable[str], settings: PoolSettings) -> None:
    """Raise InvalidInput, or a subclass, if the input of a job is too large, or its requester is not in the pool."""
    if not 0 <= job.input_bytes <= settings.max_input_bytes:
        raise InvalidInput(f"{where}.input_bytes: {job.input_bytes} is not between 0 and {settings.max_input_bytes}")
    if job.requester not in requesters:
        if uuid := server_of(job.requester):
            raise UnknownRequester(f"{where}.requester: no server {uuid} of this project runs on a host of the pool")
        raise UnknownRequester(f"{where}.requester: no host {job.requester!r} in the pool; known: {some(requesters)}")


def check_function(name: str, where: str, catalogue: Catalogue, slots: Sequence[Slot]) -> None:
    """Raise InvalidInput, or a subclass, unless a slot of the pool can hold a function; messages say `where` it is."""
    if name not in catalogue.functions:
        raise UnknownFunction(f"{where}: {name!r} is not in the catalogue; known: {some(catalogue.functions)}")
    # Without a time model a function can be simulated, not planned.
    boards = catalogue.functions[name].fpga_time
    if not any(slot.board in boards and catalogue.fits(name, slot.board, slot.kind) for slot in slots):
        wanted = ", ".join(catalogue.functions[name].slot_kinds)
        raise NoSlotFits(f"{where}: no slot of the pool can hold {name} (it requires a slot of kind {wanted})")


def some(names: Iterable[str]) -> str:
    """Return some of the names there are, for a message."""
    known = sorted(names)
    return ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") or "none"


def emptiest(shards: Iterable[str], load: Mapping[str, float], size: Mapping[str, int]) -> str:
    """Return the shard with the least load for its size; ValueError if there are none."""
    return min(shards, key=lambda shard: (load.get(shard, 0) / size[shard], shard))


def owned(found: OwnedT, project_id: str, kind: str) -> OwnedT:
    """Return an object of this project; another project's looks as if it did not exist."""
    if found.project_id != project_id:
        raise NotFound(f"no {kind} {found.uuid}")
    return found
