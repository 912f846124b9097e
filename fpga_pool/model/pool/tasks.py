"""Tasks and the slots of a shard: what a policy decides on, and what it decides as objects (paper 004).

A task begins when it gets all its slots, on one host and linked as it asks, or it does not begin.  Decisions are made
between two transactions, on what `task_view` has read in one; `commit_choices` leaves out what has changed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.exchange import TaskDetail
from fpga_pool.model.flavor import Topology
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import Displaced, Planned
from fpga_pool.model.lifecycle.task import TaskPlaced
from fpga_pool.model.objects import CPU, ENDED_JOBS, BatchState, Job, JobState, LeaseKind, Slot
from fpga_pool.model.pool.changes import change_job, change_task, end_lease, new_lease
from fpga_pool.model.pool.placing import held_by_instances, held_by_others, usable, withdraw_from_former_host
from fpga_pool.model.pool.planning import TimeModels, known_time_models
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.pool.task_enclosures import Solve, enclosures_of, fits_somewhere, solved
from fpga_pool.model.pool.task_rooms import HostRoom, Soonest, choose_slots, holds, host_rooms
from fpga_pool.model.tasks import ENDED_TASKS, TASK_POLICY, Task, TaskState
from fpga_pool.model.transaction import Transaction

#: Of so many tasks, the oldest that wait, it is said when they are expected to begin.
OUTLOOK = 50


@dataclass(frozen=True, slots=True)
class OlderWork:
    """A function of a batch that waits for a place: what arrived after it leaves it one."""

    created_at: float
    #: Slots in service that it fits in, whoever has them.
    fitting: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """What is decided on."""

    now_s: float
    #: Those that wait, in order of arrival, and why others that wait cannot be placed.
    tasks: tuple[Task, ...]
    left_out: Mapping[str, str]
    #: By task: seconds that it computes, and that its function takes to load.
    work_s: Mapping[str, float]
    load_s: Mapping[str, float]
    #: By function: slots in service that it fits in.
    rooms: Mapping[str, tuple[HostRoom, ...]]
    #: When each slot in service is expected to be free, UTC seconds.
    ready_at: Mapping[str, float]
    #: Slots that have nothing to do; and those that tasks have.
    idle: frozenset[str]
    held: frozenset[str]
    older: tuple[OlderWork, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A task and the slots that it gets, in the order of their path."""

    task: Task
    slots: tuple[str, ...]
    #: When they are expected to be free: behind what the pool's other jobs have there, or now.
    begin_at: float


def task_view(tx: Transaction, catalogue: Catalogue, now_s: float) -> TaskView | None:
    """Return the shard as tasks see it; None where none waits."""
    waiting = [task for task in tx.open_tasks() if task.state is TaskState.QUEUED and not task.cancel_requested]
    if not waiting:
        return None
    leases = tx.leases()
    taken = held_by_instances(leases)
    hosts = {host.name: host for host in tx.hosts()}
    slots = [slot for slot in tx.slots() if slot.kind != CPU and usable(slot, hosts[slot.host], taken)]
    held = {lease.slot: lease.holder for lease in leases if lease.kind is LeaseKind.TASK}
    free_at = {backlog.slot: backlog.free_at for backlog in tx.backlogs()}
    rooms = {
        name: tuple(host_rooms(slots, name, catalogue))
        for name in {task.function for task in waiting} & catalogue.functions.keys()
    }
    models = known_time_models(catalogue, tx.time_models())
    left_out = _left_out(waiting, rooms)
    able = tuple(task for task in waiting if task.uuid not in left_out)
    names = {slot.name for slot in slots}
    return TaskView(
        now_s=now_s,
        tasks=able,
        left_out=left_out,
        work_s={task.uuid: _work_s(task, rooms[task.function], models) for task in able},
        load_s={task.uuid: _load_s(rooms[task.function], catalogue) for task in able},
        rooms=rooms,
        ready_at=_ready_at(tx, names, held, free_at, now_s),
        idle=frozenset(names - held.keys() - free_at.keys()),
        held=frozenset(held),
        older=tuple(_older_work(tx, slots, catalogue)),
    )


