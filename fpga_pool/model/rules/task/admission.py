"""Admission and cancellation of tasks."""

from collections import Counter
from collections.abc import Sequence

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exceptions import InvalidInput, NoSlotFits
from fpga_pool.model.fields import LONGEST_S
from fpga_pool.model.flavor import Topology
from fpga_pool.model.lifecycle.task import TaskCancelRequested
from fpga_pool.model.messages.work import JobRequest, TaskRequest
from fpga_pool.model.objects.history import created
from fpga_pool.model.objects.pool import Batch, Job, Slot
from fpga_pool.model.objects.tasks import ENDED_TASKS, MOST_SLOTS, TASK_POLICY, Task, TaskShape, TaskState
from fpga_pool.model.preconditions import Seen, require_seen
from fpga_pool.model.rules.batch.admission import cancel_batch, cancel_jobs, check_batch
from fpga_pool.model.rules.shared.admission import as_stored, emptiest, known_requesters, owned
from fpga_pool.model.rules.shared.changes import change_task
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.shared.sharding import open_jobs
from fpga_pool.model.rules.task.candidates import holds, largest, slots_by_host
from fpga_pool.model.transaction import Transaction
from fpga_pool.model.values import counted, shared


def create_task(
    tx: Transaction, request: TaskRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> Task:
    """Store a new task and its shares.

    Raises
    ------
    InvalidInput
        (or a subclass) If the request is invalid, or no host has enough slots with these links; says what is expected.
    DuplicateId
        If the task or one of its shares exists already.

    """
    task, batch, shares = admit_task(tx, request, catalogue, settings, now_s)
    tx.add(batch, *shares, task)
    return task


def admit_task(
    tx: Transaction, request: TaskRequest, catalogue: Catalogue, settings: PoolSettings, now_s: float
) -> tuple[Task, Batch, list[Job]]:
    """Return a task, the batch of its shares and the shares as `create_task` stores them; raises InvalidInput likewise.

    The task belongs to the shard with the fewest jobs per slot of those that could hold it.
    """
    count = len(request.shares)
    if not 1 <= count <= MOST_SLOTS:
        raise InvalidInput(f"shares: expected 1 to {MOST_SLOTS}, found {count}")
    _check_shapes(request.shapes, count)
    requested = [JobRequest(function=request.function, **shared(share, JobRequest)) for share in request.shares]
    slots = tx.slots()
    requesters = known_requesters(tx, tx.hosts(), requested, request.project_id)
    check_batch(requested, requesters, slots, catalogue, settings, each="shares")
    shard = _shard_for(request, slots, catalogue, open_jobs(tx, slots))
    task = Task(
        **shared(request, Task) | {"shares": count},
        slots=request.most_slots,
        input_bytes=max(share.input_bytes for share in request.shares),
        created_at=now_s,
        shard=shard,
        history=created(now_s, TaskState.QUEUED),
    )
    batch, jobs = as_stored(request, TASK_POLICY, requested, [shard] * count, now_s)
    return task, batch, jobs


def _check_shapes(shapes: Sequence[TaskShape], shares: int) -> None:
    for place, shape in enumerate(shapes):
        if not 1 <= shape.slots <= shares:
            raise InvalidInput(
                f"shapes[{place}].slots: expected 1 to {shares}, at least one share per slot, found {shape.slots}"
            )
        if shape.seconds is not None and not 0 < shape.seconds <= LONGEST_S:
            raise InvalidInput(
                f"shapes[{place}].seconds: expected a number above 0, {LONGEST_S:.0f} at most, found {shape.seconds:g}"
            )
    if len({shape.slots for shape in shapes}) < len(shapes):
        raise InvalidInput("shapes: expected different numbers of slots")


def _shard_for(request: TaskRequest, slots: Sequence[Slot], catalogue: Catalogue, jobs: dict[str, int]) -> str:
    """Return the shard with the fewest jobs per slot, of those where a host has such slots, in service or not."""
    counts, topology = sorted(shape.slots for shape in request.shapes) or [len(request.shares)], request.topology
    candidates = slots_by_host(slots, request.function, catalogue)
    able = {on_host.shard for on_host in candidates if any(holds(on_host, topology, count) for count in counts)}
    if not able:
        most = max((largest(on_host, topology, counts[0]) for on_host in candidates), default=0)
        wish = "" if topology is Topology.ANY else f" linked as a {topology}"
        raise NoSlotFits(
            f"{'shapes' if request.shapes else 'shares'}: no host of the pool has {counted(counts[0], 'slot')} for "
            f"{request.function}{wish}; at most {most} exist"
        )
    return emptiest(able, jobs, Counter(slot.shard for slot in slots))


def owned_task(tx: Transaction, uuid: str, project_id: str | None) -> Task:
    """Return a task if it belongs to the project (see `owned`)."""
    return owned(tx.task(uuid), project_id, "task")


def cancel_task(tx: Transaction, uuid: str, project_id: str | None, now_s: float, seen: Seen = None) -> Task:
    """Cancel a task; it is CANCELLED once all its shares have ended. Raises InvalidTransition if it has ended."""
    task = owned_task(tx, uuid, project_id)
    require_seen(task, seen)
    if task.cancel_requested and task.state not in ENDED_TASKS:
        return task
    change_task(tx, task, TaskCancelRequested(), now_s)
    cancel_batch(tx, uuid, project_id, now_s)
    cancel_jobs(tx, uuid, now_s)
    return tx.task(uuid)
