"""The learned slowdown of batch jobs by neighbours on their card."""

from dataclasses import replace

import numpy as np
import pytest

from fpga_pool.core.cluster.slowdown import MOST_COST, Run, SlowdownModel, learned_from
from fpga_pool.core.makespan import Ect
from fpga_pool.model.objects.pool import SlotState
from fpga_pool.model.rules.batch.family import BatchFamily
from fpga_pool.model.rules.batch.planning import batch_problem

R0, R1, R2 = "h0/c/r0", "h0/c/r1", "h0/c/r2"


def learned(one, other, factor):
    """Return the model of many runs in which `one` takes `factor` times as long beside `other`, which loses nothing."""
    beside = [Run(unit="x", type=one, estimated_s=1, actual_s=factor, end_s=factor)]
    beside += [Run(unit="x", type=other, estimated_s=factor, actual_s=factor, end_s=factor)]
    alone = [Run(unit="y", type=one, estimated_s=1, actual_s=1, end_s=1)]
    runs = [replace(run, end_s=run.end_s + 1e7 * number) for number in range(50) for run in (*beside, *alone)]
    return learned_from(runs)


@pytest.fixture
def model():
    """Return a model: sha256 takes about twice as long beside aes; no other slowdown was observed."""
    return learned("sha256", "aes", 2.0)


def times(view, slot, function="sha256"):
    row, column = view.slots.index(slot), view.function_index[function]
    return float(view.time_a_s[row, column]), float(view.time_b_s_per_byte[row, column])


def computes(pool, slot, function):
    for state in (SlotState.READY, SlotState.BUSY):
        pool.report(pool.slot_report(slot, state, function), host=slot.split("/")[0])


def test_a_job_takes_longer_beside_what_an_instance_computes(pool, foreign_lease, model):
    pool.host_up("h1")
    foreign_lease(R0)
    computes(pool, R0, "aes")
    pool.create("sha256")
    before, view = pool.snapshot().view, pool.snapshot(slowdown=model).view
    cost = model.cost("sha256", ("aes",))
    assert 0.7 < cost < 1.1
    # 2 s + 1 us per byte by the catalogue, longer by the cost of the neighbour.
    for slot in (R1, R2):
        assert times(view, slot) == pytest.approx((2 * (1 + cost), 1e-6 * (1 + cost)))
    # The other card, and functions that no waiting job needs, are not affected.
    assert times(view, "h1/c/r0") == times(before, "h1/c/r0") == (2.0, 1e-6)
    assert times(view, R1, "aes") == times(before, R1, "aes")


def test_a_batch_goes_where_neighbours_slow_it_down_least_and_says_how_long_it_takes(pool, foreign_lease, model):
    pool.host_up("h1")
    foreign_lease("h1/c/r0")
    computes(pool, "h1/c/r0", "aes")
    # Loaded on the neighbour's card, so that this slot is the first choice without a learned model.
    pool.report(pool.slot_report("h1/c/r1", SlotState.READY, "sha256"), host="h1")
    pool.create("sha256")

    def place(slowdown):
        family = BatchFamily(pool.catalogue, pool.settings, lambda _: Ect(), "ect", lambda _: True, lambda: slowdown)
        with pool.tx() as tx:
            look = family.snapshot(tx, pool.now_s)
        wanted = family.decide(look, None, np.random.default_rng(0)).wanted
        slot = wanted.request.slots[wanted.plan.accelerator[0]]
        return slot, wanted.plan.makespan_s

    slot, alone_s = place(None)
    assert slot == "h1/c/r1"
    slot, makespan_s = place(model)
    # A load takes 0.5 s; the neighbour would cost about 2 s more.
    assert slot.startswith("h0/")
    assert makespan_s == pytest.approx(alone_s + 0.5, abs=0.01)


def test_a_neighbour_of_the_pool_counts_until_it_is_free(pool, model):
    pool.create("aes")
    pool.plan()
    first = pool.job("b1.0").slot
    computes(pool, first, "aes")
    pool.create("sha256", "sha256", "sha256", "sha256")
    before, view = pool.snapshot().view, pool.snapshot(slowdown=model).view
    # Four jobs of 2.001 s on three slots.
    horizon_s = 4 * 2.001 / 3
    share = before.slot_ready_s[view.slots.index(first)] / horizon_s
    assert 0 < share < 1
    factor = 1 + share * model.cost("sha256", ("aes",))
    other = next(slot for slot in (R0, R1) if slot != first)
    assert times(view, other) == pytest.approx((2 * factor, 1e-6 * factor))
    # When its own slot becomes free, there is no neighbour left.
    assert times(view, first) == (2.0, 1e-6)


@pytest.mark.parametrize("busy", [True, False], ids=["beside a neighbour", "nobody computes"])
def test_nothing_changes_where_nothing_was_learned(pool, foreign_lease, model, busy):
    foreign_lease(R0)
    if busy:
        computes(pool, R0, "aes")
    pool.create("sha256")
    plain, asked = pool.snapshot(), pool.snapshot(slowdown=None if busy else model)
    assert (asked.view.time_a_s == plain.view.time_a_s).all()
    assert (asked.view.time_b_s_per_byte == plain.view.time_b_s_per_byte).all()
    assert (batch_problem(asked).problem.seconds == batch_problem(plain).problem.seconds).all()


def test_wrong_reports_of_a_host_have_a_bounded_effect_on_others():
    lies = learned("sha256", "aes", 1e6)
    assert lies.rate("sha256", ("aes",)) < 1 / (1 + MOST_COST)
    assert lies.cost("sha256", ("aes",)) == MOST_COST
    assert SlowdownModel().cost("sha256", ()) == 0.0
