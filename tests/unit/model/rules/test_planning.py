from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.timemodel import TimeModel
from fpga_pool.model.exceptions import Conflict
from fpga_pool.model.objects.pool import BatchState, JobState, SlotState
from fpga_pool.model.rules.batch.placing import require_answer
from fpga_pool.model.rules.batch.planning import batch_problem
from fpga_pool.model.rules.batch.transfers import earlier_transfers, inputs_under_way

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


def test_nothing_is_planned_where_nothing_waits(pool):
    assert pool.snapshot() is None
    pool.create("aes")
    pool.plan()
    assert pool.snapshot() is None


def test_the_view_tells_the_pool_in_columns(pool, foreign_lease):
    pool.host_up("h1")
    pool.report(pool.slot_report(R0, SlotState.READY, "sha256"))
    pool.report(pool.slot_report(R1, SlotState.FAULTED))
    pool.drain("h1/c/r0")
    foreign_lease("h1/c/r1")
    pool.store.time_models["aes", "fast"] = TimeModel(1.25, 2e-6)
    pool.store.time_models["aes", "gone"] = TimeModel(9.0, 9.0)
    pool.create("aes")
    view = pool.snapshot().view
    assert view.hosts == ("h0", "h1")
    assert view.functions == ("aes", "flow", "sha256", "unmeasured")
    assert view.slots == (R0, R1, R2, "h1/c/r0", "h1/c/r1", "h1/c/r2")
    assert view.slot_host.tolist() == [0, 0, 0, 1, 1, 1]
    assert view.slot_card.tolist() == [0, 0, 0, 1, 1, 1]
    assert view.slot_kind == ("small", "small", "large") * 2
    assert view.slot_function.tolist() == [2, -1, -1, -1, -1, -1]
    # Faulted slots, drained slots and slots held by an instance are out of service.
    assert view.slot_usable.tolist() == [True, False, True, False, False, True]
    # 4000 bytes at 64 kbit/s.
    assert view.slot_load_s.tolist() == [0.5] * 6
    # Rows: small, large.  flow needs a large slot, and the unmeasured function has no time model.
    assert view.can_run[[0, 2]].tolist() == [[True, False, True, False], [True, True, True, False]]
    # aes as refitted, sha256 from the catalogue.
    assert view.time_a_s[0].tolist() == [1.25, 0.0, 2.0, 0.0]
    assert view.time_b_s_per_byte[0].tolist() == [2e-6, 0.0, 1e-6, 0.0]


def test_a_slot_is_ready_when_what_is_planned_on_it_is_done(pool):
    pool.create("flow", "flow")
    pool.plan()
    pool.now_s += 2.0
    pool.create("aes")
    snap = pool.snapshot()
    # Two jobs of 4 s + 1000 bytes x 1 us on the large slot, which loads for 0.5 s while the first input arrives: 1000
    # bytes at 8 Mbit/s take 1 ms.  They end 0.5 + 2 x 4.001 = 8.502 s after time 0 of the plan, of which 2.25 s have
    # passed when the next plan begins.
    assert snap.view.slot_ready_s == pytest.approx([0.0, 0.0, 8.502 - 2.25])


def test_what_earlier_plans_use_of_the_network_is_known_until_it_is_there(pool):
    pool.host_up("h1")
    for region in ("r0", "r1", "r2"):
        pool.drain(f"h0/c/{region}")
    pool.create("aes", "aes", requester="h0", input_bytes=10**6)
    pool.plan()
    pool.now_s += 0.5
    pool.create("aes")

    def left():
        snap = pool.snapshot()
        with pool.tx() as tx:
            under_way = inputs_under_way(tx, snap, pool.now_s, pool.now_s + 0.25)
            return earlier_transfers(under_way, snap.view, pool.now_s, pool.now_s + 0.25)

    # 2 MB at 8 Mbit/s (the requester's egress) take 2 s; half a second has passed.
    transfers = left()
    assert (set(transfers.requester.tolist()), set(transfers.responder.tolist())) == ({0}, {1})
    moved_bits = (transfers.end_s - transfers.begin_s) * transfers.bps
    assert (float(transfers.end_s.max()), float(moved_bits.sum())) == pytest.approx((1.5, 1.5 * 8e6))
    pool.bring("b1.0", JobState.STAGED)
    pool.bring("b1.1", JobState.STAGED)
    assert len(left().bps) == 0


