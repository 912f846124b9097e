"""An online policy on the pool in memory, with agents that tests play."""

import numpy as np

from fpga_pool.core.benefit.occupancy import Demand
from fpga_pool.core.benefit.paper import BenefitReplace
from fpga_pool.model.messages.agents import JobEvicted, ObservedSlot
from fpga_pool.model.objects.pool import JobState, SlotState
from fpga_pool.model.rules.online.family import commit_moves, take_moves
from fpga_pool.model.rules.online.view import online_view

WORKERS = ("worker0", "worker1")


def entry(fpga_s, cpu_s, *kinds, preemptible=True, progress_kept=True):
    """Return a catalogue entry: jobs of 1000 bytes take `fpga_s` on a slot and `cpu_s` on a CPU."""
    return {
        "version": "1.0",
        "slot_kinds": list(kinds),
        "io_bps": 8e6,
        "preemptible": preemptible,
        "progress_kept": progress_kept,
        "cpu_time": {"a_s": 0, "b_s_per_byte": cpu_s / 1000},
        "fpga_time": {"fast": {"a_s": 0, "b_s_per_byte": fpga_s / 1000}},
        "source": "test",
    }


class Online:
    """An online policy on the pool in memory, with agents that tests play."""

    def __init__(self, pool, policy=None):
        self.pool = pool
        self.policy = policy or BenefitReplace()
        names = sorted(pool.catalogue.functions)
        self.demand = Demand([pool.catalogue.functions[name].speedup for name in names])
        self.demand.work_s = [10.0] * len(names)
        #: Requested loads ahead of jobs, by slot.
        self.requested = {}
        workers = [
            ObservedSlot(slot=f"h0/cpu/{name}", card="cpu", region=name, board="cpu", kind="cpu", state=SlotState.EMPTY)
            for name in WORKERS
        ]
        pool.heard(pool.heartbeat(slots=(*pool.heartbeat().slots, *workers)))

    def view(self):
        pool = self.pool
        requested = self.requested if pool.settings.load_ahead else None
        with pool.tx() as tx:
            is_online = "benefit_replace".__eq__
            return online_view(tx, pool.catalogue, pool.settings, pool.now_s, is_online, self.demand, requested)

    def decide(self, view):
        rng = np.random.default_rng(0)
        now_s = self.pool.now_s
        return take_moves(view, self.pool.catalogue, lambda seen: self.policy.decide(seen, None, now_s, rng))

    def commit(self, moves):
        with self.pool.tx() as tx:
            done = commit_moves(tx, moves, self.pool.catalogue, self.pool.now_s)
        self.requested |= {
            slot: requested.after(self.requested.get(slot)) for slot, requested in done.requested.items()
        }
        return done.placed, done.evicted

    def step(self):
        """Run one cycle; return the slots of the placed jobs, and the jobs to evict."""
        view = self.view()
        if view is None:
            return {}, []
        placed, evicted = self.commit(self.decide(view))
        return {job.uuid: job.slot for job in placed}, [job.uuid for job in evicted]

    def create(self, *functions):
        return self.pool.create(*functions, policy="benefit_replace")

    def run(self, *functions):
        """Submit jobs, place them, and let the placed ones compute; return the uuids of all of them."""
        batch = self.create(*functions)
        placed, _ = self.step()
        for uuid in placed:
            self.pool.bring(uuid, JobState.RUNNING)
        return [f"{batch}.{number}" for number in range(len(functions))]

    def evicted(self, uuid, done=0.0):
        return self.pool.report(JobEvicted(**self.pool.about(uuid), done=done), host=self.pool.job(uuid).host)
