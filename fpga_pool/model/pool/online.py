"""Jobs that come one by one: the pool as an online policy sees it, and what it decides as objects (paper 003).

A batch whose policy is an online one is not planned.  Its jobs wait until the policy has a slot for them; one that has
waited too long runs on a worker of a host's CPU pool meanwhile, and comes back to a slot where that pays.  Decisions
are made between two transactions, on what `online_view` has read in one; `commit_moves` leaves out what has changed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.benefit.moves import Move, Start
from fpga_pool.core.benefit.occupancy import EMPTY, Occupancy
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import EvictRequested, Planned
from fpga_pool.model.objects import CPU, BatchState, Job, JobState, Slot, SlotState, is_cpu
from fpga_pool.model.pool.changes import change_job, grant_pool_leases
from fpga_pool.model.pool.placing import held_by_others, usable, withdraw_from_former_host
from fpga_pool.model.pool.planning import TimeModels, known_time_models
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that wants a slot: it has no place, or computes on a CPU."""

    job: Job
    #: Seconds of slot time that are left of it.
    work_s: float
    #: When it goes to a CPU.
    give_up_at: float


@dataclass(slots=True, kw_only=True)
class OnlineView:
    """What an online policy decides on, and what its indices mean."""

    now_s: float
    #: (S,) slots, and by slot the jobs of its queue.
    slots: tuple[Slot, ...]
    queues: Mapping[str, tuple[Job, ...]]
    #: By the number that the occupancy knows a job by.
    waiting: tuple[Waiting, ...]
    #: Workers of CPU pools that have nothing to do.
    free_workers: tuple[Slot, ...]
    occupancy: Occupancy


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job, as it was read, and where it is to run."""

    job: Job
    slot: Slot
    #: Seconds until it begins: the load of its function; and that it computes.
    load_s: float
    work_s: float


@dataclass(slots=True, kw_only=True)
class Moves:
    """What a policy decided."""

    placements: list[Placement] = field(default_factory=list)
    #: Jobs that leave their slot or CPU.
    evictions: list[Job] = field(default_factory=list)


def online_view(
    tx: Transaction,
    catalogue: Catalogue,
    settings: PoolSettings,
    now_s: float,
    is_online: Callable[[str], bool],
    demand: Demand,
) -> OnlineView | None:
    """Return the shard as an online policy sees it; None where no job could get another place.

    Parameters
    ----------
    tx, catalogue, settings
        The transaction, the catalogue in force and the limits.
    now_s
        UTC seconds.
    is_online
        Says of a batch's policy, by name, whether it is an online one.
    demand
        What was learned, by function in the order of their names.

    """
    waiting = [
        job
        for batch, pending in tx.pending_batches().items()
        if is_online(pending.policy)
        for job in tx.pending_jobs(batch)
        if job.attempt < settings.max_attempts and job.function in catalogue.functions
    ]
    active = tx.active_jobs()
    online = {job.uuid for job in active if is_online(tx.batch(job.batch_uuid).policy)}
    movable = {job.uuid for job in active if job.uuid in online and not _settled(job, settings)}
    on_cpu = [job for job in active if is_cpu(job.slot) and job.uuid in movable and job.state is JobState.RUNNING]
    if not waiting and not on_cpu:
        return None
    foreign = held_by_others(tx.leases())
    serving = [slot for slot in tx.slots() if usable(slot, tx.host(slot.host), foreign)]
    slots = tuple(slot for slot in serving if slot.kind != CPU and slot.board in catalogue.boards)
    pool = _pool(catalogue, slots, models := known_time_models(catalogue, tx.time_models()))
    queues: defaultdict[str, tuple[Job, ...]] = defaultdict(tuple)
    for job in active:
        queues[job.slot] += (job,)
    share = _Share(slots, settings, [job for job in active if job.uuid in online])
    builder = _Builder(catalogue, models, pool, slots, now_s, demand, share)
    for number, slot in enumerate(slots):
        builder.add_slot(number, slot, queues[slot.name], movable)
    asking = builder.add_waiting(waiting, settings) + builder.add_returning(on_cpu)
    builder.view.news = None, None
    return OnlineView(
        now_s=now_s,
        slots=slots,
        queues=dict(queues),
        waiting=asking,
        free_workers=tuple(slot for slot in serving if slot.kind == CPU and not queues[slot.name]),
        occupancy=builder.view,
    )


def slot_benefits(tx: Transaction, catalogue: Catalogue) -> dict[str, float]:
    """Return by slot what computes there in vCPU equivalents, by the time models refitted from observed runs.

    This is what a claim on the slot gives up (paper 003, equation 1); 0 where nothing computes.
    """
    models = known_time_models(catalogue, tx.time_models())
    benefits = {}
    for slot in tx.slots():
        if slot.kind == CPU:
            continue
        function, model = catalogue.functions.get(slot.function), models.get((slot.function, slot.board))
        benefits[slot.name] = 0.0
        if slot.state is SlotState.BUSY and function is not None and function.cpu_time is not None and model:
            per_byte = function.cpu_time.b_s_per_byte, model.b_s_per_byte
            benefits[slot.name] = per_byte[0] / per_byte[1] if per_byte[1] > 0 else function.speedup
    return benefits


def _settled(job: Job, settings: PoolSettings) -> bool:
    """Say whether a job stays where it is, or leaves anyhow.

    Of the attempts that a job has, half may be moves; the others are for faults.
    """
    leaves = job.cancel_requested or (bool(job.story) and job.story[-1].event == EvictRequested.__name__)
    return leaves or job.attempt > settings.max_attempts // 2


def _pool(catalogue: Catalogue, slots: Sequence[Slot], models: TimeModels) -> OnlinePool:
    functions = [catalogue.functions[name] for name in sorted(catalogue.functions)]
    kinds = list(dict.fromkeys((slot.board, slot.kind) for slot in slots))
    cards = {card: i for i, card in enumerate(dict.fromkeys((slot.host, slot.card, slot.board) for slot in slots))}
    return OnlinePool(
        functions=tuple(function.name for function in functions),
        speedup=np.array([function.speedup for function in functions]),
        preemptible=np.array([function.preemptible for function in functions]),
        progress_kept=np.array([function.progress_kept for function in functions]),
        fits=np.array(
            [
                [(f.name, board) in models and catalogue.fits(f.name, board, kind) for f in functions]
                for board, kind in kinds
            ]
        ).reshape(len(kinds), len(functions)),
        io_bps=np.array([[f.io_bps_on(board) for f in functions] for board, _ in kinds]).reshape(
            len(kinds), len(functions)
        ),
        load_s=np.array([catalogue.boards[board].load_s(kind) for board, kind in kinds]),
        dma_bps=np.array([catalogue.boards[board].dma_bps for _, _, board in cards]),
        slot_card=np.array([cards[slot.host, slot.card, slot.board] for slot in slots], np.int64),
        slot_kind=np.array([kinds.index((slot.board, slot.kind)) for slot in slots], np.int64),
    )


class _Share:
    """Slots that each project may have at a time (`core.benefit.fair` in a picture that is made anew)."""

    def __init__(self, slots: Sequence[Slot], settings: PoolSettings, online: Sequence[Job]) -> None:
        self._most = max(1, int(len(slots) * settings.tenant_share + 1e-9))
        self._limited = settings.tenant_share < 1
        self._has = Counter(job.project_id for job in online if not is_cpu(job.slot))

    def lets_in(self, job: Job) -> bool:
        """Say whether a job may want a slot, and count it."""
        if self._limited and self._has[job.project_id] >= self._most:
            return False
        self._has[job.project_id] += 1
        return True


class _Builder:
    """Fills an occupancy with what was read."""

    def __init__(
        self,
        catalogue: Catalogue,
        models: TimeModels,
        pool: OnlinePool,
        slots: Sequence[Slot],
        now_s: float,
        demand: Demand,
        share: _Share,
    ) -> None:
        self._share = share
        self._catalogue, self._models, self._now_s = catalogue, models, now_s
        self._number = {name: number for number, name in enumerate(pool.functions)}
        self._boards = sorted({slot.board for slot in slots})
        self._slowest_load_s = max(pool.load_s.tolist(), default=0.0)
        self._asking = 0
        self.view = Occupancy(pool, demand)
        # A load is decided together with its first job.
        self.view.preloads = False

    def add_slot(self, slot: int, found: Slot, queue: Sequence[Job], movable: set[str]) -> None:
        """Let a slot hold what it holds and run what it runs; what it is to run next is part of that."""
        view, head = self.view, queue[0] if queue else None
        held = self._number.get(head.function if head is not None else found.function, EMPTY)
        if held == EMPTY:
            if head is not None:  # of a function that the catalogue has lost
                del view.idle[view.kind[slot]][EMPTY][slot]
                view.idle_slots[view.kind[slot]] -= 1
            return
        view.loads(slot, held)
        view.loaded(slot, self._now_s)
        if head is None:
            return
        view.started(slot, slot, max(self._now_s, *(_end_at(job) for job in queue)))
        if len(queue) > 1 or head.state is not JobState.RUNNING or head.uuid not in movable:
            view.evictable[view.kind[slot]][held].pop(slot, None)
        if head.state is not JobState.RUNNING and (found.state, found.function) != (SlotState.READY, head.function):
            view.port_busy[view.card[slot]] = True

    def add_waiting(self, jobs: Sequence[Job], settings: PoolSettings) -> tuple[Waiting, ...]:
        """Let jobs without a place wait, oldest first; one that was evicted has waited enough."""
        asking = []
        for job in sorted(jobs, key=lambda job: (job.created_at, job.batch_uuid, job.index)):
            work_s = self._work_s(job)
            patience_s = settings.online_patience_s or work_s
            give_up_at = job.created_at + patience_s if job.attempt == 0 else self._now_s
            asking.append(self._ask(job, work_s, give_up_at))
        return tuple(asking)

    def add_returning(self, jobs: Sequence[Job]) -> tuple[Waiting, ...]:
        """Let jobs that compute on a CPU wait for a slot behind the others, if they would be complete there earlier."""
        asking = []
        for job in jobs:
            kept = self._catalogue.functions[job.function].progress_kept
            left_s = _end_at(job) - self._now_s
            whole_s = self._work_s(job)
            work_s = whole_s * _left_share(job, self._now_s) if kept else whole_s
            if left_s > work_s + self._slowest_load_s:
                asking.append(self._ask(job, work_s, self._now_s + left_s - work_s))
        return tuple(asking)

    def _ask(self, job: Job, work_s: float, give_up_at: float) -> Waiting:
        if self._share.lets_in(job):
            self.view.waits(self._asking, self._number[job.function], give_up_at)
        self._asking += 1
        return Waiting(job=job, work_s=work_s, give_up_at=give_up_at)

    def _work_s(self, job: Job) -> float:
        return (1.0 - job.done) * whole_work_s(job, self._models, self._boards)


def whole_work_s(job: Job, models: TimeModels, boards: Collection[str]) -> float:
    """Return the seconds that a whole job computes on the quickest of these boards; 0 where none can."""
    known = [models[job.function, board] for board in boards if (job.function, board) in models]
    return min((model.seconds(job.input_bytes) for model in known), default=0.0)


def _end_at(job: Job) -> float:
    """Return when a job's computation is expected to end."""
    planned_s = (job.end_s or 0.0) - (job.start_s or 0.0)
    if job.started_at is not None:
        return job.started_at + planned_s
    return (job.dispatched_at or job.created_at) + (job.end_s or 0.0)


