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

#: Time in seconds that 300 MB take at 1 Gbit/s on the wire.
T_S = 300e6 * 8 / (GOODPUT * 1e9)


def improvement_percent(case, policy):
    return 100 * (1 - predict(case, "ect").makespan_s / predict(case, policy).makespan_s)


def test_a_full_segment_carries_1448_of_1514_bytes():
    assert pytest.approx(1448 / 1514) == GOODPUT


def test_word_count_takes_all_bytes_over_both_ingress_links():
    # 1800 MB at 1500 Mbit/s take four times as long as 300 MB at 1000 Mbit/s. The slow responder gets two of 300 MB.
    assert optimum_s(WORDCOUNT.problem()) == pytest.approx(4 * T_S)
    assert predict(WORDCOUNT, "ect").makespan_s == pytest.approx(4 * T_S)
    assert predict(WORDCOUNT, "ect").plan.accelerator.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("policy", "makespan_s", "percent"),
    [
        ("sjf", 5 * T_S, 20.0),  # the fast responder gets 300, 300 and 900 MB; paper: 19.56 %
        ("ljf", 6 * T_S, 100 / 3),  # the slow responder gets 900 MB, which take twice as long; paper: 33.72 %
    ],
)
def test_word_count_under_the_baselines(policy, makespan_s, percent):
    assert predict(WORDCOUNT, policy).makespan_s == pytest.approx(makespan_s)
    assert improvement_percent(WORDCOUNT, policy) == pytest.approx(percent)


def test_rate_control_changes_nothing_for_word_count():
    # A shared link is equally busy for any shares, and no work is left when the last byte arrives.
    prediction = predict(WORDCOUNT, "ect")
    assert prediction.uncontrolled_s == pytest.approx(prediction.makespan_s)


def test_dnn_as_in_the_paper_ljf_is_optimal_and_sjf_a_quarter_worse():
    # A job takes c per photo for transfer and computation. Optimum: 18000 photos on one, three times 6000 on the other.
    # With SJF: 6000 and 6000 on one, 6000 and 18000 on the other, so 24000 (paper: 25.80 %).
    assert improvement_percent(DNN, "sjf") == pytest.approx(25.0)
    assert improvement_percent(DNN, "ljf") == pytest.approx(0.0, abs=1e-9)
    assert predict(DNN, "ect").makespan_s == pytest.approx(optimum_s(DNN.problem()))
    assert optimum_s(DNN.problem()) == pytest.approx(3.0 + 18000 * 2048 * 8 / (GOODPUT * 1e9))


def test_competition_without_rate_control_ends_half_as_late_again():
    # Three jobs go to the fast responder. If they are sent one after the other, they arrive at t, 2t and 3t and end at
    # 4t. If they share the link, all arrive at 3t, and three computations of t follow.
    prediction = predict(COMPETITION, "ect")
    assert prediction.makespan_s == pytest.approx(4 * T_S)
    assert prediction.uncontrolled_s == pytest.approx(6 * T_S)
    assert optimum_s(COMPETITION.problem()) == pytest.approx(4 * T_S)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_smaller_scale_keeps_the_ratios(case):
    small = scaled(case, 0.125)
    assert optimum_s(small.problem()) == pytest.approx(optimum_s(case.problem()) / 8)
    assert all(size % case.unit_bytes == 0 for size in small.input_bytes)


# Competing flows ----------------------------------------------------------------------------------------------------


def test_fair_rates_leave_to_others_what_a_slow_link_cannot_take():
    # Requester 0 has two flows: one to the slow responder 1, which takes 2, and one that may use the rest of its
    # egress, 8. The latter shares the ingress of responder 0, 10, with requester 1, so both get 5.
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
    # Job 0 alone sends 4 of 8 bits until 0.5 s. Then both jobs send 4 bit/s, and job 0 ends at 1.5 s. The other 4 bits
    # of job 1 follow at 8 bit/s. Job 2 needs no time.
    assert competing_arrivals_s(problem, np.array([0, 0, 0])).tolist() == pytest.approx([1.5, 2.0, 0.25])
