"""Tasks and the slots of a shard: the view that decisions are based on, and the commit of decisions (lattice paper).

A task gets all its slots at once, on one host and linked as requested, or none.  `family` decides between two
transactions: `task_view` reads in the first, `commit_choices` writes in the second and leaves out what has changed.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.flavor import Topology
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import Displaced, Planned
from fpga_pool.model.lifecycle.task import TaskPlaced
from fpga_pool.model.messages.requests import TaskDetail
from fpga_pool.model.objects.pool import CPU, ENDED_JOBS, BatchState, Job, JobState, LeaseKind, Slot
from fpga_pool.model.objects.tasks import (
    ENDED_TASKS,
    TASK_POLICY,
    Task,
    TaskShape,
    TaskState,
    longest_queue,
    slot_of_share,
)
from fpga_pool.model.rules.batch.placing import (
    held_by_instances,
    held_by_others,
    least_scarce_first,
    usable,
    withdraw_from_former_host,
)
from fpga_pool.model.rules.batch.planning import TimeModels, known_time_models
from fpga_pool.model.rules.shared.changes import change_job, change_task, end_lease, new_lease
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.rules.task.candidates import EarliestStart, HostSlots, holds, slots_by_host
from fpga_pool.model.transaction import Transaction

#: Number of oldest waiting tasks whose expected start is computed.
OUTLOOK = 50


@dataclass(frozen=True, slots=True)
class OlderWork:
    """A function of a pending batch: tasks that arrived later must leave one fitting slot to it."""

    created_at: float
    #: Slots in service that the function fits, regardless of leases.
    fitting: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """The waiting tasks and the slots of a shard, as read for a decision."""

    now_s: float
    #: Waiting tasks that could be placed, in order of arrival; and the reasons why others cannot, by task.
    tasks: tuple[Task, ...]
    left_out: Mapping[str, str]
    #: By task: the shapes that fit slots in service, as (number of slots, seconds), in the order of its shapes.
    shapes: Mapping[str, tuple[tuple[int, float], ...]]
    #: By task: seconds to load its function.
    load_s: Mapping[str, float]
    #: By function: the slots in service that it fits.
    candidates: Mapping[str, tuple[HostSlots, ...]]
    #: Seconds until each slot in service is expected to be free; 0 = it is free.
    ready_s: Mapping[str, float]
    #: Idle slots, and slots held by tasks.
    idle: frozenset[str]
    held: frozenset[str]
    older: tuple[OlderWork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A task and the slots that it gets, in path order."""

    task: Task
    slots: tuple[str, ...]
    #: Seconds until the slots are expected to be free of the pool's other jobs, 0 = they are; and the computation time
    #: of the task on this number of slots.
    wait_s: float
    work_s: float


def task_view(tx: Transaction, catalogue: Catalogue, now_s: float) -> TaskView | None:
    """Return the waiting tasks and the slots of the shard; None if no task waits."""
    waiting = [task for task in tx.open_tasks() if task.state is TaskState.QUEUED and not task.cancel_requested]
    if not waiting:
        return None
    leases = tx.leases()
    taken = held_by_instances(leases)
    hosts = {host.name: host for host in tx.hosts()}
    by_scarcity = least_scarce_first(tx.slots(), catalogue, leases)
    slots = [slot for slot in by_scarcity if slot.kind != CPU and usable(slot, hosts[slot.host], taken)]
    held = {lease.slot: lease.holder for lease in leases if lease.kind is LeaseKind.TASK}
    free_at = {backlog.slot: backlog.free_at for backlog in tx.backlogs()}
    candidates = {
        name: tuple(slots_by_host(slots, name, catalogue))
        for name in {task.function for task in waiting} & catalogue.functions.keys()
    }
    models = known_time_models(catalogue, tx.time_models())
    fits = _fitting(waiting, candidates)
    left_out = _left_out(waiting, fits)
    able = tuple(task for task in waiting if task.uuid not in left_out)
    names = {slot.name for slot in slots}
    return TaskView(
        now_s=now_s,
        tasks=able,
        left_out=left_out,
        shapes={
            task.uuid: tuple(
                (shape.slots, _work_s(task, shape, candidates[task.function], models))
                for shape in task.alternatives
                if fits[task.function, task.topology, shape.slots]
            )
            for task in able
        },
        load_s={task.uuid: _load_s(candidates[task.function], catalogue) for task in able},
        candidates=candidates,
        ready_s=_ready_s(tx, names, held, free_at, now_s),
        idle=frozenset(names - held.keys() - free_at.keys()),
        held=frozenset(held),
        older=tuple(_older_work(tx, slots, catalogue)),
    )


#: A request for slots: function, links and number.
_Asked = tuple[str, Topology, int]


