"""What holds of tasks at every moment; see `model.pool.audit`."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from fpga_pool.model.objects import Job, Lease, LeaseKind
from fpga_pool.model.tasks import Task, TaskState


def audit_tasks(tasks: Sequence[Task], leases: Sequence[Lease], active_jobs: Sequence[Job]) -> Iterator[str]:
    """Compare tasks that have not ended with leases in force and jobs on slots: a task has all its slots, or none."""
    held: defaultdict[str, set[str]] = defaultdict(set)
    for lease in leases:
        if lease.kind is LeaseKind.TASK:
            held[lease.holder].add(lease.slot)
    used: defaultdict[str, list[str]] = defaultdict(list)
    for job in active_jobs:
        used[job.batch_uuid].append(job.slot)
    for task in tasks:
        slots, places = held.pop(task.uuid, set()), used[task.uuid]
        wanted = task.slots if task.state is TaskState.RUNNING else 0
        if len(slots) != wanted:
            yield f"task {task.uuid}: is {task.state}, and has {len(slots)} slots, not {wanted}"
        if task.state is TaskState.RUNNING and not places:
            yield f"task {task.uuid}: is {task.state}, and none of its shares is on a slot"
        if len({slot.partition("/")[0] for slot in slots}) > 1:
            yield f"task {task.uuid}: has slots of several hosts"
        shared = task.slots < task.shares
        if not slots.issuperset(places) or (len(set(places)) != len(places) and not shared):
            how = "not all on its slots" if shared else "not each on a slot of its own"
            yield f"task {task.uuid}: has shares on {', '.join(sorted(places))}, {how}"
    for holder, slots in held.items():
        yield f"task {holder}: has ended, and holds {', '.join(sorted(slots))}"
