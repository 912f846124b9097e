"""The decisions of each policy in situations that its paper, or our rule, determines."""

import numpy as np
import pytest

from fpga_pool.conf.policies import load_policy, policy_names
from fpga_pool.core.benefit.occupancy import Occupancy
from fpga_pool.core.benefit.paper import Benefit, BenefitReplace, HoldParams, Throughput
from fpga_pool.core.benefit.plus import BenefitPlus, PlusParams
from fpga_pool.core.benefit.pool import Load, Start

RNG = np.random.default_rng(0)


def holding(pool, *functions, busy_until=()) -> Occupancy:
    """Return a view at time 0: slots have long held `functions`, and the first ones run jobs until `busy_until`."""
    view = Occupancy(pool)
    for slot, function in enumerate(functions):
        view.loads(slot, function)
        view.loaded(slot, -100.0)
    for slot, end_s in enumerate(busy_until):
        view.started(slot, 1000 + slot, end_s)
    return view


def wait(view, *functions, patience_s=1.0) -> Occupancy:
    for job, function in enumerate(functions):
        view.arrived(job, function, 1.0, patience_s, 0.0)
    view.news = None, None
    return view


@pytest.mark.parametrize("name", policy_names("online"))
def test_job_starts_at_once_where_an_idle_slot_holds_its_function(pool, name):
    view = wait(holding(pool([2.0, 5.0], slots=2), 0, 1), 1)
    assert load_policy("online", name).decide(view, None, 0.0, RNG) == Start(1, 1)


@pytest.mark.parametrize("name", policy_names("online"))
def test_nothing_waits_nothing_is_done(pool, name):
    assert load_policy("online", name).decide(holding(pool([2.0, 5.0]), 0), None, 0.0, RNG) is None


@pytest.mark.parametrize("name", policy_names("online"))
def test_nothing_is_loaded_while_the_port_of_the_card_is_busy(pool, name):
    view = Occupancy(pool([2.0, 5.0], slots=2))
    view.loads(0, 1)
    assert load_policy("online", name).decide(wait(view, 0), None, 0.0, RNG) is None


@pytest.mark.parametrize("name", policy_names("online"))
def test_function_is_not_loaded_where_it_does_not_fit(pool, name):
    view = wait(Occupancy(pool([2.0, 5.0], fits=[[True, False]])), 1)
    view.preloads = False
    assert load_policy("online", name).decide(view, None, 0.0, RNG) is None


@pytest.mark.parametrize("name", policy_names("online"))
def test_slots_that_are_too_small_for_all_functions_stay_empty(pool, name):
    # The slot of card 0 has kind 0, which fits no function.
    some = pool([2.0, 5.0], cards=2, fits=[[False, False], [True, True]], slot_kind=np.array([0, 1]))
    found = load_policy("online", name).decide(wait(Occupancy(some), 1), None, 0.0, RNG)
    assert found == Load(1, 1)


def test_throughput_takes_the_most_bytes_and_benefit_the_most_speedup(pool):
    # Function 0 moves more bytes, function 1 has the larger speedup.
    view = wait(Occupancy(pool([2.0, 30.0], io_bps=[[8e8, 1e8]])), 0, 1)
    assert Throughput().decide(view, None, 0.0, RNG) == Load(0, 0)
    assert Benefit().decide(view, None, 0.0, RNG) == Load(0, 1)


def test_algorithm_1_keeps_a_slot_for_its_hold(pool):
    view = wait(holding(pool([2.0, 30.0]), 0), 1)
    # Loaded at -100: at 0 a hold of 101 s is still on, one of 99 s has ended.
    assert Benefit(HoldParams(hold_s=101.0)).decide(view, None, 0.0, RNG) is None
    assert Benefit(HoldParams(hold_s=99.0)).decide(view, None, 0.0, RNG) == Load(0, 1)


def test_algorithm_2_replaces_what_gains_less_than_the_load_costs_not(pool):
    # (s_f - s_g) * 1 s against load_s * s_g: 30 - 20 = 10 > 0.4 * 20 = 8, but not > 0.6 * 20 = 12.
    for load_s, expected in ((0.4, Load(0, 1)), (0.6, Start(0, 0))):
        view = wait(holding(pool([20.0, 30.0], load_s=load_s), 0), 0, 1)
        assert BenefitReplace().decide(view, None, 0.0, RNG) == expected


def test_algorithm_2_stops_only_what_is_preemptible(pool):
    for preemptible, expected in (((0,), Load(0, 1)), ((), None)):
        view = wait(holding(pool([2.0, 30.0], preemptible=preemptible), 0, busy_until=[0.9]), 1)
        assert BenefitReplace().decide(view, None, 0.0, RNG) == expected


def test_plus_waits_for_a_slot_that_ends_in_time(pool):
    # Slot 0 runs function 1 until 0.9 and the job waits until 1.0, so nothing is loaded into slot 1.
    view = wait(holding(pool([2.0, 30.0], slots=2), 1, 0, busy_until=[0.9]), 1)
    assert BenefitPlus().decide(view, None, 0.0, RNG) is None
    # Until 1.1 is too late, and there is no demand for function 0.
    view = wait(holding(pool([2.0, 30.0], slots=2), 1, 0, busy_until=[1.1]), 1)
    assert BenefitPlus().decide(view, None, 0.0, RNG) == Load(1, 1)