def test_the_problem_has_the_slots_that_are_of_use(pool):
    pool.create("flow", "aes")
    request = batch_problem(pool.snapshot())
    assert request.slots == (R0, R1, R2)
    seconds = request.problem.seconds
    assert seconds[0].tolist() == [np.inf, np.inf, pytest.approx(4.001)]
    assert seconds[1] == pytest.approx([1.001] * 3)
    pool.cancel("b1")
    pool.create("flow")
    assert batch_problem(pool.snapshot()).slots == (R2,)


def test_the_oldest_batch_that_can_be_placed_is_planned_first(pool):
    pool.drain(R2)
    pool.create("flow")
    pool.now_s += 1
    pool.create("aes", policy="sjf")
    snap = pool.snapshot()
    assert ([job.uuid for job in snap.jobs], snap.policy) == (["b2.0"], "sjf")
    pool.resume(R2)
    assert [job.uuid for job in pool.snapshot().jobs] == ["b1.0"]
    assert [job.uuid for job in pool.snapshot(put_off={"b1"}).jobs] == ["b2.0"]
    assert pool.snapshot(put_off={"b1", "b2"}) is None


def test_no_view_is_built_where_all_that_waits_is_put_off_or_others_business(pool, monkeypatch):
    pool.create("aes")
    pool.create("aes", policy="another")
    planned = {"put_off": {"b1"}, "is_planned": lambda name: name != "another"}
    monkeypatch.setattr("fpga_pool.model.rules.batch.planning.pool_view", lambda **columns: pytest.fail("built"))
    assert pool.snapshot(**planned) is None


def test_jobs_whose_function_has_left_the_catalogue_wait_and_hold_up_nobody(pool):
    pool.create("sha256")
    pool.create("aes")
    functions = {name: entry for name, entry in pool.catalogue.functions.items() if name != "sha256"}
    pool.catalogue = replace(pool.catalogue, functions=functions)
    assert [job.uuid for job in pool.snapshot().jobs] == ["b2.0"]


def test_jobs_that_were_planned_too_often_are_not_planned_again(pool):
    uuid = pool.create("aes")
    for _ in range(3):
        pool.plan()
        pool.fail("b1.0")
    assert pool.plan() == []
    pool.tick()
    assert (pool.job("b1.0").state, pool.job("b1.0").error_code) == (JobState.FAILED, "fpga_pool.too_many_attempts")
    assert pool.job("b1.0").reason == "given up after 3 attempts; last: smoke"
    assert pool.batch(uuid).state is BatchState.FAILED


# Commit


def test_a_plan_gives_each_job_its_place_its_order_and_its_rates(pool):
    uuid = pool.create("flow", "flow", input_bytes=100_000)
    placed = pool.plan()
    assert [(job.slot, job.order, job.attempt) for job in placed] == [(R2, 0, 1), (R2, 1, 1)]
    # Time 0 of the plan is 0.25 s ahead.
    assert {job.dispatched_at for job in placed} == {1000.25}
    first, second = placed
    assert (first.end_s - first.start_s, second.start_s - first.end_s) == pytest.approx((4.1, 0.0))
    batch = pool.batch(uuid)
    assert (batch.state, batch.dispatched_at) == (BatchState.RUNNING, 1000.25)
    # Of the load of 0.5 s, 0.25 s are before time 0.
    assert batch.planned_makespan_s == pytest.approx(0.25 + 2 * 4.1)
    assert 0 < batch.lower_bound_s <= batch.planned_makespan_s
    assert [(command.sequence, command.fence) for command in pool.sent()] == [(1, (1, 1)), (2, (1, 2))]


def test_a_plan_of_small_inputs_begins_at_once(pool):
    """They move in one burst, so no host needs rates beforehand."""
    uuid = pool.create("flow", "flow")
    pool.plan()
    assert pool.batch(uuid).dispatched_at == 1000.0


