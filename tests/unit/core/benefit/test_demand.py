import math

import pytest

from fpga_pool.core.benefit.occupancy import Demand


def test_rate_of_regular_arrivals_is_found_within_a_memory():
    demand = Demand([1.0, 1.0], memory_s=20.0)
    for i in range(101):
        demand.arrived(0, 1.0, 1.0, 0.5 * i)  # two a second for 50 s
    assert demand.rates(50.0) == pytest.approx([2.0, 0.0], rel=0.05)
    assert demand.offered(50.0)[0] == pytest.approx(2.0, rel=0.05)


def test_single_arrival_says_little_where_others_are_frequent():
    demand = Demand([1.0, 1.0], memory_s=20.0)
    for i in range(101):
        demand.arrived(0, 1.0, 1.0, 0.5 * i)
    demand.arrived(1, 1.0, 1.0, 50.0)
    # 37.2 and 1 arrivals weigh in, 19.1 in the mean; of 18.4 s: (37.2 + 1) / (18.4 * (1 + 1 / 19.1)) and 2 / 19.3.
    assert demand.rates(50.0) == pytest.approx([1.98, 0.103], rel=0.01)


def test_function_that_is_not_asked_for_any_more_is_forgotten():
    demand = Demand([1.0], memory_s=20.0)
    for i in range(100):
        demand.arrived(0, 1.0, 1.0, float(i))
    # After one more memory time, 1/e of the weight is left.
    assert demand.rates(99.0 + 20.0)[0] == pytest.approx(demand.rates(99.0)[0] / math.e, rel=0.02)


def test_workload_that_changes_loses_its_benefit():
    demand = Demand([10.0], memory_jobs=4.0)
    for _ in range(4):
        demand.ran(0, 2.0)
    # 2 + 8 * (3/4)^4 = 4.53
    assert demand.speedup[0] == pytest.approx(4.53, abs=0.01)


def test_what_one_tenant_lost_is_not_lost_for_another():
    demand = Demand([10.0], memory_jobs=4.0)
    for _ in range(50):
        demand.ran(0, 2.0, "a")
    assert demand.expected(0, "a") == pytest.approx(2.0, abs=0.01)
    assert demand.expected(0, "b") == 10.0
    # Only jobs of b arrive, so the function's speedup returns: 2 + 8 * (1 - (3/4)^4) = 7.47.
    for i in range(4):
        demand.arrived(0, 1.0, 1.0, float(i), "b")
    assert demand.speedup[0] == pytest.approx(7.47, abs=0.01)


def test_runs_as_expected_teach_nothing():
    demand = Demand([10.0])
    demand.ran(0, 10.0, "a")
    assert demand.speedup == [10.0]
    assert demand.expected(0, "a") == 10.0


def test_more_jobs_than_slots_are_there_as_poisson_says():
    demand = Demand([1.0], memory_s=20.0)
    for i in range(400):
        demand.arrived(0, 1.0, 1.0, 0.5 * i)
    # Two jobs on average: the probability of more than one is 1 - exp(-2) (1 + 2) = 0.594.
    assert demand.more_than(1, 0, 199.5) == pytest.approx(0.594, abs=0.02)
    assert demand.more_than(0, 0, 199.5) > demand.more_than(1, 0, 199.5) > demand.more_than(2, 0, 199.5)


def test_function_that_nobody_has_asked_for_is_as_likely_as_those_asked_for_once():
    demand = Demand([1.0, 1.0, 1.0])
    # Before the first job the demand is for 6 slots, 2 per function; P(more than 0 of a Poisson of 2) = 1 - exp(-2).
    assert demand.likely_more_than(0, 1, 0.0, of=6) == pytest.approx(1 - math.exp(-2))
    for at_s in (0.0, 0.0, 3.0):
        demand.arrived(0, 1.0, 1.0, at_s)
    # Two functions are left, and none was requested only once.
    assert demand.likely_more_than(0, 1, 3.0, of=6) == 0.0
    demand.arrived(2, 1.0, 1.0, 3.0)
    # (6 + 4 jobs of 1 s) / (1 + 3 s) = 2.5 slots; one of four jobs was the first of its kind: 0.625 for function 1.
    assert demand.likely_more_than(0, 1, 3.0, of=6) == pytest.approx(1 - math.exp(-0.625))
    assert demand.likely_more_than(0, 0, 3.0, of=6) == demand.more_than(0, 0, 3.0)
