"""Holds, priorities, deadlines and predecessors of batches in any mix: every batch ends, none begins too early."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.benefit.paper import Benefit, HoldParams
from fpga_pool.core.gangs.paper import Easy
from fpga_pool.core.lattice.paper import Fifo
from fpga_pool.core.makespan import Ect
from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.messages.requests import BatchChange
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import ENDED_BATCHES, BatchState, JobState
from fpga_pool.model.rules.batch.admission import cancel_batch, cancel_jobs, change_batch, create_batch, hold_jobs
from fpga_pool.model.rules.online.family import OnlineRule
from fpga_pool.model.rules.shared.families import PoolPolicies
from fpga_pool.sim.pool import SimulatedPool
from support.simulated import QUICK, fresh_hosts

BATCHES, LAST_S = 6, 60.0


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """Return a catalogue with a board of two slots that load in 1 s; jobs take 1 s per megabyte."""
    return make_catalogue({"aes": (0.0, "small", "large")}, slots=["small", "large"], load_s=1.0, b_s_per_byte=1e-6)


def policies(batch_policy):
    online = Benefit(HoldParams(hold_s=0.0))
    rule = OnlineRule(online, online.name.__eq__)
    return PoolPolicies(
        batches=lambda _: batch_policy, default_batch=batch_policy.name, online=rule, gangs=Easy(), tasks=Fifo()
    )


@st.composite
def batches(draw):
    """Draw the options with which some batches are created."""
    numbers = range(BATCHES)
    return [
        {
            "sizes": draw(st.lists(st.sampled_from([1_000, 2_000_000, 5_000_000]), min_size=1, max_size=3)),
            "at_s": float(number),
            "held": draw(st.booleans()),
            "priority": draw(st.sampled_from([-1, 0, 0, 7])),
            "deadline_at": draw(st.sampled_from([None, number + 5.0, number + 500.0])),
            "after": tuple(
                f"b{other}" for other in sorted(draw(st.sets(st.sampled_from(numbers[:number]), max_size=2)))
            )
            if number
            else (),
        }
        for number in numbers
    ]


WISHES = st.lists(
    st.tuples(
        st.floats(0.0, LAST_S),
        st.integers(0, BATCHES - 1),
        st.sampled_from([{"held": True}, {"held": False}, {"priority": 3}, {}]),
    ),
    max_size=10,
)


def wish(pool, uuid, change, tx):
    """Change a batch as its owner requests, or cancel it if `change` is empty; an ended batch refuses."""
    try:
        if not change:
            cancel_batch(tx, uuid, "p", pool.engine.now_s)
            cancel_jobs(tx, uuid, pool.engine.now_s)
        else:
            change_batch(tx, uuid, "p", BatchChange(**change), pool.engine.now_s)
            hold_jobs(tx, uuid, pool.engine.now_s)
    except InvalidTransition:
        assert tx.batch(uuid).state in ENDED_BATCHES


def create(pool, asked, uuid, tx):
    jobs = tuple(
        JobRequest(uuid=f"{uuid}.{i}", name="", function="aes", requester="node-1", input_bytes=size)
        for i, size in enumerate(asked["sizes"])
    )
    options = {name: value for name, value in asked.items() if name not in ("sizes", "at_s")}
    request = BatchRequest(uuid=uuid, project_id="p", user_id="u", jobs=jobs, **options)
    create_batch(tx, request, pool.catalogue, pool.settings, pool.engine.now_s)


@given(asked=batches(), wishes=WISHES, policy=st.sampled_from([Ect(), QUICK]))
def test_every_batch_ends_and_none_begins_before_what_it_waits_for(catalogue, asked, wishes, policy):
    pool = SimulatedPool(catalogue, fresh_hosts(catalogue, "fast", hosts=2, cards=1, egress_bps=8e7, ingress_bps=8e7))
    for number, options in enumerate(asked):
        pool.change_at(options["at_s"], partial(create, pool, options, f"b{number}"))
    for at_s, number, change in wishes:
        pool.change_at(max(at_s, asked[number]["at_s"] + 0.5), partial(wish, pool, f"b{number}", change))
    for number in range(BATCHES):
        pool.change_at(LAST_S + 1.0, partial(wish, pool, f"b{number}", {"held": False}))
    pool.run_families(policies(policy))
    found = {f"b{number}": pool.outcome(f"b{number}") for number in range(BATCHES)}
    for number, options in enumerate(asked):
        outcome = found[f"b{number}"]
        before = [found[uuid].batch for uuid in options["after"]]
        assert outcome.batch.state in ENDED_BATCHES
        if any(one.state is BatchState.CANCELLED for one in before):
            assert outcome.batch.state is BatchState.CANCELLED
        planned = [entry.at for job in outcome.jobs for entry in job.history if entry.event == "Planned"]
        assert all(one.ended_at <= at for one in before for at in planned)
        assert not planned or all(one.state is BatchState.COMPLETED for one in before)
        assert {job.state for job in outcome.jobs} <= {JobState.COMPLETED, JobState.CANCELLED}
