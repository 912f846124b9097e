"""Online jobs in the planning cycle (benefit paper): commit the moves of a policy, and learn the demand of a shard.

A load ahead of jobs is a separate command: it takes no lease, so a claim, a task or a plan can get the slot at any
moment.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from fpga_pool.core.benefit.cycle import take
from fpga_pool.core.benefit.occupancy import Demand, Occupancy
from fpga_pool.core.benefit.pool import Move
from fpga_pool.core.policy import OnlinePolicy, PolicyState
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import CycleSnapshot, Decision, Outcome
from fpga_pool.model.lifecycle.batch import BATCH, BatchBegun
from fpga_pool.model.lifecycle.job import EvictRequested, Planned
from fpga_pool.model.messages.agents import LoadFunction
from fpga_pool.model.objects.pool import CPU, ENDED_JOBS, BatchState, Job, JobState, Slot, is_cpu
from fpga_pool.model.rules.batch.placing import held_by_others, usable, withdraw_from_former_host
from fpga_pool.model.rules.batch.planning import known_time_models
from fpga_pool.model.rules.online.view import OnlineView, RequestedLoad, online_view, whole_work_s
from fpga_pool.model.rules.shared.changes import change_job, grant_pool_leases, send
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

# ---- Moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A job, as it was read, and the slot or CPU worker that it gets."""

    job: Job
    slot: Slot
    #: Seconds to load its function before it begins, and seconds that it computes.
    load_s: float
    work_s: float


