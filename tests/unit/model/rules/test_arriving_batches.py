"""Section 3.4 of the makespan paper in the pool: the plan of a second batch while inputs of the first one move."""

from itertools import pairwise

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.makespan import Makespan
from fpga_pool.model.cycle import Cycle
from fpga_pool.model.objects.pool import JobState
from fpga_pool.model.rules.batch.family import BatchFamily

from ...core.makespan.test_arriving import Stranger

#: Requesters, whose slots are drained, and responders.  All links carry 8 Mbit/s in each direction.
REQUESTERS, RESPONDERS, LINK_BPS = ("h0", "h1"), ("h2", "h3"), 8e6


@pytest.fixture(params=[*policy_names("batch"), "stranger", "makespan in the scheduler"])
def plan(request, pool):
    """Return a function that runs the planning cycle once, with one policy for all batches."""
    policies = {"stranger": Stranger, "makespan in the scheduler": lambda: Makespan().sparing(0.02)}
    policy = policies[request.param]() if request.param in policies else load_policy("batch", request.param)
    family = BatchFamily(pool.catalogue, pool.settings, lambda _: policy, policy.name, lambda _: True)
    cycle = Cycle(
        family, reading=pool.tx, transactions=pool.tx, dispatch=lambda: None, clock=lambda: pool.now_s,
        timer=lambda: 0.0, rng=np.random.default_rng(0),
    )  # fmt: skip

    def run():
        result = cycle.run()
        assert result.failures == ()
        assert result.outcome.changed

    return run


@pytest.fixture
def first(pool, plan):
    """Plan a first batch of three inputs of 1 s each from one requester; return it 0.5 s later."""
    for host in (*REQUESTERS[1:], *RESPONDERS):
        pool.host_up(host)
    for host in REQUESTERS:
        for region in ("r0", "r1", "r2"):
            pool.drain(f"{host}/c/{region}")
    batch = pool.create("aes", "aes", "aes", requester="h0", input_bytes=10**6)
    plan()
    pool.now_s += 0.5
    return batch


def pieces(pool):
    """Return requester, host, begin, end and rate of all planned transfers, by the pool's clock."""
    with pool.tx() as tx:
        jobs = tx.active_jobs()
    return [
        (job.requester, job.host, job.dispatched_at + piece.begin_s, job.dispatched_at + piece.end_s, piece.bps)
        for job in jobs
        for piece in job.transfer
    ]


def overload(pool):
    """Return the largest excess of a planned rate over the limit of its link, relative to the limit."""
    every, worst = pieces(pool), 0.0
    for link in {("out", piece[0]) for piece in every} | {("in", piece[1]) for piece in every}:
        mine = [piece for piece in every if piece[0 if link[0] == "out" else 1] == link[1]]
        times = sorted({moment for piece in mine for moment in piece[2:4]})
        for begin, end in pairwise(times):
            if end - begin > 1e-6:
                used_bps = sum(piece[4] for piece in mine if piece[2] <= begin and piece[3] >= end)
                worst = max(worst, used_bps / LINK_BPS - 1.0)
    return worst


def test_jobs_that_only_compute_start_at_once(pool, plan, first):
    batch = pool.create("aes", "aes", requester="h0", input_bytes=0)
    plan()
    # Slots of one card load in turn, 0.5 s each; the inputs of the first batch move for longer.
    starts_s = [pool.job(f"{batch}.{number}").start_s for number in range(2)]
    assert min(starts_s) >= 0.5
    assert max(starts_s) <= 1.5
    assert max(end_s for _, _, _, end_s, _ in pieces(pool)) - pool.now_s > 2.5
    assert overload(pool) < 1e-6


def test_inputs_move_beside_those_of_earlier_batches_and_no_link_is_planned_beyond_its_limit(pool, plan, first):
    # The first requester sends for another 2.25 s, to one responder at a time or to both.  Half of all ingress is
    # therefore free for the second requester, which sends nothing yet.
    earlier_end = max(end for _, _, _, end, _ in pieces(pool))
    assert earlier_end == pytest.approx(pool.now_s - 0.5 + 0.25 + 3.0)
    batch = pool.create("aes", requester="h1", input_bytes=10**6)
    plan()
    job = pool.job(f"{batch}.0")
    assert job.dispatched_at + job.transfer[0].begin_s < earlier_end - 0.5
    assert overload(pool) < 1e-6


def test_inputs_of_the_same_requester_come_behind_those_of_earlier_batches(pool, plan, first):
    batch = pool.create("aes", requester="h0", input_bytes=10**6)
    plan()
    job = pool.job(f"{batch}.0")
    # Its egress is full until then: of 4 s in total, 0.5 s have passed, and plans begin 0.25 s from now.
    assert job.dispatched_at + job.transfer[-1].end_s == pytest.approx(pool.now_s - 0.5 + 0.25 + 4.0)
    assert overload(pool) < 1e-6


def test_inputs_that_should_have_come_by_now_are_expected_to_go_on_for_as_long_again(pool, plan, first):
    ends = {
        job: pool.job(job).dispatched_at + pool.job(job).transfer[-1].end_s
        for job in (f"{first}.{n}" for n in range(3))
    }
    pool.now_s = max(ends.values()) + 0.75
    batch = pool.create("aes", requester="h0", input_bytes=10**6)
    plan()
    # Alone it would take 1 s.  The last earlier input is 0.75 s late, so it is expected to take another 0.75 s, of
    # which 0.25 s pass before the plan begins, at a third of the requester's egress or more.
    assert pool.job(f"{batch}.0").transfer[-1].end_s > 1.0 + 0.5 / 3 - 1e-9


def test_inputs_that_are_there_are_waited_for_no_longer(pool, plan, first):
    for number in range(3):
        pool.bring(f"{first}.{number}", JobState.STAGED)
    batch = pool.create("aes", requester="h0", input_bytes=10**6)
    plan()
    assert pool.job(f"{batch}.0").transfer[-1].end_s == pytest.approx(1.0)
