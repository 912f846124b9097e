"""The events of an object, for readers of the object."""

from collections.abc import Callable, Mapping
from typing import Any

from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.objects.history import CREATED, HistoryEntry
from fpga_pool.model.objects.pool import Batch, Job, JobState
from fpga_pool.model.rules.batch.admission import owned_batch
from fpga_pool.model.rules.gang.admission import owned_gang
from fpga_pool.model.rules.pipeline.admission import owned_pipeline
from fpga_pool.model.rules.shared.admission import owned
from fpga_pool.model.rules.task.admission import owned_task
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import changed

#: By noun, what reads an object of a project, or one of the pool.
_READERS: Mapping[str, Callable[[Transaction, str, str], Any]] = {
    "batch": owned_batch,
    "gang": owned_gang,
    "host": lambda tx, name, _: tx.host(name),
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
