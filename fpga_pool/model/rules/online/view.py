"""The view of the pool for an online policy (benefit paper).

A batch with an online policy is not planned.  Its jobs wait until the policy has a slot for them. A job that has waited
too long runs on a worker of a host's CPU pool, and moves to a slot later if that pays.  Decisions are made between two
transactions: `online_view` reads in the first, `family.commit_moves` writes in the second.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fpga_pool.core.benefit.cycle import Picture, SlotNow
from fpga_pool.core.benefit.occupancy import EMPTY, Demand, Occupancy
from fpga_pool.core.benefit.plus import TenantLimit
from fpga_pool.core.benefit.pool import OnlinePool
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.lifecycle.job import EvictRequested
from fpga_pool.model.objects.pool import CPU, Job, JobState, Slot, SlotState, is_cpu
from fpga_pool.model.rules.batch.placing import end_at, held_by_others, scarcity_by_kind, usable
from fpga_pool.model.rules.batch.planning import TimeModels, known_time_models
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

#: Seconds, in addition to the load itself, within which an agent reports a preload; after these it has failed.
ANSWER_S = 5.0
#: Minimum seconds between two preloads of a slot; it grows for a slot whose preloads keep failing.
PAUSE_S, LONGEST_PAUSE_S = 60.0, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedLoad:
    """A preload that was sent to a slot: the function, the one it replaces, and the time."""

    function: str
    replaces: str
    at: float
    #: `Slot.reconfigurations` when the preload was sent.
    reconfigurations: int
    #: Seconds before the next preload of the slot.
    pause_s: float = PAUSE_S

    def is_remembered(self, now_s: float) -> bool:
        """Return whether this preload still counts as failed if the slot needs another one now."""
        return now_s - self.at < 2 * self.pause_s

    def after(self, before: "RequestedLoad | None") -> "RequestedLoad":
        """Return this preload, with a longer pause if a previous one is still remembered."""
        return self if before is None else replace(self, pause_s=min(2 * before.pause_s, LONGEST_PAUSE_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A job that waits for a slot: it is pending, or computes on a CPU."""

    job: Job
    #: Remaining seconds of slot time.
    work_s: float
    #: When it stops waiting for a slot, UTC seconds: a pending job is then assigned to a CPU.
    give_up_at: float


@dataclass(slots=True, kw_only=True)
class OnlineView:
    """The view of an online policy, and the objects that its indices refer to."""

    now_s: float
    #: (S,) slots, and the jobs in the queue of each slot, by slot name.
    slots: tuple[Slot, ...]
    queues: Mapping[str, tuple[Job, ...]]
    #: Waiting jobs, in the order of their numbers in the occupancy.
    waiting: tuple[Waiting, ...]
    #: Idle workers of CPU pools.
    free_workers: tuple[Slot, ...]
    #: By the number of a slot that preloads, the time at which it was commanded to.
    loading: Mapping[int, float]
    occupancy: Occupancy

    @property
    def waits(self) -> bool:
        """Whether a place, or a configuration port for the next preload, that becomes free is worth another cycle."""
        return bool(self.waiting) or bool(self.loading)