def _left_out(tasks: Iterable[Task], rooms: Mapping[str, Sequence[HostRoom]]) -> dict[str, str]:
    """Return why tasks cannot be placed, by task; those that ask for the same are looked at once."""
    why: dict[tuple[str, Topology, int], str] = {}
    left_out = {}
    for task in tasks:
        asked = task.function, task.topology, task.slots
        if asked not in why:
            why[asked] = _why_not(task, rooms.get(task.function, ()))
        if why[asked]:
            left_out[task.uuid] = why[asked]
    return left_out


def _why_not(task: Task, rooms: Sequence[HostRoom]) -> str:
    if any(holds(room, task.topology, task.slots) for room in rooms):
        return ""
    return f"no host has {task.slots} slots in service for {task.function} that are linked so ({task.topology})"


def _work_s(task: Task, rooms: Sequence[HostRoom], models: TimeModels) -> float:
    """Return how long the largest share computes, on the slowest board that it could get."""
    boards = {slot.board for room in rooms for slot in room.slots}
    known = [models[task.function, board] for board in boards if (task.function, board) in models]
    return max((model.seconds(task.input_bytes) for model in known), default=0.0)


def _load_s(rooms: Sequence[HostRoom], catalogue: Catalogue) -> float:
    kinds = {(slot.board, slot.kind) for room in rooms for slot in room.slots}
    return max((catalogue.boards[board].load_s(kind) for board, kind in kinds), default=0.0)


def _ready_at(
    tx: Transaction, names: Collection[str], held: Mapping[str, str], free_at: Mapping[str, float], now_s: float
) -> dict[str, float]:
    """Return when each slot is expected to be free: one that a task has, when the last of its slots is."""
    of_task: defaultdict[str, float] = defaultdict(float)
    for slot, task in held.items():
        of_task[task] = max(of_task[task], free_at.get(slot, 0.0), tx.task(task).ends_at or 0.0)
    ready = {}
    for name in names:
        at = of_task[held[name]] if name in held else free_at.get(name, 0.0)
        busy = name in held or name in free_at
        # What is late is expected to be as late again.
        ready[name] = now_s + max(abs(at - now_s), 1e-3) if busy else now_s
    return ready


def _older_work(tx: Transaction, slots: Sequence[Slot], catalogue: Catalogue) -> Iterable[OlderWork]:
    for batch in tx.pending_batches().values():
        if batch.policy == TASK_POLICY:
            continue
        for name in sorted(batch.functions & catalogue.functions.keys()):
            rooms = host_rooms(slots, name, catalogue)
            fitting = frozenset(slot.name for room in rooms for slot in room.slots)
            if fitting:
                yield OlderWork(batch.created_at, fitting)


# Deciding ------------------------------------------------------------------------------------------------------


def choose(view: TaskView, patience_s: float, solve: Solve) -> list[Choice]:
    """Return which tasks get which slots now.

    Who has waited for `patience_s` comes first, in order of arrival: it gets the slots that are free for it soonest,
    behind what the pool's other jobs have there; where tasks have them they are kept for it.  The others begin where
    nothing is to be done: all of them, if there is room, else those that the policy's schedule (`solve`) begins now.
    """
    choosing = _Choosing(view)
    impatient = [task for task in view.tasks if view.now_s - task.created_at >= patience_s]
    for task in impatient:
        if choosing.nothing_is_left:
            break
        choosing.reserve(task)
    patient = view.tasks[len(impatient) :]
    wanted = choosing.all_at_once(patient)
    if wanted is not None:
        for task, slots in wanted:
            choosing.begin(task, slots)
    else:
        choosing.begin_some(patient, solve)
    return choosing.choices