def _fitting(tasks: Iterable[Task], candidates: Mapping[str, Sequence[HostSlots]]) -> dict[_Asked, bool]:
    """Return for each shape of the tasks whether a host has slots in service for it; equal shapes are checked once."""
    asked = {(task.function, task.topology, shape.slots) for task in tasks for shape in task.alternatives}
    return {
        (function, topology, count): any(holds(on_host, topology, count) for on_host in candidates.get(function, ()))
        for function, topology, count in asked
    }


def _left_out(tasks: Iterable[Task], fits: Mapping[_Asked, bool]) -> dict[str, str]:
    """Return the reason for each task that cannot be placed, by task uuid."""
    left_out = {}
    for task in tasks:
        if not any(fits[task.function, task.topology, shape.slots] for shape in task.alternatives):
            count = " or ".join(str(shape.slots) for shape in task.alternatives)
            left_out[task.uuid] = (
                f"no host has {count} slots in service for {task.function} with the required links ({task.topology})"
            )
    return left_out


def _work_s(task: Task, shape: TaskShape, candidates: Sequence[HostSlots], models: TimeModels) -> float:
    """Return the computation time of a task in a shape: the tenant's value, else that on the slowest possible board.

    All shares are assumed to be as large as the largest; the shares of a slot run one after the other.
    """
    if shape.seconds is not None:
        return shape.seconds
    boards = {slot.board for on_host in candidates for slot in on_host.slots}
    known = [models[task.function, board] for board in boards if (task.function, board) in models]
    share_s = max((model.seconds(task.input_bytes) for model in known), default=0.0)
    return longest_queue(task.shares, shape.slots) * share_s


def _load_s(candidates: Sequence[HostSlots], catalogue: Catalogue) -> float:
    kinds = {(slot.board, slot.kind) for on_host in candidates for slot in on_host.slots}
    return max((catalogue.boards[board].load_s(kind) for board, kind in kinds), default=0.0)


