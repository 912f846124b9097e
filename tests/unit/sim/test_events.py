"""A pool in simulated time with disturbances: the same rules and the same replanning as in the live pool."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.makespan import Ect, Makespan
from fpga_pool.model.messages.work import BatchRequest, JobRequest
from fpga_pool.model.objects.pool import BatchState, JobState
from fpga_pool.model.rules.shared.settings import PoolSettings
from fpga_pool.sim.pool import Delays, SimulatedPool
from support.simulated import QUICK, drain_slot_at, fail_slot_at, fresh_hosts, lose_host_at

NO_DELAY = Delays(command_s=0.0, staging_s=0.0, turnaround_s=0.0)
NO_LEAD = PoolSettings(dispatch_lead_s=0.0)


@pytest.fixture(scope="module")
def catalogue(make_catalogue):
    """Return a catalogue with a board of two slots that load in 1 ms; jobs take 1 s per megabyte."""
    functions = {"aes": (0.0, "small", "large")}
    return make_catalogue(functions, slots=["small", "large"], load_s=1e-3, b_s_per_byte=1e-6)


@pytest.fixture
def make_pool(catalogue):
    def make(hosts=2, bps=8e9, **options):
        fresh = fresh_hosts(catalogue, "fast", hosts=hosts, cards=1, egress_bps=bps, ingress_bps=bps)
        return SimulatedPool(catalogue, fresh, **{"settings": NO_LEAD, "delays": NO_DELAY} | options)

    return make


def batch(seconds, uuid="b", requester="node-1"):
    jobs = tuple(
        JobRequest(uuid=f"{uuid}.{i}", name="", function="aes", requester=requester, input_bytes=round(1e6 * each))
        for i, each in enumerate(seconds)
    )
    return BatchRequest(uuid=uuid, project_id="p", user_id="u", name="", policy="", jobs=jobs)


def run(pool, policy, *batches):
    pool.run(policy)
    outcomes = [pool.outcome(request.uuid) for request in batches]
    assert {outcome.batch.state for outcome in outcomes} == {BatchState.COMPLETED}
    assert {job.state for outcome in outcomes for job in outcome.jobs} == {JobState.COMPLETED}
    return max(job.finished_at for outcome in outcomes for job in outcome.jobs)


def test_a_slot_that_fails_leaves_its_jobs_to_the_others(make_pool):
    pool, request = make_pool(), batch([1.0] * 40)
    pool.submit_at(0.0, request)
    fail_slot_at(pool, 3.5, "node-2/sim0/slot1")
    # Each of four slots has ten jobs.  The failed one has done three; its other seven go to three slots.
    assert run(pool, QUICK, request) == pytest.approx(13.0, rel=0.05)


def test_a_host_that_leaves_is_missed_after_a_while_and_its_jobs_run_elsewhere(make_pool):
    pool, request = make_pool(settings=replace(NO_LEAD, host_timeout_s=2.0)), batch([1.0] * 40)
    pool.submit_at(0.0, request)
    lose_host_at(pool, 3.5, "node-2")
    # Its two slots have done six jobs; the other two slots do 17 each of the remaining 34.
    assert run(pool, QUICK, request) == pytest.approx(17.0, rel=0.05)
    assert {job.host for job in pool.outcome("b").jobs if job.finished_at > 4.0} == {"node-1"}


def test_a_drained_slot_ends_what_it_computes(make_pool):
    pool, request = make_pool(), batch([1.0] * 40)
    pool.submit_at(0.0, request)
    drain_slot_at(pool, 3.5, "node-1/sim0/slot0")
    # It completes its fourth job; then three slots do eight each of the remaining 24.
    assert run(pool, QUICK, request) == pytest.approx(12.0, rel=0.05)
    assert {job.attempt for job in pool.outcome("b").jobs if job.finished_at < 4.0} == {1}


@pytest.mark.long
def test_wrong_estimates_cost_less_with_replanning(make_pool):
    # A tenth of the jobs take three times as long as estimated, the others a fifth less: much worse than in section 5.7
    # of the makespan paper.
    factor = {f"b.{i}": 3.0 if i % 10 == 0 else 0.8 for i in range(60)}
    ends_s = {Ect: 0.0, Makespan: 0.0}
    for seed in range(4):
        request = batch(np.random.default_rng(seed).uniform(0.5, 1.5, 60))
        for policy in ends_s:
            pool = make_pool(
                settings=replace(NO_LEAD, replan_horizon_s=0.5),
                actual=lambda job, estimated_s: factor[job] * estimated_s,
            )
            pool.submit_at(0.0, request)
            ends_s[policy] += run(pool, policy(), request)
    assert ends_s[Makespan] < 0.97 * ends_s[Ect]


def test_a_second_batch_and_a_fault_end_near_the_least_that_is_possible(make_pool):
    first, second = batch([1.0] * 32, "a"), batch([0.5] * 32, "b", requester="node-2")
    pool = make_pool()
    pool.submit_at(0.0, first)
    pool.submit_at(2.5, second)
    fail_slot_at(pool, 4.5, "node-1/sim0/slot1")
    end_s = run(pool, QUICK, first, second)
    # 48 s of work: four slots for 4.5 s, of which half a second is lost, then three slots.
    assert end_s == pytest.approx(4.5 + (48 - 17.5) / 3, rel=0.08)
    # The first batch ends first.
    ends = [max(job.finished_at for job in pool.outcome(uuid).jobs) for uuid in ("a", "b")]
    assert ends[0] <= ends[1]


def test_the_same_events_go_the_same_way_every_time(make_pool):
    def once():
        pool, request = make_pool(), batch(np.random.default_rng(5).uniform(0.2, 2.0, 40))
        pool.submit_at(0.0, request)
        fail_slot_at(pool, 2.0, "node-2/sim0/slot0")
        pool.run(QUICK)
        return pool.outcome("b")

    assert once() == once()


def test_transfers_of_a_second_batch_use_what_the_first_leaves(make_pool):
    # 64 Mbit/s are 8 MB per second.  The first batch sends 40 MB from one host, the second one as much from another.
    pool = make_pool(hosts=3, bps=6.4e7)
    first, second = batch([2.0] * 20, "a", "node-3"), batch([2.0] * 20, "b", "node-2")
    pool.submit_at(0.0, first)
    pool.submit_at(1.0, second)
    assert run(pool, QUICK, first, second) < 22.0
    staged = {job.uuid: job.staged_at for uuid in "ab" for job in pool.outcome(uuid).jobs}
    # Inputs of the second batch need not wait for those of the first, which take 5 s if they are not local.
    assert min(at for uuid, at in staged.items() if uuid.startswith("b")) < 2.0


def test_transfers_under_way_get_other_rates_when_one_of_them_is_late(make_pool):
    # At 8 MB per second, 16 MB move from 0 to 2 s and 16 MB from 2 to 4 s, but the first client is 0.8 s late.
    request = batch([16.0] * 4, requester="node-1")
    pool = make_pool(
        bps=6.4e7,
        settings=replace(NO_LEAD, replan_late_s=0.5, replan_horizon_s=0.5),
        sends_late=lambda job: 0.8 if job == "b.2" else 0.0,
    )
    pool.submit_at(0.0, request)
    run(pool, QUICK, request)
    late, next_one = (job for job in pool.outcome("b").jobs if job.host == "node-2")
    assert (late.uuid, late.attempt, next_one.attempt) == ("b.2", 1, 1)
    # After 1 s only 1.6 MB of 8 have arrived: the other 14.4 MB take until 2.8 s, and the next transfer waits.
    assert late.dispatched_at == pytest.approx(1.0)
    assert [(piece.begin_s, piece.end_s, piece.bps) for piece in late.transfer] == [pytest.approx((0.0, 1.8, 6.4e7))]
    # The plan for the rest does not change the recorded begin.
    assert (late.transfer_began_at, late.staged_at) == (pytest.approx(0.8), pytest.approx(2.8))
    assert (next_one.transfer_began_at, next_one.staged_at) == (pytest.approx(2.8), pytest.approx(4.8))