@dataclass(slots=True, kw_only=True)
class Moves:
    """The decisions of one cycle."""

    placements: list[Placement] = field(default_factory=list)
    #: Jobs that leave their slot or CPU.
    evictions: list[Job] = field(default_factory=list)
    #: Slots, as they were read, that load ahead of jobs, each with the function to load.
    loads: list[tuple[Slot, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Committed moves: jobs placed, jobs whose eviction was requested, and requested preloads by slot name."""

    placed: list[Job]
    evicted: list[Job]
    requested: dict[str, RequestedLoad]


def take_moves(view: OnlineView, catalogue: Catalogue, decide: Callable[[Occupancy], Move | None]) -> Moves:
    """Apply the policy's moves until there are no more; then assign jobs that have waited long enough to CPUs."""
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
    """Assign jobs that have waited long enough to free workers, preferably on the host that has or sends the input."""
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
    """Apply the moves whose objects have not changed since the snapshot; return those applied."""
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
    """Send preloads to the slots that have not been given to an instance, task or job meanwhile."""
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


# ---- The family

#: Number and maximum age of the jobs from which a scheduler that takes over learns: more than estimates remember.
RECALLED_JOBS, RECALLED_S = 500, 3600.0
#: Seconds without cycles for preloads alone, after a cycle that found nothing to load.
REST_S = 5.0


@dataclass(frozen=True, slots=True)
class OnlineRule:
    """The policy that places a shard's online jobs, and the policies, by name, of which jobs are online."""

    policy: OnlinePolicy
    is_online: Callable[[str], bool]
    #: Whether work is online by default, so that slots load ahead before the first online job has arrived.
    from_start: bool = False


class OnlineFamily:
    """Places and evicts online jobs, and learns the demand and the speedups of the functions."""

    name = "online"

    def __init__(self, catalogue: Catalogue, settings: PoolSettings, rule: OnlineRule) -> None:
        self.catalogue = catalogue
        self._settings = settings
        self._rule = rule
        self._number = {name: number for number, name in enumerate(sorted(catalogue.functions))}
        #: Estimated from the stored jobs: a new scheduler derives it again, so it is not stored.
        self.demand = Demand([catalogue.functions[name].speedup for name in self._number])
        #: Jobs whose arrival was counted and which may still wait.
        self._arrived: set[str] = set()
        #: Jobs placed on slots, from whose end the speedup is learned.
        self._on_slots: set[str] = set()
        self._recalled = False
        #: Slots that were commanded to preload, by name. Not stored: after a takeover the command may be repeated; the
        #: agent ignores it unless the slot still holds the function to be replaced.
        self._requested: dict[str, RequestedLoad] = {}
        #: No cycles for preloads alone until this time, because there was nothing to load.
        self._rests_until_s = 0.0
        #: Whether a place that becomes free is worth another cycle.
        self.waits = False

    def snapshot(self, tx: Transaction, now_s: float) -> CycleSnapshot[OnlineView] | None:
        """Read the view for the online policy, and learn from the jobs that have arrived or ended."""
        self._requested = {
            slot: requested for slot, requested in self._requested.items() if requested.is_remembered(now_s)
        }
        online = [policy for policy in tx.policies_at_work() if self._rule.is_online(policy)]
        self._recall(tx, [*online, self._rule.policy.name] if self._rule.from_start else online, now_s)
        self._learn(tx)
        requested = self._requested if self._settings.load_ahead and (online or self.looks_ahead) else None
        for_loads = requested is not None and now_s >= self._rests_until_s
        view = None
        if online or for_loads:
            view = online_view(
                *(tx, self.catalogue, self._settings, now_s, self._rule.is_online, self.demand, requested),
                for_loads=for_loads,
            )
        self.waits = view is not None and view.waits
        if for_loads and (view is None or not view.loading):
            self._rests_until_s = now_s + REST_S
        if view is None:
            return None
        self._count_arrivals(view)
        return CycleSnapshot(view=view, policy=self._rule.policy, now_s=now_s)

    @property
    def looks_ahead(self) -> bool:
        """Whether slots may load ahead of the first job: online jobs have arrived before, or are the default."""
        return self._settings.load_ahead and (self._rule.from_start or self.demand.arrivals > 0)

    def decide(
        self, snapshot: CycleSnapshot[OnlineView], state: PolicyState, rng: np.random.Generator
    ) -> Decision[Moves]:
        """Let the policy make moves until there are no more."""
        policy = self._rule.policy
        moves = take_moves(
            snapshot.view, self.catalogue, lambda occupancy: policy.decide(occupancy, state, snapshot.now_s, rng)
        )
        return Decision(wanted=moves if moves.placements or moves.evictions or moves.loads else None)

    def commit(self, tx: Transaction, snapshot: CycleSnapshot[OnlineView], wanted: Moves, now_s: float) -> Outcome:
        """Place jobs, request evictions, and send preloads."""
        done, name = commit_moves(tx, wanted, self.catalogue, now_s), snapshot.policy.name
        self._on_slots |= {job.uuid for job in done.placed if not is_cpu(job.slot)}
        self._requested |= {
            slot: requested.after(self._requested.get(slot)) for slot, requested in done.requested.items()
        }
        if wanted.loads:
            self.waits, self._rests_until_s = True, 0.0
        leaving = [f"job {job.uuid}: evicted from {job.slot} by {name}" for job in done.evicted]
        loading = [
            f"slot {slot}: preloading {requested.function} by {name}" for slot, requested in done.requested.items()
        ]
        on_cpus = sum(is_cpu(job.slot) for job in done.placed)
        on_slots = len(done.placed) - on_cpus
        summary = (
            f"of {len(snapshot.view.waiting)} waiting jobs {on_slots} placed on slots and {on_cpus} on CPUs, "
            f"{len(done.evicted)} running jobs evicted, by {name}"
        )
        return Outcome(
            changed=bool(done.placed or done.evicted or done.requested),
            placed=tuple(done.placed),
            details=(*leaving, *loading),
            summary=summary,
        )

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Job]:
        """Return the jobs with these uuids that exist."""
        return tx.jobs(uuids)

    def _count_arrivals(self, view: OnlineView) -> None:
        pending = {asking.job.uuid: asking for asking in view.waiting if asking.job.attempt == 0}
        for uuid in sorted(pending.keys() - self._arrived):
            self._count_arrival(pending[uuid].job, pending[uuid].work_s)
        self._arrived = set(pending)

    def _count_arrival(self, job: Job, work_s: float) -> None:
        patience_s = self._settings.online_patience_s or work_s
        self.demand.arrived(self._number[job.function], work_s, patience_s, job.created_at, job.project_id)

    def _recall(self, tx: Transaction, policies: Sequence[str], now_s: float) -> None:
        """Learn once from the jobs of the shard's previous owner, so that a restart or takeover loses no estimates."""
        if self._recalled or not policies:
            return
        self._recalled = True
        models = known_time_models(self.catalogue, tx.time_models())
        boards = {slot.board for slot in tx.slots() if slot.kind != CPU}
        jobs = [
            job for job in tx.newest_jobs(policies, now_s - RECALLED_S, RECALLED_JOBS) if job.function in self._number
        ]
        for job in reversed(jobs):
            if (work_s := whole_work_s(job, models, boards)) > 0:
                self._count_arrival(job, work_s)
        self._arrived = {job.uuid for job in jobs}
        self._on_slots = {job.uuid for job in jobs if job.slot and not is_cpu(job.slot)}

    def _learn(self, tx: Transaction) -> None:
        """Record the speedups of jobs that have ended on slots (benefit paper, section IV.C)."""
        for job in tx.jobs(self._on_slots):
            if job.state in ENDED_JOBS or is_cpu(job.slot):
                self._on_slots.discard(job.uuid)
                if (speedup := self._speedup(job)) is not None:
                    self.demand.ran(self._number[job.function], speedup, job.project_id)

    def _speedup(self, job: Job) -> float | None:
        """Return the observed speedup of a job over one vCPU; None if it did not run as a whole on a slot."""
        function = self.catalogue.functions.get(job.function)
        whole = job.done == 0 and not is_cpu(job.slot) and bool(job.compute_s)
        if function is None or function.cpu_time is None or not whole:
            return None
        return function.cpu_time.seconds(job.input_bytes) / (job.compute_s or 1.0)
