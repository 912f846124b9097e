"""The invariants of a pool hold after any sequence of events."""

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from task_bench import Tasks

from fpga_pool.model.exceptions import Conflict, InvalidTransition, NoSlotFits
from fpga_pool.model.flavor import AcceleratorRequest, Topology
from fpga_pool.model.messages.agents import (
    InputStaged,
    JobEvicted,
    JobFailed,
    JobFinished,
    JobReleased,
    JobStarted,
    ResultDelivered,
)
from fpga_pool.model.objects.pool import ENDED_JOBS, Batch, Job, JobState, SlotState
from fpga_pool.model.rules.instance.instances import Claim, claim_slots, held_by, instance_leases, release_slots

SLOTS = [f"{host}/c/{region}" for host in ("h0", "h1") for region in ("r0", "r1", "r2")]
FUNCTIONS = ["aes", "sha256", "flow"]
REPORTS = {
    "staged": lambda about: InputStaged(**about),
    "started": lambda about: JobStarted(**about),
    "finished": lambda about: JobFinished(**about, compute_s=1.0, result_bytes=1, result_sha256=""),
    "failed": lambda about: JobFailed(**about, code="c", message="m", retryable=True),
    "failed for good": lambda about: JobFailed(**about, code="c", message="m", retryable=False),
    "evicted": lambda about: JobEvicted(**about, done=0.5),
    "released": lambda about: JobReleased(**about),
    "delivered": lambda about: ResultDelivered(**about),
}

number = st.integers(0, 7)
#: Steps that make progress are as frequent as disturbances.
steps = st.one_of(
    st.tuples(st.just("create"), st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4)),
    st.tuples(st.just("plan")),
    st.tuples(st.just("plan")),
    st.tuples(st.just("replan"), st.booleans(), number),
    *[st.tuples(st.just("go on"), number)] * 5,
    st.tuples(st.just("commit late"), number),
    st.tuples(st.just("task"), st.sampled_from(FUNCTIONS), st.integers(1, 3), st.sampled_from(list(Topology))),
    *[st.tuples(st.just("place"))] * 2,
    st.tuples(st.just("place late"), number),
    st.tuples(st.just("cancel"), number),
    st.tuples(st.sampled_from(["drain", "resume"]), st.sampled_from(SLOTS)),
    st.tuples(st.just("claim"), number, st.sampled_from(FUNCTIONS), st.integers(1, 3)),
    st.tuples(st.just("release"), number),
    st.tuples(st.just("slot"), st.sampled_from(SLOTS), st.sampled_from([s for s in SlotState if s != "DRAINED"])),
    st.tuples(st.just("job"), number, st.sampled_from(sorted(REPORTS)), st.integers(0, 1)),
    st.tuples(st.just("heartbeat"), st.sampled_from(["h0", "h1"]), st.sets(number), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([0.5, 12.0, 4000.0])),
)


@pytest.fixture(scope="module")
def catalogue(make_catalogue, make_stoppable):
    """Return a catalogue of three functions, one of which is preemptible and keeps its progress."""
    functions = {"aes": (1.0, "small", "large"), "sha256": make_stoppable(2.0), "flow": (4.0, "large")}
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5, b_s_per_byte=1e-6)


