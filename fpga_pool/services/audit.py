"""The whole database held against the rules of `model.pool.audit`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from fpga_pool.model.messages import Command
from fpga_pool.model.objects import Batch, Shard
from fpga_pool.model.pool.audit import PoolContents, audit_batch, audit_contents, audit_rest, unfinished
from fpga_pool.model.transaction import Transaction


class Reading(Transaction, Protocol):
    """A transaction that sees the whole database."""

    def shards(self) -> Sequence[Shard]:
        """Return all shards."""
        ...

    def commands(self) -> Sequence[Command]:
        """Return what the outbox holds, in the order of the commits."""
        ...

    def batches(self) -> Sequence[Batch]:
        """Return all batches."""
        ...

    def completions(self, batch_uuid: str) -> Mapping[str, int]:
        """Return the jobs of a batch whose completion is recorded, each with the attempt that counts."""
        ...


class AuditedStore(Protocol):
    """A store of a whole pool: the database, or the memory of a simulated pool."""

    def reading(self) -> AbstractContextManager[Reading]:
        """Begin a transaction that sees the whole database and changes nothing."""
        ...


def audit(store: AuditedStore, *, idle: bool = False) -> list[str]:
    """Return all that contradicts the rules; of an `idle` pool also what is still under way.

    The pool may go on meanwhile: what belongs together is read at one moment.
    """
    with store.reading() as tx:
        contents = PoolContents(
            shards=tx.shards(),
            hosts=tx.hosts(),
            slots=tx.slots(),
            leases=tx.leases(),
            active_jobs=tx.active_jobs(),
            commands=tx.commands(),
            processors=tx.processors(),
            gangs=tx.open_gangs(),
            processes=tx.processes(),
            tasks=tx.open_tasks(),
        )
        batches = [batch.uuid for batch in tx.batches()]
    findings = list(audit_contents(contents))
    waiting = {}
    for uuid in batches:
        with store.reading() as tx:
            jobs = tx.batch_jobs(uuid)
            findings += audit_batch(tx.batch(uuid), jobs, tx.completions(uuid))
        if count := unfinished(jobs):
            waiting[uuid] = count
    if idle:
        findings += audit_rest(contents, waiting)
    return findings