class _Choosing:
    """What is left as tasks get their slots."""

    def __init__(self, view: TaskView) -> None:
        self._view = view
        self._soonest = Soonest(view.rooms, view.ready_at)
        self._idle = set(view.idle)
        self._taken = set(view.held)
        self.choices: list[Choice] = []

    @property
    def nothing_is_left(self) -> bool:
        """Whether every slot is some task's, or kept for one."""
        return self._taken.issuperset(self._view.ready_at)

    def reserve(self, task: Task) -> None:
        """Give a task the slots that are free for it soonest, or keep them for it until other tasks end there."""
        found = self._soonest.find(task.function, task.topology, task.slots)
        if found is None:
            return
        begin_at, slots = found
        if self._taken.isdisjoint(slots):
            if not self._leaves_places(task, slots):
                return
            self.choices.append(Choice(task=task, slots=slots, begin_at=begin_at))
        self._take(task, slots, begin_at)

    def all_at_once(self, tasks: Sequence[Task]) -> list[tuple[Task, tuple[str, ...]]] | None:
        """Return slots for all tasks that they can have now; None where there are not enough for all."""
        left, wanted = set(self._idle), []
        for task in tasks:
            slots = self._idle_slots(task, left)
            if slots is None:
                return None
            left -= set(slots)
            wanted.append((task, slots))
        return wanted

    def begin(self, task: Task, slots: tuple[str, ...]) -> None:
        """Give a task slots, if they are idle and it may have them."""
        if self._idle.issuperset(slots) and self._leaves_places(task, slots):
            self.choices.append(Choice(task=task, slots=slots, begin_at=self._view.now_s))
            self._take(task, slots, self._view.now_s)

    def begin_some(self, tasks: Sequence[Task], solve: Solve) -> None:
        """Begin those tasks that a schedule begins now, and then those that it knows no place for.

        Without a schedule they begin in order of arrival, as far as there are slots.
        """
        view = self._view
        if not self._idle:
            return
        ready_s = {name: max(at - view.now_s, 0.0) for name, at in self._soonest.ready_at.items()}
        first = solved(tasks, view.rooms, view.work_s, view.load_s, ready_s, solve)
        for task, slots in first or ():
            self.begin(task, slots)
        for task in tasks:
            if first is None or self.is_odd(task):
                self.begin_somewhere(task)

    def begin_somewhere(self, task: Task) -> None:
        """Give a task idle slots, if there are some."""
        slots = self._idle_slots(task, self._idle)
        if slots is not None:
            self.begin(task, slots)

    def is_odd(self, task: Task) -> bool:
        """Say whether a schedule knows no place for a task: it is linked within cards, or beyond an enclosure."""
        return not fits_somewhere(enclosures_of(self._view.rooms[task.function]), task.topology, task.slots)

    def _idle_slots(self, task: Task, idle: Collection[str]) -> tuple[str, ...] | None:
        rooms = self._view.rooms[task.function]
        found = (choose_slots(room, task.topology, task.slots, idle) for room in rooms)
        return next((slots for slots in found if slots is not None), None)

    def _take(self, task: Task, slots: tuple[str, ...], begin_at: float) -> None:
        self._idle.difference_update(slots)
        self._taken.update(slots)
        end_at = begin_at + self._view.load_s[task.uuid] + self._view.work_s[task.uuid]
        self._soonest.take(slots, end_at)

    def _leaves_places(self, task: Task, slots: Collection[str]) -> bool:
        """Say whether every batch that came before a task, and waits for a place, still finds one."""
        for work in self._view.older:
            concerned = work.created_at <= task.created_at and not work.fitting.isdisjoint(slots)
            if concerned and work.fitting <= self._taken.union(slots):
                return False
        return True


# Committing ----------------------------------------------------------------------------------------------------