class Walk:
    def __init__(self, pool):
        self.pool = pool
        self.sent = []
        self.plans = []
        self.asked = []
        self.tasks = Tasks(pool, patience_s=0.4)
        self.choices = []

    def take(self, step):
        kind, *arguments = step
        with contextlib.suppress(InvalidTransition):
            getattr(self, kind.replace(" ", "_"))(*arguments)
        self.sent += self.pool.sent()
        self.pool.check_invariants(self.sent)

    def jobs(self):
        return sorted(self.pool.store.all(Job), key=lambda job: job.uuid)

    def one_job(self, number):
        jobs = self.jobs()
        return jobs[number % len(jobs)] if jobs else None

    def create(self, functions):
        self.pool.create(*functions)

    def plan(self):
        if self.pool.snapshot():
            self.plans.append(self.pool.decide())
            self.pool.commit(*self.plans[-1])

    def replan(self, late, age):
        """Replan by the present problem, or by one of an earlier time."""
        if asked := self.pool.asked(late=late):
            self.asked.append(asked)
            self.pool.replan(self.asked[-1 - age % len(self.asked)])

    def task(self, function, count, topology):
        with contextlib.suppress(NoSlotFits):  # each host has only one large slot
            self.tasks.create(count, topology, function, requester="h0")

    def place(self):
        if look := self.tasks.look():
            self.choices.append((look, self.tasks.decide(look)))
            self.tasks.commit(*self.choices[-1])

    def place_late(self, number):
        if self.choices:
            self.tasks.commit(*self.choices[number % len(self.choices)])

    def commit_late(self, number):
        if self.plans:
            self.pool.commit(*self.plans[number % len(self.plans)])

    def cancel(self, number):
        batches = sorted(batch.uuid for batch in self.pool.store.all(Batch))
        if batches:
            self.pool.cancel(batches[number % len(batches)])

    def drain(self, slot):
        self.pool.drain(slot)

    def resume(self, slot):
        self.pool.resume(slot)

    def claim(self, number, function, count):
        """Boot or restart an instance on one of the hosts; it gets all requested slots or none."""
        host, instance = f"h{number % 2}", f"vm{number}"
        wanted = AcceleratorRequest(function=function, count=count)
        claim = Claim(host=host, instance=instance, project_id="p", wanted=wanted)
        before = self.held(host)
        try:
            with self.pool.tx() as tx:
                slots = claim_slots(tx, claim, self.pool.catalogue, self.pool.settings, self.pool.now_s)
        except Conflict:
            assert self.held(host) == before
        else:
            assert self.held(host)[instance] == {slot.name for slot in slots}
            assert len(slots) == count
            assert all(slots <= self.held(host)[other] for other, slots in before.items() if other != instance)

    def held(self, host):
        with self.pool.tx() as tx:
            held = {}
            for lease in instance_leases(tx, host):
                held.setdefault(lease.holder, set()).add(lease.slot)
            return held

    def release(self, number):
        with self.pool.tx() as tx:
            release_slots(tx, held_by(tx, f"h{number % 2}", f"vm{number}"), self.pool.now_s)

    def slot(self, slot, state):
        self.pool.report(self.pool.slot_report(slot, state), host=slot.split("/")[0])

    def job(self, number, report, age):
        if job := self.one_job(number):
            about = {"job": job.uuid, "attempt": job.attempt - age, "at": self.pool.now_s}
            self.pool.report(REPORTS[report](about), host=job.host)

    def go_on(self, number):
        step = {
            JobState.WAITING_INPUT: self.pool.stage,
            JobState.STAGED: self.pool.start,
            JobState.RUNNING: self.pool.finish,
            JobState.RESULT_HELD: self.pool.delivered,
        }
        if (job := self.one_job(number)) and job.state in step:
            step[job.state](job.uuid)

    def heartbeat(self, host, forgotten, late):
        heartbeat = self.pool.heartbeat(host)
        held = [(job.job, job.attempt, job.slot) for i, job in enumerate(heartbeat.jobs) if i not in forgotten]
        self.pool.heard(self.pool.heartbeat(host, jobs=[*held, ("stray", 1, f"{host}/c/r0")], unreported=int(late)))

    def time(self, seconds):
        self.pool.now_s += seconds
        self.pool.tick()

    def end(self):
        """Bring the pool to its end: whatever happened before, every job must end."""
        for number in range(8):
            self.release(number)
        for _ in range(6):
            for host in ("h0", "h1"):
                self.pool.heard(self.pool.heartbeat(host))
            for slot in SLOTS:
                self.pool.report(self.pool.slot_report(slot, SlotState.EMPTY), host=slot.split("/")[0])
                self.pool.resume(slot)
            self.pool.now_s += self.tasks.patience_s
            for host in ("h0", "h1"):
                self.pool.heard(self.pool.heartbeat(host))
            self.place()
            while self.pool.plan():
                pass
            for job in self.jobs():
                if job.state in (JobState.WAITING_INPUT, JobState.STAGED, JobState.RUNNING):
                    self.pool.bring(job.uuid, JobState.COMPLETED)
            self.pool.tick()
        assert all(job.state in ENDED_JOBS for job in self.jobs())
        assert self.pool.contents().tasks == []
        assert self.tasks.held() == {}
        self.pool.check_invariants()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(walk=st.lists(steps, min_size=10, max_size=50))
def test_a_pool_keeps_its_invariants_through_any_walk_and_can_always_be_led_to_its_end(new_pool, walk):
    pool = new_pool()
    pool.host_up("h1")
    walker = Walk(pool)
    for step in walk:
        walker.take(step)
    walker.end()
