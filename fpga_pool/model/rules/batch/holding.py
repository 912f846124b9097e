"""Batches that their owners change: held back, released, and put before others."""

from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.lifecycle.batch import BATCH, BatchHeld, BatchReleased, PriorityChanged
from fpga_pool.model.lifecycle.job import Displaced, HoldChanged
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.objects.pool import HELD, Batch, JobState
from fpga_pool.model.objects.tasks import TASK_POLICY
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.batch.admission import owned_batch
from fpga_pool.model.rules.shared.changes import change_job, settle_slots
from fpga_pool.model.transaction import Transaction


def change_batch(
    tx: Transaction, uuid: str, project_id: str, change: BatchChange, now_s: float, seen: Seen = None
) -> Batch:
    """Change a batch, or a pipeline; its jobs follow in each of its shards (`hold_jobs`).

    Conflict if it is a task, InvalidTransition if it has ended.
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
    """Have the jobs of a batch that are this shard's follow its hold, or release; may be repeated.

    Of a held batch those lose their places whose inputs have not arrived, which costs them no attempt.  Where the pool
    has the input, perhaps as the only one, the job goes on.  A plan that is being made for the others becomes void.
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
