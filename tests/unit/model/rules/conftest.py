import itertools
from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect
from fpga_pool.core.makespan.replan import replan
from fpga_pool.model.messages.agents import (
    Heartbeat,
    InputStaged,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    ObservedJob,
    ObservedSlot,
    ResultDelivered,
    SlotChanged,
)
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import (
    ACTIVE_JOBS,
    Batch,
    Host,
    Job,
    JobState,
    Lease,
    LeaseKind,
    LeaseState,
    Run,
    Slot,
    SlotState,
)
from fpga_pool.model.objects.tasks import ENDED_TASKS, TASK_POLICY, Task
from fpga_pool.model.rules.batch.admission import cancel_batch, cancel_jobs, change_batch, create_batch, hold_jobs
from fpga_pool.model.rules.batch.placing import require_answer
from fpga_pool.model.rules.batch.planning import all_placed, batch_problem, commit_plan, snapshot
from fpga_pool.model.rules.batch.replanning import commit_replan, replan_problem
from fpga_pool.model.rules.shared.audit import PoolContents, audit_batch, audit_contents
from fpga_pool.model.rules.shared.changes import drain_slot, resume_slot
from fpga_pool.model.rules.shared.reconcile import apply_heartbeat, tick
from fpga_pool.model.rules.shared.reports import apply_reports
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.model.values import changed
from fpga_pool.sim.store import MemoryStore

KINDS = {"r0": "small", "r1": "small", "r2": "large"}


@pytest.fixture(scope="session")
def make_stoppable():
    """Return a factory of preemptible functions that keep their progress and compute for at least `a_s` on a slot."""

    def make(a_s):
        return {
            "version": "1.0",
            "slot_kinds": ["small", "large"],
            "io_bps": 8e6,
            "preemptible": True,
            "progress_kept": True,
            "cpu_time": {"a_s": 0, "b_s_per_byte": 1e-5},
            "fpga_time": {"fast": {"a_s": a_s, "b_s_per_byte": 1e-6}},
            "source": "test",
        }

    return make


@pytest.fixture(scope="session")
def catalogue(make_catalogue):
    """Return a catalogue with a board of two small slots and a large one, which load in 0.5 s."""
    unmeasured = {"version": "1.0", "slot_kinds": ["small"], "io_bps": 8e6, "preemptible": False, "speedup": 3.0}
    functions = {
        "aes": (1.0, "small", "large"),
        "sha256": (2.0, "small", "large"),
        "flow": (4.0, "large"),
        "unmeasured": unmeasured | {"source": "test"},
    }
    return make_catalogue(functions, slots=KINDS.values(), load_s=0.5, b_s_per_byte=1e-6)


