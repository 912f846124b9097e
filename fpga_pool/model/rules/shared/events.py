"""The events of an object, for readers of the object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fpga_pool.model.exceptions import InvalidInput, NotFound
from fpga_pool.model.objects.history import CREATED, HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, JobState
from fpga_pool.model.rules.batch.admission import owned_batch
from fpga_pool.model.rules.gang.admission import owned_gang
from fpga_pool.model.rules.pipeline.admission import owned_pipeline
from fpga_pool.model.rules.shared.admission import owned
from fpga_pool.model.rules.task.admission import owned_task
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed


@dataclass(frozen=True, slots=True)
class _Instance:
    """A virtual machine of Nova, of which the pool knows the slots that it holds."""

    history: tuple[HistoryEntry, ...]


def _of_instance(tx: Transaction, uuid: str, project_id: str) -> tuple[HistoryEntry, ...]:
    """Return the events of the leases that an instance has now, numbered in the order of their times."""
    leases = [lease for lease in tx.leases(holders=[uuid]) if lease.of_instance and lease.project_id == project_id]
    if not leases:
        raise NotFound(f"no instance {uuid} that holds slots")
    events = sorted(((entry, lease.slot) for lease in leases for entry in lease.history), key=lambda one: one[0].at)
    return tuple(
        changed(entry, number=number, reason=f"slot {slot}: {entry.reason}" if entry.reason else f"slot {slot}")
        for number, (entry, slot) in enumerate(events)
    )


#: By noun, what reads an object of a project, or one of the pool.
_READERS: Mapping[str, Callable[[Transaction, str, str], Any]] = {
    "batch": owned_batch,
    "gang": owned_gang,
    "host": lambda tx, name, _: tx.host(name),
    "instance": lambda tx, uuid, project_id: _Instance(_of_instance(tx, uuid, project_id)),
    "job": lambda tx, uuid, project_id: owned(tx.job(uuid), project_id, "job"),
    "pipeline": owned_pipeline,
    "slot": lambda tx, name, _: tx.slot(name),
    "task": owned_task,
}


def events_of(tx: Transaction, noun: str, name: str, project_id: str) -> tuple[HistoryEntry, ...]:
    """Return what happened to an object, oldest first; `name` is a uuid, or that of a host or slot.

    NotFound if it is another project's.
    """
    if noun not in _READERS:
        raise InvalidInput(f"noun: expected one of {', '.join(_READERS)}, found {noun[:64]!r}")
    found = _READERS[noun](tx, name, project_id)
    history: tuple[HistoryEntry, ...] = found.history
    return (*_creation_of(tx.batch(found.batch_uuid)), *history) if isinstance(found, Job) else history


def _creation_of(batch: Batch) -> tuple[HistoryEntry, ...]:
    """Return the first event of each job of a batch: that of the batch, where it is stored once for all of them."""
    return tuple(changed(entry, after=str(JobState.PENDING)) for entry in batch.history if entry.event == CREATED)