def online_view(
    tx: Transaction,
    catalogue: Catalogue,
    settings: PoolSettings,
    now_s: float,
    is_online: Callable[[str], bool],
    demand: Demand,
    requested: Mapping[str, RequestedLoad] | None = None,
    *,
    for_loads: bool = True,
) -> OnlineView | None:
    """Return the view of the shard for an online policy; None if there is nothing to decide.

    Parameters
    ----------
    tx, catalogue, settings
        The transaction, the catalogue in force and the limits.
    now_s
        UTC seconds.
    is_online
        Returns whether a batch policy, by name, is an online one.
    demand
        The learned demand, by function in alphabetical order.
    requested
        Requested preloads, by slot name; None = slots must not load ahead of jobs.
    for_loads
        Whether to return a view for preloads alone, when no job waits for a slot.

    """
    online_batches = [uuid for uuid, pending in tx.pending_batches().items() if is_online(pending.policy)]
    waiting = [
        job
        for job in tx.pending_jobs(online_batches)
        if job.counted_attempts < settings.max_attempts and job.function in catalogue.functions
    ]
    active = tx.active_jobs()
    online = {job.uuid for job in active if is_online(tx.batch(job.batch_uuid).policy)}
    movable = {job.uuid for job in active if job.uuid in online and not _settled(job, settings)}
    on_cpu = [job for job in active if is_cpu(job.slot) and job.uuid in movable and job.state is JobState.RUNNING]
    if not waiting and not on_cpu and (requested is None or not for_loads):
        return None
    leases, hosts = tx.leases(), {host.name: host for host in tx.hosts()}
    foreign, all_slots, boards = held_by_others(leases), tx.slots(), catalogue.boards
    slots = tuple(slot for slot in all_slots if slot.board in boards and slot.kind in boards[slot.board].regions)
    serving = {slot.name for slot in all_slots if usable(slot, hosts[slot.host], foreign)}
    on_duty = [slot for slot in slots if slot.name in serving]
    if not waiting and not on_cpu and all(slot.function in catalogue.functions for slot in on_duty):
        return None
    models = known_time_models(catalogue, tx.time_models())
    pool = _pool(catalogue, slots, models, scarcity_by_kind(catalogue, leases))
    queues: defaultdict[str, tuple[Job, ...]] = defaultdict(tuple)
    for job in active:
        queues[job.slot] += (job,)
    limit = _tenant_limit(on_duty, settings, [job for job in active if job.uuid in online])
    builder = _Builder(catalogue, models, slots, on_duty, now_s, requested or {})
    known = [builder.slot_now(slot, queues[slot.name], movable) if slot.name in serving else None for slot in slots]
    occupancy = Picture(pool, demand, known)
    occupancy.preloads = requested is not None
    asking = builder.pending(waiting, settings) + builder.returning(on_cpu)
    numbers = builder.numbers
    for number, asks in enumerate(asking):
        if limit is None or limit.lets_in(number, asks.job.project_id):
            occupancy.waits(number, numbers[asks.job.function], asks.give_up_at)
    return OnlineView(
        now_s=now_s,
        slots=slots,
        queues=dict(queues),
        waiting=asking,
        free_workers=tuple(
            slot for slot in all_slots if slot.kind == CPU and slot.name in serving and not queues[slot.name]
        ),
        loading=builder.loading,
        occupancy=occupancy,
    )