def test_loads_that_begin_before_time_0_count_in_the_bound(pool):
    """The slot loads for 0.5 s from the commit on, 0.25 s of it before time 0; 100 kB compute for 4.1 s."""
    uuid = pool.create("flow", input_bytes=100_000)
    pool.plan()
    assert pool.batch(uuid).lower_bound_s == pytest.approx(0.25 + 4.1)


def test_the_bound_does_not_count_on_work_that_may_end_sooner_than_planned(pool):
    pool.create("flow", "flow")
    pool.plan()
    uuid = pool.create("flow")
    pool.plan()
    batch = pool.batch(uuid)
    # It is planned behind two jobs of 4 s; alone it computes for 4.001 s.
    assert batch.planned_makespan_s > 12.0
    assert batch.lower_bound_s == pytest.approx(4.001)


def test_orders_continue_after_a_queue_that_is_there(pool):
    pool.create("flow", "flow")
    pool.plan()
    pool.create("flow")
    assert [job.order for job in pool.plan()] == [2]
    pool.bring("b1.0", JobState.COMPLETED)
    pool.create("flow")
    assert [job.order for job in pool.plan()] == [3]


def test_a_commit_leaves_out_what_was_cancelled_or_planned_meanwhile(pool):
    pool.create("aes", "aes")
    pool.create("aes")
    request, plan = pool.decide()
    pool.cancel("b1")
    assert pool.commit(request, plan) == []
    assert pool.batch("b1").dispatched_at is None
    request, plan = pool.decide()
    pool.plan()
    assert pool.commit(request, plan) == []
    assert pool.job("b2.0").attempt == 1


@pytest.mark.parametrize("change", ["faulted", "drained", "leased", "host lost"])
def test_a_commit_leaves_out_slots_that_are_out_of_service_meanwhile(pool, foreign_lease, change):
    pool.create("flow", "aes", "aes")
    request, plan = pool.decide()
    if change == "faulted":
        pool.report(pool.slot_report(R2, SlotState.FAULTED))
    elif change == "drained":
        pool.drain(R2)
    elif change == "leased":
        foreign_lease(R2)
    else:
        pool.now_s += 11
        pool.tick()
    placed = {job.slot for job in pool.commit(request, plan)}
    assert placed == (set() if change == "host lost" else {R0, R1})
    assert pool.job("b1.0").state is JobState.PENDING
    assert pool.batch("b1").state is (BatchState.PENDING if change == "host lost" else BatchState.RUNNING)


def test_a_slot_held_by_an_instance_takes_no_job_and_keeps_its_lease(pool, foreign_lease):
    foreign_lease(R2)
    pool.create("flow")
    assert pool.plan() == []
    assert pool.lease(R2).holder == "vm"


def test_an_input_kept_for_a_retry_is_withdrawn_when_the_job_goes_to_another_host(pool):
    pool.create("flow")
    pool.plan()
    pool.fail("b1.0")
    pool.drain(R2)
    pool.host_up("h1")
    pool.sent()
    assert [job.host for job in pool.plan()] == ["h1"]
    assert pool.actions() == [(R2, "ReleaseJob", "b1.0"), ("h1/c/r2", "AssignJob", "b1.0")]


def test_an_input_kept_for_a_retry_stays_when_the_job_comes_back(pool):
    pool.create("flow")
    pool.plan()
    pool.fail("b1.0")
    pool.sent()
    pool.plan()
    assert pool.actions() == [(R2, "AssignJob", "b1.0")]
    assert pool.job("b1.0").attempt == 2


def test_a_plan_that_does_not_answer_the_problem_is_refused(pool):
    pool.create("flow", "aes")
    request, plan = pool.decide()
    for changes, message in [
        ({"generation": 99}, "its plan is for generation 99, not"),
        ({"accelerator": [2]}, "does not place each of the 2 jobs"),
        ({"accelerator": [2, 3]}, "does not place each of the 2 jobs"),
        ({"accelerator": [0, 1]}, "places a job on an accelerator that cannot run it"),
    ]:
        with pytest.raises(Conflict, match=f"policy ect: .*{message}"):
            require_answer(request, replace(plan, **changes))