class Pool:
    """A pool in memory: the rules, a clock that tests set, and agents that tests play."""

    def __init__(self, catalogue):
        self.catalogue = catalogue
        self.settings = PoolSettings(max_batch_jobs=20, max_input_bytes=10**6, max_attempts=3, dispatch_lead_s=0.25)
        self.store = MemoryStore()
        self.shard = self.store.acquire_shard("s", "me", 0.0)
        self.now_s = 1000.0
        self.batches = 0
        self.numbers = itertools.count(1)

    def tx(self):
        return self.store.transaction("s", "me", self.shard.epoch)

    # Requests of tenants and operators

    def create(self, *functions, requester="h0", input_bytes=1000, policy="", **options):
        """Submit a batch with a job of each function; return its uuid."""
        self.batches += 1
        uuid = f"b{self.batches}"
        jobs = tuple(
            JobRequest(uuid=f"{uuid}.{i}", name="", function=name, requester=requester, input_bytes=input_bytes)
            for i, name in enumerate(functions)
        )
        self.submit(
            BatchRequest(uuid=uuid, project_id="p", user_id="u", name="", policy=policy, jobs=jobs, **options),
        )
        return uuid

    def submit(self, request):
        with self.tx() as tx:
            return create_batch(tx, request, self.catalogue, self.settings, self.now_s)

    def cancel(self, batch):
        with self.tx() as tx:
            cancel_batch(tx, batch, "p", self.now_s)
            cancel_jobs(tx, batch, self.now_s)
            return tx.batch(batch)

    def change(self, batch, **changes):
        with self.tx() as tx:
            change_batch(tx, batch, "p", BatchChange(**changes), self.now_s)
            hold_jobs(tx, batch, self.now_s)
            return tx.batch(batch)

    def drain(self, slot, reason="repair"):
        with self.tx() as tx:
            return drain_slot(tx, slot, reason, self.now_s)

    def resume(self, slot):
        with self.tx() as tx:
            return resume_slot(tx, slot, self.now_s)

    # The scheduler

    def snapshot(self, **options):
        options.setdefault("is_planned", lambda name: name != TASK_POLICY)
        with self.tx() as tx:
            return snapshot(tx, self.catalogue, self.settings, self.now_s + 0.25, **options)

    def decide(self):
        request = batch_problem(self.snapshot())
        plan = Ect().decide(request.problem, None, 0.0, np.random.default_rng(0))
        require_answer(request, plan)
        return request, plan

    def commit(self, request, plan):
        with self.tx() as tx:
            return commit_plan(tx, request, plan, self.settings, self.now_s)

    def plan(self):
        return self.commit(*self.decide()) if self.snapshot() else []

    def asked(self, *, late=False, movable=True):
        """Return the replanning problem for a policy; None if there is nothing to plan around."""
        with self.tx() as tx:
            batches = {"is_planned": lambda name: name != TASK_POLICY}
            snap = snapshot(tx, self.catalogue, self.settings, self.now_s + 0.25, **batches)
            snap = snap or all_placed(tx, self.catalogue, self.settings, self.now_s + 0.25, "")
            return replan_problem(tx, snap, self.settings, self.now_s + 0.25, lambda _: movable, late=late)

    def replan(self, asked=None, **options):
        """Replan the jobs that have not begun; return the changes."""
        asked = asked or self.asked(**options)
        found = replan(asked.underway)
        require_answer(asked.request, found.plan)
        with self.tx() as tx:
            return commit_replan(tx, asked, found, self.settings, self.now_s)

    def tick(self):
        with self.tx() as tx:
            silent_s = {host.name: self.now_s - host.heard_at for host in tx.hosts()}
            return tick(tx, self.settings, self.now_s, silent_s)

    # The agents

    def host_up(self, name="h0"):
        slots = tuple(
            ObservedSlot(
                slot=f"{name}/c/{region}", card="c", region=region, board="fast", kind=kind, state=SlotState.EMPTY
            )
            for region, kind in KINDS.items()
        )
        return self.heard(self.heartbeat(name, slots=slots))

    def heartbeat(self, host="h0", *, slots=None, jobs=None, unreported=0, **changes):
        """Return the heartbeat of an agent in agreement with the pool, with `changes` to slots, by region."""
        with self.tx() as tx:
            holders = {lease.slot: lease.holder for lease in tx.leases(host=host) if lease.of_instance}
            if slots is None:
                slots = tuple(
                    changed(self._observed(slot, holders.get(slot.name, "")), **changes.get(slot.region, {}))
                    for slot in tx.slots(host)
                )
            if jobs is None:
                held = [*tx.active_jobs(host=host), *tx.held_results(host)]
                jobs = [(job.uuid, job.attempt, job.slot) for job in held]
        return Heartbeat(
            host=host, agent_id=f"agent of {host}", boot=1, beat=next(self.numbers), at=self.now_s,
            egress_bps=8e6, ingress_bps=8e6, data_address="::1", data_port=9, slots=slots,
            jobs=tuple(ObservedJob(job=j, attempt=a, slot=s) for j, a, s in jobs), unreported=unreported,
        )  # fmt: skip

    def _observed(self, slot, instance):
        state = slot.state
        if state is SlotState.DRAINED:
            state = SlotState.READY if slot.function else SlotState.EMPTY
        return ObservedSlot(
            slot=slot.name, card=slot.card, region=slot.region, board=slot.board, kind=slot.kind, state=state,
            function=slot.function, job=slot.job, reason=slot.reason, sequence=slot.sequence, epoch=1,
            instance=instance, links=slot.links,
        )  # fmt: skip

    def heard(self, heartbeat):
        """Apply a heartbeat; return the repairs as (subject, reason)."""
        with self.tx() as tx:
            repairs = apply_heartbeat(tx, heartbeat, self.now_s)
            # The services store this for all hosts together.
            tx.save(replace(tx.host(heartbeat.host), beat=heartbeat.beat, heard_at=self.now_s))
        return [(repair.subject, repair.reason) for repair in repairs]

    def report(self, *reports, host="h0"):
        host = host or "h0"  # a job without a place: the report then comes from a wrong host
        with self.tx() as tx:
            numbered = [(next(self.numbers), report) for report in reports]
            return apply_reports(tx, host, f"agent of {host}", numbered, self.now_s)

    def about(self, uuid):
        return {"job": uuid, "attempt": self.job(uuid).attempt, "at": self.now_s}

    def slot_report(self, slot, state, function="", job="", reason=""):
        return SlotChanged(slot=slot, at=self.now_s, state=state, function=function, job=job, reason=reason)

    def stage(self, uuid):
        return self.report(InputStaged(**self.about(uuid)), host=self.job(uuid).host)

    def start(self, uuid):
        job = self.job(uuid)
        busy = self.slot_report(job.slot, SlotState.BUSY, job.function, uuid)
        return self.report(busy, JobStarted(**self.about(uuid)), host=job.host)

    def finish(self, uuid):
        job = self.job(uuid)
        done = JobFinished(**self.about(uuid), compute_s=1.5, result_bytes=3, result_sha256="ab")
        return self.report(done, self.slot_report(job.slot, SlotState.READY, job.function), host=job.host)

    def fail(self, uuid, *, retryable=True):
        failed = JobFailed(**self.about(uuid), code="fpga_pool.slot_fault", message="smoke", retryable=retryable)
        return self.report(failed, host=self.job(uuid).host)

    def released(self, uuid):
        return self.report(JobReleased(**self.about(uuid)), host=self.job(uuid).host)

    def delivered(self, uuid):
        return self.report(ResultDelivered(**self.about(uuid)), host=self.job(uuid).host)

    def bring(self, uuid, state):
        """Advance a planned job to `state`."""
        steps = [(JobState.STAGED, self.stage), (JobState.RUNNING, self.start), (JobState.RESULT_HELD, self.finish)]
        steps.append((JobState.COMPLETED, self.delivered))
        done = [goal for goal, _ in steps]
        steps = steps[done.index(self.job(uuid).state) + 1 if self.job(uuid).state in done else 0 :]
        while self.job(uuid).state is not state:
            goal, step = steps.pop(0)
            assert step(uuid) == []
            assert self.job(uuid).state is goal

    # Contents

    def job(self, uuid):
        return self.store.get(Job, uuid)

    def batch(self, uuid):
        return self.store.get(Batch, uuid)

    def slot(self, name):
        with self.tx() as tx:
            return tx.slot(name)

    def lease(self, slot):
        with self.tx() as tx:
            return next(iter(tx.leases(slots=[slot])), None)

    def sent(self):
        """Return the commands sent since the last call."""
        commands = self.store.undelivered("s", 10_000)
        self.store.delivered("s", "me", 1, {command.id for command in commands})
        return commands

    def actions(self):
        return [(command.slot, type(command.action).__name__, command.action.job) for command in self.sent()]

    def contents(self):
        """Return the objects that an audit checks, except the batches and the outbox."""
        return PoolContents(
            shards=[self.shard],
            hosts=self.store.all(Host),
            slots=self.store.all(Slot),
            leases=[lease for lease in self.store.all(Lease) if lease.state is LeaseState.HELD],
            active_jobs=[job for job in self.store.all(Job) if job.state in ACTIVE_JOBS],
            commands=(),
            tasks=[task for task in self.store.all(Task) if task.state not in ENDED_TASKS],
        )

    def check_invariants(self, sent=()):
        """Check the invariants; `sent` are all commands so far, oldest first."""
        jobs, slots = self.store.all(Job), self.store.all(Slot)
        leases = self.store.all(Lease)
        assert list(audit_contents(self.contents())) == []
        runs = {run.job: run.attempt for run in self.store.all(Run)}
        for batch in self.store.all(Batch):
            own = [job for job in jobs if job.batch_uuid == batch.uuid]
            assert list(audit_batch(batch, own, runs)) == []
        for slot in slots:
            epochs = [lease.epoch for lease in leases if lease.slot == slot.name]
            assert epochs == sorted(set(epochs))
        assert len({command.id for command in sent}) == len(sent)
        for slot in slots:
            sequences = [command.sequence for command in sent if command.slot == slot.name]
            assert sequences == sorted(set(sequences))


@pytest.fixture
def new_pool(catalogue):
    """Return a function that builds a pool with one host of three empty slots."""

    def build():
        pool = Pool(catalogue)
        pool.host_up()
        return pool

    return build


@pytest.fixture
def pool(new_pool):
    pool = new_pool()
    yield pool
    pool.check_invariants()


@pytest.fixture
def foreign_lease(pool):
    """Return a function that lets an instance hold a slot."""

    def grant(slot):
        with pool.tx() as tx:
            tx.add(
                Lease(
                    uuid=f"vm on {slot}", slot=slot, kind=LeaseKind.INSTANCE, holder="vm", project_id="p", epoch=99,
                    revocable=False, granted_at=1.0,
                )
            )  # fmt: skip

    return grant