def slot_benefits(tx: Transaction, catalogue: Catalogue) -> dict[str, float]:
    """Return the speedup of each slot's current computation, in vCPU equivalents, by the refitted time models.

    This is the benefit lost by a claim on the slot (benefit paper, equation 1); 0 if the slot does not compute.
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


def _needs_load(found: Slot, queue: Sequence[Job]) -> bool:
    """Return whether a slot must load a function before the first job of its queue, if any, can compute."""
    if not queue or queue[0].state is JobState.RUNNING:
        return False
    return (found.state, found.function) != (SlotState.READY, queue[0].function)


def _settled(job: Job, settings: PoolSettings) -> bool:
    """Return whether a job must not be moved, because it has been moved too often or is about to leave anyway.

    Moves may use up half of the attempts of a job; the other half is reserved for faults.
    """
    leaves = job.cancel_requested or (bool(job.history) and job.history[-1].event == EvictRequested.__name__)
    return leaves or job.counted_attempts > settings.max_attempts // 2


def _pool(
    catalogue: Catalogue, slots: Sequence[Slot], models: TimeModels, scarcity: Mapping[tuple[str, str], float]
) -> OnlinePool:
    functions = [catalogue.functions[name] for name in sorted(catalogue.functions)]
    # Among equal slots, a policy takes one of the first kind, so the least scarce kind comes first.
    kinds = sorted(dict.fromkeys((slot.board, slot.kind) for slot in slots), key=scarcity.__getitem__)
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


def _tenant_limit(slots: Sequence[Slot], settings: PoolSettings, online: Sequence[Job]) -> TenantLimit | None:
    """Return the limit of slots per project, which already counts online jobs on slots; None if there is no limit."""
    if settings.tenant_share >= 1:
        return None
    limit = TenantLimit(len(slots), settings.tenant_share)
    for job in online:
        if not is_cpu(job.slot):
            limit.lets_in(-1, job.project_id)
    return limit


class _Builder:
    """Converts slots and jobs into the form that the policy's view needs."""

    def __init__(
        self,
        catalogue: Catalogue,
        models: TimeModels,
        slots: Sequence[Slot],
        on_duty: Sequence[Slot],
        now_s: float,
        requested: Mapping[str, RequestedLoad],
    ) -> None:
        self._catalogue, self._models, self._now_s, self._requested = catalogue, models, now_s, requested
        #: Numbers of the functions in the occupancy.
        self.numbers = {name: number for number, name in enumerate(sorted(catalogue.functions))}
        self._boards = sorted({slot.board for slot in on_duty})
        self._slowest_load_s = max((catalogue.boards[slot.board].load_s(slot.kind) for slot in on_duty), default=0.0)
        self._slots = {slot.name: number for number, slot in enumerate(slots)}
        #: See `OnlineView.loading`.
        self.loading: dict[int, float] = {}

    def slot_now(self, found: Slot, queue: Sequence[Job], movable: set[str]) -> SlotNow | None:
        """Return the known state of a slot in service, which includes the jobs planned on it."""
        if queue:
            return self._with_jobs(found, queue, movable)
        requested, held = self._requested.get(found.name), self.numbers.get(found.function, EMPTY)
        loading = self._loading(found)
        if loading != EMPTY:
            at = requested.at if requested and self.numbers.get(requested.function) == loading else self._now_s
            self.loading[self._slots[found.name]] = at
            return SlotNow(loading, loading=True, needs_port=True)
        if held != EMPTY:
            return SlotNow(held, loaded_s=-math.inf if found.loaded_at is None else found.loaded_at)
        return SlotNow(EMPTY, put_off=requested is not None and self._now_s - requested.at < requested.pause_s)

    def _with_jobs(self, found: Slot, queue: Sequence[Job], movable: set[str]) -> SlotNow | None:
        head = queue[0]
        held = self.numbers.get(head.function, EMPTY)
        if held == EMPTY:
            return None  # it computes a function that was removed from the catalogue
        return SlotNow(
            held,
            needs_port=_needs_load(found, queue),
            end_s=max(end_at(job) for job in queue),
            movable=len(queue) == 1 and head.state is JobState.RUNNING and head.uuid in movable,
        )

    def _loading(self, found: Slot) -> int:
        """Return the function that a slot without jobs loads, or was commanded to load; EMPTY for none."""
        if found.state is SlotState.LOADING:
            return self.numbers.get(found.function, EMPTY)
        requested = self._requested.get(found.name)
        if requested is None or (found.function, found.reconfigurations) != (
            requested.replaces,
            requested.reconfigurations,
        ):
            return EMPTY
        load_s = self._catalogue.boards[found.board].load_s(found.kind)
        expired = self._now_s - requested.at >= load_s + ANSWER_S
        return EMPTY if expired else self.numbers.get(requested.function, EMPTY)

    def pending(self, jobs: Sequence[Job], settings: PoolSettings) -> tuple[Waiting, ...]:
        """Return the pending jobs, oldest first; after an earlier attempt (such as an eviction) patience is 0."""
        asking = []
        for job in sorted(jobs, key=lambda job: (job.created_at, job.batch_uuid, job.index)):
            work_s = self._work_s(job)
            patience_s = settings.online_patience_s or work_s
            give_up_at = job.created_at + patience_s if job.attempt == 0 else self._now_s
            asking.append(Waiting(job=job, work_s=work_s, give_up_at=give_up_at))
        return tuple(asking)

    def returning(self, jobs: Sequence[Job]) -> tuple[Waiting, ...]:
        """Return the jobs on CPUs that would be complete earlier on a slot; they wait behind the pending jobs."""
        asking = []
        for job in jobs:
            kept = self._catalogue.functions[job.function].progress_kept
            left_s = end_at(job) - self._now_s
            whole_s = self._work_s(job)
            work_s = whole_s * _left_share(job, self._now_s) if kept else whole_s
            if left_s > work_s + self._slowest_load_s:
                asking.append(Waiting(job=job, work_s=work_s, give_up_at=self._now_s + left_s - work_s))
        return tuple(asking)

    def _work_s(self, job: Job) -> float:
        return (1.0 - job.done) * whole_work_s(job, self._models, self._boards)


def whole_work_s(job: Job, models: TimeModels, boards: Collection[str]) -> float:
    """Return the computation time of a whole job on the fastest of these boards; 0 if none can run it."""
    known = [models[job.function, board] for board in boards if (job.function, board) in models]
    return min((model.seconds(job.input_bytes) for model in known), default=0.0)


def _left_share(job: Job, now_s: float) -> float:
    """Return the remaining share of the work of a job's current attempt."""
    planned_s = (job.end_s or 0.0) - (job.start_s or 0.0)
    return min(max(end_at(job) - now_s, 0.0) / planned_s, 1.0) if planned_s > 0 else 0.0
