"""Online jobs and tasks in simulated time, beside batches: planning cycles of all families, as in the live pool."""

from dataclasses import replace

import pytest

from fpga_pool.core.benefit.paper import Benefit, HoldParams, Throughput
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.core.lattice.plus import LatticePlus, LatticePlusParams
from fpga_pool.core.makespan import Ect
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import BatchRequest, JobRequest, ShareRequest, TaskRequest
from fpga_pool.model.objects.pool import Job, JobState
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.pool import Delays, SimulatedPool
from support.simulated import fresh_hosts, submit_task_at

HOLD_S = 5.0


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """Return a catalogue with a card of two slots that load in 0.5 s; jobs take 1 s."""
    functions = {"aes": (1.0, "small", "large"), "sha256": (1.0, "small", "large")}
    return make_catalogue(functions, slots=["small", "large"], load_s=0.5, b_s_per_byte=1e-6)


@pytest.fixture
def pool(catalogue):
    hosts = fresh_hosts(catalogue, "fast", hosts=1, cards=1, egress_bps=8e9, ingress_bps=8e9)
    settings = PoolSettings(dispatch_lead_s=0.0, online_patience_s=1000.0, load_ahead=False)
    return SimulatedPool(catalogue, hosts, settings, Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0))


def policies(online):
    return PoolPolicies(
        batches=lambda name: Ect(),
        default_batch="ect",
        online=OnlineRule(online, online.name.__eq__),
        gangs=Easy(),
        tasks=Fifo(),
    )


def batch(uuid, *functions, policy=""):
    jobs = tuple(
        JobRequest(uuid=f"{uuid}.{i}", name="", function=name, requester="node-1", input_bytes=1000)
        for i, name in enumerate(functions)
    )
    return BatchRequest(uuid=uuid, project_id="p", user_id="u", name="", policy=policy, jobs=jobs)


def task(uuid, slots):
    shares = tuple(
        ShareRequest(uuid=f"{uuid}.{i}", name="", requester="node-1", input_bytes=1000) for i in range(slots)
    )
    return TaskRequest(
        uuid=uuid, project_id="p", user_id="u", name="", function="aes", topology=Topology.ANY, shares=shares
    )


@pytest.mark.parametrize("policy", [Benefit(HoldParams(hold_s=HOLD_S)), Throughput(HoldParams(hold_s=HOLD_S))])
def test_an_idle_slot_is_loaded_again_when_its_function_was_held_long_enough(pool, policy):
    pool.submit_at(0.0, batch("a", "aes", "aes", policy=policy.name))
    pool.submit_at(3.0, batch("b", "sha256", policy=policy.name))
    pool.run_families(policies(policy))
    (job,) = pool.outcome("b").jobs
    # The first slot was loaded from 0 to 0.5 s.  Cycles are 0.5 s apart, and the load takes 0.5 s.
    assert job.dispatched_at == pytest.approx(0.5 + HOLD_S, abs=0.5)
    assert job.started_at == job.dispatched_at + 0.5
    assert job.state is JobState.COMPLETED


def test_a_task_waits_until_its_slots_are_free_at_once_and_a_batch_goes_on_after_it(pool):
    pool.submit_at(0.0, batch("a", "aes", "aes"))
    submit_task_at(pool, 0.1, task("t", 2))
    pool.submit_at(0.2, batch("b", "aes", "aes"))
    pool.run_families(policies(Benefit()))
    ends = {uuid: max(job.finished_at for job in pool.outcome(uuid).jobs) for uuid in ("a", "t", "b")}
    assert {job.state for uuid in ends for job in pool.outcome(uuid).jobs} == {JobState.COMPLETED}
    # Slots load in turn, by 0.5 and 1 s, then compute for 1 s three times.  Tasks and reports of free slots start a
    # cycle at once; batches are placed behind the jobs already planned.
    assert ends == pytest.approx({"a": 2.0, "b": 3.0, "t": 4.0}, abs=0.1)


def learning(policy, *params):
    """Return a policy that decides as another one, and learns what was placed and how it ended."""

    class Learning(policy):
        name = "learning"

        def __init__(self):
            super().__init__(*params)
            self.states = []

        def observe(self, event, state):
            return {**(state or {}), f"{event['kind']} {event['uuid']}": event["state"]}

        def decide(self, view, state, now_s, rng):
            self.states.append(state)
            return super().decide(view, state, now_s, rng)

    return Learning()


def test_policies_of_each_family_decide_with_what_became_of_their_decisions(pool):
    batches, online, tasks = learning(Ect), learning(Benefit), learning(LatticePlus, LatticePlusParams(effort=0))
    asked = replace(policies(online), batches=lambda name: batches, default_batch="learning", tasks=tasks)
    asked = replace(asked, online=OnlineRule(online, "on line".__eq__))
    for uuid, at in (("a", 0.0), ("b", 30.0)):
        pool.submit_at(at, batch(f"planned-{uuid}", "aes"))
        pool.submit_at(at + 10.0, batch(f"online-{uuid}", "aes", policy="on line"))
        # Three tasks that cannot all begin, so that their policy has to decide.
        for number in range(3):
            submit_task_at(pool, at + 20.0, task(f"task-{uuid}{number}", 2))
    pool.run_families(asked)
    assert batches.states == [None, {"job planned-a.0": "COMPLETED"}]
    assert online.states[0] is None
    assert online.states[-1] == {"job online-a.0": "COMPLETED"}
    assert tasks.states[-1]["task task-a0"] == "COMPLETED"


class DoesNotApply(Ect):
    """A policy that fails in its first calls, `fails` times."""

    name = "does not apply"

    def __init__(self, fails):
        super().__init__()
        self.fails = fails

    def decide(self, view, state, now_s, rng):
        self.fails -= 1
        if self.fails >= 0:
            raise ValueError("no such view")
        return super().decide(view, state, now_s, rng)


def test_work_whose_policy_fails_is_put_off_and_tried_again(pool):
    policy = DoesNotApply(fails=2)
    pool.submit_at(0.0, batch("a", "aes"))
    pool.run_families(replace(policies(Benefit()), batches=lambda _: policy, default_batch=policy.name))
    (job,) = pool.outcome("a").jobs
    assert job.state is JobState.COMPLETED
    (failure,) = pool.failures.values()
    assert (failure.first_s, failure.times) == (0.0, 2)
    assert failure.message == "batch a: policy does not apply failed; next try in 60 s (ValueError: no such view)"


def test_what_an_agent_says_while_its_host_is_slow_is_heard_so_much_later(pool):
    heard_s = {}

    def note(before, after):
        if isinstance(after, Job):
            heard_s.setdefault(after.state, pool.engine.now_s)

    pool.store.watch = note
    pool.slow_host("node-1", 5.25)
    pool.submit_at(0.0, batch("a", "aes"))
    pool.run_families(policies(Benefit()))
    (job,) = pool.outcome("a").jobs
    assert heard_s[JobState.RUNNING] == pytest.approx(job.started_at + 5.25)
    assert heard_s[JobState.COMPLETED] == pytest.approx(job.finished_at + 5.25)
