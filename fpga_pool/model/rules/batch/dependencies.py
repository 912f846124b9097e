"""Batches that wait for others to be complete.

A batch names batches that are older, so no two ever wait for each other.  What follows from the end of one is found by
looking at what is stored, in each tick: it is the same after a crash.
"""

from collections.abc import Iterator

from fpga_pool.model.lifecycle.batch import BATCH, DependenciesCompleted
from fpga_pool.model.lifecycle.job import Skipped
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.rules.shared.changes import change_job
from fpga_pool.model.transaction import Transaction

#: How a batch has ended after which those that wait for it are cancelled; None = it is not stored any more.
_LOST = {BatchState.FAILED: "has failed", BatchState.CANCELLED: "was cancelled", None: "does not exist any more"}


def settle_dependencies(tx: Transaction, now_s: float) -> Iterator[tuple[str, str]]:
    """Let batches go on that waited for others, or have their jobs of this shard end; yield each with the reason.

    They go on when all others are complete; when one has ended otherwise, all their jobs are cancelled (as by Slurm's
    ``afterok``).
    """
    for uuid, states in tx.waiting_batches().items():
        lost = next((f"batch {other} {_LOST[state]}" for other, state in states.items() if state in _LOST), "")
        completed = tuple(other for other, state in states.items() if state is BatchState.COMPLETED)
        if lost:
            for job in tx.pending_jobs(uuid):
                change_job(tx, job, Skipped(reason=f"not computed: {lost}"), now_s)
                yield job.uuid, lost
        elif completed:
            tx.save(BATCH.transition(tx.batch(uuid), DependenciesCompleted(batches=completed), now_s)[0])
            yield uuid, f"complete: {', '.join(completed)}"