def commit_choices(
    tx: Transaction, view: TaskView, choices: Sequence[Choice], settings: PoolSettings, now_s: float
) -> list[Task]:
    """Give tasks their slots, as far as nothing concerned has changed; return those that got them."""
    foreign = held_by_others(tx.leases(slots={name for choice in choices for name in choice.slots}))
    last = {backlog.slot: backlog.last_order for backlog in tx.backlogs()}
    placed = []
    for choice in choices:
        task = tx.task(choice.task.uuid)
        shares = [share for share in tx.batch_jobs(task.uuid) if share.state not in ENDED_JOBS]
        waits = bool(shares) and all(
            share.state is JobState.PENDING and share.attempt < settings.max_attempts for share in shares
        )
        slots = [tx.slot(name) for name in choice.slots]
        possible = all(usable(slot, tx.host(slot.host), foreign) for slot in slots)
        free = choice.begin_at > view.now_s or last.keys().isdisjoint(choice.slots)
        if task.generation == choice.task.generation and waits and possible and free:
            for slot in slots:
                _take_slot(tx, slot.name, task, settings, now_s)
            placed.append(_place(tx, task, choice, shares, last, view, now_s))
            foreign |= set(choice.slots)
    return placed


def _take_slot(tx: Transaction, name: str, task: Task, settings: PoolSettings, now_s: float) -> None:
    """Give a slot to a task; what has not begun there goes on elsewhere."""
    for job in tx.active_jobs(slot=name):
        # Of the attempts that a job has, half are for faults.
        if job.state is JobState.WAITING_INPUT and job.attempt <= settings.max_attempts // 2:
            change_job(tx, job, Displaced(reason=f"a task that waited long gets slot {name}"), now_s, settle=False)
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
    """Send the shares of a task to its slots; `last` is the order of the last job of each queue."""
    start_s = max(choice.begin_at - now_s, 0.0) + view.load_s[task.uuid]
    end_s = start_s + view.work_s[task.uuid]
    batch = tx.batch(task.uuid)
    if batch.state is BatchState.PENDING:
        tx.save(BATCH.transition(batch, BatchBegun(dispatched_at=now_s), now_s)[0])
    for share in shares:
        slot = tx.slot(choice.slots[share.index])
        withdraw_from_former_host(tx, share, slot.host)
        place = Planned(
            host=slot.host,
            slot=slot.name,
            order=last.get(slot.name, -1) + 1,
            dispatched_at=now_s,
            start_s=start_s,
            end_s=end_s,
            transfer=(),
        )
        change_job(tx, share, place, now_s)
    return change_task(tx, tx.task(task.uuid), TaskPlaced(ends_at=now_s + end_s), now_s)


# Telling -------------------------------------------------------------------------------------------------------


def task_detail(tx: Transaction, uuid: str, catalogue: Catalogue, now_s: float) -> TaskDetail:
    """Return a task of the shard with what can be said of it now."""
    task = tx.task(uuid)
    because, expected_at = "", None
    if task.state is TaskState.QUEUED and (view := task_view(tx, catalogue, now_s)) is not None:
        because, expected_at = _outlook(view, task)
    slots = [lease.slot for lease in tx.leases(holders=[uuid])]
    return TaskDetail(
        task=task,
        waits_because=because if task.state not in ENDED_TASKS else "",
        expected_at=expected_at,
        slots=tuple(slots),
        shares=tuple(tx.batch_jobs(uuid)),
    )


def _outlook(view: TaskView, asked: Task) -> tuple[str, float | None]:
    """Return why a task waits, and when it begins if all that wait get their slots in order of arrival."""
    if asked.uuid in view.left_out:
        return view.left_out[asked.uuid], None
    if asked not in view.tasks[:OUTLOOK]:
        return f"more than {OUTLOOK} tasks wait before it", None
    soonest = Soonest(view.rooms, view.ready_at)
    for task in view.tasks:
        found = soonest.find(task.function, task.topology, task.slots)
        if found is None:
            continue
        begin_at, slots = found
        if task.uuid == asked.uuid:
            wish = "" if task.slots == 1 else f" that are linked so ({task.topology})"
            return f"{task.slots} slots for {task.function}{wish} are not free at once", begin_at
        soonest.take(slots, begin_at + view.load_s[task.uuid] + view.work_s[task.uuid])
    return "", None
