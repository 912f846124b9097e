"""A dry run of a task predicts what then happens to it, in any state of the pool.

Host r has four cards in a ring, with one small slot each, and host q two cards in a line with two slots each.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from task_bench import Tasks

from fpga_pool.core.lattice.topology import Topology as Cables
from fpga_pool.model.flavor import Topology
from fpga_pool.model.messages.work import ShareRequest, TaskRequest
from fpga_pool.model.objects.pool import Job, Lease
from fpga_pool.model.objects.tasks import Task, TaskShape, TaskState
from fpga_pool.model.rules.task.admission import admit_task
from fpga_pool.model.rules.task.dry_run import plan_task
from support.dry_runs import context_of

PATIENCE_S = 30.0


@pytest.fixture
def tasks(new_pool, catalogue):
    tasks = Tasks(type(new_pool())(catalogue), PATIENCE_S)
    tasks.ring_up()
    tasks.ring_up("q", cards=2, slots=2, cables=Cables.LINE, between=Cables.LINE)
    return tasks


def dry_run(tasks, count, topology="any", function="aes", shapes=()):
    pool = tasks.pool
    shares = tuple(ShareRequest(uuid=f"planned.{i}", requester="r", input_bytes=1000) for i in range(count))
    request = TaskRequest(
        uuid="planned", project_id="p", user_id="u", function=function, topology=Topology(topology), shares=shares,
        shapes=tuple(TaskShape(*shape) for shape in shapes),
    )  # fmt: skip
    with pool.tx() as tx:
        task, _, jobs = admit_task(tx, request, pool.catalogue, pool.settings, pool.now_s)
    settings = replace(pool.settings, task_patience_s=PATIENCE_S)
    looks = []

    def reading():
        looks.append(1)
        return pool.tx()

    plan = plan_task(task, jobs, context_of(reading, pool.now_s, pool.catalogue, settings, tasks=tasks.policy))
    assert len(looks) == 1  # the whole answer is from one snapshot
    return plan


def some(chance):
    """Return random options of a task."""
    count = chance.randint(1, 4)
    shapes = [(slots, chance.choice([None, 3.0])) for slots in range(1, count + 1)] if chance.random() < 0.4 else ()
    return {
        "count": count,
        "topology": chance.choice(["any", "line", "ring"] if count > 2 else ["any", "line"]),
        "function": chance.choice(["aes", "sha256"]),
        "shapes": shapes,
    }


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_of_a_task_comes_true(tasks, seed):
    chance = random.Random(seed)
    for _ in range(chance.randint(0, 5)):
        tasks.create(**some(chance))
        if chance.random() < 0.6:
            tasks.place()
        tasks.pool.now_s += chance.choice([0.1, 1.0, PATIENCE_S + 1])
    asked = some(chance)
    stored = [tasks.pool.store.all(kind) for kind in (Task, Job, Lease)]
    plan = dry_run(tasks, **asked)
    assert [tasks.pool.store.all(kind) for kind in (Task, Job, Lease)] == stored
    uuid = tasks.create(**asked)
    waiting = sum(task.state is TaskState.QUEUED for task in tasks.pool.store.all(Task)) - 1
    assert plan.ahead == waiting
    waits = tasks.detail(uuid)  # before the planning cycle
    tasks.place()
    task, shares = tasks.get(uuid), tasks.shares(uuid)
    if plan.slots is None:
        assert task.state is TaskState.QUEUED
        assert (plan.pending_reason, plan.expected_at) == (waits.pending_reason, waits.expected_at)
        assert plan.ends_at >= plan.expected_at + plan.lower_bound_s
    else:
        assert (task.state, task.slots, task.ends_at) == (TaskState.RUNNING, plan.slots, pytest.approx(plan.ends_at))
        assert [(one.slot, one.start_s, one.end_s) for one in plan.share_list] == [
            (share.slot, share.start_s, share.end_s) for share in shares
        ]


def test_tasks_begin_in_order_of_arrival_where_the_policy_fails_and_one_that_waits_says_so(tasks):
    tasks.policy.broken = True
    assert dry_run(tasks, 4, "ring").slots == 4
    for _ in range(2):
        tasks.create(4)
    plan = dry_run(tasks, 4, "ring")
    assert plan.slots is None
    assert plan.pending_reason.startswith("task policy lattice failed; ")
    assert plan.pending_reason.endswith("not free at the same time")
