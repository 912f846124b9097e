import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.core.cluster.slowdown import Run, learned_from
from fpga_pool.drivers.slots.card import SharedDma, max_min_shares


def test_small_demands_are_met_and_the_rest_is_shared_equally():
    # The capacity of 10 for demands of 1, 4, 8 and 8: 1 for the first, and (10 - 1) / 3 = 3 for each other.
    assert max_min_shares(10, [8, 1, 4, 8]) == [3, 1, 3, 3]


def test_everybody_gets_the_demand_where_the_capacity_suffices():
    assert max_min_shares(10, [2, 3, 0]) == [2, 3, 0]


@given(st.floats(1, 1e10), st.lists(st.floats(0, 1e10), max_size=8))
def test_shares_never_exceed_demand_or_capacity_and_waste_nothing(capacity, demands):
    shares = max_min_shares(capacity, demands)
    assert all(0 <= share <= demand for share, demand in zip(shares, demands, strict=True))
    assert math.fsum(shares) == pytest.approx(min(capacity, math.fsum(demands)), rel=1e-9)


def test_a_job_alone_takes_its_time():
    dma = SharedDma(10)
    dma.start("a", demand_bps=8, work_s=2, now_s=100)
    assert dma.next_end_s() == 102
    dma.advance(101.9)
    assert dma.is_active("a")
    dma.advance(102)
    assert not dma.is_active("a")
    assert dma.next_end_s() == math.inf


def test_two_jobs_slow_down_while_both_run():
    dma = SharedDma(10)
    dma.start("a", demand_bps=10, work_s=2, now_s=0)
    dma.start("b", demand_bps=10, work_s=2, now_s=1)
    # From 1 s on, both run at half speed. a has 1 s left and ends at 3 s. b then has 1 s left and ends at 4 s.
    assert dma.next_end_s() == 3
    dma.advance(3.5)
    assert not dma.is_active("a")
    assert dma.next_end_s() == 4


def test_ends_that_were_passed_over_count_from_when_they_happened():
    dma = SharedDma(10)
    dma.start("a", demand_bps=10, work_s=1, now_s=0)
    dma.start("b", demand_bps=10, work_s=2, now_s=0)
    # a ends at 2 s. b then has 1 s left and ends at 3 s, although the state is not read before 10 s.
    dma.advance(2.5)
    assert dma.next_end_s() == 3
    dma.advance(10)
    assert not dma.is_active("b")


def test_a_job_that_leaves_gives_its_share_back():
    dma = SharedDma(10)
    dma.start("a", demand_bps=10, work_s=4, now_s=0)
    dma.start("b", demand_bps=10, work_s=4, now_s=0)
    dma.stop("b", now_s=2)
    # a did 1 s of work in 2 s. The remaining 3 s run at full speed.
    assert dma.next_end_s() == 5


def test_a_job_that_moves_nothing_is_not_slowed():
    dma = SharedDma(1)
    dma.start("busy", demand_bps=100, work_s=1, now_s=0)
    dma.start("quiet", demand_bps=0, work_s=1, now_s=0)
    assert dma.next_end_s() == 1


def test_with_a_cost_of_neighbours_jobs_slow_down_whatever_they_move():
    dma = SharedDma(10, neighbour_cost=0.5)
    dma.start("a", demand_bps=0, work_s=3, now_s=0)
    assert dma.next_end_s() == 3
    dma.start("b", demand_bps=1, work_s=3, now_s=1)
    # From 1 s on, each runs at 1 / 1.5. a has 2 s left and ends at 4 s. b then has 1 s left and ends at 5 s.
    assert dma.next_end_s() == pytest.approx(4)
    dma.advance(4.5)
    assert dma.next_end_s() == pytest.approx(5)


@pytest.mark.parametrize(("demand_bps", "cost", "rate"), [(8, 0.0, 10 / 16), (1, 0.5, 1 / 1.5), (8, 0.5, 10 / 24)])
def test_the_pools_model_learns_each_law_from_what_a_card_takes(demand_bps, cost, rate):
    """Two slots with one function each, and pauses. The estimates are the times of the function alone."""
    rng, dma, runs = np.random.default_rng(0), SharedDma(10, cost), []
    begun, next_s = {}, {"a": 0.0, "b": 0.0}
    for _ in range(800):
        name, at_s = min(next_s.items(), key=lambda item: item[1])
        if dma.next_end_s() <= at_s:
            at_s = dma.next_end_s()
            dma.advance(at_s)
            for done in [each for each in begun if not dma.is_active(each)]:
                begin_s, work_s = begun.pop(done)
                runs.append(Run(unit="card", type=done, estimated_s=work_s, actual_s=at_s - begin_s, end_s=at_s))
                next_s[done] = at_s + rng.exponential(2)
        else:
            begun[name] = at_s, float(rng.uniform(1, 4))
            dma.start(name, demand_bps, begun[name][1], at_s)
            next_s[name] = math.inf
    model = learned_from(runs)
    assert model.rate("a", ("b",)) == pytest.approx(rate, rel=0.1)
    assert model.rate("b", ("a",)) == pytest.approx(rate, rel=0.1)
