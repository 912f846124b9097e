"""Jobs of a lower fairness group of a batch compute first, with every policy (makespan paper, section 3.5)."""

from collections import defaultdict
from uuid import uuid4

import numpy as np
import pytest

from fpga_pool.conf.policies import is_proving, load_policy, policy_names
from fpga_pool.core.benefit.paper import Benefit
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.exceptions import InvalidInput
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.sim.pool import SimulatedPool
from support.simulated import QUICK, fresh_hosts

#: Jobs of two groups, in mixed order.
GROUPS = (1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0)


def request(groups, *, function="aes", requester="h0", input_bytes=1000, policy=""):
    jobs = tuple(
        JobRequest(uuid=str(uuid4()), function=function, requester=requester, input_bytes=input_bytes, group=group)
        for group in groups
    )
    return BatchRequest(uuid=str(uuid4()), project_id="p", user_id="u", policy=policy, jobs=jobs)


@pytest.fixture
def planned(pool):
    """Return a function that plans all waiting batches by a policy, and returns the jobs by slot and group."""

    def plan(policy):
        family = BatchFamily(pool.catalogue, pool.settings, lambda _: policy, policy.name, lambda _: True)
        result = Cycle(
            family, reading=pool.tx, transactions=pool.tx, dispatch=lambda: None, clock=lambda: pool.now_s,
            timer=lambda: 0.0, rng=np.random.default_rng(0),
        ).run()  # fmt: skip
        assert result.failures == ()
        found = defaultdict(lambda: defaultdict(list))
        for job in result.outcome.placed:
            found[job.slot][job.group].append(job)
        return found

    return plan


@pytest.mark.parametrize("input_bytes", [1000, 100_000])
@pytest.mark.parametrize("name", [name for name in policy_names("batch") if not is_proving("batch", name)])
def test_on_each_slot_a_lower_group_ends_before_a_higher_one_begins(pool, planned, name, input_bytes):
    pool.submit(request(GROUPS, input_bytes=input_bytes))
    of_slots = planned(load_policy("batch", name))
    assert sum(len(jobs) for of_groups in of_slots.values() for jobs in of_groups.values()) == len(GROUPS)
    for of_groups in of_slots.values():
        ends_s = max((job.end_s for job in of_groups[0]), default=0.0)
        assert all(job.start_s >= ends_s - 1e-9 for job in of_groups[1])
        last = max((job.order for job in of_groups[0]), default=-1)
        assert all(job.order > last for job in of_groups[1])
    # More than one slot serves both groups: a group does not wait for the whole other group.
    assert sum(len(of_groups) == 2 for of_groups in of_slots.values()) > 1


def test_groups_are_ordered_within_their_batch_and_batches_by_their_rank(pool, planned):
    first = pool.submit(request((7, 3), function="flow"))
    pool.now_s += 0.01
    second = pool.submit(request((1, 0), function="flow"))
    ((_, of_groups),) = planned(QUICK).items()  # only one slot fits flow
    jobs = sorted((job for jobs in of_groups.values() for job in jobs), key=lambda job: job.order)
    assert [(job.batch_uuid, job.group) for job in jobs] == [
        (first.uuid, 3), (first.uuid, 7), (second.uuid, 0), (second.uuid, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("input_bytes", [1000, 1_000_000])
def test_a_batch_that_comes_while_others_run_is_served_by_its_groups(pool, planned, input_bytes):
    pool.submit(request((0,) * 6))
    planned(QUICK)
    batches = []
    for function in ("aes", "sha256", "aes"):
        pool.now_s += 0.3
        batches.append(pool.submit(request(GROUPS, function=function, input_bytes=input_bytes)).uuid)
        planned(QUICK)
    with pool.tx() as tx:
        queues = [tx.active_jobs(slot=slot.name) for slot in tx.slots()]
    assert sum(map(len, queues)) == 6 + 3 * len(GROUPS)
    for batch in batches:
        for queue in queues:
            groups = [job.group for job in queue if job.batch_uuid == batch]
            assert groups == sorted(groups)


def test_groups_count_as_well_where_a_plan_is_made_again(pool):
    pool.submit(request((2, 0, 2), function="flow"))
    pool.plan()
    pool.now_s += 0.01
    pool.submit(request((1, 0), function="flow"))
    asked = pool.asked()
    by_group = sorted(zip(asked.underway.problem.group.tolist(), asked.jobs, strict=True), key=lambda pair: pair[0])
    assert [job.group for _, job in by_group] == [0, 2, 2, 0, 1]
    assert sorted(asked.underway.problem.group.tolist()) == [0, 1, 1, 2, 3]


def test_a_simulated_pool_serves_groups_as_the_plan_says(catalogue):
    pool = SimulatedPool(catalogue, fresh_hosts(catalogue, "fast", hosts=1, cards=1, egress_bps=8e6, ingress_bps=8e6))
    outcome = pool.run_batch(request((1, 0, 1, 0), function="flow", requester="node-1"), QUICK)
    assert outcome.batch.state is BatchState.COMPLETED
    lower, higher = ([job for job in outcome.jobs if job.group == group] for group in (0, 1))
    assert max(job.finished_at for job in lower) <= min(job.started_at for job in higher)


@pytest.fixture(scope="module")
def policies():
    online = Benefit()
    return PoolPolicies(
        batches=lambda name: load_policy("batch", name), default_batch="makespan",
        online=OnlineRule(online, online.name.__eq__), gangs=Easy(), tasks=Fifo(),
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["exact", "benefit"])
def test_several_groups_are_refused_for_a_policy_that_serves_all_jobs_alike(policies, policy):
    with pytest.raises(InvalidInput, match=f"^jobs: several groups, but policy '{policy}' serves all jobs of a batch"):
        policies.check_groups(request((0, 1), policy=policy))
    policies.check_groups(request((1, 1), policy=policy))


def test_other_policies_and_the_default_take_groups(policies):
    for policy in ("", *policy_names("batch")):
        if not is_proving("batch", policy):
            policies.check_groups(request((0, 1), policy=policy))
