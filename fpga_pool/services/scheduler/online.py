"""Online jobs of one shard: look, decide, commit; on events and every interval (paper 003)."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from oslo_config import cfg

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.benefit.demand import Demand
from fpga_pool.core.policy import OnlinePolicy
from fpga_pool.model.catalogue import Catalogue
from fpga_pool.model.objects import CPU, ENDED_JOBS, Job, is_cpu
from fpga_pool.model.pool.online import OnlineView, ToldAhead, online_view, whole_work_s
from fpga_pool.model.pool.online_moves import Moves, commit_moves, take_moves
from fpga_pool.model.pool.planning import known_time_models
from fpga_pool.model.pool.settings import PoolSettings
from fpga_pool.model.transaction import Transaction
from fpga_pool.services.clock import Clock

LOG = logging.getLogger(__name__)

#: Jobs that a scheduler which takes over looks back on, and for how long: more than estimates remember.
RECALLED_JOBS, RECALLED_S = 500, 3600.0
#: Seconds without a look for loads ahead alone, after one that found nothing to load.
REST_S = 5.0

Transactions = Callable[[], AbstractContextManager[Transaction]]


@dataclass(frozen=True, slots=True)
class OnlineRule:
    """Which policy runs a shard's online jobs, and of which policies, by name, jobs are online."""

    policy: OnlinePolicy
    is_online: Callable[[str], bool]
    #: All work is online unless it says otherwise: slots load ahead before the first job has come.
    from_start: bool = False


def online_rule(conf: cfg.ConfigOpts) -> OnlineRule:
    """Return which policy runs online jobs; InvalidInput names those there are."""
    name = conf.scheduler.online_policy
    names = {*policy_names("online"), name} - set(policy_names("batch"))
    return OnlineRule(load_policy("online", name, conf), names.__contains__, conf.scheduler.default_policy in names)


class OnlinePlanner:
    """Gives online jobs their slots, takes them off again, and learns what is asked for and what it gains."""

    def __init__(
        self,
        reading: Transactions,
        transactions: Transactions,
        catalogue: Catalogue,
        settings: PoolSettings,
        rule: OnlineRule,
        clock: Clock,
        rng: np.random.Generator,
    ) -> None:
        self._reading = reading
        self._transactions = transactions
        self._catalogue = catalogue
        self._settings = settings
        self._rule = rule
        self._clock = clock
        self._rng = rng
        self._number = {name: number for number, name in enumerate(sorted(catalogue.functions))}
        self.demand = Demand([catalogue.functions[name].speedup for name in self._number])
        #: Jobs whose arrival was counted and that may still wait.
        self._arrived: set[str] = set()
        #: Jobs on slots whose end tells what they gained.
        self._on_slots: set[str] = set()
        self._recalled = False
        #: Slots that were told to load ahead, by name.  Whoever takes over does not know; agents do no repeat.
        self._told: dict[str, ToldAhead] = {}
        #: Until then no look is taken for loads ahead alone: there was nothing to load.
        self._rests_until_s = 0.0
        #: Some job would take another place if there were one: what becomes free is worth a look.
        self.waits = False

    def step(self) -> bool:
        """Do what the policy wants now; return whether there is something to tell agents."""
        now_s = self._clock()
        self._told = {slot: told for slot, told in self._told.items() if told.is_remembered(now_s)}
        with self._reading() as tx:
            online = [policy for policy in tx.policies_at_work() if self._rule.is_online(policy)]
            self._recall(tx, [*online, self._rule.policy.name] if self._rule.from_start else online)
            self._learn(tx)
            told = self._told if self._may_load_ahead(working=bool(online)) else None
            for_loads = told is not None and now_s >= self._rests_until_s
            view = None
            if online or for_loads:
                view = online_view(
                    *(tx, self._catalogue, self._settings, now_s, self._rule.is_online, self.demand, told),
                    for_loads=for_loads,
                )
        self.waits = view is not None and view.waits
        if for_loads and (view is None or not view.loading):
            self._rests_until_s = now_s + REST_S
        if view is None:
            return False
        self._count_arrivals(view)
        began_s = time.monotonic()
        moves = take_moves(
            view, self._catalogue, lambda occupancy: self._rule.policy.decide(occupancy, None, now_s, self._rng)
        )
        decided_s = time.monotonic() - began_s
        return self._commit(view, moves, decided_s)

    def _may_load_ahead(self, *, working: bool) -> bool:
        """Say whether slots may load ahead of jobs: online jobs are at work, were there, or are all that comes."""
        return self._settings.load_ahead and (working or self._rule.from_start or self.demand.arrivals > 0)

    def _commit(self, view: OnlineView, moves: Moves, decided_s: float) -> bool:
        if not moves.placements and not moves.evictions and not moves.loads:
            return False
        with self._transactions() as tx:
            done = commit_moves(tx, moves, self._catalogue, self._clock())
        self._on_slots |= {job.uuid for job in done.placed if not is_cpu(job.slot)}
        self._told |= {slot: told.after(self._told.get(slot)) for slot, told in done.told.items()}
        if moves.loads:
            self.waits, self._rests_until_s = True, 0.0
        for job in done.evicted:
            LOG.info("job %s: to leave %s by %s", job.uuid, job.slot, self._rule.policy.name)
        for slot, told in done.told.items():
            LOG.info("slot %s: to load %s ahead of its jobs by %s", slot, told.function, self._rule.policy.name)
        LOG.info(
            "of %d jobs that want a slot %d placed on slots and %d on CPUs, %d to be evicted, by %s in %.1f ms",
            len(view.waiting),
            sum(not is_cpu(job.slot) for job in done.placed),
            sum(is_cpu(job.slot) for job in done.placed),
            len(done.evicted),
            self._rule.policy.name,
            1000 * decided_s,
        )
        return bool(done.placed or done.evicted or done.told)

    def _count_arrivals(self, view: OnlineView) -> None:
        pending = {asking.job.uuid: asking for asking in view.waiting if asking.job.attempt == 0}
        for uuid in pending.keys() - self._arrived:
            self._count_arrival(pending[uuid].job, pending[uuid].work_s)
        self._arrived = set(pending)

    def _count_arrival(self, job: Job, work_s: float) -> None:
        patience_s = self._settings.online_patience_s or work_s
        self.demand.arrived(self._number[job.function], work_s, patience_s, job.created_at, job.project_id)

    def _recall(self, tx: Transaction, policies: Sequence[str]) -> None:
        """Learn, once, from the jobs of whoever had the shard before: a restart or a takeover forgets no demand."""
        if self._recalled or not policies:
            return
        self._recalled = True
        models = known_time_models(self._catalogue, tx.time_models())
        boards = {slot.board for slot in tx.slots() if slot.kind != CPU}
        jobs = [
            job
            for job in tx.newest_jobs(policies, self._clock() - RECALLED_S, RECALLED_JOBS)
            if job.function in self._number
        ]
        for job in reversed(jobs):
            if (work_s := whole_work_s(job, models, boards)) > 0:
                self._count_arrival(job, work_s)
        self._arrived = {job.uuid for job in jobs}
        self._on_slots = {job.uuid for job in jobs if job.slot and not is_cpu(job.slot)}

    def _learn(self, tx: Transaction) -> None:
        """Take note of the speedups of jobs that have ended on slots (paper 003, section IV.C)."""
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
