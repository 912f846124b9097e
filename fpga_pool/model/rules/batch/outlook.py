"""What can be said of a batch: why it waits, when its first job is expected to begin, and whether it is late."""

from collections.abc import Collection

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.messages.requests import BatchDetail
from fpga_pool.model.objects.pool import ENDED_BATCHES, PIPELINE_POLICY, Batch
from fpga_pool.model.rules.batch.placing import held_by_others, usable
from fpga_pool.model.transaction import Transaction


def late_s(batch: Batch, ends_at: float | None) -> float | None:
    """Return by how much a batch that ends then misses its deadline; None = it does not, or has none."""
    if batch.deadline_at is None or ends_at is None or ends_at <= batch.deadline_at:
        return None
    return ends_at - batch.deadline_at


def batch_detail(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> BatchDetail:
    """Return a batch with its pending reason, expected start and end, and how late it is.

    `functions` are those of its jobs in state PENDING.  A job can begin when one of the slots that its function fits is
    free of the jobs that are planned there; a policy may know better.
    """
    reason, expected_at = _waiting(tx, batch, functions, catalogue, now_s)
    ends_at = tx.planned_end(batch.uuid)
    last_s = batch.ended_at if batch.state in ENDED_BATCHES else max(now_s, ends_at or now_s)
    return BatchDetail(
        batch=batch, pending_reason=reason, expected_at=expected_at, ends_at=ends_at, late_s=late_s(batch, last_s)
    )


def _waiting(
    tx: Transaction, batch: Batch, functions: Collection[str], catalogue: Catalogue, now_s: float
) -> tuple[str, float | None]:
    """Return why jobs of a batch wait, and when the first of them is expected to begin."""
    if not functions:
        return "", None
    if batch.withheld:
        return batch.withheld, None
    foreign = held_by_others(tx.leases())
    hosts = {host.name: host for host in tx.hosts()}
    slots = [slot for slot in tx.slots() if usable(slot, hosts[slot.host], foreign)]
    free_at = {backlog.slot: max(backlog.free_at, now_s) for backlog in tx.backlogs()}
    begins_at = {
        name: min(
            (free_at.get(slot.name, now_s) for slot in slots if catalogue.fits(name, slot.board, slot.kind)),
            default=None,
        )
        for name in sorted(functions & catalogue.functions.keys())
    }
    placeable = [at for at in begins_at.values() if at is not None]
    without = [name for name in sorted(functions) if begins_at.get(name) is None]
    if without:
        reason = f"no slot in service can hold {', '.join(without)}"
    elif batch.policy == PIPELINE_POLICY:
        reason = "subtasks wait for the results of others, or for a place"
    elif min(placeable) > now_s:
        reason = f"all slots that can hold {' or '.join(begins_at)} have work"
    else:
        reason = "it is about to be planned"
    return reason, min(placeable, default=None)