def _left_share(job: Job, now_s: float) -> float:
    """Return the share of what a job still had to do that it has to do now."""
    planned_s = (job.end_s or 0.0) - (job.start_s or 0.0)
    return min(max(_end_at(job) - now_s, 0.0) / planned_s, 1.0) if planned_s > 0 else 0.0


def take_moves(view: OnlineView, catalogue: Catalogue, decide: Callable[[Occupancy], Move | None]) -> Moves:
    """Ask for moves until there are no more; then give those that have waited long enough to CPUs."""
    taken, occupancy, moves = set[int](), view.occupancy, Moves()
    while view.slots and (move := decide(occupancy)) is not None:
        slot, load_s = move.slot, 0.0
        if not isinstance(move, Start):
            if occupancy.job[slot] >= 0:
                moves.evictions.append(view.queues[view.slots[slot].name][0])
                occupancy.stopped(slot)
            load_s = occupancy.load_s[occupancy.kind[slot]]
            occupancy.loads(slot, move.function)
            occupancy.loaded(slot, view.now_s)
            occupancy.port_busy[occupancy.card[slot]] = True
        number = next(iter(occupancy.waiting[move.function]))
        occupancy.left(number, move.function)
        taken.add(number)
        asking = view.waiting[number]
        occupancy.started(slot, slot, view.now_s + load_s + asking.work_s)
        occupancy.evictable[occupancy.kind[slot]][move.function].pop(slot, None)
        occupancy.news = None, None
        if asking.job.state is JobState.RUNNING:  # on a CPU: it is placed when its agent has let go of it
            moves.evictions.append(asking.job)
        else:
            moves.placements.append(
                Placement(job=asking.job, slot=view.slots[slot], load_s=load_s, work_s=asking.work_s)
            )
    moves.placements += _to_cpus(view, catalogue, taken)
    return moves