def _ready_s(
    tx: Transaction, names: Collection[str], held: Mapping[str, str], free_at: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """Return the seconds until each slot is expected to be free; a slot held by a task is free when the task ends."""
    ends_at = {task: tx.task(task).ends_at for task in set(held.values())}
    ready = {}
    for name in names:
        at = free_at.get(name)
        if name in held:
            at = ends_at[held[name]] or at or now_s
        # Late work is expected to take as long again as it is late.
        ready[name] = 0.0 if at is None else max(abs(at - now_s), 1e-6)
    return ready


def _older_work(tx: Transaction, slots: Sequence[Slot], catalogue: Catalogue) -> Iterable[OlderWork]:
    fitting: dict[str, frozenset[str]] = {}
    for batch in tx.pending_batches().values():
        if batch.policy == TASK_POLICY:
            continue
        for name in sorted(batch.functions & catalogue.functions.keys()):
            if name not in fitting:
                candidates = slots_by_host(slots, name, catalogue)
                fitting[name] = frozenset(slot.name for on_host in candidates for slot in on_host.slots)
            if fitting[name]:
                yield OlderWork(batch.created_at, fitting[name])


# Committing ----------------------------------------------------------------------------------------------------


def commit_choices(
    tx: Transaction, view: TaskView, choices: Sequence[Choice], settings: PoolSettings, now_s: float
) -> list[Task]:
    """Give tasks their chosen slots unless the task or its slots have changed; return the tasks that got slots."""
    foreign = held_by_others(tx.leases(slots={name for choice in choices for name in choice.slots}))
    last = {backlog.slot: backlog.last_order for backlog in tx.backlogs()}
    placed = []
    for choice in choices:
        task = tx.task(choice.task.uuid)
        shares = [share for share in tx.batch_jobs(task.uuid) if share.state not in ENDED_JOBS]
        waits = bool(shares) and all(
            share.state is JobState.PENDING and share.counted_attempts < settings.max_attempts for share in shares
        )
        slots = [tx.slot(name) for name in choice.slots]
        possible = all(usable(slot, tx.host(slot.host), foreign) for slot in slots)
        free = choice.wait_s > 0 or last.keys().isdisjoint(choice.slots)
        if task.generation == choice.task.generation and waits and possible and free:
            for slot in slots:
                _take_slot(tx, slot.name, task, settings, now_s)
            placed.append(_place(tx, task, choice, shares, last, view, now_s))
            foreign |= set(choice.slots)
    return placed


def _take_slot(tx: Transaction, name: str, task: Task, settings: PoolSettings, now_s: float) -> None:
    """Assign a slot to a task; jobs that have not begun there continue elsewhere."""
    for job in tx.active_jobs(slot=name):
        # Displacing may use up half of a job's attempts; the other half is reserved for faults.
        if job.state is JobState.WAITING_INPUT and job.counted_attempts <= settings.max_attempts // 2:
            change_job(
                tx,
                job,
                Displaced(reason=f"slot {name} is reserved for a task that has waited for long"),
                now_s,
                settle=False,
            )
    for lease in tx.leases(slots=[name]):
        end_lease(tx, lease, now_s)
    tx.add(new_lease(tx, name, LeaseKind.TASK, task.uuid, now_s, project_id=task.project_id))


def _place(
    tx: Transaction,
    task: Task,
    choice: Choice,
    shares: Sequence[Job],
    last: Mapping[str, int],
    view: TaskView,
    now_s: float,
) -> Task:
    """Plan the shares of a task on its slots; `last` is the order of the last job in each slot's queue."""
    batch = tx.batch(task.uuid)
    if batch.state is BatchState.PENDING:
        tx.save(BATCH.transition(batch, BatchBegun(dispatched_at=now_s), now_s)[0])
    slots = [tx.slot(name) for name in choice.slots]
    places = list(share_places(slots, choice, shares, view.load_s[task.uuid]))
    for place in places:
        withdraw_from_former_host(tx, place.share, place.slot.host)
        planned = Planned(
            host=place.slot.host,
            slot=place.slot.name,
            order=last.get(place.slot.name, -1) + 1 + place.rank,
            dispatched_at=now_s,
            start_s=place.start_s,
            end_s=place.end_s,
            transfer=(),
        )
        change_job(tx, place.share, planned, now_s)
    ends_at = now_s + places[0].start_s + choice.work_s
    return change_task(tx, tx.task(task.uuid), TaskPlaced(slots=len(choice.slots), ends_at=ends_at), now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePlace:
    """The slot of a share, its rank among the shares on that slot, and its times in seconds from the decision."""

    share: Job
    slot: Slot
    rank: int
    start_s: float
    end_s: float


def share_places(slots: Sequence[Slot], choice: Choice, shares: Iterable[Job], load_s: float) -> Iterator[SharePlace]:
    """Yield the places of the shares of a task on its slots, by index; loading its function takes `load_s`."""
    task, count = choice.task, len(slots)
    start_s = choice.wait_s + (load_s if any(slot.function != task.function for slot in slots) else 0.0)
    share_s = choice.work_s / longest_queue(task.shares, count)
    before: Counter[str] = Counter()
    for share in sorted(shares, key=attrgetter("index")):
        slot = slots[slot_of_share(share.index, task.shares, count)]
        rank = before[slot.name]
        before[slot.name] += 1
        begin_s = start_s + rank * share_s
        yield SharePlace(share=share, slot=slot, rank=rank, start_s=begin_s, end_s=begin_s + share_s)


# Outlooks ------------------------------------------------------------------------------------------------------


#: The pending reason of a task, and its expected start (None = unknown).
Outlook = tuple[str, float | None]


def task_detail(tx: Transaction, uuid: str, catalogue: Catalogue, now_s: float) -> TaskDetail:
    """Return a task of the shard with its pending reason and expected start."""
    task = tx.task(uuid)
    view = task_view(tx, catalogue, now_s) if task.state is TaskState.QUEUED else None
    because, expected_at = ("", None) if view is None else task_outlook(view, uuid)
    slots = [lease.slot for lease in tx.leases(holders=[uuid])]
    return TaskDetail(
        task=task,
        pending_reason=because if task.state not in ENDED_TASKS else "",
        expected_at=expected_at,
        slot_list=tuple(slots),
        share_list=tuple(tx.batch_jobs(uuid)),
    )


def task_outlook(view: TaskView, uuid: str) -> Outlook:
    """Return the outlook of a task; ("", None) if it is not among the waiting tasks."""
    return next((outlook for asked, outlook in task_outlooks(view) if asked == uuid), ("", None))


def task_outlooks(view: TaskView) -> Iterator[tuple[str, Outlook]]:
    """Yield the uuid and outlook of each waiting task, assuming that tasks get their slots in order of arrival."""
    yield from ((uuid, (reason, None)) for uuid, reason in view.left_out.items())
    yield from (
        (task.uuid, (f"more than {OUTLOOK} tasks are ahead of it in the queue", None)) for task in view.tasks[OUTLOOK:]
    )
    earliest = EarliestStart(view.candidates, view.ready_s)
    for task in view.tasks[:OUTLOOK]:
        shapes = view.shapes[task.uuid]
        count, work_s = quickest(shapes)
        found = earliest.find(task.function, task.topology, count)
        if found is None:
            yield task.uuid, ("", None)
            continue
        wait_s, slots = found
        counts = " or ".join(str(count) for count, _ in shapes)
        wish = "" if counts == "1" else f" with the required links ({task.topology})"
        reason = f"{counts} slots for {task.function}{wish} are not free at the same time"
        yield task.uuid, (reason, view.now_s + wait_s)
        earliest.take(slots, wait_s + view.load_s[task.uuid] + work_s)


def quickest(shapes: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Return the shape (slots, seconds) with the shortest time; ties go to the shape with the fewest slots."""
    return min(shapes, key=lambda shape: (shape[1], shape[0]))
