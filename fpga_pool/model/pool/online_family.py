"""The part of online jobs in the planning cycle, and what a shard learns of what is asked for (benefit paper)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.policy import OnlinePolicy, PolicyState
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.cycle import Decision, Look, Outcome
from fpga_pool.model.objects import CPU, ENDED_JOBS, Job, is_cpu
from fpga_pool.model.pool.online import OnlineView, RequestedLoad, online_view, whole_work_s
from fpga_pool.model.pool.online_moves import Moves, commit_moves, take_moves
from fpga_pool.model.pool.planning import known_time_models
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction

#: Jobs that a scheduler which takes over looks back on, and for how long: more than estimates remember.
RECALLED_JOBS, RECALLED_S = 500, 3600.0
#: Seconds without a look for loads ahead alone, after one that found nothing to load.
REST_S = 5.0


@dataclass(frozen=True, slots=True)
class OnlineRule:
    """Which policy runs a shard's online jobs, and of which policies, by name, jobs are online."""

    policy: OnlinePolicy
    is_online: Callable[[str], bool]
    #: All work is online unless it says otherwise: slots load ahead before the first job has come.
    from_start: bool = False


class OnlineFamily:
    """Gives online jobs their slots, takes them off again, and learns what is asked for and what it gains."""

    name = "online"

    def __init__(self, catalogue: Catalogue, settings: PoolSettings, rule: OnlineRule) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._rule = rule
        self._number = {name: number for number, name in enumerate(sorted(catalogue.functions))}
        #: Estimated from the rows of the jobs, which outlive the scheduler: it is derived again, not stored.
        self.demand = Demand([catalogue.functions[name].speedup for name in self._number])
        #: Jobs whose arrival was counted and that may still wait.
        self._arrived: set[str] = set()
        #: Jobs on slots whose end tells what they gained.
        self._on_slots: set[str] = set()
        self._recalled = False
        #: Slots that were told to load ahead, by name.  Not stored: whoever takes over may tell a slot once more, which
        #: its agent ignores unless the slot still holds what the load is to replace.
        self._requested: dict[str, RequestedLoad] = {}
        #: Until then no look is taken for loads ahead alone: there was nothing to load.
        self._rests_until_s = 0.0
        #: Some job would take another place if there were one: what becomes free is worth a look.
        self.waits = False

    def snapshot(self, tx: Transaction, now_s: float) -> Look[OnlineView] | None:
        """Read the shard as an online policy sees it, and learn from the jobs that have come and gone."""
        self._requested = {
            slot: requested for slot, requested in self._requested.items() if requested.is_remembered(now_s)
        }
        online = [policy for policy in tx.policies_at_work() if self._rule.is_online(policy)]
        self._recall(tx, [*online, self._rule.policy.name] if self._rule.from_start else online, now_s)
        self._learn(tx)
        requested = self._requested if self._may_load_ahead(working=bool(online)) else None
        for_loads = requested is not None and now_s >= self._rests_until_s
        view = None
        if online or for_loads:
            view = online_view(
                *(tx, self._catalogue, self._settings, now_s, self._rule.is_online, self.demand, requested),
                for_loads=for_loads,
            )
        self.waits = view is not None and view.waits
        if for_loads and (view is None or not view.loading):
            self._rests_until_s = now_s + REST_S
        if view is None:
            return None
        self._count_arrivals(view)
        return Look(view=view, policy=self._rule.policy, now_s=now_s)

    def _may_load_ahead(self, *, working: bool) -> bool:
        """Say whether slots may load ahead of jobs: online jobs are at work, were there, or are all that comes."""
        return self._settings.load_ahead and (working or self._rule.from_start or self.demand.arrivals > 0)

    def decide(self, look: Look[OnlineView], state: PolicyState, rng: np.random.Generator) -> Decision[Moves]:
        """Ask for moves until there are no more."""
        policy = self._rule.policy
        moves = take_moves(
            look.view, self._catalogue, lambda occupancy: policy.decide(occupancy, state, look.now_s, rng)
        )
        return Decision(wanted=moves if moves.placements or moves.evictions or moves.loads else None)

    def commit(self, tx: Transaction, look: Look[OnlineView], wanted: Moves, now_s: float) -> Outcome:
        """Place jobs, have others leave their places, and have slots load ahead."""
        done, name = commit_moves(tx, wanted, self._catalogue, now_s), look.policy.name
        self._on_slots |= {job.uuid for job in done.placed if not is_cpu(job.slot)}
        self._requested |= {
            slot: requested.after(self._requested.get(slot)) for slot, requested in done.requested.items()
        }
        if wanted.loads:
            self.waits, self._rests_until_s = True, 0.0
        leaving = [f"job {job.uuid}: to leave {job.slot} by {name}" for job in done.evicted]
        loading = [
            f"slot {slot}: to load {requested.function} ahead of its jobs by {name}"
            for slot, requested in done.requested.items()
        ]
        on_cpus = sum(is_cpu(job.slot) for job in done.placed)
        on_slots = len(done.placed) - on_cpus
        summary = (
            f"of {len(look.view.waiting)} jobs that want a slot {on_slots} placed on slots and {on_cpus} on"
            f" CPUs, {len(done.evicted)} to be evicted, by {name}"
        )
        return Outcome(
            changed=bool(done.placed or done.evicted or done.requested),
            placed=tuple(done.placed),
            details=(*leaving, *loading),
            summary=summary,
        )

    def work(self, tx: Transaction, uuids: Collection[str]) -> Sequence[Job]:
        """Return jobs."""
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
        """Learn, once, from the jobs of whoever had the shard before: a restart or a takeover forgets no demand."""
        if self._recalled or not policies:
            return
        self._recalled = True
        models = known_time_models(self._catalogue, tx.time_models())
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
        """Take note of the speedups of jobs that have ended on slots (benefit paper, section IV.C)."""
        for job in tx.jobs(self._on_slots):
            if job.state in ENDED_JOBS or is_cpu(job.slot):
                self._on_slots.discard(job.uuid)
                if (speedup := self._speedup(job)) is not None:
                    self.demand.ran(self._number[job.function], speedup, job.project_id)

    def _speedup(self, job: Job) -> float | None:
        """Return what a job has gained over a vCPU; None where it has not run whole on a slot."""
        function = self._catalogue.functions.get(job.function)
        whole = job.done == 0 and not is_cpu(job.slot) and bool(job.compute_s)
        if function is None or function.cpu_time is None or not whole:
            return None
        return function.cpu_time.seconds(job.input_bytes) / (job.compute_s or 1.0)
