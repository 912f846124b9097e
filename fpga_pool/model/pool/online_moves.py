"""What an online policy wants, as objects: who gets which slot, who leaves, and what is loaded ahead (benefit paper).

A load that no job waits for is a command by itself: it takes no lease, so that a claim, a task or a plan can have the
slot at any moment.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from fpga_pool.core.benefit.look import take
from fpga_pool.core.benefit.moves import Move
from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import EvictRequested, Planned
from fpga_pool.model.messages import LoadFunction
from fpga_pool.model.objects import BatchState, Job, JobState, Slot
from fpga_pool.model.pool.changes import change_job, grant_pool_leases, send
from fpga_pool.model.pool.online import OnlineView, RequestedLoad
from fpga_pool.model.pool.placing import held_by_others, usable, withdraw_from_former_host
from fpga_pool.model.transaction import Transaction


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
    #: Slots, as they were read, that load ahead of jobs, and what.
    loads: list[tuple[Slot, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done of it: jobs that were placed or asked to leave, and slots that were told to load ahead, by name."""

    placed: list[Job]
    evicted: list[Job]
    requested: dict[str, RequestedLoad]


def take_moves(view: OnlineView, catalogue: Catalogue, decide: Callable[[Occupancy], Move | None]) -> Moves:
    """Ask for moves until there are no more; then give those that have waited long enough to CPUs."""
    asking, occupancy = view.waiting, view.occupancy
    taken = take(
        occupancy,
        decide,
        now_s=view.now_s,
        work_s=lambda number: asking[number].work_s,
        on_cpu=lambda number: asking[number].job.state is JobState.RUNNING,
        loading=view.loading,
    )
    moves = Moves(
        evictions=[
            *(view.queues[view.slots[slot].name][0] for slot in taken.evicted),
            *(asking[number].job for number in taken.called_back),
        ],
        placements=[
            Placement(
                job=asking[place.job].job,
                slot=view.slots[place.slot],
                load_s=place.load_s,
                work_s=asking[place.job].work_s,
            )
            for place in taken.places
        ],
        loads=[(view.slots[slot], occupancy.pool.functions[occupancy.holds[slot]]) for slot in taken.loads],
    )
    moves.placements += _to_cpus(view, catalogue, {*taken.called_back, *(place.job for place in taken.places)})
    return moves


def _to_cpus(view: OnlineView, catalogue: Catalogue, taken: Collection[int]) -> list[Placement]:
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


def commit_moves(tx: Transaction, moves: Moves, catalogue: Catalogue, now_s: float) -> Done:
    """Do what was decided, as far as nothing concerned has changed; return what was done."""
    concerned = [*moves.evictions, *(placement.job for placement in moves.placements)]
    unchanged = {job.uuid for job in tx.unchanged(concerned)}
    evicted = []
    for job in moves.evictions:
        if job.uuid in unchanged:
            keep = catalogue.functions[job.function].progress_kept
            evicted.append(change_job(tx, job, EvictRequested(keep_progress=keep), now_s))
    leaving = {job.uuid for job in evicted}
    foreign = held_by_others(tx.leases(slots={placement.slot.name for placement in moves.placements}))
    possible = []
    for placement in moves.placements:
        slot = tx.slot(placement.slot.name)
        if placement.job.uuid in unchanged and usable(slot, tx.host(slot.host), foreign):
            queue = tx.active_jobs(slot=slot.name)
            if all(job.uuid in leaving for job in queue):
                possible.append((placement, queue))
    grant_pool_leases(tx, [placement.slot.name for placement, _ in possible], now_s)
    placed = [_place(tx, placement, queue, now_s) for placement, queue in possible]
    return Done(placed=placed, evicted=evicted, requested=_load_ahead(tx, moves.loads, now_s))


def _load_ahead(tx: Transaction, loads: Sequence[tuple[Slot, str]], now_s: float) -> dict[str, RequestedLoad]:
    """Have slots load ahead that nobody has got meanwhile: no instance, no task, no job."""
    if not loads:
        return {}
    names = [slot.name for slot, _ in loads]
    taken = {lease.slot for lease in tx.leases(slots=names)} | tx.occupied(names)
    requested = {}
    for read, function in loads:
        slot = tx.slot(read.name)
        same = (slot.state, slot.function) == (read.state, read.function)
        if same and usable(slot, tx.host(slot.host), taken):
            send(tx, slot.name, LoadFunction(function=function, replaces=slot.function))
            requested[slot.name] = RequestedLoad(
                function=function, replaces=slot.function, at=now_s, reconfigurations=slot.reconfigurations
            )
    return requested


def _place(tx: Transaction, placement: Placement, queue: Sequence[Job], now_s: float) -> Job:
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
