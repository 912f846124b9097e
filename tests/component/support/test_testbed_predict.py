import numpy as np
import pytest

from fpga_pool.core.types import BatchProblem
from support.testbed.cases import (
    CASES,
    COMPETITION,
    DNN,
    GOODPUT,
    WORDCOUNT,
    competing_arrivals_s,
    fair_rates_bps,
    optimum_s,
    predict,
    scaled,
)

#: Seconds that 300 MB take at 1 Gbit/s on the wire.
T_S = 300e6 * 8 / (GOODPUT * 1e9)


def improvement_percent(case, policy):
    return 100 * (1 - predict(case, "ect").makespan_s / predict(case, policy).makespan_s)


def test_a_full_segment_carries_1448_of_1514_bytes():
    assert pytest.approx(1448 / 1514) == GOODPUT


def test_word_count_takes_all_bytes_over_both_ingress_links():
    # 1800 MB over 1500 Mbit/s: four times 300 MB over 1000; the slow responder gets two of 300 MB.
    assert optimum_s(WORDCOUNT.problem()) == pytest.approx(4 * T_S)
    assert predict(WORDCOUNT, "ect").makespan_s == pytest.approx(4 * T_S)
    assert predict(WORDCOUNT, "ect").plan.accelerator.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("policy", "makespan_s", "percent"),
    [
        ("sjf", 5 * T_S, 20.0),  # the fast responder gets 300, 300 and 900 MB; paper: 19.56 %
        ("ljf", 6 * T_S, 100 / 3),  # the slow one gets 900 MB, twice as long; paper: 33.72 %
    ],
)
def test_word_count_under_the_baselines(policy, makespan_s, percent):
    assert predict(WORDCOUNT, policy).makespan_s == pytest.approx(makespan_s)
    assert improvement_percent(WORDCOUNT, policy) == pytest.approx(percent)


def test_rate_control_changes_nothing_for_word_count():
    # Whoever shares a link, it is as busy; and nothing is left to do when the last byte is there.
    prediction = predict(WORDCOUNT, "ect")
    assert prediction.uncontrolled_s == pytest.approx(prediction.makespan_s)


def test_dnn_as_in_the_paper_ljf_is_optimal_and_sjf_a_quarter_worse():
    # A job takes c per photo, transfer and compute; optimum: 18000 on one, three times 6000 on the other.  SJF: 6000
    # and 6000 on one, 6000 and 18000 on the other, so 24000 (paper: 25.80 %).
    assert improvement_percent(DNN, "sjf") == pytest.approx(25.0)
    assert improvement_percent(DNN, "ljf") == pytest.approx(0.0, abs=1e-9)
    assert predict(DNN, "ect").makespan_s == pytest.approx(optimum_s(DNN.problem()))
    assert optimum_s(DNN.problem()) == pytest.approx(3.0 + 18000 * 2048 * 8 / (GOODPUT * 1e9))


def test_competition_without_rate_control_ends_half_as_late_again():
    # Three jobs go to the fast responder.  One after the other they arrive at t, 2t and 3t and end at 4t; together they
    # all arrive at 3t, and three computations of t follow.
    prediction = predict(COMPETITION, "ect")
    assert prediction.makespan_s == pytest.approx(4 * T_S)
    assert prediction.uncontrolled_s == pytest.approx(6 * T_S)
    assert optimum_s(COMPETITION.problem()) == pytest.approx(4 * T_S)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_smaller_scale_keeps_the_ratios(case):
    small = scaled(case, 0.125)
    assert optimum_s(small.problem()) == pytest.approx(optimum_s(case.problem()) / 8)
    assert all(size % case.unit_bytes == 0 for size in small.input_bytes)


# Flows that compete -------------------------------------------------------------------------------------------------


def test_fair_rates_leave_to_others_what_a_slow_link_cannot_take():
    # Two flows from requester 0, one of them to the slow responder 1 (2), the other one gets the rest of its egress;
    # requester 1 shares responder 0 with it: of 10 both get 5, egress 10 - 2 = 8 is not what holds.
    rates = fair_rates_bps(np.array([10.0, 10.0]), np.array([10.0, 2.0]), np.array([0, 0, 1]), np.array([1, 0, 0]))
    assert rates.tolist() == pytest.approx([2.0, 5.0, 5.0])


def test_a_flow_without_limits_does_not_hold_up_the_others():
    rates = fair_rates_bps(np.array([np.inf, 8.0]), np.array([np.inf, 4.0]), np.array([0, 1]), np.array([0, 1]))
    assert rates.tolist() == [np.inf, 4.0]


def test_inputs_that_compete_share_from_their_release_on():
    problem = BatchProblem(
        seconds=np.zeros((3, 1)),
        input_bytes=[1, 1, 0],
        requester=[0, 1, 0],
        egress_bps=[8.0, 8.0],
        responder=[0],
        ingress_bps=[8.0],
        release_s=[0.0, 0.5, 0.25],
    )
    # Job 0 alone sends 4 of 8 bits by 0.5 s, then both send 4 bit/s: it ends at 1.5 s, and job 1's other 4 bits follow
    # at 8 bit/s.  Job 2 needs no time.
    assert competing_arrivals_s(problem, np.array([0, 0, 0])).tolist() == pytest.approx([1.5, 2.0, 0.25])
