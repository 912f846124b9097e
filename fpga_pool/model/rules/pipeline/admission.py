"""Admission of pipelines: subtasks that depend on each other, stored as the jobs of one batch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.messages.work import PipelineRequest, SubtaskRequest
from fpga_pool.model.objects.pool import CPU, DEFAULT_SHARD, PIPELINE_POLICY, Batch, Job, Slot
from fpga_pool.model.rules.shared.admission import (
    as_stored,
    check_function,
    check_input,
    emptiest,
    first,
    known_requesters,
    owned,
    some,
)
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import open_jobs
from fpga_pool.model.transaction import Transaction


def create_pipeline(
    tx: Transaction, request: PipelineRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> Batch:
    """Store a pipeline as a batch whose jobs, by index, follow their predecessors.

    Raises
    ------
    InvalidInput
        (or a subclass) If the request is invalid; the message names the subtask and the valid values.
    DuplicateId
        If the pipeline or one of its subtasks exists already.

    """
    batch, jobs = admit_pipeline(tx, request, catalogue, settings, now_s)
    tx.add(batch, *jobs)
    return batch


def admit_pipeline(
    tx: Transaction, request: PipelineRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> tuple[Batch, list[Job]]:
    """Return a pipeline as `create_pipeline` stores it, as a whole in one shard; raises InvalidInput likewise."""
    _check_sizes(request, settings)
    order = _in_order(request.subtasks)
    requesters = known_requesters(tx, tx.hosts(), request.subtasks, request.project_id)
    slots = tx.slots()
    for index, subtask in enumerate(request.subtasks):
        where = f"subtasks[{index}]"
        _check_input(subtask, where, requesters, settings)
        if not _fits_cpu(subtask.function, slots, catalogue):
            check_function(subtask.function, f"{where}.function", catalogue, slots)
    shard = _shard_for({subtask.function for subtask in order}, slots, catalogue, open_jobs(tx, slots))
    uuids = {subtask.name: subtask.uuid for subtask in order}
    batch, jobs = as_stored(request, PIPELINE_POLICY, order, [shard] * len(order), now_s)
    return batch, [
        replace(
            job,
            predecessors=tuple(uuids[name] for name in subtask.after),
            reason=f"waits for {first(subtask.after)}" if subtask.after else "",
        )
        for job, subtask in zip(jobs, order, strict=True)
    ]


def _check_sizes(request: PipelineRequest, settings: PoolSettings) -> None:
    count = len(request.subtasks)
    if not 1 <= count <= settings.max_batch_jobs:
        raise InvalidInput(f"subtasks: expected 1 to {settings.max_batch_jobs}, found {count}")
    for what in ("uuid", "name"):
        repeated, times = Counter(getattr(subtask, what) for subtask in request.subtasks).most_common(1)[0]
        if times > 1:
            raise InvalidInput(f"subtasks: {what} {repeated!r} is given {times} times in this pipeline")


def _in_order(subtasks: Sequence[SubtaskRequest]) -> list[SubtaskRequest]:
    """Return the subtasks in an order in which each follows its predecessors."""
    by_name: Mapping[str, SubtaskRequest] = {subtask.name: subtask for subtask in subtasks}
    graph: dict[str, tuple[str, ...]] = {}
    for index, subtask in enumerate(subtasks):
        for name in subtask.after:
            if name not in by_name:
                raise InvalidInput(f"subtasks[{index}].after: no subtask {name!r}; known: {some(by_name)}")
        if len(set(subtask.after)) < len(subtask.after):
            raise InvalidInput(f"subtasks[{index}].after: a predecessor is given twice")
        graph[subtask.name] = subtask.after
    try:
        return [by_name[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise InvalidInput(f"subtasks: circular dependency: {first(error.args[1], ' <- ')}") from None


def _check_input(subtask: SubtaskRequest, where: str, requesters: set[str], settings: PoolSettings) -> None:
    if not subtask.after:
        check_input(subtask, where, requesters, settings)
    elif subtask.requester or subtask.input_bytes:
        raise InvalidInput(f"{where}: a subtask with predecessors has no requester and no input_bytes of its own")


def _fits_cpu(name: str, slots: Sequence[Slot], catalogue: Catalogue) -> bool:
    """Return whether a worker of a CPU pool can compute a function."""
    function = catalogue.functions.get(name)
    return function is not None and function.cpu_time is not None and any(slot.kind == CPU for slot in slots)


def _fits(name: str, slot: Slot, catalogue: Catalogue) -> bool:
    if slot.kind == CPU:
        return _fits_cpu(name, [slot], catalogue)
    return slot.board in catalogue.functions[name].fpga_time and catalogue.fits(name, slot.board, slot.kind)


def _shard_for(functions: set[str], slots: Sequence[Slot], catalogue: Catalogue, jobs: Mapping[str, int]) -> str:
    """Return the shard with the fewest jobs per slot, of those that can compute all of the functions."""
    of_shard: dict[str, list[Slot]] = {}
    for slot in slots:
        of_shard.setdefault(slot.shard, []).append(slot)
    if not of_shard:
        return DEFAULT_SHARD
    able = [
        shard
        for shard, members in of_shard.items()
        if all(any(_fits(name, slot, catalogue) for slot in members) for name in functions)
    ]
    if not able:
        raise InvalidInput(f"subtasks: no shard of the pool can compute all of {some(functions)}")
    return emptiest(able, jobs, {shard: len(members) for shard, members in of_shard.items()})


def owned_pipeline(tx: Transaction, uuid: str, project_id: str | None) -> Batch:
    """Return a pipeline if it belongs to the project (see `owned`)."""
    batch = owned(tx.batch(uuid), project_id, "pipeline")
    if batch.policy != PIPELINE_POLICY:
        raise NotFound(f"no pipeline {uuid}")
    return batch
