"""Online jobs: where they are placed, and how they leave their slots (`model.rules.online.view`)."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.benefit.paper import Benefit, HoldParams, Throughput
from fpga_pool.core.benefit.plus import BenefitPlus
from fpga_pool.core.makespan import Ect
from fpga_pool.model.lifecycle.slot import DrainRequested
from fpga_pool.model.messages.agents import JobEvicted
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState, is_cpu
from fpga_pool.model.rules.batch.planning import batch_problem
from fpga_pool.model.rules.online.family import commit_moves
from fpga_pool.model.rules.online.view import slot_benefits
from fpga_pool.model.rules.shared.changes import change_slot
from fpga_pool.model.values import changed
from fpga_pool.sim.store import MemoryTransaction

from .online_bench import Online, entry


@pytest.fixture(scope="session")
def catalogue(make_catalogue):
    """Return a catalogue: three slots that load in 0.5 s; speedups 2, 4, 30 (large slot only), and rigid 2."""
    functions = {
        "aes": entry(10.0, 20.0, "small", "large"),
        "sha256": entry(10.0, 40.0, "small", "large", progress_kept=False),
        "flow": entry(10.0, 300.0, "large"),
        "rigid": entry(10.0, 20.0, "large", preemptible=False),
    }
    return make_catalogue(functions, slots=["small", "small", "large"], load_s=0.5)


@pytest.fixture
def online(pool):
    pool.settings = replace(pool.settings, max_attempts=10)
    return Online(pool)


def test_a_job_goes_to_a_slot_that_can_hold_its_function_and_its_batch_begins_without_a_promise(pool, online):
    online.create("flow")
    assert online.step() == ({"b1.0": "h0/c/r2"}, [])
    job, batch = pool.job("b1.0"), pool.batch("b1")
    # It loads for 0.5 s and computes for 10 s; its input takes no time.
    assert (job.start_s, job.end_s, job.transfer, job.attempt) == (0.5, 10.5, (), 1)
    assert (batch.state, batch.planned_makespan_s) == (BatchState.RUNNING, None)
    assert pool.actions() == [("h0/c/r2", "AssignJob", "b1.0")]


def test_batches_that_are_planned_are_none_of_its_business_and_the_other_way_round(pool, online):
    pool.create("aes")
    assert online.view().waiting == ()
    online.create("aes")
    assert pool.snapshot(is_planned="benefit_replace".__ne__).jobs[0].batch_uuid == "b1"
    assert {asking.job.batch_uuid for asking in online.view().waiting} == {"b2"}


def test_cards_load_one_slot_at_a_time(pool, online):
    online.create("aes", "aes")
    assert len(online.step()[0]) == 1
    assert online.step() == ({}, [])
    pool.bring("b1.0", JobState.RUNNING)
    assert len(online.step()[0]) == 1


def test_a_slot_that_holds_the_function_is_not_loaded_again(pool, online):
    (first,) = online.run("aes")
    slot = pool.job(first).slot
    pool.bring(first, JobState.COMPLETED)
    online.create("aes")
    assert online.step() == ({"b2.0": slot}, [])
    assert (pool.job("b2.0").start_s, pool.job("b2.0").end_s) == (0.0, 10.0)


@pytest.mark.parametrize("policy", [Benefit, Throughput])
def test_a_policy_that_holds_reloads_an_idle_slot_after_the_hold_and_not_before(pool, policy):
    pool.settings = replace(pool.settings, online_patience_s=100.0)
    online = Online(pool, policy(HoldParams(hold_s=5.0)))
    online.run("aes")
    for slot in ("h0/c/r0", "h0/c/r1", "h0/c/r2"):
        pool.report(pool.slot_report(slot, SlotState.LOADING, "aes"), pool.slot_report(slot, SlotState.READY, "aes"))
    pool.finish("b1.0")
    online.create("flow")
    pool.now_s += 4.9
    assert online.step() == ({}, [])
    pool.now_s += 0.2
    assert online.step() == ({"b2.0": "h0/c/r2"}, [])


def test_a_policy_that_holds_takes_what_was_loaded_before_the_pool_knew_the_slot_for_loaded_long_ago(pool):
    held = [changed(slot, state=SlotState.READY, function="aes") for slot in pool.heartbeat().slots]
    pool.heard(pool.heartbeat(slots=tuple(changed(slot, slot=f"{slot.slot}-new") for slot in held)))
    online = Online(pool, Benefit(HoldParams(hold_s=5.0)))
    for slot in ("h0/c/r0", "h0/c/r1", "h0/c/r2"):
        pool.drain(slot)
    online.create("flow")
    assert online.step() == ({"b1.0": "h0/c/r2-new"}, [])


def test_a_job_that_has_waited_as_long_as_it_computes_goes_to_a_cpu_and_not_before(pool, online):
    for region in ("r0", "r1"):
        pool.drain(f"h0/c/{region}")
    online.run("rigid")
    online.create("aes", "aes", "aes")
    assert online.step() == ({}, [])
    pool.now_s += 10.0
    placed, _ = online.step()
    # The two workers take the oldest jobs; the third job waits.
    assert placed == {"b2.0": "h0/cpu/worker0", "b2.1": "h0/cpu/worker1"}
    job = pool.job("b2.0")
    assert (is_cpu(job.slot), job.start_s, job.end_s) == (True, 0.0, 20.0)


def busy_with_aes(pool, online):
    """Fill the large slot with a job of least benefit, and drain the others."""
    for region in ("r0", "r1"):
        with pool.tx() as tx:
            change_slot(tx, tx.slot(f"h0/c/{region}"), DrainRequested(reason="test"), pool.now_s)
    (job,) = online.run("aes")
    assert pool.job(job).slot == "h0/c/r2"
    pool.actions()
    return job


def test_a_job_of_more_benefit_evicts_one_of_less_and_follows_it_on_the_slot(pool, online):
    least = busy_with_aes(pool, online)
    online.create("flow")
    # (30 - 2) vCPUs over 10 s against 0.5 s of load at 2 vCPUs.
    assert online.step() == ({"b2.0": "h0/c/r2"}, [least])
    assert pool.actions() == [("h0/c/r2", "EvictJob", least), ("h0/c/r2", "AssignJob", "b2.0")]
    # The eviction is requested only once.
    assert online.step() == ({}, [])
    assert pool.job(least).state is JobState.RUNNING


def test_an_evicted_job_goes_on_on_the_cpu_of_its_host_with_what_it_has_done(pool, online):
    least = busy_with_aes(pool, online)
    online.create("flow")
    online.step()
    assert online.evicted(least, done=0.25) == []
    assert online.step() == ({least: "h0/cpu/worker0"}, [])
    job = pool.job(least)
    # A quarter of 20 s is done.
    assert (job.done, job.attempt, job.end_s) == (0.25, 2, 15.0)
    assert pool.actions()[-1] == ("h0/cpu/worker0", "AssignJob", least)


def test_a_job_that_ends_before_its_eviction_arrives_has_ended(pool, online):
    least = busy_with_aes(pool, online)
    online.create("flow")
    online.step()
    attempt = pool.about(least)
    assert pool.finish(least) == []
    assert pool.report(JobEvicted(**attempt, done=0.5)) == [f"JobEvicted: job {least} is RESULT_HELD"]
    assert pool.job(least).state is JobState.RESULT_HELD


def test_a_job_of_a_function_that_cannot_be_stopped_stays_to_its_end(pool, online):
    for region in ("r0", "r1"):
        pool.drain(f"h0/c/{region}")
    online.run("rigid")
    online.create("flow")
    assert online.step() == ({}, [])


def test_a_job_comes_back_from_a_cpu_to_a_free_slot_where_it_is_done_earlier(pool, online):
    for region in ("r0", "r1", "r2"):
        pool.drain(f"h0/c/{region}")
    online.create("sha256", "aes")
    placed, _ = online.step()
    for uuid in placed:
        pool.bring(uuid, JobState.RUNNING)
    # After 35 s, sha256 (40 s on a CPU, 10 s on a slot, where its progress is lost) would end later on a slot.
    pool.now_s += 35.0
    pool.finish("b1.1")
    pool.resume("h0/c/r0")
    assert online.step() == ({}, [])
    pool.now_s -= 25.0
    assert online.step() == ({}, ["b1.0"])
    assert pool.actions()[-1] == ("h0/cpu/worker0", "EvictJob", "b1.0")
    online.evicted("b1.0")
    assert online.step() == ({"b1.0": "h0/c/r0"}, [])


def test_a_job_that_was_moved_half_of_its_attempts_stays(pool, online):
    least = busy_with_aes(pool, online)
    with pool.tx() as tx:
        tx.save(replace(tx.job(least), attempt=6))
    online.create("flow")
    assert online.step() == ({}, [])


def test_what_has_changed_since_it_was_read_is_left_out(pool, online):
    least = busy_with_aes(pool, online)
    online.create("flow")
    moves = online.decide(online.view())
    pool.finish(least)
    placed, evicted = online.commit(moves)
    # The slot has become free, so no eviction is needed.
    assert ([job.uuid for job in placed], evicted) == (["b2.0"], [])


def test_a_slot_that_got_another_job_meanwhile_is_not_given_away(pool, online):
    online.create("flow")
    moves = online.decide(online.view())
    assert [placement.slot.name for placement in moves.placements] == ["h0/c/r2"]
    pool.create("flow")
    assert pool.commit(*pool_plan(pool))
    assert online.commit(moves) == ([], [])


def pool_plan(pool):
    """Plan the batches that are not online."""
    request = batch_problem(pool.snapshot(is_planned="benefit_replace".__ne__))
    return request, Ect().decide(request.problem, None, 0.0, np.random.default_rng(0))


def test_benefit_plus_decides_on_the_same_view(pool, online):
    online.policy = BenefitPlus()
    online.create("flow", "aes")
    placed, _ = online.step()
    assert placed == {"b1.0": "h0/c/r2"}


def test_without_slots_in_service_jobs_go_to_cpus_at_once(pool, online):
    for region in ("r0", "r1", "r2"):
        pool.drain(f"h0/c/{region}")
    online.policy = None
    online.create("aes")
    assert online.step() == ({"b1.0": "h0/cpu/worker0"}, [])


def test_the_benefit_of_a_slot_is_that_of_what_computes_there(pool, online):
    (job,) = online.run("flow")
    with pool.tx() as tx:
        # flow takes 300 s on a CPU and 10 s on a slot.
        assert slot_benefits(tx, pool.catalogue) == {"h0/c/r0": 0.0, "h0/c/r1": 0.0, "h0/c/r2": pytest.approx(30.0)}
    pool.finish(job)
    with pool.tx() as tx:
        assert slot_benefits(tx, pool.catalogue)["h0/c/r2"] == 0.0


def test_a_project_at_its_share_waits_and_may_go_to_a_cpu(pool, online):
    pool.settings = replace(pool.settings, tenant_share=0.34)
    online.run("aes")
    online.create("aes", "sha256")
    assert online.step() == ({}, [])
    pool.now_s += 10.0
    assert online.step() == ({"b2.0": "h0/cpu/worker0", "b2.1": "h0/cpu/worker1"}, [])


def test_what_an_instance_holds_gets_no_job_and_is_not_taken_away(pool, online, foreign_lease):
    for slot in ("h0/c/r0", "h0/c/r1", "h0/c/r2"):
        foreign_lease(slot)
    online.create("flow", "aes")
    placed, evicted = online.step()
    assert (all(map(is_cpu, placed.values())), evicted) == (True, [])
    assert pool.lease("h0/c/r2").holder == "vm"


def test_a_commit_reads_the_leases_of_the_slots_that_it_gives_and_no_others(pool, online, foreign_lease, monkeypatch):
    """The shard is locked during a commit, so the amount of data read must not grow with the shard."""
    for number in range(1, 5):
        pool.host_up(f"h{number}")
    online.create("aes", "sha256", "flow")
    moves = online.decide(online.view())
    assert len(moves.placements) == 3
    placed = {placement.slot.name for placement in moves.placements}
    with pool.tx() as tx:
        others = [slot.name for slot in tx.slots() if slot.name not in placed]
    for name in others:
        foreign_lease(name)
    read, leases = [], MemoryTransaction.leases

    def counted(self, **which):
        read.append(leases(self, **which))
        return read[-1]

    with pool.tx() as tx, monkeypatch.context() as patched:
        patched.setattr(MemoryTransaction, "leases", counted)
        done = commit_moves(tx, moves, pool.catalogue, pool.now_s)
    assert {job.slot for job in done.placed} == placed
    # One read to check that the slots are still free, one for those that the pool must lease, and one per new lease.
    assert (len(read), sum(map(len, read))) == (2 + 3, 0)
