"""Cost to the pool of giving a slot up, and the slots that it cannot give up."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects.pool import Job, JobState, Lease, LeaseKind, Slot, SlotState
from fpga_pool.model.rules.batch.placing import end_at
from fpga_pool.model.rules.shared.settings import PoolSettings

#: Cost of stopping jobs: more than all other costs of a claim together.
_STOPPING = 1000.0


def leaves_in_s(jobs: Iterable[Job], catalogue: Catalogue, settings: PoolSettings, now_s: float) -> float:
    """Return the seconds until the pool can release a slot that has these jobs: 0 if all of them can leave now."""
    return max((max(end_at(job) - now_s, 0.0) for job in jobs if must_stay(job, catalogue, settings)), default=0.0)


def cost_of(price: tuple[int, float, int]) -> float:
    """Return a price as one number that can be summed; stopping jobs costs more than anything else."""
    done_first, lost_s, moved = price
    return _STOPPING + lost_s + moved if moved else float(done_first)


def price_of(
    slot: Slot, queue: Sequence[Job], function: str, catalogue: Catalogue, now_s: float
) -> tuple[int, float, int]:
    """Return the price of taking a slot: what has to be done first (0 to 3), seconds of work lost, jobs moved."""
    if queue:
        return 3, sum(_lost_s(job, catalogue, now_s) for job in queue), len(queue)
    if slot.state is SlotState.READY and slot.function == function:
        return 0, 0.0, 0
    return (1 if slot.state is SlotState.EMPTY else 2), 0.0, 0


def _lost_s(job: Job, catalogue: Catalogue, now_s: float) -> float:
    """Return the seconds of work lost if a job left now; for a job that cannot be preempted, the seconds to its end."""
    function = catalogue.functions.get(job.function)
    if job.state is not JobState.RUNNING:
        return 0.0
    if function is not None and not function.preemptible:
        return max(end_at(job) - now_s, 0.0)
    if function is not None and function.progress_kept:
        return 0.0
    return max(now_s - (job.started_at or now_s), 0.0)


def must_stay(job: Job, catalogue: Catalogue, settings: PoolSettings) -> bool:
    """Return whether a job must not leave its slot before it ends: it cannot be preempted, or has no attempts left."""
    function = catalogue.functions.get(job.function)
    running = job.state is JobState.RUNNING
    return job.counted_attempts >= settings.max_attempts or (
        running and function is not None and not function.preemptible
    )


def jobs_by_slot(jobs: Iterable[Job], leases: Iterable[Lease]) -> defaultdict[str, list[Job]]:
    """Return the jobs of each slot; for a slot held by a task, those on all its slots, because they leave together."""
    queues: defaultdict[str, list[Job]] = defaultdict(list)
    shares: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        queues[job.slot].append(job)
        shares[job.batch_uuid].append(job)
    for lease in leases:
        if lease.kind is LeaseKind.TASK:
            queues[lease.slot] += [job for job in shares[lease.holder] if job.slot != lease.slot]
    return queues


def bound_by_tasks(
    queues: Mapping[str, Sequence[Job]], leases: Iterable[Lease], catalogue: Catalogue, settings: PoolSettings
) -> set[str]:
    """Return the slots held by tasks that have a share that must stay; a claim cannot take these slots."""
    return {
        lease.slot
        for lease in leases
        if lease.kind is LeaseKind.TASK
        for job in queues[lease.slot]
        if job.batch_uuid == lease.holder and not job.cancel_requested and must_stay(job, catalogue, settings)
    }