def test_plus_stops_no_job_for_one_that_is_hardly_better(pool):
    # (s_f - s_g) * 1 s against load_s * s_g: 2.5 < 0.5 * 20 = 10; 19 > 0.5 * 20.
    for speedup, expected in ((22.5, None), (39.0, Load(0, 1))):
        view = wait(holding(pool([20.0, speedup], preemptible=(0,)), 0, busy_until=[0.2]), 1)
        assert BenefitPlus().decide(view, None, 0.0, RNG) == expected


def test_plus_counts_what_the_shared_dma_leaves(pool):
    # A card moves 1e9.  Slot 0 runs function 0, which needs 1e9.  A second one would leave each half of its speed, a
    # gain of 20 / 2; function 1 gains 12 and moves nothing.
    for dma_bps, expected in ((1e9, Load(1, 1)), (4e9, Load(1, 0))):
        view = holding(pool([20.0, 12.0], slots=2, io_bps=[[1e9, 0.0]], dma_bps=dma_bps), 0, busy_until=[9.0])
        assert BenefitPlus().decide(wait(view, 0, 1), None, 0.0, RNG) == expected


def test_plus_waits_for_a_slot_that_ends_before_a_load_would(pool):
    # The slot of function 1 ends at 0.4, a load takes 0.5 s.  At 0.6 it would not end in time for the second job.
    view = wait(holding(pool([2.0, 30.0], slots=2), 1, 0, busy_until=[0.4]), 1)
    assert BenefitPlus().decide(view, None, 0.0, RNG) is None


def test_plus_keeps_a_slot_for_what_is_sure_to_come(pool):
    # Function 1 keeps its slot busy most of the time: ten jobs of 1 s in the last 10 s.  Function 0 gains a tenth.
    view = holding(pool([3.0, 30.0]), 1)
    for job in range(10):
        view.arrived(job, 1, 1.0, -9.0 + job, -10.0 + job)
        view.left(job, 1)
    view.arrived(20, 0, 1.0, 1.0, 0.0)
    assert BenefitPlus().decide(view, None, 0.0, RNG) is None


def test_plus_loads_an_empty_slot_when_a_load_has_left_the_port(pool):
    # Function 1 gains so much more that it would replace the load for function 0 if there were only the loaded slot.
    view = Occupancy(pool([2.0, 30.0], slots=2, load_s=2.0))
    view.arrived(0, 0, 1.0, 3.0, 0.0)
    view.loads(0, 0)
    view.arrived(1, 1, 1.0, 3.0, 1.0)
    view.loaded(0, 2.0)
    assert BenefitPlus().decide(view, None, 2.0, RNG) == Load(1, 1)


def test_plus_fills_empty_slots_before_the_first_job_with_what_gains_most(pool):
    # Without any demand, 30 comes before 5, but not in the only slot that fits the function of 20.
    empty = Occupancy(pool([5.0, 30.0, 20.0], slots=2, fits=[[True, True, False], [True] * 3], slot_kind=[0, 1]))
    assert BenefitPlus().decide(empty, None, 0.1, RNG) == Load(0, 1)
    empty.loads(0, 1)
    empty.loaded(0, 0.6)
    assert BenefitPlus().decide(empty, None, 0.6, RNG) == Load(1, 2)


def test_plus_loads_nothing_ahead_where_a_load_needs_a_job(pool):
    view = Occupancy(pool([5.0, 30.0]))
    view.preloads = False
    assert BenefitPlus().decide(view, None, 0.1, RNG) is None


def test_plus_lets_a_job_of_little_benefit_go_while_slots_are_empty_and_loads_are_slow(pool):
    # A job of function 0 waits: 2 vCPU-seconds.  The other functions are assumed to keep (2 + 1) / 2 slots busy each.
    # To load one 2 s later loses 30 * (1 - exp(-1.5)) * 2, and more for the other; 0.01 s later loses almost nothing.
    for load_s, expected in ((0.01, Load(0, 0)), (2.0, Load(0, 1))):
        view = Occupancy(pool([2.0, 30.0, 20.0], slots=2, load_s=load_s))
        view.arrived(0, 0, 1.0, 1.0, 0.0)
        assert BenefitPlus().decide(view, None, 0.0, RNG) == expected


@pytest.mark.parametrize("name", policy_names("online"))
def test_decisions_leave_the_view_as_it_is(pool, name):
    view = wait(holding(pool([2.0, 30.0], slots=2), 0, 0), 1, 0)
    before = [dict(queue) for queue in view.waiting], list(view.holds), list(view.held)
    load_policy("online", name).decide(view, None, 0.0, RNG)
    assert ([dict(queue) for queue in view.waiting], list(view.holds), list(view.held)) == before


@pytest.mark.parametrize("params", [{"loads_ahead": 0.5}, {"catch_up": 1.5}, {"catch_up": float("nan")}])
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        PlusParams(**params)
    with pytest.raises(ValueError, match="hold_s"):
        HoldParams(hold_s=-1.0)