def _to_cpus(view: OnlineView, catalogue: Catalogue, taken: set[int]) -> list[Placement]:
    """Give jobs that have waited long enough to free workers: of the host that has the input, or that sends it."""
    free, placements = list(view.free_workers), []
    for number, asking in enumerate(view.waiting):
        job, cpu_time = asking.job, catalogue.functions[asking.job.function].cpu_time
        late = asking.give_up_at <= view.now_s and job.state is JobState.PENDING
        if number in taken or not late or cpu_time is None or not free:
            continue
        worker = min(free, key=lambda worker: (worker.host != job.host, worker.host != job.requester))
        free.remove(worker)
        done = job.done if worker.host == job.host else 0.0
        work_s = (1.0 - done) * cpu_time.seconds(job.input_bytes)
        placements.append(Placement(job=job, slot=worker, load_s=0.0, work_s=work_s))
    return placements


def commit_moves(tx: Transaction, moves: Moves, catalogue: Catalogue, now_s: float) -> tuple[list[Job], list[Job]]:
    """Do what was decided, as far as nothing concerned has changed; return the jobs placed and those to be evicted."""
    concerned = [*moves.evictions, *(placement.job for placement in moves.placements)]
    unchanged = {job.uuid for job in tx.unchanged(concerned)}
    evicted = []
    for job in moves.evictions:
        if job.uuid in unchanged:
            keep = catalogue.functions[job.function].progress_kept
            evicted.append(change_job(tx, job, EvictRequested(keep_progress=keep), now_s))
    leaving = {job.uuid for job in evicted}
    foreign = held_by_others(tx.leases())
    placed = []
    for placement in moves.placements:
        slot = tx.slot(placement.slot.name)
        if placement.job.uuid in unchanged and usable(slot, tx.host(slot.host), foreign):
            queue = tx.active_jobs(slot=slot.name)
            if all(job.uuid in leaving for job in queue):
                placed.append(_place(tx, placement, queue, now_s))
    return placed, evicted


def _place(tx: Transaction, placement: Placement, queue: Sequence[Job], now_s: float) -> Job:
    grant_pool_leases(tx, [placement.slot.name], now_s)
    withdraw_from_former_host(tx, placement.job, placement.slot.host)
    event = Planned(
        host=placement.slot.host,
        slot=placement.slot.name,
        order=max((job.order for job in queue), default=-1) + 1,
        dispatched_at=now_s,
        start_s=placement.load_s,
        end_s=placement.load_s + placement.work_s,
        transfer=(),
    )
    batch = tx.batch(placement.job.batch_uuid)
    if batch.state is BatchState.PENDING:
        tx.save(BATCH.transition(batch, BatchBegun(dispatched_at=now_s), now_s)[0])
    return change_job(tx, placement.job, event, now_s)
